"""Ranks that have called sys.exit: where, in which branch or handler, and whose fault that is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import MAIN, PEER_GONE, dead, job, only, raised, rank, victim

from ddplaunch.agent.contract import Branch, Frame, Function, JobEvidence, Raised, RankEvidence

SITE = Frame("check", "/job/train.py", 57)
BRANCH = Branch("if", 55, "if loss > 10", [56, 57])
CHECK = Function("check", [50, 60], [BRANCH])


def left(number: int, status: str, *handled: Raised, site: Frame = SITE, above: Frame = MAIN) -> RankEvidence:
    """A rank that ended by sys.exit(status), within the handlers of these exceptions."""
    call = Raised("SystemExit", status, 0.0, [site, above], True, "hook")
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
        "rank 1 called sys.exit(3) (train.py:57), in the branch of train.py:55 (`if loss > 10`)"
        == verdict.sentence
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
