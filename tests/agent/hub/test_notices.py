"""Notices: what no node is told before a rank has been seen."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.hub.sessions import HUNG, Hub


def nobody_starts(hub: Hub, times: int) -> None:
    """Beats without a rank, until the hub has asked so many times for evidence, and gets it."""
    while len(hub.wires[0].got("collect")) < times:
        hub.beats()
        hub.ticks(1.0)
    hub.answers(0)
    hub.answers(1)


def test_before_any_rank_is_seen_the_hub_says_that_it_waits(hub: Hub) -> None:
    """Every minute, and nobody gets a notice; after five minutes it may hang, and they do."""
    for minute in range(1, 6):
        assert [] == hub.wires[0].got("notice")
        nobody_starts(hub, minute)

    said = [text for text in hub.events if text.startswith("waiting for the ranks to start")]
    assert 4 == len(said)
    assert "waiting for the ranks to start: none has been seen for 60 s" == said[0]
    (notice,) = hub.wires[1].got("notice")
    assert ["unknown"] == [each["code"] for each in notice["verdicts"]]


def test_ranks_that_start_late_are_no_job_that_moves_again(hub: Hub) -> None:
    """Nothing was noticed, so nothing has passed."""
    nobody_starts(hub, 1)
    hub.beats(*(replace(each, stuck_for=0.0, still_for=0.0) for each in HUNG))
    hub.ticks(1.0)

    assert hub.events[-1].startswith("waiting for the ranks to start")
    assert [] == hub.wires[0].got("notice")
