"""What `status` prints of a job, and what all other views of it draw."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import JobPace, NodeStatus, Phase, RankPace, Verdict
from ddplaunch.backends.job import Earlier, Job, State
from ddplaunch.report import board


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (JobPace(4, 0.42), "a step takes 420 ms, 2.4 a second"),
        (JobPace(4, 75.0), "a step takes 1 min 15 s"),
        (JobPace(4), ""),
        (
            JobPace(4, 12.4, 0.35, 0.0, [RankPace(0, 12.4, 0.3)]),
            "a step takes 12 s, 4.8 a minute; of the last minute 35% in collectives",
        ),
        (
            JobPace(2, 0.0042, 0.04, 0.5),
            "a step takes 4 ms, 238 a second; of the last minute 50% waiting for data",
        ),
        (
            JobPace(2, None, 0.34, 0.4, [RankPace(1, None, 0.08, 0.78), RankPace(0, None, 0.6, 0.0)]),
            "rank 1 is in collectives 8% and waits for data 78% of the last minute, the others 60%",
        ),
        (
            JobPace(1024, None, 0.5, 0.0, [RankPace(each, None, 0.1 + each / 10) for each in range(8)]),
            "rank 0 is in collectives 10% of the last minute, the others 50%",
        ),
        (
            JobPace(2, 1.0, 0.3, 0.3, [RankPace(0, 1.0)]),
            "a step takes 1.0 s, 60 a minute; of the last minute 30% in collectives, 30% waiting for data",
        ),
    ],
)
def test_what_is_known_is_said(known: JobPace, text: str) -> None:
    """The step, and the rank for which the others wait, where one stands out."""
    assert text == board.pace_text(known)


@pytest.mark.parametrize(
    ("known", "second"),
    [
        (
            JobPace(2, 0.5, 0.3, first=[RankPace(1, 0.5, 0.08), RankPace(0, 0.5, 0.6)]),
            "rank 1 8%, rank 0 60%",
        ),
        (
            JobPace(64, 0.5, 0.3, first=[RankPace(each, 0.5, 0.3) for each in (4, 7)]),
            "rank 4 30%, rank 7 30%",
        ),
    ],
)
def test_the_ranks_that_wait_least_have_a_line(known: JobPace, second: str) -> None:
    lines = board.pace_lines(known)

    assert board.pace_text(known) == lines[0]
    least = "least: " if known.ranks > 2 else ": "
    assert [f"{known.ranks} ranks; in collectives {least}".replace(" : ", ": ") + second] == lines[1:]


@pytest.mark.parametrize("known", [JobPace(2), JobPace(1, 0.5, first=[RankPace(0, 0.5, 0.1)])])
def test_no_line_compares_what_is_not_known(known: JobPace) -> None:
    assert len(board.pace_lines(known)) == (known.step is not None)


AT = given.AT
HELD = Verdict.of("port-in-use", "node 0: port 29500 is held", "gate", nodes=[0], hint="`kill 812`")

RUNNING = """\
local://digits/3  running on 3 nodes for 7.0 s
  submitted 2023-11-14 22:13:20
  of a sweep, with env.LR=0.1
  node 2     running  7.0 s  waits for rank 2
  nodes 0-1  running  7.0 s
  a step takes 420 ms, 2.4 a second
  rank-in-user-code: rank 0 has been in evaluate() (train.py:140) for 96 s, the others wait in barrier
  `ddplaunch diagnose local://digits/3` says why"""


def text(job: Job) -> str:
    """What `status` prints of the job."""
    return board.board_text(board.make_board(job, AT + 12))


def test_a_job_that_runs_is_shown_whole() -> None:
    """Its own values, its nodes with the odd ones first, its pace, and what is wrong."""
    nodes = [NodeStatus(number, "", Phase.RUNNING, AT + 5) for number in (0, 1)]
    nodes.append(NodeStatus(2, "", Phase.RUNNING, AT + 5, "waits for rank 2"))
    status = given.status(nodes=nodes, pace=JobPace(4, 0.42), verdicts=[given.VERDICT])
    job = given.job(State.RUNNING, status=status, sweep={"env.LR": "0.1"})

    assert RUNNING == text(job)


def test_a_fault_that_may_pass_is_called_so_once() -> None:
    """Below the job, with what to do; the first line says what all wait for."""
    status = given.status(phase=Phase.GATE, verdicts=[HELD])
    lines = text(given.job(State.RUNNING, status=status)).splitlines()

    assert "local://digits/3  at the gate for 7.0 s" == lines[0]
    assert [
        "  hint: `kill 812`",
        "  port-in-use: node 0: port 29500 is held; this may be temporary",
        "  `ddplaunch diagnose local://digits/3` says why",
    ] == lines[-3:]


def test_no_sentence_stands_twice() -> None:
    """Of an ended job the verdict has it, of one that goes on the first line, with all else that is there."""
    ended = given.job(State.FAILED, exit_code=40, detail=HELD.sentence, verdicts=(HELD,))
    pending = given.job(State.PENDING, detail=f"{HELD.sentence}; it is being deleted", verdicts=(HELD,))

    assert 1 == text(ended).count(HELD.sentence)
    assert "local://digits/3  failed after 1 min 10 s: a worker failed" == text(ended).splitlines()[0]
    assert 1 == text(pending).count(HELD.sentence)
    assert "it is being deleted" in text(pending)
    assert "  port-in-use" in text(pending).splitlines()


def test_a_scheduler_s_word_beside_the_hub_s_verdict_stays() -> None:
    status = given.status(phase=Phase.ENDED, verdicts=[HELD])
    ended = given.job(State.FAILED, detail="n3 was drained", verdicts=(given.VERDICT,), status=status)

    assert text(ended).startswith("local://digits/3  failed after 1 min 10 s: n3 was drained\n")
    assert "  port-in-use: node 0: port 29500 is held\n" in text(ended)


def test_ranks_of_a_notice_are_named_apart() -> None:
    """Who is at fault, and who only waits: a view with room shows both."""
    job = given.job(State.RUNNING, status=given.status(verdicts=[given.VERDICT]))
    over = dataclasses.replace(job, state=State.FAILED, ended=AT + 70)

    assert [["rank 0 at fault", "ranks 1-3 can only wait"]] == [
        each.ranks for each in board.make_board(job, AT + 12).notices
    ]
    assert "ranks 1-3 ended or waited because of it" == board.make_board(over, AT + 12).notices[0].ranks[1]


def test_an_earlier_attempt_can_be_read() -> None:
    job = given.job(State.RUNNING, status=given.status(attempt=1), earlier=(Earlier(0, None, None),))

    assert "  attempt 0: it left no result" in text(job).splitlines()
    assert text(job).endswith("  `ddplaunch diagnose local://digits/3 --attempt 0` says why")
