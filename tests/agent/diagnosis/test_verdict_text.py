"""A verdict as it stands in a log."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.system.subjects import node
from ddplaunch.agent.text.saying import Sayable, say

HANG = Verdict.of(
    "rank-in-dataloader",
    "rank 2 is in DataLoader.__next__",
    "run",
    nodes=[1],
    ranks=[2],
    victims=[0, 1, 3],
    facts=["rank 2 has called 4 collectives"],
    hint="Look at the storage.",
)


def test_a_notice() -> None:
    """Code and sentence, where, what it rests on, who only waits, what to do; framed."""
    first, *lines, last = verdict_text.block([HANG], final=False, names=["n1", "n2"])

    assert [
        "rank-in-dataloader: rank 2 is in DataLoader.__next__",
        "    rank 2: on node 1 (n2)",
        "    - rank 2 has called 4 collectives",
        "    victims: ranks 0-1, 3",
        "    hint: Look at the storage.",
        "    more: ddplaunch explain rank-in-dataloader",
    ] == lines
    assert first.startswith("---- ddplaunch notice: nothing moves; the job goes on ---")
    assert "-" * 100 == last


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(["127.0.0.1"] * 2, HANG.sentence), (["n1", "n2"], say("rank 2 on ", node(1, ["n1", "n2"]), " waits"))],
)
def test_a_place_that_is_known_is_not_told(names: list[str], sentence: Sayable) -> None:
    """On one machine there is one place; and no place is told twice."""
    verdict = Verdict.of(HANG.code, sentence, "run", nodes=[1], ranks=[2])

    assert not any("on node" in line for line in verdict_text.block([verdict], True, names)[2:])


@pytest.mark.parametrize(
    ("code", "final", "head"),
    [
        ("rank-in-dataloader", True, "ddplaunch verdict"),
        ("network-lost", False, "ddplaunch notice: the job goes on"),
        ("node-evicted", False, "ddplaunch notice: the job goes on"),
    ],
)
def test_what_it_is(code: str, final: bool, head: str) -> None:
    """Only a hang says that nothing moves; only an end is a verdict."""
    line, *_ = verdict_text.block([Verdict.of(code, "…", "run")], final)

    assert f"---- {head} -" in line
