"""The programs of `seeds/`: how each is started, and what must be said of its fault, on each backend.

Each has the calls and the mistake of one program in the questions that this project began with. With the word
`fault` it goes wrong; without it, it ends well and not a word is said. Where it is right on a backend all the
same, such as localhost on one machine, nothing is said either.
"""

from __future__ import annotations

from dataclasses import dataclass

TORCHRUN, PYTHON, MPIRUN = "torchrun", "python", "mpirun"


@dataclass(frozen=True)
class Said:
    """The verdict's code, its ranks, and what its sentence must have."""

    code: str
    ranks: tuple[int, ...]
    words: str


@dataclass(frozen=True)
class Seed:
    """One program. `one`: what is said on one machine, `two`: on two; None: nothing, for it works."""

    name: str  # of NAME.py
    seed: str
    one: Said | None
    two: Said | None
    launcher: str = TORCHRUN
    ranks: int = 2
    two_machines: bool = True  # whether it can run there; mp.spawn stays on one
    whole: bool = False  # `make test` leaves it to the others
    first_ends_others: bool = False  # mp.spawn may end the rest before they get to the same error
    may_abstain: bool = False  # Gloo may end the ranks before anybody could see what each of them called


LOOPBACK = "sets MASTER_ADDR to localhost: each of the 2 nodes waits for itself; the job's master is"
NO_STORE = "where no rank opens a store: torchrun keeps the job's"
SEEDS = [
    Seed(
        "wrong_address",
        "000, first",
        (absent := Said("dns-not-found", (0, 1), "sets MASTER_ADDR to no-such-host.invalid, which does not")),
        absent,
        whole=True,
    ),
    Seed(
        "own_master",
        "000, second",
        Said("rendezvous-overridden", (0, 1), NO_STORE),
        Said("master-is-loopback", (0, 1), LOOPBACK),
    ),
    Seed(
        "gives_up",
        "000, third",
        None,
        Said("master-is-loopback", (0, 1), "tcp://localhost:"),
        whole=True,
    ),
    Seed(
        "local_rank",
        "000 and 001, ranks assigned wrongly",
        None,
        Said("rank-duplicate", (0,), "LOCAL_RANK counts from 0 on every node"),
        whole=True,
    ),
    Seed(
        "ddp_own_master",
        "001, first",
        Said("rendezvous-overridden", (0, 1), NO_STORE),
        Said("master-is-loopback", (0, 1), LOOPBACK),
        whole=True,
    ),
    Seed(
        "reports_and_exits",
        "001, second",
        (elsewhere := Said("rendezvous-overridden", (1,), NO_STORE)),
        elsewhere,
        whole=True,
    ),
    Seed(
        "port_taken",
        "001, third",
        (taken := Said("port-in-use", (0,), "is held by")),
        taken,
        two_machines=False,
        whole=True,
    ),
    Seed(
        "extra_reduce",
        "002, first",
        (mixed := Said("collective-mismatch", (0,), "all_reduce")),
        mixed,
        ranks=3,
        two_machines=False,
        may_abstain=True,
        whole=True,
    ),
    Seed(
        "loader_bottleneck",
        "002, second",
        (starved := Said("rank-in-dataloader", (1,), "DataLoader.__next__ (")),
        starved,
        whole=True,
    ),
    Seed(
        "module_swallows",
        "002, third",
        (swallowed := Said("rank-failed", (1,), "'NoneType' object has no attribute")),
        swallowed,
        whole=True,
    ),
    Seed(
        "mpi_any_source",
        "003, first",
        (unsent := Said("mpi-unmatched", (0, 2, 3), "")),
        unsent,
        MPIRUN,
        ranks=4,
        whole=True,
    ),
    Seed(
        "mpi_barrier",
        "003, second",
        (raised := Said("rank-failed", (1,), "raised ValueError: no such shard (")),
        raised,
        MPIRUN,
        whole=True,
    ),
    Seed(
        "mpi_half",
        "003, third",
        (half := Said("mpi-partial-collective", (2, 3), "allreduce")),
        half,
        MPIRUN,
        ranks=4,
    ),
    Seed(
        "spawned",
        "004, first",
        (asleep := Said("rank-in-user-code", (2,), "rank 2 has been in example (spawned.py:")),
        asleep,
        PYTHON,
        ranks=4,
        two_machines=False,
    ),
    Seed(
        "spawned_async",
        "004, second",
        (other := Said("collective-mismatch", (3,), "broadcast")),
        other,
        PYTHON,
        ranks=4,
        two_machines=False,
        may_abstain=True,
        whole=True,
    ),
    Seed(
        "spawned_ddp",
        "004, third",
        (no_gpu := Said("backend-unfit", (0, 1, 2, 3), "asks for NCCL, and torch sees no GPU")),
        no_gpu,
        PYTHON,
        ranks=4,
        two_machines=False,
        first_ends_others=True,
    ),
]
