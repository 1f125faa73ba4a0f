"""The rule about ranks of an MPI job that are gone, or never came to MPI_Init."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.causes import left_behind
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import IN_MPI
from ddplaunch.agent.diagnosis.run.mpi import others_wait, where_in_mpi
from ddplaunch.agent.system import phrases, subjects

_REACH_INIT = (
    "MPI_Init waits for all ranks: import mpi4py.MPI first on every rank, and do what takes long, or may "
    "fail, afterwards."
)
_STAY = "A rank must not leave before the others are done with it: let all ranks do the same number of steps."


def rank_lost(view: JobView) -> Optional[Verdict]:
    """Others wait in MPI for a rank that is gone without failing, or that has not come to MPI_Init."""
    in_mpi = [rank for rank in view.alive if view.locations[rank].kind == IN_MPI]
    starting = [rank for rank in in_mpi if view.locations[rank].what == "MPI_Init"]
    late = [rank for rank in view.alive if rank not in in_mpi and not view.ranks[rank].mpi]
    absent = view.absent
    if starting and (late or absent):
        return _never_came(view, starting, late, absent)
    lost = left_behind(view)
    gone = [
        number
        for number, rank in view.ranks.items()
        if rank.exit is not None
        and not rank.exit.by_us
        and rank.exit.code == 0
        and number not in lost
        # A rank whose program came to its end is done: what it missed shows in the calls of the others.
        and rank.mpi != "ending"
    ]
    if not gone or not lost or not any(rank.mpi for rank in view.ranks.values()):
        return None
    victims = sorted(lost)
    verb = phrases.one_or(gone, "is", "are")
    return view.verdict(
        code="mpi-rank-lost",
        sentence=f"{subjects.ranks(gone)} {verb} gone (exit code 0)"
        f"{others_wait(view, in_mpi) or f', and {subjects.ranks(victims)} needed it'}",
        ranks=gone,
        victims=victims,
        confidence=0.9,
        facts=where_in_mpi(view, victims),
        hint=_STAY,
    )


def _never_came(view: JobView, starting: list[int], late: list[int], absent: list[int]) -> Verdict:
    ranks = sorted([*late, *absent])
    parts = view.whereabouts(late)
    if absent:
        parts.append(f"of {subjects.ranks(absent)} no process has been seen")
    chains = [(rank, stacks.main(view.ranks[rank].stacks)) for rank in late[:4]]
    return view.verdict(
        code="mpi-rank-lost",
        sentence=f"{subjects.ranks(ranks)} never reached MPI_Init; {'; '.join(parts[:3])}",
        ranks=ranks,
        victims=starting,
        confidence=0.9,
        facts=[
            *(f"rank {rank}: {stacks.chain(frames)}" for rank, frames in chains if frames),
            *where_in_mpi(view, starting),
        ],
        hint=_REACH_INIT,
    )
