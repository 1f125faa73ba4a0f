"""The rules on MPI programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, dead, in_evaluate, job, only, raised, rank, stack

from ddplaunch.agent.contract import Exited, Frame, MpiCall, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run.decide import nothing_moves

MPI4PY = "/opt/env/lib/python3.11/site-packages/mpi4py/MPI.openmpi.cpython-311-x86_64-linux-gnu.so"
OF_MPI: dict[str, Any] = {"groups": [], "initialized": False, "mpi": "ready"}


def in_mpi(number: int, name: str, line: int = 31, **call: Any) -> RankEvidence:
    """A rank in a function of MPI; `call` are the fields of what is known of it."""
    frames = stack(Frame(name, MPI4PY, 0), Frame("train", "/job/train.py", line))
    facts = MpiCall(name, "MPI_COMM_WORLD", **{"size": 4, **call})
    return rank(number, frames, **{**OF_MPI, "mpi_call": facts})


def finished(number: int) -> RankEvidence:
    """A rank whose program is over, in MPI_Finalize."""
    return rank(number, [], **{**OF_MPI, "mpi": "ending", "phase": "finalizing"})


def blamed(verdict: Verdict) -> tuple[str, list[int], list[int]]:
    """Code, culprit ranks, victims."""
    return verdict.code, verdict.ranks, verdict.victims


def test_half_of_the_ranks_reduce_and_the_others_are_done() -> None:
    """`if rank < size / 2: comm.allreduce(...)`: those who do not take part are missing."""
    verdict = only(job(in_mpi(0, "allreduce"), in_mpi(1, "allreduce"), finished(2), finished(3)))

    assert ("mpi-partial-collective", [2, 3], [0, 1]) == blamed(verdict)
    assert (
        "allreduce (train.py:31) on MPI_COMM_WORLD has ranks 0 and 1 and lacks ranks 2 and 3, which have "
        "finished and wait in MPI_Finalize" == verdict.sentence
    )


def test_ranks_that_are_done_may_be_gone_already() -> None:
    """Not every MPI keeps them in MPI_Finalize. Their programs came to the end: the collective lacks them."""
    ended = [dead(n, 1.0, code=0, mpi="ending") for n in (2, 3)]
    verdict = only(job(in_mpi(0, "allreduce"), in_mpi(1, "allreduce"), *ended))

    assert ("mpi-partial-collective", [2, 3], [0, 1]) == blamed(verdict)
    assert verdict.sentence.endswith("lacks ranks 2 and 3, which have ended")


def test_ranks_that_nobody_has_seen_are_not_blamed() -> None:
    """They may run where nobody looks, and be on their way."""
    verdict = only(job(*(replace(in_mpi(n, "Barrier"), world_size=4) for n in (0, 1))))

    assert ("unknown", [], []) == blamed(verdict)
    assert "ranks 2 and 3" in verdict.sentence


def test_the_smaller_of_two_collectives_is_blamed() -> None:
    """Whoever stands elsewhere than most."""
    others = [in_mpi(n, "Allreduce") for n in (0, 1, 3)]
    verdict = only(job(*others[:2], in_mpi(2, "Barrier", 40), others[2]))

    assert ("mpi-partial-collective", [2], [0, 1, 3]) == blamed(verdict)


def test_at_a_tie_all_are_named() -> None:
    """Two collectives of two ranks each: nobody can say which is wrong, and that is said."""
    verdict = only(job(*(in_mpi(n, "Bcast" if n < 2 else "Reduce") for n in range(4))))

    assert ("mpi-partial-collective", [0, 1, 2, 3], []) == blamed(verdict)
    assert 0.7 == verdict.confidence


def test_a_collective_of_a_part_lacks_nobody_else() -> None:
    """A communicator of two needs its two alone; the barrier of all lacks them."""
    part: dict[str, Any] = {"communicator": "part", "ranks": [2, 3], "size": 2}
    calls = [in_mpi(2, "Allreduce"), in_mpi(3, "Allreduce", 44)]
    calls = [replace(each, mpi_call=MpiCall("Allreduce", **part)) for each in calls]
    verdict = only(job(in_mpi(0, "Barrier"), in_mpi(1, "Barrier"), *calls))

    assert ("mpi-partial-collective", [2, 3], [0, 1]) == blamed(verdict)


def test_all_in_one_collective_is_no_fault_of_a_rank() -> None:
    """All have come: what keeps them is below MPI."""
    verdict = only(job(*(in_mpi(n, "Allreduce") for n in range(4))))

    assert "unknown" == verdict.code
    assert verdict.sentence.startswith("all ranks wait in Allreduce (train.py:31) and nothing moves")


def test_a_rank_in_its_own_code_may_still_come() -> None:
    """It is named as in any job: its collective lacks it only so far."""
    verdict = only(job(rank(0, in_evaluate(), **OF_MPI), *(in_mpi(n, "Allreduce") for n in (1, 2, 3))))

    assert ("rank-in-user-code", [0], [1, 2, 3]) == blamed(verdict)


def test_tags_that_differ() -> None:
    """A send and a receive between the same two ranks; who waits for them is a victim."""
    verdict = only(
        job(
            in_mpi(0, "Recv", source=1, recvtag=7),
            in_mpi(1, "Send", 35, dest=0, sendtag=5),
            in_mpi(2, "Barrier"),
            in_mpi(3, "Barrier"),
        )
    )

    assert ("mpi-unmatched", [0, 1], [2, 3]) == blamed(verdict)
    assert (
        "rank 0 is in Recv(source=1, tag=7) (train.py:31), rank 1 is in Send(dest=0, tag=5) (train.py:35): "
        "the tags differ, 5 is sent and 7 is received" == verdict.sentence
    )


@pytest.mark.parametrize(
    ("name", "facts"),
    [("Send", {"dest": 0, "sendtag": 5}), ("Recv", {"source": 0, "recvtag": 5})],
)
def test_a_message_with_a_rank_in_a_collective_leaves_open_who_is_wrong(
    name: str, facts: dict[str, int]
) -> None:
    """It may have left out its part, or that message is one too many: both sides, and half as sure."""
    asks = [in_mpi(n, name, **facts) for n in (1, 2)]
    verdict = only(job(in_mpi(0, "Barrier", 40), *asks, in_mpi(3, "Barrier", 40)))

    assert ("mpi-unmatched", [0, 1, 2], [3], 0.5) == (*blamed(verdict), verdict.confidence)
    assert verdict.sentence.endswith("rank 0 is in Barrier (train.py:40)")


def test_a_rank_that_is_done_is_missing_though_another_waits_for_a_message() -> None:
    """What it left out, others need; the one that sends to them is their victim."""
    ranks = [in_mpi(0, "Barrier"), in_mpi(1, "Send", dest=0, sendtag=5), finished(2), finished(3)]

    assert ("mpi-partial-collective", [2, 3], [0, 1]) == blamed(only(job(*ranks)))


@pytest.mark.parametrize(
    ("name", "key", "tag", "why"),
    [
        ("Recv", "source", "recvtag", "all receive, and nobody sends"),
        ("Ssend", "dest", "sendtag", "all send, and nobody receives"),
    ],
)
def test_a_ring_that_does_the_same_everywhere(name: str, key: str, tag: str, why: str) -> None:
    """Every rank waits for its neighbour, and so the first for the last."""
    verdict = only(job(*(in_mpi(n, name, **{key: (n + 1) % 4, tag: 0}) for n in range(4))))

    assert ("mpi-unmatched", [0, 1, 2, 3], []) == blamed(verdict)
    assert verdict.sentence.endswith(why)


def test_different_communicators_do_not_meet() -> None:
    """A message belongs to its communicator."""
    receiver = in_mpi(0, "Recv", source=1, recvtag=-1)
    sender = in_mpi(1, "Send", dest=0, sendtag=0)
    other = replace(sender, mpi_call=MpiCall("Send", "halo", 2, dest=0, sendtag=0))

    assert "they use different communicators, MPI_COMM_WORLD and halo" in only(job(receiver, other)).sentence


def test_a_message_from_anybody_that_nobody_sends() -> None:
    """recv() takes what comes, and nothing comes."""
    verdict = only(job(in_mpi(0, "recv", source=-1, recvtag=-1), finished(1), finished(2), finished(3)))

    assert ("mpi-unmatched", [0], [1, 2, 3]) == blamed(verdict)
    assert "rank 0 is in recv(source=any, tag=any) (train.py:31): nobody sends to it" == verdict.sentence


def test_a_rank_that_nobody_has_seen_may_send() -> None:
    """A receive from anybody waits for no rank that is known."""
    verdict = only(job(replace(in_mpi(0, "recv", source=-1, recvtag=-1), world_size=4)))

    assert "unknown" == verdict.code


def test_a_message_from_a_rank_that_is_done() -> None:
    """The peer has gone home."""
    verdict = only(job(in_mpi(0, "recv", source=1, recvtag=-1), finished(1)))

    assert ("mpi-unmatched", [0, 1], []) == blamed(verdict)
    assert verdict.sentence.endswith("rank 1 has finished and waits in MPI_Finalize")


@pytest.mark.parametrize(
    ("source", "tag"), [(1, 5), (1, -1), (-1, 5), (1, -2), (-2, 5)], ids=["same", "any", "any", "?", "?"]
)
def test_what_matches_or_may_match_is_not_blamed(source: int, tag: int) -> None:
    """Same tag, any tag, or one that is not known."""
    verdict = only(job(in_mpi(0, "Recv", source=source, recvtag=tag), in_mpi(1, "Send", dest=0, sendtag=5)))

    assert "unknown" == verdict.code


def test_a_message_that_is_too_long() -> None:
    """MPI has found it out itself, and raised."""
    error = raised("mpi4py.MPI.Exception", "MPI_ERR_TRUNCATE: message truncated", 1.0)
    victim = dead(1, 2.0, signal=15, by_us=True, mpi="ready")
    verdict = only(job(dead(0, 1.2, code=1, raised=[error]), victim, why="death"))

    assert ("mpi-unmatched", [0], [1]) == blamed(verdict)


def in_init(number: int) -> RankEvidence:
    """A rank in the import of mpi4py, which holds the GIL: as it is seen from outside."""
    importing = Frame("create_module", "<frozen importlib._bootstrap_external>", 1176)
    stacks = stack(Frame("Init", "mpi4py/MPI", 0), importing)
    return rank(number, stacks, **{**OF_MPI, "mpi": "loaded", "phase": "init_process_group"})


def test_a_rank_that_never_came_to_mpi() -> None:
    """The others stand in the import of mpi4py."""
    loading = rank(1, stack(Frame("load", "/job/data.py", 9)), **{**OF_MPI, "mpi": ""})
    verdict = only(job(in_init(0), loading, in_init(2), in_init(3)))

    assert ("mpi-rank-lost", [1], [0, 2, 3]) == blamed(verdict)
    assert "rank 1 never reached MPI_Init; rank 1 is in load (data.py:9)" == verdict.sentence
    assert "ranks 0, 2 and 3: MPI_Init (train.py:40)" in verdict.facts


def test_ranks_of_which_no_process_is_there() -> None:
    """MPI's launcher has not started them: MPI_Init waits for them all the same."""
    verdict = only(replace(job(in_init(0), in_init(1)), world_size=4))

    assert ("mpi-rank-lost", [2, 3], [0, 1]) == blamed(verdict)


def test_a_call_that_is_known_by_its_line_alone() -> None:
    """Without its arguments its communicator is taken for that of all, and the verdict is less certain."""
    blind = [replace(in_mpi(n, "allreduce"), mpi="loaded", mpi_call=None) for n in (0, 1)]
    verdict = only(job(*blind, finished(2), finished(3)))

    assert ("mpi-partial-collective", [2, 3], [0, 1], 0.6) == (*blamed(verdict), verdict.confidence)


def test_a_rank_that_left_without_a_word() -> None:
    """Exit code 0, and mpirun ended the others over it."""
    others = [dead(n, 3.0, signal=15, by_us=True, mpi="ready") for n in (0, 2, 3)]
    verdict = only(job(others[0], dead(1, 1.0, code=0, mpi="ready"), *others[1:], why="death"))

    assert ("mpi-rank-lost", [1], [0, 2, 3]) == blamed(verdict)
    assert "rank 1 is gone (exit code 0), and ranks 0, 2 and 3 needed it" == verdict.sentence


def test_an_exception_before_the_end_explains_it() -> None:
    """A rank that raised stands in MPI_Finalize, and the others wait for it: its exception is the reason."""
    culprit = replace(finished(1), raised=[raised("ValueError", "bad label", 1.0)])
    verdict = only(job(in_mpi(0, "Allreduce"), culprit))

    assert ("rank-failed", [1], [0]) == blamed(verdict)


def test_all_in_finalize_need_nobody_else() -> None:
    """They take their time, as a Python with torch does at its end: while one stirs, that is no alarm."""
    ending = [replace(finished(n), still_for=0.1) for n in range(4)]

    assert not nothing_moves(job(*ending))
    assert nothing_moves(job(in_mpi(0, "Barrier", size=4), *ending[1:])), "but somebody needs the others"


def test_the_last_words_of_mpirun_stand_between_rules() -> None:
    """The sentence quotes words, not the line that frames them."""
    said = ["-" * 74, "mpirun has detected an attempt to run as root.", "-" * 74]
    ended = Exited(NOW, code=1)
    verdict = only(job(why="death", launch_exit=ended, launch_output=said))

    assert verdict.sentence.endswith(
        "before it started a worker: mpirun has detected an attempt to run as root."
    )
