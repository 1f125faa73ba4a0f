"""Each fact with the records from which it was made, where they are known."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given
from tests.unit.report.cases import case
from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import AnyFact, Fact, Ras
from ddplaunch.agent.diagnosis.run import decide, devices
from ddplaunch.report import Diagnosis, html


def sources(*facts: AnyFact) -> dict[str, str]:
    """Each fact with its source."""
    return {fact.text: str(fact.source) for fact in facts if isinstance(fact, Fact)}


def test_a_fact_has_the_collector_the_ranks_and_the_place_in_the_bundle() -> None:
    """From the moment it is made."""
    view = stuck.view(stuck.bundle(stuck.mismatch()))
    facts = [*view.counts(), *view.whereabouts([0, 1, 2]), *view.line_shown(3, view.locations[3].site)]

    assert {
        "ranks 0-3 have called 2 collectives": "torch's process groups of ranks 0-3; groups of nodes 0-1 in "
        "bundle.json",
        "ranks 0-2 are in all_reduce 2 (train.py:9)": "stacks by hook of ranks 0-2; stacks of nodes 0-1 in "
        "bundle.json",
        "train.py:14: `dist.broadcast(x, 0)`": "the program's source of rank 3; lines of node 1 in "
        "bundle.json",
    } == sources(*facts)


def test_what_a_rule_says_of_calls_gpus_and_nccl_has_a_source() -> None:
    """The calls of each camp, the lines of a node's kernel and nvidia-smi, and NCCL's own word."""
    bundle = stuck.bundle(stuck.mismatch())
    assert bundle.evidence is not None
    (first, *others) = bundle.evidence.evidence
    first = dataclasses.replace(first, ras=Ras("2.30.7", 2, [], []), gpus=["0, A100, 99 %"])
    evidence = dataclasses.replace(bundle.evidence, evidence=[first, *others])
    view = stuck.view(dataclasses.replace(bundle, evidence=evidence))
    (verdict,) = decide.judge(evidence)
    found = sources(*verdict.because, *devices.gpu_facts(view, [0]))

    assert {
        "rank 3: collective 2 is broadcast [8] (train.py:14)": "torch's flight recorder and the hook's ring",
        "ranks 0-2: collective 2 is all_reduce [8] (train.py:9)": (
            "torch's flight recorder and the hook's ring"
        ),
        "NCCL RAS: equal counts of launched operations in all its communicators (2)": "NCCL's RAS",
        "node 0 (host0)'s nvidia-smi: 0, A100, 99 %": "the kernel's log and nvidia-smi",
    } == {fact: source.partition(" of ")[0] for fact, source in found.items() if source != "None"}


def test_a_rank_without_a_stack_is_no_source() -> None:
    ranks = [dataclasses.replace(rank, stacks=[], stack_source="") for rank in stuck.mismatch()]
    view = stuck.view(stuck.bundle(ranks))

    assert [None] == [fact.source for fact in view.whereabouts([3])]
    assert None is view.of_rank("rank 3: asleep", 3).source


def test_the_page_shows_it_behind_the_fact() -> None:
    """Of a rank in its own code: where it stands, and where the others wait."""
    diagnosis = case("busy")
    page = read(html.page(diagnosis)).text

    assert "(stacks by hook of ranks 0-2; stacks of nodes 0-1 in bundle.json)" in page
    bare = Diagnosis(given.job(), dataclasses.replace(stuck.bundle(stuck.mismatch()), evidence=None), [])
    assert "in bundle.json" not in html.page(bare)
