"""What somebody who waits gets to see of a job's verdicts."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.backends.job import Handle
from ddplaunch.cli.follow import Frames

LONG = Verdict.of(
    "collective-mismatch",
    "at collective 42 rank 0 called barrier (broken.py:31), the others all_reduce [17258] (train.py:74)",
    "run",
    ranks=[0],
    facts=[
        "rank 0: collective 42 is barrier (broken.py:31), and it is a fact that takes more than one line here"
    ],
)
NOTICE = verdict_text.block([LONG], final=False)
VERDICT = verdict_text.block([LONG], final=True)
MORE = "`ddplaunch diagnose local://a/1` has the facts"
TOLD = f"ddplaunch: nothing moves; the job goes on: {LONG.code}: {LONG.sentence}; {MORE}"


@pytest.fixture(name="frames")
def _frames() -> Frames:
    return Frames(Handle("local", "a/1"))


def said(who: str, lines: list[str]) -> list[str]:
    """The lines with their speaker, as a job's output has them."""
    return [f"[{who}] {line}" for line in lines]


def shown(frames: Frames, lines: list[str]) -> list[str]:
    """What is shown of the lines."""
    return [each for line in lines for each in frames.shown(line)]


def test_a_notice_of_all_nodes_is_one_sentence(frames: Frames) -> None:
    """Its facts and its hint are a command away, since the end shows them, too."""
    first, second = said("1/ddplaunch", NOTICE), said("0/ddplaunch", NOTICE)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]

    assert [TOLD] == shown(frames, mixed)
    assert [] == frames.released()


def test_the_same_notice_again_is_news(frames: Frames) -> None:
    """The job has moved in between."""
    twice = [*said("0/ddplaunch", NOTICE), *said("1/ddplaunch", NOTICE)] * 2

    assert [TOLD, TOLD] == shown(frames, twice)


def test_a_node_speaks_when_the_one_that_spoke_is_gone(frames: Frames) -> None:
    """Whoever says it first says it for all."""
    other = verdict_text.block([Verdict.of("rank-failed", "rank 1 raised ValueError", "run")], final=False)
    lines = shown(frames, [*said("0/ddplaunch", NOTICE), *said("1/ddplaunch", other)])

    assert [TOLD, f"ddplaunch: the job goes on: rank-failed: rank 1 raised ValueError; {MORE}"] == lines


def test_other_lines_pass(frames: Frames) -> None:
    """Those of ranks even where they look like a frame, and a node's own before and behind one."""
    others = [
        "[0/0] ---- ddplaunch verdict",
        "[0/0] epoch 1",
        "[1/ddplaunch] torchrun ended with 1",
        "[hub] x",
    ]

    assert others == shown(frames, [*others[:3], *said("1/ddplaunch", VERDICT), others[3]])


def test_the_verdict_is_left_to_the_end(frames: Frames) -> None:
    """It is there once for a job that comes back, or that left no evidence."""
    lines = [*said("hub", VERDICT), *said("0/ddplaunch", VERDICT)]

    assert [] == shown(frames, lines)
    assert (VERDICT, []) == (frames.released(), frames.released())


def test_a_verdict_that_breaks_off_is_not_lost(frames: Frames) -> None:
    """The node was ended while it spoke."""
    assert [] == shown(frames, said("0/ddplaunch", VERDICT[:3]))
    assert VERDICT[:3] == frames.released()
