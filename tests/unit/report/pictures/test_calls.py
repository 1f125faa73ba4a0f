"""Where the ways of ranks part."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.unit.report import conftest as given
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Collective, Frame, MpiCall, RankEvidence, Stack
from ddplaunch.report import Diagnosis, sources
from ddplaunch.report.pictures import Scene, calls
from ddplaunch.report.pictures.calls import Parting


def parting(ranks: list[RankEvidence], code: str, *culprits: int) -> Parting | None:
    """Where these part."""
    return calls.find(stuck.view(stuck.bundle(ranks)), stuck.verdict(code, *culprits))


def test_a_rank_that_has_not_called_parts_where_the_others_wait() -> None:
    """It is named with the place where it is instead."""
    ranks = stuck.mismatch()
    before = stuck.call(1, "all_reduce", 9, stuck.END - 40, "returned")
    frames = [Frame("evaluate", stuck.FILE, 140)]
    ranks[3] = dataclasses.replace(
        stuck.rank(3, before), stacks=[Stack("MainThread", True, frames)], collectives=[before]
    )
    found = parting(ranks, "rank-in-user-code", 3)

    assert found is not None
    assert (2, [[3], [0, 1, 2]]) == (found.number, [way.ranks for way in found.ways])
    assert "never called: it is in evaluate (train.py:140)" == found.ways[0].shown()


def test_lines_differ_only_where_the_verdict_is_about_them() -> None:
    """A root may call from a line of its own, and is right."""

    def called(line: int) -> list[Collective]:
        return [
            stuck.call(1, "broadcast", line, stuck.END - 40, "returned"),
            stuck.call(2, "broadcast", line + 1, stuck.END - 30),
        ]

    ranks = [stuck.rank(number, *called(9 if number else 20)) for number in range(4)]

    assert None is parting(ranks, "unknown", 0)
    found = parting(ranks, "collective-skipped", 0)
    assert found is not None
    assert 1 == found.number


def test_sends_and_receives_part_nowhere() -> None:
    """They have no number that is the same on all ranks."""
    assert None is parting(stuck.circle(), "p2p-deadlock", 0, 1, 2)


def in_mpi(number: int, name: str, line: int, **call: Any) -> RankEvidence:
    """A rank that stands in a function of MPI, as its main thread's stack and the hook show it."""
    frames = [Frame(name, "/src/mpi4py/MPI.src/Comm.pyx", 400), Frame("train", stuck.FILE, line)]
    return RankEvidence(
        number,
        number,
        100 + number,
        True,
        stacks=[Stack("MainThread", True, frames)],
        stack_source="hook",
        stuck_for=30.0,
        mpi="ready",
        mpi_call=MpiCall(name, "MPI_COMM_WORLD", 4, **call),
        world_size=4,
    )


def test_ranks_in_mpi_part_where_they_stand() -> None:
    """Its calls have no numbers: what each side waits in now stands side by side, with its line."""
    ranks = [in_mpi(number, "Allreduce", 9) for number in range(3)] + [in_mpi(3, "Barrier", 14)]
    found = parting(ranks, "mpi-partial-collective", 3)
    picture = calls.picture(found)

    assert found is not None
    assert picture is not None
    assert (None, [[3], [0, 1, 2]]) == (found.number, [way.ranks for way in found.ways])
    assert "Now: rank 3: Barrier (train.py:14); ranks 0-2: Allreduce (train.py:9)" in picture.svg
    assert 1 == picture.svg.count('class="box culprit"')
    assert "MPI's earlier calls are not recorded." in picture.notes[0]


def test_a_send_and_its_receive_stand_side_by_side_with_their_tags() -> None:
    ranks = [in_mpi(0, "Send", 9, dest=1, sendtag=7), in_mpi(1, "Recv", 14, source=0, recvtag=8)]
    found = parting(ranks, "mpi-unmatched", 0, 1)

    assert found is not None
    assert ["Send(dest=1, tag=7) (train.py:9)", "Recv(source=0, tag=8) (train.py:14)"] == [
        way.shown() for way in found.ways
    ]


def test_ranks_that_are_all_in_one_call_of_mpi_part_nowhere() -> None:
    """And without a culprit nobody is set apart."""
    same = [in_mpi(number, "Allreduce", 9) for number in range(4)]

    assert parting(same, "mpi-partial-collective", 3) is None
    assert parting([*same[:3], in_mpi(3, "Barrier", 14)], "unknown") is None


def test_the_lines_of_a_parting_in_mpi_are_shown() -> None:
    """Culprit first, each with its call."""
    ranks = [in_mpi(number, "Allreduce", 9) for number in range(3)] + [in_mpi(3, "Barrier", 14)]
    verdict = stuck.verdict("mpi-partial-collective", 3)
    found = sources.spots(Scene(Diagnosis(given.job(), stuck.bundle(ranks, verdict), [verdict])))

    assert [
        ("rank 3", True, "in Barrier (train.py:14)", "dist.broadcast(x, 0)"),
        ("ranks 0-2", False, "in Allreduce (train.py:9)", "dist.all_reduce(x)"),
    ] == [(spot.who, spot.culprit, spot.doing, spot.text) for spot in found]
