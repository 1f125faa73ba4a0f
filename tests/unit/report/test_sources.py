"""What a verdict rests on, and what could not be seen."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Lost, RankEvidence
from ddplaunch.report import Diagnosis, sources
from ddplaunch.report.pictures import Scene
from ddplaunch.report.sources import Source


def scene(ranks: list[RankEvidence], **changes: object) -> Scene:
    """Of these ranks."""
    bundle = stuck.bundle(ranks)
    assert bundle.evidence is not None
    evidence = dataclasses.replace(bundle.evidence, **changes)  # type: ignore[arg-type]
    return Scene(Diagnosis(given.job(), dataclasses.replace(bundle, evidence=evidence), []))


def test_a_source_is_listed_with_the_ranks_of_which_it_gave_something() -> None:
    """And a source that gave nothing is not."""
    ranks = stuck.mismatch()
    ranks[0] = dataclasses.replace(ranks[0], stack_source="py-spy", collectives=[])
    found = sources.sources(scene(ranks))

    assert Source("py-spy", "stacks of all threads", "rank 0") in found
    assert (
        Source("torch's flight recorder", "collectives, with their numbers and states", "ranks 1-3") in found
    )
    assert "/proc" not in [each.name for each in found]


def test_what_could_not_be_seen_is_named() -> None:
    """Silent nodes, ranks without a stack, and what a node was not permitted."""
    ranks = stuck.mismatch()
    ranks[1] = dataclasses.replace(ranks[1], stacks=[], calls=[], collectives=[])
    found = sources.unseen(scene(ranks, silent=[4, 5], lost=[Lost(5, given.AT)]))

    assert [
        "node 5 stopped answering before the evidence was taken.",
        "node 4 gave no evidence in time.",
        "Of rank 1 no stack could be taken.",
        "Of rank 1 no calls of torch.distributed are recorded.",
    ] == found
