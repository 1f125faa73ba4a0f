"""A job that is stopped from outside: nodes that are told to stop, the signal to the ranks, the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, PEER_GONE, dead, in_evaluate, raised, rank
from tests.agent.hub.sessions import BUSY, Hub, Wire, beat

from ddplaunch.agent.contract import Env, Exit, Files, NodeEvidence, SignalPlan, codec
from ddplaunch.agent.contract.messages import Ending
from ddplaunch.agent.hub.attempts import SETTLE
from ddplaunch.agent.hub.closing import TOGETHER


def told(hub: Hub, node: int) -> None:
    """SIGTERM, and the evidence that its supervisor takes before it passes it on."""
    hub.says(node, "stopping", {"why": "SIGTERM"})
    evidence = NodeEvidence(node, f"n{node}", NOW, "running", [rank(2 * node), rank(2 * node + 1)])
    hub.says(node, "evidence", {"id": 0, "evidence": codec.dump(evidence)})


def test_a_pod_that_is_deleted_is_named_to_the_others(hub: Hub) -> None:
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    ((notice,),) = [each["verdicts"] for each in hub.wires[0].got("notice")]
    assert ("node-evicted", [1], [0, 1]) == (notice["code"], notice["nodes"], notice["victims"])
    assert notice["sentence"].startswith("node 1 was told to stop by SIGTERM, and the others were not")
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    (end,) = hub.wires[0].got("end")
    assert (Exit.STOPPED, ["node-evicted"]) == (end["exit_code"], [each["code"] for each in end["verdicts"]])
    evidence = hub.record.evidence
    assert evidence is not None
    assert [0, 1] == [node.node for node in evidence.evidence]
    assert 2 == len(evidence.evidence[1].ranks)


def test_a_pod_that_ends_at_once_is_named_too(hub: Hub) -> None:
    """Its part is over before it is plain that nobody else is told; the end waits for that."""
    told(hub, 1)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    assert [] == hub.wires[0].got("end")
    hub.ticks(TOGETHER + 0.2)

    (end,) = hub.wires[0].got("end")
    assert ["node-evicted"] == [each["code"] for each in end["verdicts"]]


def test_what_the_others_die_of_is_the_eviction(hub: Hub) -> None:
    """A rank of another node that is killed over it is no cause, however early it dies."""
    told(hub, 1)
    hub.death(0, dead(0, 0, signal=9))
    hub.answers(0, rank(1))
    hub.ticks(SETTLE + 0.3)
    assert [] == hub.wires[0].got("end")
    hub.ticks(TOGETHER)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    (end,) = hub.wires[0].got("end")
    assert ["node-evicted"] == [each["code"] for each in end["verdicts"]]


def test_nodes_that_have_ended_are_not_waited_for(hub: Hub) -> None:
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    assert [] == hub.wires[0].got("end")
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.WORKER_FAILED})
    hub.ticks(SETTLE + 0.3)

    assert Exit.STOPPED == hub.record.exit_code


def test_a_job_that_is_cancelled_is_not_called_evicted(hub: Hub) -> None:
    """All nodes are told within a moment: nobody asks why, and nobody waits for more."""
    told(hub, 0)
    told(hub, 1)
    hub.finish(Exit.STOPPED, Exit.STOPPED)

    assert (Exit.STOPPED, []) == (hub.record.exit_code, hub.record.verdicts)


def test_a_job_that_hung_before_is_called_hung(hub: Hub) -> None:
    """Somebody deletes a pod of a job that stands still: that is not what was wrong with it."""
    hub.says(0, "beat", {"beat": {"node": 0, "phase": "running", "at": NOW, "ranks": []}})
    hub.handler._request("asked", hub.now)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]


def test_a_node_that_has_finished_hears_when_the_others_have_too(hub: Hub) -> None:
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.OK})
    assert [] == hub.wires[0].got("end")
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.OK})
    hub.ticks(0.2)

    assert [Exit.OK] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_where_torchruns_agents_can_do_without_it_the_others_go_on(hub: Hub) -> None:
    """What their ranks die of is its end; the agents start them again, and the job ends as they do."""
    hub.agents_decide(least=1)
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    hub.death(0, dead(0, 0, code=1, raised=[raised("RuntimeError", PEER_GONE, 0)]))
    hub.answers(0, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.ticks(SETTLE + 0.5)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    hub.starts_again(0, 1, replace(BUSY[0], pid=3000))
    assert [] == hub.wires[0].got("end")
    hub.finish(Exit.OK)

    assert (Exit.OK, []) == (hub.record.exit_code, hub.record.verdicts)


SIGNAL = SignalPlan("SIGUSR1", 60.0)


Jobs = Callable[..., Hub]


@pytest.fixture(name="jobs")
def _jobs(tmp_path: Path) -> Iterator[Jobs]:
    """A function that makes a hub of two nodes, which may have the signal."""
    made: list[Hub] = []

    def make(**plan: Any) -> Hub:
        made.append(Hub(tmp_path, **plan))
        return made[-1]

    yield make
    for hub in made:
        hub.record.close()


def ends_in(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The time limit is so far away, as a job on this machine knows it."""
    monkeypatch.setenv(Env.ENDS_AT, str(time.time() + seconds))


def asked(hub: Hub) -> list[int]:
    """How often each node was asked to signal its ranks."""
    return [len(wire.got("signal-ranks")) for wire in hub.wires]


def texts(hub: Hub) -> list[str]:
    """What was said of it."""
    return [event.text for event in hub.record.bundle().events if event.kind == "signal"]


def test_the_signal_comes_once_in_time_before_the_limit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_in(monkeypatch, 90)
    hub = jobs(signal=SIGNAL, time_limit=90.0)
    hub.ticks(28)
    assert [0, 0] == asked(hub)
    assert not Path(hub.record.path(Files.SIGNALLED)).exists()

    ends_in(monkeypatch, 60)
    hub.ticks(3)
    assert [1, 1] == asked(hub)
    for node in (0, 1):
        hub.says(node, "signalled", {"sent": 2})
    hub.ticks(20)

    assert [1, 1] == asked(hub)
    assert ["sent USR1 to 4 ranks: 60 s before the time limit"] == texts(hub)
    assert texts(hub) == [hub.record.status().signal]
    assert "60 s before the time limit\n" == Path(hub.record.path(Files.SIGNALLED)).read_text()


def test_a_limit_that_was_extended_is_asked_for_again(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scontrol update TimeLimit=…` while the job runs."""
    ends_in(monkeypatch, 62)
    hub = jobs(signal=SIGNAL)
    ends_in(monkeypatch, 300)
    hub.ticks(30)

    assert [0, 0] == asked(hub)


def test_ranks_without_a_handler_are_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_in(monkeypatch, 60)
    hub = jobs(signal=SIGNAL)
    hub.ticks(1)
    hub.says(0, "signalled", {"sent": 1, "deaf": [1]})
    hub.says(1, "signalled", {"sent": 2})
    hub.ticks(1)
    assert ["sent USR1 to 3 ranks: 60 s before the time limit; rank 1 has no handler for it"] == texts(hub)

    hub.says(0, "signalled", {"sent": 2})
    hub.ticks(1)
    assert "sent USR1 to 4 ranks: 60 s before the time limit, to 1 of them later" == texts(hub)[-1]


def test_the_signal_is_sent_at_once_when_the_end_is_announced_without_a_time(jobs: Jobs) -> None:
    hub = jobs(signal=SIGNAL)
    hub.ticks(30)
    assert [0, 0] == asked(hub)

    asyncio.run(hub.handler.received(Wire(), Ending("preempted")))  # type: ignore[arg-type]
    hub.ticks(1)

    assert [1, 1] == asked(hub)


def test_a_job_without_a_signal_in_its_file_gets_none(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_in(monkeypatch, 1)
    hub = jobs(platform="kubernetes")
    asyncio.run(hub.handler.received(Wire(), Ending("preempted")))  # type: ignore[arg-type]
    hub.says(1, "stopping", {"why": "SIGTERM"})
    hub.ticks(3)

    assert ([0, 0], [], None) == (asked(hub), texts(hub), hub.record.status().signal)
    assert not Path(hub.record.path(Files.SIGNALLED)).exists()


@pytest.mark.parametrize(("platform", "times"), [("kubernetes", 1), ("slurm", 0)])
def test_all_ranks_get_the_signal_when_one_pod_is_deleted(jobs: Jobs, platform: str, times: int) -> None:
    """A checkpoint is written together. On other platforms SIGTERM to one node is an end at once."""
    hub = jobs(signal=SIGNAL, platform=platform)
    hub.says(1, "stopping", {"why": "SIGTERM"})
    hub.ticks(1)

    assert [times, times] == asked(hub)


def test_a_node_that_joins_later_gets_the_signal_too(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_in(monkeypatch, 60)
    hub = jobs(signal=SIGNAL)
    hub.ticks(1)
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [1, 2] == asked(hub)


def failed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, *, signalled: bool) -> Hub:
    """Node 1 has ended with a failure, maybe after the signal; the evidence of it is there."""
    ends_in(monkeypatch, 60 if signalled else 600)
    hub = jobs(signal=SIGNAL)
    hub.ticks(1)
    hub.death(1, dead(2, 9.5, 3))
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, dead(2, 9.5, 3), rank(3))
    hub.fails(1)
    hub.ticks(SETTLE + 2.0)
    return hub


def test_other_ranks_have_time_for_their_handlers(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that ends, by whatever exit code, ends no other that writes a checkpoint."""
    hub = failed(jobs, monkeypatch, signalled=True)
    hub.ticks(30)
    assert [] == hub.wires[0].got("end")

    hub.ticks(20)
    if hub.wires[0].got("collect"):
        hub.answers(0, rank(0), rank(1))
    hub.ticks(5)
    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[0].got("end")]


@pytest.mark.parametrize(("signal", "code"), [(SIGNAL, Exit.STOPPED), (None, Exit.WORKER_FAILED)])
def test_a_handler_may_end_its_rank_by_any_code(jobs: Jobs, signal: SignalPlan | None, code: int) -> None:
    """Where a pod is deleted, ranks elsewhere that end so have not failed: the job is stopped."""
    hub = jobs(signal=signal, platform="kubernetes")
    hub.says(1, "stopping", {"why": "SIGTERM"})
    for _ in range(3):
        for node in (0, 1):
            if hub.wires[node].got("collect"):
                hub.answers(node, dead(0, 9.5, 3), dead(1, 9.5, 3)) if node == 0 else hub.answers(
                    1, rank(2), rank(3)
                )
        hub.death(0, dead(0, 9.5, 3))
        hub.ticks(3)
    hub.finish(code, Exit.STOPPED)
    hub.ticks(20)
    assert code == hub.handler.closing.exit_code


def test_without_the_signal_a_failure_ends_them_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = failed(jobs, monkeypatch, signalled=False)
    hub.ticks(5)

    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_a_job_that_is_stopped_gives_its_evidence_first(hub: Hub) -> None:
    asyncio.run(hub.handler.stop("cancelled"))
    assert [] == hub.wires[0].got("end")
    hub.both_answer()

    assert [Exit.STOPPED] == [end["exit_code"] for end in hub.wires[1].got("end")]
    assert hub.record.evidence is not None
    hub.finish(Exit.STOPPED, Exit.STOPPED)
    assert Exit.STOPPED == hub.record.exit_code


def test_a_stop_while_a_node_is_away_is_kept_until_the_node_is_back(hub: Hub) -> None:
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    asyncio.run(hub.handler.stop("cancelled"))
    hub.ticks(1)
    assert [] == hub.wires[0].got("collect")  # the lost node may be why somebody stops the job
    hub.wires[1] = Wire()
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})
    hub.ticks(0.2)
    hub.both_answer()

    assert [Exit.STOPPED] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_a_stop_while_a_node_leaves_is_kept_where_torchruns_agents_go_on_without_it(hub: Hub) -> None:
    hub.agents_decide(least=1)
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    asyncio.run(hub.handler.stop("cancelled"))
    hub.ticks(1)
    assert [] == hub.wires[0].got("end")
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    hub.ticks(0.2)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(0.2)

    assert [Exit.STOPPED] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_ranks_that_are_being_ended_are_in_no_ones_wait(hub: Hub) -> None:
    ranks = [beat(0, 8, waits=False), beat(1, 8), beat(2, 8), beat(3, 8)]
    hub.beats(*ranks)
    assert [([1], [0]), ([2, 3], [])] == [
        (node.waits.ranks, node.waits.others) for node in hub.record.nodes.values() if node.waits
    ]

    asyncio.run(hub.handler.stop("cancelled"))
    hub.both_answer()
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
    ending(hub)
    hub.both_answer(rank(0, in_evaluate(), called=16))

    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]


def test_a_rank_that_fails_on_its_own_before_the_end_is_the_verdict(hub: Hub) -> None:
    ending(hub)
    hub.both_answer()
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
