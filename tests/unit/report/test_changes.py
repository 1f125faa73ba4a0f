"""Lines on a job that somebody follows without its output."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import JobPace, Phase, Verdict
from ddplaunch.backends.job import Job, State
from ddplaunch.report.live import Changes

AT = given.AT
HUNG = dataclasses.replace(given.VERDICT, hint="call it on all ranks")


def running(**changes: object) -> Job:
    """The job while it runs."""
    return given.job(State.RUNNING, status=given.status(**changes))


def lines(*moments: tuple[float, Job], with_output: bool = False) -> list[str]:
    """All changes when the job is looked at at these seconds."""
    changes = Changes(with_output=with_output)
    return [line for seconds, job in moments for line in changes.lines(job, AT + seconds)]


def test_a_notice_is_a_change_when_it_comes_and_when_it_has_passed() -> None:
    """Once each, with what to do; the ranks' output, where it is shown, has it already."""
    moments = [(float(second), running(verdicts=[HUNG] if 10 <= second < 20 else [])) for second in range(30)]

    assert [
        "running on 2 nodes for 0.0 s",
        f"notice: rank-in-user-code: {HUNG.sentence}",
        "hint: call it on all ranks",
        "rank-in-user-code has passed",
    ] == lines(*moments)
    assert ["running on 2 nodes for 0.0 s"] == lines(*moments, with_output=True)


def test_a_notice_on_other_ranks_is_another_one() -> None:
    """The first has not passed: its kind still stands."""
    other = Verdict.of(HUNG.code, "rank 2 is in evaluate()", "run", ranks=[2])

    assert ["notice: rank-in-user-code: rank 2 is in evaluate()"] == lines(
        (1.0, running(verdicts=[HUNG])), (2.0, running(verdicts=[other]))
    )[3:]


def test_the_end_of_a_job_cures_nothing() -> None:
    """Its notice stands until the end, and is not called past then."""
    over = running(phase=Phase.ENDED, exit_code=50, why="deadline", verdicts=[HUNG])

    assert [] == lines((1.0, running(verdicts=[HUNG])), (6.0, over), (10.0, over))[3:]


def test_a_job_has_ended_and_its_scheduler_does_not_say_how() -> None:
    over = running(phase=Phase.ENDED, exit_code=50, why="deadline", verdicts=[HUNG])

    assert ["ended 6.0 s ago: it hung, and was ended"] == lines((6.0, over), (11.0, over))


def test_a_verdict_at_the_gate_is_no_notice() -> None:
    """The line on what the job waits for has it."""
    held = Verdict.of("port-in-use", "node 0: port 29500 is held", "gate", nodes=[0])

    assert 1 == len(lines((1.0, running(phase=Phase.GATE, verdicts=[held]))))


def test_the_pace_is_told_ever_more_seldom() -> None:
    """At once when it is known, and in an hour six times more."""
    moments = [(float(second), running(pace=JobPace(4, 0.42))) for second in range(10, 3610)]

    assert ["a step takes 420 ms, 2.4 a second"] * 6 == lines(*moments)[1:]


def test_the_end_is_no_change() -> None:
    """The whole state of the job follows where there is no output, and is not anticipated."""
    ended = given.job(State.FAILED, exit_code=50)

    assert [] == lines((1.0, ended))
    assert ["failed after 1 min 10 s: its ranks could not go on"] == lines((1.0, ended), with_output=True)
