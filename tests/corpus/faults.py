"""The table: every verdict code and the real fault that provokes it, and healthy jobs that only look faulty.

Global ranks; with 2 nodes of 2 ranks, ranks 2 and 3 are on node 1. `victims` None: any.
Those `on_clusters` run on several nodes of a real Slurm and a real Kubernetes as well.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTICE_AFTER = 3.0
"""Seconds, instead of the 10 that are the default: the corpus is run often."""


@dataclass(frozen=True)
class Fault:
    """A job that goes wrong, and what the verdict on it must say."""

    name: str  # of programs/NAME.py, unless `program` says otherwise
    code: str
    ranks: tuple[int, ...]
    victims: tuple[int, ...]
    nodes: int = 1
    nproc: int = 2
    program: str = ""
    notice_after: float = NOTICE_AFTER
    patience: float = 1.0  # times notice_after in which the notice must come: ranks that burn CPU get more
    memory: int | None = None  # bytes, of a memory cgroup around the whole job
    cpus: float | None = None  # of a cgroup that the program enters
    shm: int | None = None  # bytes, of a /dev/shm of its own
    root: bool = False  # its program mounts a file system
    asked: bool = False  # by `diagnose` while it runs, and then stopped
    ask_after: float = 3.0  # seconds of running
    launch: tuple[str, ...] = ()  # more words for torchrun
    restarts: int = 0  # that torchrun may make; the verdict is on the last round
    mpi: bool = False  # started by mpirun
    may_abstain: bool = False  # Gloo may end the ranks before anybody could see what each of them called
    folder: str = "programs"
    arguments: tuple[str, ...] = ()
    plain: bool = False  # started by Python alone: it spawns its ranks itself
    whole: bool = False  # `make test` leaves it to a sibling
    on_clusters: bool = False  # in `make test-all`
    says: str = ""  # a part of the verdict's sentence

    @property
    def culprit_nodes(self) -> tuple[int, ...]:
        """The nodes of the culprit ranks."""
        return tuple(sorted({rank // self.nproc for rank in self.ranks}))

    @property
    def file(self) -> str:
        return f"{self.program or self.name}.py"


@dataclass(frozen=True)
class Healthy:
    """A job that takes its time and ends well. No word may be said about it."""

    name: str
    nodes: int = 1
    nproc: int = 2
    notice_after: float = NOTICE_AFTER
    mpi: bool = False  # started by mpirun
    seconds: float = 3 * NOTICE_AFTER  # of its long steps: in the ratio of 30 s to the default 10 s
    program: str = ""
    folder: str = "programs"
    arguments: tuple[str, ...] = ()
    plain: bool = False  # started by Python alone: it spawns its ranks itself
    whole: bool = False  # `make test` leaves it to a sibling

    @property
    def file(self) -> str:
        return f"{self.program or 'healthy_' + self.name}.py"


FAULTS = [
    Fault("rank_failed", "rank-failed", (3,), (0, 1, 2), nodes=2),
    Fault("all_failed", "rank-failed", (0, 1), (), whole=True),
    Fault("failed_before_init", "rank-failed", (1,), (0, 2, 3), nodes=2, whole=True),
    Fault("device_shared", "device-shared", (0, 1), ()),
    Fault("rank_exited_early", "rank-exited-early", (1,), (0, 2, 3), nodes=2, says="finished normally"),
    Fault("rank_killed", "rank-killed", (2,), (0, 1, 3), nodes=2, on_clusters=True),
    Fault("killed_in_recv", "rank-killed", (1,), (0, 2, 3), nodes=2, whole=True),
    Fault("rank_crashed", "rank-killed", (1,), (0,), whole=True),
    Fault("shm_full", "rank-killed-bus", (1,), (0, 2, 3), nodes=2, shm=64 << 20),
    Fault("mapped_file_cut", "rank-killed-bus", (0,), (1,), whole=True),
    Fault("loader_bus_error", "rank-killed-bus", (1,), (0,), shm=64 << 20, whole=True),
    Fault("rank_killed_memory", "rank-killed-memory", (1,), (0,), memory=1600 << 20),
    Fault("loader_killed_memory", "rank-killed-memory", (0,), (1,), memory=2400 << 20, whole=True),
    Fault("launch_fails", "launch-failed", (), (), program="rank_failed", launch=("--no-such-option",)),
    Fault("rank_late_to_init", "rank-late-to-init", (1,), (0, 2, 3), nodes=2, on_clusters=True),
    Fault("rank_in_dataloader", "rank-in-dataloader", (2,), (0, 1), nproc=3, on_clusters=True),
    Fault("loader_in_process", "rank-in-dataloader", (0,), (1,), whole=True),
    Fault("io_stuck", "io-stuck", (1,), (0, 2, 3), nodes=2, root=True, on_clusters=True),
    Fault("io_stuck_loader", "io-stuck", (0,), (1,), root=True, whole=True),
    Fault("cpu_throttled", "cpu-starved", (1,), (0,), cpus=0.03, patience=4.0),
    Fault("cpu_crowded", "cpu-starved", (1,), (0,), patience=4.0, whole=True),
    Fault("lock_before_barrier", "rank-in-user-code", (0, 1), (2,), nproc=3, whole=True),
    Fault("lock_of_a_program", "rank-in-user-code", (1,), (0,), whole=True),
    Fault("lock_of_a_rank", "rank-late-to-init", (0,), (1, 2), nproc=3, whole=True),
    Fault(
        "rank_in_user_code", "rank-in-user-code", (0,), (1,), notice_after=10.0, whole=True, on_clusters=True
    ),
    Fault("logs_beside_wait", "rank-in-user-code", (1,), (0, 2), nproc=3, whole=True),
    Fault("rank_loops", "rank-in-user-code", (3,), (0, 1, 2), nodes=2, patience=4.0, whole=True),
    Fault("gil_held", "gil-held", (1,), (0, 2, 3), nodes=2, on_clusters=True),
    Fault("gil_held_spinning", "gil-held", (0,), (1,), patience=4.0, whole=True),
    Fault("lock_deadlock", "lock-deadlock", (2,), (0, 1), nproc=3, on_clusters=True),
    Fault("lock_of_fork", "lock-deadlock", (0,), (1,), whole=True),
    Fault("lock_in_join", "lock-deadlock", (1,), (0,), whole=True),
    Fault("rank_stopped", "rank-stopped", (1,), (0, 2, 3), nodes=2, on_clusters=True),
    Fault("collective_mismatch", "collective-mismatch", (3,), (0, 1, 2), nodes=2, on_clusters=True),
    Fault("mismatch_of_two", "collective-mismatch", (0, 1), (), whole=True),
    Fault("mismatch_in_shape", "collective-mismatch", (2,), (0, 1, 3), nodes=2, whole=True),
    Fault("skipped_in_loop", "collective-skipped", (2,), (0, 1), nproc=3, on_clusters=True),
    Fault("skipped_silently", "collective-skipped", (1,), (0, 2), nproc=3, whole=True),
    Fault("skipped_uneven", "collective-skipped", (2,), (0, 1), nproc=3, whole=True),
    Fault("skipped_no_sync", "collective-skipped", (0,), (1, 2), nproc=3, whole=True),
    Fault("p2p_all_receive", "p2p-deadlock", (0, 1, 2), (), nproc=3),
    Fault("p2p_both_send", "p2p-deadlock", (0, 1), (2,), nproc=3, whole=True),
    Fault("p2p_tags", "p2p-deadlock", (0, 1), (2,), nproc=3, whole=True),
    Fault("p2p_pipeline", "p2p-deadlock", (2,), (0, 1, 3), nodes=2, whole=True, on_clusters=True),
    Fault("p2p_and_barrier", "p2p-deadlock", (1,), (0, 2), nproc=3, whole=True),
    Fault("group_half", "group-partial", (0, 1, 2, 3), (), nproc=4, whole=True),
    Fault("group_circle", "group-partial", (0, 1, 2), (), nproc=3),
    Fault("group_mesh", "group-partial", (0, 1, 2, 3), (), nodes=2, whole=True, on_clusters=True),
    Fault("group_left_out", "group-partial", (0, 1), (2, 3), nproc=4, whole=True),
    Fault(
        "saver",
        "group-in-two-threads",
        (0, 1, 2),
        (),
        nproc=3,
        arguments=("default",),
    ),
    Fault("async_send", "async-not-waited", (1,), (0,), nproc=3, on_clusters=True),
    Fault("async_batch", "async-not-waited", (1,), (0,), whole=True),
    Fault("exception_swallowed", "exception-swallowed", (2,), (0, 1), nproc=3, on_clusters=True),
    Fault("hang_after_restart", "rank-in-user-code", (1,), (0, 2), nproc=3, restarts=1, whole=True),
    Fault("exception_retried", "exception-swallowed", (1,), (0,), whole=True),
    Fault("mpi_partial_collective", "mpi-partial-collective", (2, 3), (0, 1), nodes=2, mpi=True, whole=True),
    Fault("mpi_other_collective", "mpi-partial-collective", (2,), (0, 1), nproc=3, mpi=True, whole=True),
    Fault("mpi_unmatched", "mpi-unmatched", (0, 1), (2, 3), nodes=2, mpi=True),
    Fault("mpi_all_receive", "mpi-unmatched", (0, 1, 2), (), nproc=3, mpi=True, whole=True),
    Fault("mpi_truncated", "mpi-unmatched", (0,), (1,), mpi=True, whole=True),
    Fault("mpi_rank_lost", "mpi-rank-lost", (1,), (0, 2, 3), nodes=2, mpi=True),
    Fault("mpi_rank_gone", "mpi-rank-lost", (2,), (0, 1, 3), nodes=2, mpi=True, whole=True),
    Fault("mpi_rank_failed", "rank-failed", (1,), (0,), mpi=True, whole=True),
    Fault("mpi_rank_in_user_code", "rank-in-user-code", (0,), (1, 2), nproc=3, mpi=True, whole=True),
    Fault("slow", "slow", (1,), (0,), asked=True),
    Fault("slow_loader", "slow", (2,), (0, 1), nproc=3, asked=True, ask_after=15.0, whole=True),
    Fault("slow_broadcast", "slow-broadcast", (), (), nproc=3, asked=True),
    Fault("unknown", "unknown", (), ()),
]

HEALTHY = [
    Healthy("loading", whole=True),
    Healthy("compute", whole=True),
    Healthy("one_call", whole=True),
    Healthy("uneven", nodes=2, nproc=1, whole=True),
    Healthy("slow_link", whole=True),
    Healthy("loader"),
    Healthy("evaluation", whole=True),
    Healthy("start"),
    Healthy("async", nproc=3, whole=True),
    Healthy("mpi", nodes=2, mpi=True, whole=True),
    Healthy("mpi_uneven", nproc=3, mpi=True, whole=True),
]

BROKEN_STARTS = {
    "port-in-use": "gate/test_gate.py::test_the_master_ports_holder_is_named_to_all",
    "stranger-listens": "gate/test_network.py::test_a_transparent_proxy_is_told_from_node_zero",
    "master-is-loopback": "gate/test_network.py::test_a_node_for_which_the_masters_name_is_loopback_is_named",
    "world-size-differs": "gate/test_gate.py::test_a_node_that_was_started_for_another_size_is_named",
    "store-shared": "gate/test_shared.py::test_another_jobs_store_on_the_master_port_is_told_by_its_job",
    "ip-family-mixed": "gate/test_families.py::test_an_ipv6_address_that_swallows_packets_is_a_verdict",
    "environment-differs": "gate/test_environment.py::test_nccls_own_file_counts_as_a_nodes_environment",
    "key-differs": "join/test_run.py::test_a_node_with_another_key_cannot_join_and_reads_why",
    "version-differs": "gate/test_software.py::test_the_node_with_another_torch_is_named_without_imports",
    "shm-too-small": "gate/test_network.py::test_the_node_whose_shared_memory_is_small_is_named",
    "image-lacks": "gate/test_software.py::test_a_python_without_torch_is_named_before_torchrun_fails",
    "secret-missing": "gate/test_environment.py::test_a_job_whose_secret_one_node_lacks_is_refused",
}
"""Faults that keep a job from starting need hosts of their own: these tests in tests/agent provoke them."""
