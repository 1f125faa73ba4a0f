"""Ranks that ended well too early: where they called sys.exit, in what branch or handler, what they left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    MAIN,
    NOW,
    PEER_GONE,
    dead,
    in_evaluate,
    job,
    only,
    raised,
    rank,
    victim,
)

from ddplaunch.agent.contract import (
    Branch,
    Collective,
    Frame,
    Function,
    Group,
    JobEvidence,
    Process,
    Raised,
    RankEvidence,
    Rendezvous,
    Signalled,
    Verdict,
)
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.system import phrases

SITE = Frame("check", "/job/train.py", 57)
BRANCH = Branch("if", 55, "if loss > 10", [56, 57])
CHECK = Function("check", [50, 60], [BRANCH])


def left(number: int, status: str, *handled: Raised, site: Frame = SITE, above: Frame = MAIN) -> RankEvidence:
    """A rank that ended by sys.exit(status), within the handlers of these exceptions."""
    call = Raised("sys.exit", status, 0.0, [site, above], True, "hook")
    return dead(number, 0, code=int(status), left=[call, *handled])


def read(evidence: JobEvidence, *functions: Function) -> JobEvidence:
    """The same, and the nodes have read these functions of the program."""
    nodes = [replace(node, functions={SITE.file: [*functions]}) for node in evidence.evidence]
    return replace(evidence, evidence=nodes)


def test_where_a_rank_called_exit_is_told_with_its_branch() -> None:
    verdict = only(read(job(victim(0), left(1, "0"), why="death"), CHECK))

    assert ("rank-exited-early", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 called sys.exit(0) (train.py:57), in the branch of train.py:55 (`if loss > 10`), while rank "
        "0 needed it" == verdict.sentence
    )
    assert "let all ranks agree on it first" in verdict.hint


def test_the_branch_in_a_caller_is_told_if_there_is_none_nearer() -> None:
    stop = Frame("stop", "/job/train.py", 30)
    verdict = only(read(job(rank(0), left(1, "0", site=stop, above=SITE)), CHECK, Function("stop", [28, 30])))

    assert verdict.sentence.startswith(
        "rank 1 called sys.exit(0) (train.py:30), in the branch of train.py:55 (`if loss > 10`), while rank 0"
    )


def test_the_branch_that_every_program_has_is_none() -> None:
    every = replace(BRANCH, text='if __name__ == "__main__"')
    verdict = only(read(job(rank(0), left(1, "0")), replace(CHECK, branches=[every])))

    assert verdict.sentence.startswith("rank 1 called sys.exit(0) (train.py:57), while rank 0 still waits")


@pytest.mark.parametrize(
    "ranks",
    [
        [rank(0), left(1, "0", site=Frame("exit", "/opt/env/lib/python3/site-packages/click/core.py", 9))],
        [rank(0), left(1, "0"), left(2, "0", site=replace(SITE, line=58))],
        [rank(0), left(1, "0"), dead(2, 0, code=0)],
    ],
    ids=["a library's call", "two places", "one has not called it"],
)
def test_a_place_that_does_not_tell_why_is_not_told(ranks: list[RankEvidence]) -> None:
    assert "finished normally (exit code 0)" in only(job(*ranks)).sentence


@pytest.mark.parametrize("is_in_loop", [True, False])
def test_what_may_have_ended_a_loop_is_told_unless_exit_was_called_in_it(is_in_loop: bool) -> None:
    ends = Branch("if", 88, "if bad > 3", [89, 89], ends="break")
    train = Function("train", [80, 95], [Branch("for", 85, "for batch in loader", [86, 93]), ends])
    above = Frame("train", SITE.file, 90 if is_in_loop else 94)
    verdict = only(read(job(rank(0), rank(2), left(1, "0", above=above)), CHECK, train))

    assert "in the loop of train.py:85 (`for batch in loader`)" in verdict.sentence
    assert is_in_loop != ("train.py:88 (`if bad > 3`: break) may be why" in verdict.sentence)


def test_an_exit_code_is_told_with_the_line_that_chose_it() -> None:
    verdict = only(read(job(victim(0), left(1, "3"), why="death"), CHECK))

    assert ("rank-failed", [1]) == (verdict.code, verdict.ranks)
    assert (
        "rank 1 ended with exit code 3, by sys.exit(3) (train.py:57), in the branch of train.py:55 "
        "(`if loss > 10`)" == verdict.sentence
    )


def test_who_exits_in_a_handler_has_failed_of_what_it_handled() -> None:
    caught = raised("ValueError", "no vocabulary", 0, handled=True)
    verdict = only(job(victim(0), left(1, "3", caught), why="death"))

    assert ("rank-failed", [1], 0.95) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "rank 1 raised ValueError: no vocabulary (train.py:61)" == verdict.sentence
    assert "rank 1 handled it, and called sys.exit(3) (train.py:57)" in verdict.facts


def test_who_exits_well_in_a_handler_is_told_with_what_it_handled() -> None:
    caught = raised("StopIteration", "", 0, handled=True)
    verdict = only(job(rank(0), left(1, "0", caught)))

    assert verdict.sentence.startswith(
        "rank 1 called sys.exit(0) (train.py:57), in the handler of StopIteration (train.py:61), while rank 0"
    )


def test_who_exits_in_a_handler_for_a_peer_that_is_gone_is_a_victim() -> None:
    gone = raised("RuntimeError", PEER_GONE, 0.5, handled=True)
    verdict = only(job(left(0, "3", gone), dead(1, 0.2, code=0), why="death"))

    assert ("rank-exited-early", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_who_exits_well_for_a_peer_that_is_gone_has_not_left_early() -> None:
    gone = raised("RuntimeError", PEER_GONE, 0.5, handled=True)
    verdict = only(job(left(0, "0", gone), victim(1), dead(2, 0.2, signal=9), why="death"))

    assert ("rank-killed", [2]) == (verdict.code, verdict.ranks)
    assert "rank-exited-early" not in [
        each.code for each in judge(job(left(0, "0", gone), victim(1), why="death"))
    ]


# --- without a call of sys.exit


def test_rank_exited_early_and_the_others_lost_it() -> None:
    """Exit 0 is no fault by itself; it is when the others then fail for want of that rank."""
    verdict = only(job(victim(0), dead(1, 0, code=0), victim(2), victim(3), why="death"))

    assert ("rank-exited-early", [1], [0], [0, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 needed it" == verdict.sentence


def test_a_rank_that_ends_at_once_is_not_said_to_have_finished_normally() -> None:
    """Its Python did not shut down."""
    gone = dead(1, 0, code=0)
    assert gone.exit is not None
    gone = replace(gone, exit=replace(gone.exit, at_once=True))
    verdict = only(job(victim(0), gone, why="death"))

    assert (
        "rank 1 ended with exit code 0, and without the end of Python, as os._exit(0) ends it, while rank 0 "
        "needed it" == verdict.sentence
    )
    assert "a thread that watches the others" in verdict.hint


def test_where_a_rank_called_os_exit_is_told_in_place_of_how_it_ended() -> None:
    gone = left(1, "0")
    assert gone.exit is not None
    gone = replace(gone, exit=replace(gone.exit, at_once=True), left=[replace(gone.left[0], type="os._exit")])
    verdict = only(read(job(victim(0), gone, why="death"), CHECK))

    assert verdict.sentence.startswith(
        "rank 1 called os._exit(0) (train.py:57), in the branch of train.py:55"
    )
    assert "without the end of Python" not in verdict.sentence


@pytest.mark.parametrize(
    ("number", "before", "told"), [(15, 0.3, True), (15, 90.0, False), (15, -0.5, False), (14, 0.3, False)]
)
def test_a_signal_that_asked_a_rank_to_end_just_before_it_ended_well_is_why(
    number: int, before: float, told: bool
) -> None:
    """A timer's is no such, and one that the launcher sends to the others afterwards is theirs alone."""
    handler = Frame("stop", "/job/train.py", 5)
    gone = dead(1, 0, code=0, signals=[Signalled(number, NOW - 10 - before, handler)])
    later = replace(victim(0), signals=[Signalled(15, NOW - 2, handler)])
    verdict = only(job(later, gone, victim(2), why="death"))

    wanted = "rank 1 finished normally (exit code 0) while ranks 0 and 2 needed it"
    if told:
        wanted += f"; SIGTERM came to rank 1 at {phrases.clock(NOW - 10 - before)} (stop, train.py:5)"
    assert wanted == verdict.sentence
    assert told == ("all_reduce of the flag" in verdict.hint)


@pytest.mark.parametrize(("before", "shown"), [(0.3, True), (60.0, False)])
def test_the_last_line_of_a_rank_that_ended_early_is_shown_if_it_came_just_before(
    before: float, shown: bool
) -> None:
    gone = dead(1, 0, code=0, last_output="nothing to do", last_output_at=NOW - 10 - before)
    verdict = only(job(victim(0), gone, why="death"))

    assert shown == ("rank 1's last line: nothing to do" in verdict.facts)


def test_rank_exited_early_and_the_others_wait() -> None:
    """The same while the others still wait, as with NCCL."""
    verdict = only(job(rank(0), dead(1, 0, code=0), rank(2), rank(3)))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 still wait in all_reduce 17 "
        "(train.py:92)" == verdict.sentence
    )


def test_rank_exited_early_and_the_others_are_at_different_stages_of_failing() -> None:
    """One has raised and is not dead yet, one was sent away and buried by its launcher: both are victims."""
    failing = rank(0, [], raised=[raised("RuntimeError", PEER_GONE, 0.9)], groups=[])
    verdict = only(job(failing, dead(1, 0, code=0), victim(2), dead(3, 1.2, by_us=True), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_exited_early_and_one_was_seen_a_moment_too_early() -> None:
    """It still stood in the last collective of the rank that left; the others were further."""
    left = dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])
    further = replace(victim(0), groups=[Group("0", [], 17, 16)])
    verdict = only(job(further, left, rank(2, called=16), rank(3), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


STARVED = Process(1001, "R", wchan="0", delayed=0.75, ran=0.2)
"""torch's own end, on a machine whose CPUs are busy."""


def test_a_rank_that_ends_slowly_on_a_busy_machine_left_early_and_is_not_starved() -> None:
    left = rank(1, [], called=6, phase="finalizing", initialized=False, process=STARVED)
    verdict = only(job(rank(0), left, rank(2), rank(3)))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 is ending while ranks 0, 2 and 3 still wait in all_reduce 17 (train.py:92)"
        == verdict.sentence
    )
    assert "rank 1: its process group is destroyed, or its Python shuts down" in map(str, verdict.facts)


@pytest.mark.parametrize(
    "more", [{"called": 17}, {"called": 6, "raised": [raised("ValueError", "no batch", 1.0)]}]
)
def test_a_rank_that_ends_and_has_called_as_much_or_raised_did_not_leave_early(more: dict[str, Any]) -> None:
    left = rank(1, [], phase="finalizing", initialized=False, **more)

    assert "rank-exited-early" not in {each.code for each in judge(job(rank(0), left, rank(2), rank(3)))}


def test_who_has_called_all_collectives_has_not_left_early() -> None:
    """A rank that is done is not missing where it was."""
    verdict = only(job(rank(0, called=16), dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])))

    assert "unknown" == verdict.code


def test_the_last_rank_may_take_its_time() -> None:
    """Ranks that are done do not make the one that still saves its model a victim."""
    ranks = [dead(n, 0, code=0) for n in (1, 2, 3)]
    verdict = only(job(rank(0, in_evaluate()), *ranks))

    assert ("rank-in-user-code", [0], []) == (verdict.code, verdict.ranks, verdict.victims)


def _of_a_group(number: int, seq: int, **more: Any) -> RankEvidence:
    """A rank that torchrun has ended, or that failed for want of another, with its last call in the ring."""
    failed = [raised("RuntimeError", PEER_GONE, 1)] if number else []
    last = Collective("0", seq, "all_reduce", state="raised" if number else "returned", frames=[MAIN])
    passed = Rendezvous("env", NOW - 60, passed=True)
    values = {"raised": failed, "calls": [last], "rendezvous": passed, "by_us": not number, **more}
    return dead(number, 1, code=1 if number else None, signal=None if number else 15, **values)


def test_a_living_rank_that_has_destroyed_its_group_is_why_the_others_lost_it() -> None:
    """Not if its group is still there, if it had called as much, or if it raised something itself."""
    victims = [_of_a_group(1, 33), _of_a_group(2, 33)]

    def judged(seq: int, **more: Any) -> Verdict:
        return only(job(_of_a_group(0, seq, **more), *victims, per_node=3, why="death"))

    verdict = judged(32, initialized=False)
    assert ("rank-exited-early", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "rank 0 destroyed its process group after all_reduce 32 (train.py:40), while ranks 1 and 2 needed it "
        "in all_reduce 33 (train.py:40)"
    )
    others = [judged(32), judged(33, initialized=False)]
    others += [judged(32, initialized=False, raised=[raised("RuntimeError", PEER_GONE, 0)])]
    assert [[]] * 3 == [each.ranks for each in others]
