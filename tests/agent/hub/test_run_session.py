"""The run desk: what it asks, whom it tells what, how the job ends. Time and connections are the test's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, PEER_GONE, dead, in_evaluate, raised, rank
from tests.agent.hub.sessions import BUSY, HUNG, Hub, Wire

from ddplaunch.agent.contract import Beat, Exit, JobEvidence, NodeEvidence, RankEvidence, Ras, Verdict, codec
from ddplaunch.agent.contract.bundle_file import MOST_DUMPS
from ddplaunch.agent.contract.messages import AskDiagnosis, Finished
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.hub.attempts import DOUBT, LAST, LEAVING, SETTLE
from ddplaunch.agent.hub.evidence import LATE, dump_room


def test_a_hang_is_a_notice_to_all_nodes_and_ends_none(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))

    for wire in hub.wires:
        (notice,) = wire.got("notice")
        (verdict,) = notice["verdicts"]
        seen = verdict["code"], verdict["ranks"], verdict["victims"]
        assert ("rank-in-user-code", [0], [1, 2, 3]) == seen
        assert [] == wire.got("end")
    assert hub.record.exit_code is None
    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]


def test_when_a_job_is_ended_for_a_hang_is_said_while_it_runs_and_not_afterwards(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    before = hub.record.verdicts[0].facts
    hub.record.end(Exit.STOPPED)

    assert [True] == ["the job will be ended at" in fact for fact in before[-1:]]
    assert before[:-1] == hub.record.verdicts[0].facts


def test_evidence_that_shows_movement_is_no_alarm(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.answers(0, rank(0, in_evaluate(), called=16, still_for=0.2, stuck_for=0.2), rank(1))
    hub.answers(1, rank(2), rank(3))

    assert [] == hub.wires[0].got("notice")
    assert [] == hub.record.verdicts


def test_a_node_that_does_not_answer_is_named(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(LATE + 0.5)

    (notice,) = hub.wires[0].got("notice")
    assert "missing: node 1 did not answer" in notice["verdicts"][0]["sentence"]


def test_at_kill_after_fresh_evidence_is_judged_before_the_end(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    hub.ticks(0.2)
    hub.beats(*(replace(each, stuck_for=61.0, still_for=61.0) for each in HUNG))
    hub.answers(0, rank(0, in_evaluate(), called=16, stuck_for=61.0, still_for=61.0), rank(1, stuck_for=61.0))
    assert [] == hub.wires[0].got("end")
    hub.answers(1, rank(2, stuck_for=61.0), rank(3, stuck_for=61.0))

    for wire in hub.wires:
        (end,) = wire.got("end")
        assert (Exit.HANG, "rank-in-user-code") == (end["exit_code"], end["verdicts"][0]["code"])
    assert hub.record.exit_code is None
    hub.finish(Exit.HANG, Exit.HANG)
    assert Exit.HANG == hub.record.exit_code


@pytest.mark.parametrize(
    ("number", "asked", "code"),
    [
        (11, {"ras": Ras("2.30.7", 1, [], [])}, "rank-in-user-code"),
        (11, {"missing": ["NCCL RAS: no whole answer in 2.5 s"]}, "rank-in-user-code"),
        (11, {}, "rank-killed"),
        (9, {"ras": Ras("2.30.7", 1, [], [])}, "rank-killed"),
    ],
)
def test_nccls_crash_when_asked_is_no_cause(hub: Hub, number: int, asked: dict[str, Any], code: str) -> None:
    """At the deadline NCCL is asked, which has crashed ranks: such an end is not why the job hangs.

    In a job without NCCL nobody asks, and a crash is the program's own.
    """
    late = rank(0, in_evaluate(), called=16, stuck_for=61.0, still_for=61.0)
    hub.beats(*(replace(each, stuck_for=61.0, still_for=61.0) for each in HUNG))
    hub.answers(0, late, rank(1, stuck_for=61.0), **asked)
    hub.death(0, dead(1, 0, signal=number))
    hub.answers(1, rank(2, stuck_for=61.0), rank(3, stuck_for=61.0))

    (end,) = hub.wires[0].got("end")
    assert code == end["verdicts"][0]["code"]


def test_moving_again_takes_the_verdict_back(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    hub.beats(*(replace(each, stuck_for=0.0, still_for=0.0, completed=17) for each in HUNG))

    assert [] == hub.record.verdicts
    assert "the job is moving again" == hub.events[-1]


def test_a_job_that_ends_well_before_its_next_heartbeat_takes_the_verdict_back(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    hub.finish(0, 0)

    assert [] == hub.record.verdicts
    assert ["the job is moving again", "all ranks have finished"] == hub.events[-2:]


def test_a_death_is_judged_once_other_nodes_have_reported_theirs(hub: Hub) -> None:
    failed = dead(3, 0, code=1, raised=[raised("ValueError", "bad batch", 0)])
    victim = dead(0, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 0.5)])
    hub.death(0, victim)
    hub.answers(0, victim, rank(1))
    hub.death(1, failed)
    hub.answers(1, rank(2), failed)
    assert [] == hub.wires[0].got("end")
    hub.ticks(SETTLE + 0.2)
    assert [] == hub.wires[0].got("notice") + hub.wires[0].got("end")
    hub.fails(1)

    for wire in hub.wires:
        assert [] == wire.got("notice")
        (end,) = wire.got("end")
        (verdict,) = end["verdicts"]
        seen = end["exit_code"], verdict["code"], verdict["ranks"], verdict["victims"]
        assert (Exit.WORKER_FAILED, "rank-failed", [3], [0, 1, 2]) == seen


def test_victims_alone_are_given_more_time(hub: Hub) -> None:
    """When all deaths so far are another's fault, the desk waits DOUBT seconds for that other."""
    victim = dead(0, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 0.5)])
    hub.death(0, victim)
    hub.answers(0, victim, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.ticks(SETTLE + 0.5)
    assert [] == hub.wires[0].got("end")
    hub.death(1, dead(3, 0, signal=9))
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.WORKER_FAILED})
    hub.ticks(DOUBT + LATE)

    (end,) = hub.wires[0].got("end")
    assert ("rank-killed", [3]) == (end["verdicts"][0]["code"], end["verdicts"][0]["ranks"])


def test_a_rank_that_is_about_to_end_is_waited_for(hub: Hub) -> None:
    """Its interpreter takes its time to end, and how it ends is what explains the victims."""
    victims = [dead(n, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 0.5)]) for n in (0, 2, 3)]
    hub.death(0, victims[0])
    hub.answers(0, victims[0], rank(1, [], phase="finalizing"))
    hub.answers(1, *victims[1:])
    for _ in range(3):
        hub.ticks(DOUBT + 0.2)
        hub.answers(0, victims[0], rank(1, [], phase="finalizing"))
        hub.answers(1, *victims[1:])
    assert [] == hub.wires[0].got("end")
    hub.death(0, dead(1, 0, code=0))
    hub.ticks(DOUBT + 0.2)
    hub.fails(0)

    (end,) = hub.wires[0].got("end")
    assert ("rank-exited-early", [1], [0, 2, 3]) == tuple(
        end["verdicts"][0][key] for key in ("code", "ranks", "victims")
    )


def test_a_rank_that_never_ends_is_not_waited_for_long(hub: Hub) -> None:
    victim = dead(0, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 0.5)])
    hub.death(0, victim)
    hub.answers(0, victim, rank(1))
    hub.answers(1, rank(2, [], phase="finalizing"), rank(3))
    hub.fails(0)
    for _ in range(int(LEAVING / DOUBT) + 1):
        hub.ticks(DOUBT + 0.2)
        hub.answers(1, rank(2, [], phase="finalizing"), rank(3))

    (end,) = hub.wires[0].got("end")
    assert "rank 0 was the first to fail" in end["verdicts"][0]["sentence"]


def test_the_clock_of_a_node_does_not_decide_who_was_first(hub: Hub) -> None:
    hub.says(1, "beat", {"beat": codec.dump(Beat(1, "running", NOW - 3600, []))})
    first = dead(0, 5, code=1, raised=[raised("ValueError", "the cause", 5)])
    then = raised("KeyError", "later", 6)
    later = dead(3, 6, code=1, raised=[replace(then, at=then.at - 3600)])
    assert later.exit is not None
    later = replace(later, exit=replace(later.exit, at=later.exit.at - 3600))
    hub.handler.evidence_store._clocks.note(0, NOW, NOW)
    hub.handler.evidence_store._clocks._ahead[1] = -3600.0
    hub.death(0, first)
    hub.death(1, later)
    hub.answers(0, first, rank(1))
    hub.answers(1, rank(2), later)
    hub.ticks(SETTLE + 0.2)
    hub.fails(0)

    assert [0] == hub.wires[0].got("end")[0]["verdicts"][0]["ranks"]


@pytest.mark.parametrize("code", [0, None])
def test_a_rank_that_ends_well_or_without_an_exit_code_has_not_failed(hub: Hub, code: int | None) -> None:
    hub.death(1, dead(3, 0, code=code))
    hub.ticks(SETTLE + DOUBT + LATE)
    assert [] == hub.wires[0].got("end") + (hub.wires[0].got("collect") if code == 0 else [])
    hub.finish(Exit.OK, Exit.OK)

    assert (Exit.OK, []) == (hub.record.exit_code, hub.record.verdicts)


def test_ranks_of_a_node_that_is_done_are_remembered(hub: Hub) -> None:
    """Node 0 has finished before anybody asked it; that its ranks left early is known from their ends."""
    hub.death(0, dead(0, 0, code=0))
    hub.death(0, dead(1, 0, code=0))
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.OK})
    lost = [dead(n, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 0.9)]) for n in (2, 3)]
    hub.death(1, lost[0])
    hub.answers(1, *lost)
    hub.ticks(SETTLE + 0.5)
    hub.fails(1)

    (verdict,) = hub.wires[1].got("end")[0]["verdicts"]
    seen = verdict["code"], verdict["ranks"], verdict["victims"], verdict["nodes"]
    assert ("rank-exited-early", [0, 1], [2, 3], [0]) == seen


def test_a_node_that_finishes_with_an_error_and_no_death_is_judged(hub: Hub) -> None:
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.WORKER_FAILED})
    hub.answers(0, rank(0), rank(1))
    hub.ticks(SETTLE + DOUBT + LATE + 1)

    (end,) = hub.wires[0].got("end")
    assert ["unknown"] == [verdict["code"] for verdict in end["verdicts"]]


BAD_BATCH = [raised("ValueError", "bad batch", 0)]


def fails_in(hub: Hub, attempt: int, **more: Any) -> None:
    """Rank 3 raises in this attempt, and its evidence is there."""
    failed = dead(3, 0, code=1, raised=BAD_BATCH, pid=2000 + attempt, **more)
    hub.death(1, failed)
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, rank(2), failed)
    hub.ticks(SETTLE + 0.5)


def test_a_death_that_the_launch_command_survives_is_a_notice(hub: Hub) -> None:
    fails_in(hub, 0)
    assert [] == hub.wires[0].got("notice")
    hub.ticks(LAST + DOUBT + LATE)

    for wire in hub.wires:
        (notice,) = wire.got("notice")
        assert notice["verdicts"][0]["sentence"].endswith("; the launch command has not ended yet")
        assert [] == wire.got("end")


def test_a_restart_by_torchrun_is_noticed_at_once(hub: Hub) -> None:
    fails_in(hub, 0, restart=0, max_restarts=2)

    (notice,) = hub.wires[0].got("notice")
    assert notice["verdicts"][0]["sentence"].endswith("; torchrun starts again (attempt 2 of 3)")


def test_a_death_in_a_job_that_ends_well_is_history(hub: Hub) -> None:
    fails_in(hub, 0)
    for node in range(2):
        hub.starts_again(node, 1, replace(BUSY[2 * node], pid=3000 + node))
    hub.finish(Exit.OK, Exit.OK)

    bundle = hub.record.bundle()
    assert (Exit.OK, [], None) == (bundle.exit_code, bundle.verdicts, bundle.evidence)
    (attempt,) = bundle.failed_attempts
    assert (0, ["rank-failed"]) == (attempt.number, [verdict.code for verdict in attempt.verdicts])
    assert attempt.evidence is not None
    assert [(1, [0], None)] == [
        (hub.record.status().launch_attempt, [each.number for each in found], found[0].evidence)
        for found in [hub.record.status().failed_attempts]
    ]


def test_the_notice_of_an_attempt_is_withdrawn_when_the_next_makes_progress(hub: Hub) -> None:
    """Not before its ranks have done something, and not for ranks of the attempt before."""
    fails_in(hub, 0, restart=0, max_restarts=1)
    hub.starts_again(1, 1, replace(BUSY[2], pid=3002, completed=0))
    hub.says(0, "beat", {"beat": codec.dump(Beat(0, "running", NOW, [replace(BUSY[0], completed=99)]))})
    hub.ticks(0.2)
    assert ["rank-failed"] == [verdict.code for verdict in hub.record.verdicts]
    hub.starts_again(0, 1, replace(BUSY[0], pid=3000, completed=3))
    hub.ticks(0.2)

    assert [] == hub.record.verdicts
    assert "the job is moving again" == hub.events[-1]


def test_the_cause_of_one_attempt_is_not_that_of_the_next(hub: Hub) -> None:
    """Ranks that others have replaced explain nothing, not even where the new ones' end is a riddle.

    Nor do those explain it that end late, on a node that has not followed into the next attempt.
    """
    fails_in(hub, 0)
    hub.starts_again(1, 1, replace(BUSY[2], pid=3002), replace(BUSY[3], pid=3003))
    hub.death(0, dead(0, 2, code=1, raised=BAD_BATCH, pid=1000))
    hub.starts_again(0, 1, replace(BUSY[0], pid=3000), replace(BUSY[1], pid=3001))
    lost = dead(2, 0, code=1, raised=[raised("RuntimeError", PEER_GONE, 0)], pid=3002)
    hub.death(1, lost)
    for node, known in ((0, [rank(0, pid=3000), rank(1, pid=3001)]), (1, [lost])):
        hub.answers(node, *known)
    hub.fails(1)
    for _ in range(2):
        hub.ticks(DOUBT + 0.2)
        hub.answers(0, rank(0, pid=3000), rank(1, pid=3001))

    (end,) = hub.wires[0].got("end")
    assert [(True, [])] == [("bad batch" not in v["sentence"], v["ranks"]) for v in end["verdicts"]]


def test_where_torchruns_agents_decide_one_that_leaves_does_not_end_the_rest(hub: Hub) -> None:
    hub.agents_decide(least=1)
    fails_in(hub, 0)
    hub.fails(1)
    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[1].got("end")]
    assert [] == hub.wires[0].got("end")
    assert hub.wires[0].got("notice")[0]["verdicts"][0]["sentence"].endswith("; the other nodes go on")
    hub.finish(Exit.OK)

    assert (Exit.OK, [], 1) == (hub.record.exit_code, hub.record.verdicts, len(hub.record.failed_attempts))


def test_where_too_few_agents_are_left_the_rest_is_ended(hub: Hub) -> None:
    """They would wait for another node for as long as their rendezvous is patient."""
    hub.agents_decide(least=2)
    fails_in(hub, 0)
    hub.fails(1)

    assert [(Exit.WORKER_FAILED, "rank-failed")] == [
        (end["exit_code"], end["verdicts"][0]["code"]) for end in hub.wires[0].got("end")
    ]


def test_agents_that_have_all_failed_end_the_job_with_its_verdict(hub: Hub) -> None:
    hub.agents_decide(least=1)
    fails_in(hub, 0)
    hub.fails(1)
    hub.fails(0)

    seen = hub.handler.closing.exit_code, [verdict.code for verdict in hub.record.verdicts]
    assert (Exit.WORKER_FAILED, ["rank-failed"]) == seen


def test_a_job_that_is_stopped_is_not_accused_of_what_an_earlier_attempt_did(hub: Hub) -> None:
    """The notice of that attempt is still there, for the new ranks have not done anything yet."""
    fails_in(hub, 0, restart=0, max_restarts=1)
    for node in range(2):
        hub.starts_again(node, 1, replace(BUSY[2 * node], pid=3000 + node, completed=0))
    asyncio.run(hub.handler.stop("SIGTERM"))
    hub.answers(0, rank(0, pid=3000))
    hub.answers(1, rank(2, pid=3001))

    assert [(Exit.STOPPED, [])] == [(e["exit_code"], e["verdicts"]) for e in hub.wires[0].got("end")]


def test_diagnose_answers_with_a_bundle_and_changes_nothing(hub: Hub) -> None:
    hub.beats(*HUNG)
    hub.both_answer(rank(0, in_evaluate(), called=16))
    handler = Wire()
    asyncio.run(hub.handler.received(handler, AskDiagnosis()))  # type: ignore[arg-type]
    hub.both_answer(rank(0, in_evaluate(), called=16))

    (bundle,) = handler.bundles()
    assert ["rank-in-user-code"] == [verdict.code for verdict in bundle.verdicts]
    assert bundle.evidence is not None
    assert "asked" == bundle.evidence.why
    assert 1 == len(hub.wires[0].got("notice"))


def test_a_request_during_a_round_of_evidence_is_answered_after_it(hub: Hub) -> None:
    hub.beats(*HUNG)
    handler = Wire()
    asyncio.run(hub.handler.received(handler, AskDiagnosis()))  # type: ignore[arg-type]
    for _ in range(2):
        hub.both_answer(rank(0, in_evaluate(), called=16))

    assert 1 == len(hub.wires[0].got("notice"))
    assert 1 == len(handler.got("bundle"))


def test_a_failing_rule_cuts_nobody_off_and_delays_no_end(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over evidence that nobody has thought of: the job ends by its exit codes, and the log says why."""
    complaints: list[str] = []
    monkeypatch.setattr(hub.record, "log", complaints.append)

    def fails(view: JobView) -> Verdict | None:
        raise ZeroDivisionError

    monkeypatch.setattr(decide, "TABLE", [decide.FirstOf(decide.always, (fails,))])
    hub.death(0, dead(0, 1, code=1, raised=[raised("ValueError", "corrupt batch", 1)], pid=1000))
    hub.answers(0, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.fails(0)
    hub.ticks(SETTLE + DOUBT + LATE)

    (end,) = hub.wires[0].got("end")
    assert (Exit.WORKER_FAILED, []) == (end["exit_code"], end["verdicts"])
    assert "ZeroDivisionError" in complaints[-1]


def test_a_failing_tick_is_not_the_fault_of_who_spoke_last(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server drops who sends what a desk cannot take, and tells itself of a tick that fails."""
    monkeypatch.setattr(hub.handler, "_look_for_missing", lambda now: 1 // 0)
    hub.says(0, "stopping", {"why": "SIGTERM"})

    with pytest.raises(ZeroDivisionError):
        hub.ticks(0.1)


def test_messages_of_a_client_that_has_not_joined_are_refused(hub: Hub) -> None:
    with pytest.raises(codec.ContractError):
        asyncio.run(hub.handler.received(Wire(), Finished(0)))  # type: ignore[arg-type]
    with pytest.raises(codec.ContractError):
        hub.says(0, "join", {"node": 7, "host": "n7", "pid": 1, "at": NOW})


def test_what_has_ended_without_an_explanation_has_not_hung(hub: Hub) -> None:
    hub.finish(Exit.MISCONFIGURED, Exit.MISCONFIGURED)
    hub.ticks(60)

    assert Exit.MISCONFIGURED == hub.handler.closing.exit_code


def test_a_launch_command_that_cannot_start_is_the_verdict_of_its_node(hub: Hub) -> None:
    missing = Verdict.of("secret-missing", "node 1: the secret TOKEN is not there", "launch", nodes=[1])
    body = {"node": 1, "exit_code": Exit.MISCONFIGURED, "verdicts": codec.dump([missing])}

    hub.says(1, "finished", body)

    (end,) = hub.wires[0].got("end")
    seen = end["exit_code"], [verdict["code"] for verdict in end["verdicts"]]
    assert (Exit.MISCONFIGURED, ["secret-missing"]) == seen


def test_a_small_job_shares_all_the_room_for_flight_recorders() -> None:
    assert dict.fromkeys(range(4), MOST_DUMPS // 4) == dump_room(range(4), [], None)
    assert {} == dump_room([], [], None)


def test_in_a_large_job_some_nodes_get_enough_room_and_others_none() -> None:
    room = dump_room(range(512), [], None)

    assert 512 == len(room)
    assert sum(room.values()) <= MOST_DUMPS
    assert [0] == [node for node in (0, 511) if room[node]]


def test_the_nodes_of_blamed_ranks_come_first() -> None:
    """And that of the first victim: what the culprit has not called, it has."""
    nodes = [NodeEvidence(n, f"n{n}", 1.0, "running", [RankEvidence(n, 0, 9, True)]) for n in range(512)]
    evidence = JobEvidence("digits", 512, 512, "still", 1.0, nodes)
    verdict = Verdict.of("rank-in-user-code", "x", "run", ranks=[500], victims=[400, 401])
    room = dump_room(range(512), [verdict], evidence)

    assert [True, True, False] == [room[node] > 0 for node in (500, 400, 401)]
