"""A job that is ended from outside: what is known before, and what is said."""

from __future__ import annotations

import asyncio

from tests.agent.diagnosis.build import NOW, dead, in_evaluate, raised, rank
from tests.agent.hub.sessions import Hub, Wire, beat

from ddplaunch.agent.contract import Exit, NodeEvidence, codec
from ddplaunch.agent.contract.messages import Ending
from ddplaunch.agent.hub.launch_attempts import SETTLE


def test_stop_takes_evidence_first(hub: Hub) -> None:
    """Told to stop: evidence of all, then the end with its own code."""
    asyncio.run(hub.handler.stop("cancelled"))
    assert [] == hub.wires[0].got("end")
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, rank(2), rank(3))

    assert [Exit.STOPPED] == [end["exit_code"] for end in hub.wires[1].got("end")]
    assert hub.record.evidence is not None
    hub.finish(Exit.STOPPED, Exit.STOPPED)
    assert Exit.STOPPED == hub.record.exit_code


def test_nobody_waits_for_ranks_that_are_being_ended(hub: Hub) -> None:
    """They move, and are not what the others wait for."""
    ranks = [beat(0, 8, waits=False), beat(1, 8), beat(2, 8), beat(3, 8)]
    hub.beats(*ranks)
    assert [([1], [0]), ([2, 3], [])] == [
        (node.waits.ranks, node.waits.others) for node in hub.record.nodes.values() if node.waits
    ]

    asyncio.run(hub.handler.stop("cancelled"))
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.beats(*ranks)

    assert [None, None] == [node.waits for node in hub.record.nodes.values()]


def ending(hub: Hub) -> Wire:
    """Somebody says that the time limit is near, and waits for what is known."""
    asker = Wire()
    asyncio.run(hub.handler.received(asker, Ending("time limit")))  # type: ignore[arg-type]
    return asker


def test_a_job_that_is_about_to_be_ended_is_told_how_far_it_was(hub: Hub) -> None:
    """Nothing is wrong: a notice with the reason and the counts, and the job goes on until Slurm ends it."""
    asker = ending(hub)
    hub.answers(0, rank(0, still_for=0.1, stuck_for=0.1), rank(1, still_for=0.1, stuck_for=0.1))
    hub.answers(1, rank(2, still_for=0.1, stuck_for=0.1), rank(3, still_for=0.1, stuck_for=0.1))

    ((verdict,),) = [notice["verdicts"] for notice in hub.wires[1].got("notice")]
    assert "node-evicted" == verdict["code"]
    assert (
        "the job is being ended from outside: time limit; ranks 0-3 have called 17 collectives"
        == verdict["sentence"]
    )
    assert [["node-evicted"]] == [[v.code for v in bundle.verdicts] for bundle in asker.bundles()]
    hub.death(0, dead(0, 0, signal=15))
    hub.answers(0, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.ticks(SETTLE + 0.5)
    assert [Exit.STOPPED] == [end["exit_code"] for end in hub.wires[1].got("end")]
    assert ["node-evicted"] == [verdict.code for verdict in hub.record.verdicts]


def test_a_job_that_hangs_when_its_time_is_over_is_called_hung(hub: Hub) -> None:
    """More time would not have helped."""
    ending(hub)
    hub.answers(0, rank(0, in_evaluate(), called=16), rank(1))
    hub.answers(1, rank(2), rank(3))

    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]


def test_a_rank_that_fails_on_its_own_before_the_end_is_the_verdict(hub: Hub) -> None:
    """A job may still fail by itself in the minute before its time limit."""
    ending(hub)
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.death(0, dead(0, 0, code=1, raised=[raised("ValueError", "bad batch", 0)]))
    hub.answers(0, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.ticks(SETTLE + 0.5)
    hub.fails(0)

    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[1].got("end")]
    assert ["rank-failed"] == [verdict.code for verdict in hub.record.verdicts]


def test_a_node_that_was_stopped_stops_the_job(hub: Hub) -> None:
    """A scheduler's SIGTERM on one node is the end of all; what the node saw before is in the bundle."""
    hub.says(0, "evidence", {"id": 0, "evidence": codec.dump(NodeEvidence(0, "n0", NOW, "running", []))})
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.STOPPED})
    told = [end["exit_code"] for end in hub.wires[1].got("end")]
    assert ([Exit.STOPPED], "stop") == (told, getattr(hub.record.bundle().evidence, "why", ""))
