"""What somebody who waits gets to see of a job's lines."""

from __future__ import annotations

from ddplaunch.cli.follow import VerdictFilter


def test_a_verdict_of_all_supervisors_is_shown_once() -> None:
    """One node speaks the verdict for all, in one piece; ranks' lines and a node's own news are all shown."""
    lines = [
        ("[1/ddplaunch] ---- ddplaunch notice ----", True),
        ("[0/ddplaunch] ---- ddplaunch notice ----", False),
        ("[1/ddplaunch] rank 3 is in load", True),
        ("[0/0] rank 3 is in load", True),
        ("[0/ddplaunch] rank 3 is in load", False),
        ("[0/ddplaunch] --------", False),
        ("[1/ddplaunch] --------", True),
        ("[0/ddplaunch] torchrun ended with 1", True),
        ("[0/ddplaunch] ---- ddplaunch verdict ----", False),
        ("[1/ddplaunch] ---- ddplaunch verdict ----", True),
        ("[0/ddplaunch] rank 3 is in load", False),
        ("[1/ddplaunch] rank 3 is in load", True),
        ("[1/1] epoch 1", True),
    ]
    news = VerdictFilter()

    assert lines == [(line, news(line)) for line, _ in lines]


def test_a_hub_that_speaks_first_speaks_for_all() -> None:
    """On a cluster its words stand among the nodes' own."""
    lines = [
        ("[hub] 12:00:00 node 1 checked in", True),
        ("[hub] ---- ddplaunch verdict ----", True),
        ("[0/ddplaunch] ---- ddplaunch verdict ----", False),
        ("[hub] node 1 cannot reach node 0", True),
        ("[0/ddplaunch] node 1 cannot reach node 0", False),
        ("[0/ddplaunch] --------", False),
        ("[hub] --------", True),
    ]
    news = VerdictFilter()

    assert lines == [(line, news(line)) for line, _ in lines]
