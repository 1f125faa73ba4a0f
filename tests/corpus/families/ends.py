"""Ranks that end: by an exception, an exit, a signal, or because they have no more to do."""

from __future__ import annotations

from tests.corpus.faults import Fault, Healthy


def _end(how: str, code: str) -> Fault:
    return Fault(f"ends_{how}", code, (1,), (0, 2), nproc=3, program="ends", arguments=(how,), whole=True)


def _one(program: str, how: str, code: str, rank: int, nproc: int, plain: bool = False) -> Fault:
    """The other ranks are its victims."""
    others = tuple(other for other in range(nproc) if other != rank)
    words = (how, str(rank)) if program == "pipeline" else (how,)
    name = f"{program}_{how}"
    return Fault(
        name, code, (rank,), others, nproc=nproc, program=program, arguments=words, plain=plain, whole=True
    )


FAULTS = [
    _end("exit_code", "rank-failed"),
    _end("os_exit_code", "rank-failed"),
    _end("exit_well", "rank-exited-early"),
    _end("os_exit_well", "rank-exited-early"),
    _end("terminated", "rank-killed"),
    _end("aborts", "rank-killed"),
    _end("killed_by_child", "rank-killed"),
    _end("floating_point_signal", "rank-killed"),
    _end("debugger", "rank-failed"),
    _end("command_fails", "rank-failed"),
    _end("out_of_range", "rank-failed"),
    _end("exception_chain", "rank-failed"),
    _one("sharded", "raises", "rank-failed", 1, 2),
    _one("sharded", "leaves", "rank-exited-early", 1, 2),
    _one("pipeline", "raises", "rank-failed", 1, 4),
    _one("pipeline", "killed", "rank-killed", 2, 3),
    _one("pipeline", "leaves", "rank-exited-early", 0, 3),
    _one("accumulation", "raises", "rank-failed", 1, 2),
    _one("loaders", "raises", "rank-failed", 0, 2),
    _one("loaders", "worker_exits", "rank-failed", 0, 2),
    _one("loaders", "ends_early", "rank-exited-early", 0, 2),
    Fault(
        "loaders_signalled",
        "node-evicted",
        (),
        (0, 1),
        program="loaders",
        arguments=("signalled",),
        whole=True,
    ),
    _one("objects", "cannot_be_pickled", "rank-failed", 1, 3),
    _one("before_init", "leaves", "rank-exited-early", 1, 3),
    _one("before_init", "killed", "rank-killed", 1, 3),
    _one("before_init", "import_fails", "rank-failed", 1, 3),
    _one("threads", "trainer_raises", "rank-failed", 0, 2),
    _one("spawns", "raises", "rank-failed", 2, 3, plain=True),
    _one("spawns", "killed", "rank-killed", 2, 3, plain=True),
    _one("spawns", "raises_early", "rank-failed", 2, 3, plain=True),
    _one("spawns", "killed_early", "rank-killed", 2, 3, plain=True),
    _one("spawns", "leaves", "rank-exited-early", 2, 3, plain=True),
    _one("ddp_uneven", "returns", "rank-exited-early", 1, 2),
    _one("ddp_uneven", "raises_in_join", "rank-failed", 1, 3),
    _one("ddp_uneven", "skips_head", "rank-failed", 1, 2),
    Fault(
        "subgroups_raises",
        "rank-failed",
        (2,),
        (0, 1, 3),
        nodes=2,
        program="subgroups",
        arguments=("raises", "mesh"),
        whole=True,
    ),
    Fault(
        "subgroups_leaves",
        "rank-exited-early",
        (2,),
        (0, 1, 3),
        nodes=2,
        program="subgroups",
        arguments=("leaves",),
        whole=True,
    ),
    Fault(
        "ends_of_eight",
        "rank-failed",
        (1,),
        (0, *range(2, 8)),
        nproc=8,
        program="ends",
        arguments=("exception_chain",),
        whole=True,
    ),
    Fault(
        "mpi_exits",  # mpi4py calls MPI_Finalize at the exit, and stays in it
        "mpi-partial-collective",
        (1,),
        (0, 2),
        nproc=3,
        mpi=True,
        program="mpi_styles",
        arguments=("exits",),
        whole=True,
    ),
    Fault(
        "mpi_crashes",
        "rank-killed",
        (1,),
        (0, 2),
        nproc=3,
        mpi=True,
        program="mpi_styles",
        arguments=("crashes",),
        whole=True,
    ),
]
HEALTHY: list[Healthy] = []
