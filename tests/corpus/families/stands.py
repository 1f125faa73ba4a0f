"""Ranks that live and do not come: they wait for something else, or make another call than their peers."""

from __future__ import annotations

from dataclasses import replace

from tests.corpus.faults import Fault, Healthy

STARTED_BY_PYTHON = ("spawns", "processes")
"""Programs that start their ranks themselves."""


def _one(program: str, how: str, code: str, rank: int, nproc: int, whole: bool = True) -> Fault:
    """The other ranks are its victims."""
    others = tuple(other for other in range(nproc) if other != rank)
    return Fault(
        f"{program}_{how}",
        code,
        (rank,),
        others,
        nproc=nproc,
        program=program,
        arguments=(how, str(rank)) if program in ("pipeline", "bars") else (how,),
        plain=program in STARTED_BY_PYTHON,
        whole=whole,
    )


def _branch(how: str, code: str, rank: int, says: str, whole: bool = True) -> Fault:
    """The verdict's sentence shows the branch."""
    return replace(_one("branches", how, code, rank, 3, whole), says=says)


def _says(program: str, how: str, code: str, rank: int, nproc: int, says: str) -> Fault:
    """The verdict's sentence has the reason, and not only the place."""
    return replace(_one(program, how, code, rank, nproc), says=says)


def _short(name: str, *words: str) -> Fault:
    return Fault(
        f"short_timeout_{name}",
        "rank-in-user-code",
        (2,),
        (0, 1, 3),
        nproc=4,
        program="short_timeout",
        arguments=words,
        whole=True,
    )


def _sizes(how: str) -> Fault:
    """Nobody can know whether the sender or the receiver is wrong."""
    name, program = f"p2p_sizes_{how}", "p2p_sizes"
    return Fault(name, "p2p-deadlock", (0, 1), (2,), nproc=3, program=program, arguments=(how,), whole=True)


FAULTS = [
    _branch("checkpoint", "collective-mismatch", 2, "rank 2 is in the `else` of branches.py:", whole=False),
    _branch("expert", "collective-skipped", 1, "in the module Expert (branches.py:"),
    _branch("evaluates", "collective-mismatch", 0, "(`if dist.get_rank() == 0`)"),
    Fault(
        "branches_logs",
        "collective-mismatch",
        (0, 1),
        (),
        program="branches",
        arguments=("logs",),
        whole=True,
        says="rank 0 made that call in the branch of branches.py:",
    ),
    _says("reasons", "guard", "collective-mismatch", 0, 3, "rank 0 is in the code after reasons.py:"),
    _says("reasons", "stops_early", "collective-skipped", 2, 3, ": break) may be why"),
    _says("reasons", "skips", "collective-skipped", 1, 3, ": continue) may be why"),
    _says("reasons", "other_root", "collective-mismatch", 2, 4, " from rank 1 (reasons.py:"),
    _says("reasons", "mesh", "group-partial", 3, 4, "new_group (reasons.py:"),
    _says("reasons", "at_exit", "collective-mismatch", 0, 3, ", the others monitored_barrier (reasons.py:"),
    _says("reasons", "destroys", "rank-exited-early", 0, 3, "rank 0 destroyed its process group after "),
    _says("reasons", "handles", "collective-mismatch", 1, 3, " (`except RuntimeError`) may be why"),
    _says("reasons", "averages", "p2p-deadlock", 1, 4, ": rank 1 receives from rank 3, which never sends"),
    _says("reasons", "later", "collective-mismatch", 0, 3, "rank 0 is in the code after reasons.py:"),
    _says("reasons", "keeps", "rank-in-user-code", 1, 3, "and its Python waits for its thread"),
    _says("reasons", "shapes", "collective-mismatch", 2, 4, "; `values` comes from reasons.py:"),
    _says("reasons", "variable", "collective-skipped", 2, 3, "rank 2 was started with SKIP_REPORT, ranks 0"),
    _says("reasons", "freed", "collective-mismatch", 1, 3, "rank 1 is in `__del__` (reasons.py:"),
    _says("reasons", "unused", "collective-mismatch", 1, 3, "in the same round: some parameters may have"),
    _says("reasons", "fewer", "p2p-deadlock", 0, 2, "3 times in this round, and 4 times in each before"),
    _says("reasons", "leaves", "rank-exited-early", 1, 3, "rank 1 called sys.exit(0) (reasons.py:"),
    _says("reasons", "gives_up", "rank-failed", 2, 3, "rank 2 raised KeyError: '<unk>' (reasons.py:"),
    _says("reasons", "teachers", "group-partial", 2, 3, "ranks 0 and 1 called new_group (reasons.py:"),
    _says(
        "reasons", "helper", "rank-in-user-code", 1, 3, "ended with exit code 1 after KeyError: 'tricycle'"
    ),
    _says("reasons", "monitored", "collective-mismatch", 0, 3, "rank 0 called it in a thread of its own"),
    _says("reasons", "routed", "collective-mismatch", 2, 3, "(`if not len(tokens)`: return"),
    _says("reasons", "preempted", "rank-exited-early", 1, 3, "SIGTERM came to rank 1 at"),
    Fault(
        "reasons_by_mismatch",
        "group-partial",
        (0, 1),
        (2,),
        nproc=3,
        program="reasons",
        arguments=("by_mismatch",),
        whole=True,
        says="the calls come from one line in reasons.py:",
    ),
    _says("reasons", "detailed", "environment-differs", 1, 3, "rank 1 has TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    Fault(
        "reasons_unordered",
        "collective-mismatch",
        (0, 1, 2),
        (),
        nproc=3,
        program="reasons",
        arguments=("unordered",),
        whole=True,
        says="`touched` from reasons.py:",
    ),
    _says("reasons", "timed", "collective-mismatch", 1, 3, "rank 1 is there in the handler of SIGALRM"),
    _says("reasons", "restores", "rank-failed", 1, 3, "raised CheckpointException for rank 1: RuntimeError"),
    _says("reasons", "unread", "rank-in-user-code", 0, 3, "what it has put into a multiprocessing.Queue"),
    Fault(
        "reasons_resumes",
        "p2p-deadlock",
        (0, 1),
        (),
        program="reasons",
        arguments=("resumes",),
        whole=True,
        says=": the tags differ, 10 is sent and 11 is received",
    ),
    _says("by_hand", "marker", "rank-in-user-code", 0, 3, "; it is for rank 0 to write it, most likely"),
    _says("by_hand", "gate", "rank-in-user-code", 2, 4, "rank 2 has been in enter (by_hand.py:"),
    Fault(
        "by_hand_lock",
        "lock-deadlock",
        (0, 1, 2),
        (),
        nproc=3,
        program="by_hand",
        arguments=("lock",),
        whole=True,
        says=": each collective waits for the others",
    ),
    _says("by_hand", "lock_file", "rank-in-user-code", 1, 3, "; whoever has made this file has not removed"),
    _says("by_hand", "server", "p2p-deadlock", 2, 4, ": rank 2 no longer calls send to rank 0 (by_hand.py:"),
    _says("by_hand", "outside", "group-partial", 2, 4, " has ranks 0 and 1 and lacks rank 2"),
    _says(
        "by_hand", "cached", "group-partial", 0, 4, "; what they left out made the group of ranks 1-3, used"
    ),
    _says("by_hand", "slots", "rank-duplicate", 3, 4, ", to which the launcher gave RANK=3, joins as rank 2"),
    _one("sharded", "stands", "rank-in-user-code", 1, 2),
    _one("sharded", "reduces", "collective-mismatch", 1, 3),
    _one("pipeline", "stands", "rank-in-user-code", 1, 4),
    _one("pipeline", "stopped", "rank-stopped", 1, 3),
    _one("accumulation", "waits_for_event", "rank-in-user-code", 1, 2),
    _one("accumulation", "counts_differently", "collective-skipped", 1, 3),
    _one("loaders", "stands", "rank-in-dataloader", 0, 2),
    _one("loaders", "loops", "rank-in-dataloader", 0, 2),
    _one("objects", "key_never_set", "rank-in-user-code", 1, 3),
    _one("objects", "asks_first", "rank-in-user-code", 1, 3),
    _one("objects", "other_call", "collective-mismatch", 1, 3),
    _one("before_init", "waits_for_lock", "rank-late-to-init", 1, 3),
    _one("before_init", "downloads", "rank-late-to-init", 1, 2),
    _one("before_init", "runs_command", "rank-late-to-init", 1, 2),
    _one("before_init", "stopped", "rank-stopped", 1, 3),
    _one("processes", "polls_early", "rank-late-to-init", 1, 4),
    _one("bars", "monitor", "rank-in-user-code", 0, 2),
    _one("bars", "clock", "rank-in-user-code", 1, 3),
    _one("polled_lock", "with_filelock", "rank-in-user-code", 1, 3),
    _one("polled_lock", "with_baton", "rank-in-user-code", 1, 3),
    Fault(
        "polled_lock_left_over",
        "rank-in-user-code",
        (0, 1),
        (2,),
        nproc=3,
        program="polled_lock",
        arguments=("left_over",),
        whole=True,
    ),
    _one("awaited", "key", "rank-in-user-code", 1, 3),
    _one("awaited", "file", "rank-in-user-code", 1, 3),
    _one("awaited", "no_key", "rank-in-user-code", 1, 3),
    _one("threads", "thread_raises", "exception-swallowed", 0, 2),
    _one("threads", "trainer_stands", "rank-in-user-code", 0, 2),
    _one("threads", "waits_for_command", "rank-in-user-code", 0, 2),
    _one("threads", "hangs_at_exit", "rank-in-user-code", 0, 2),
    _one("other_call", "other_dtype", "collective-mismatch", 1, 3),
    _one("other_call", "other_order", "collective-mismatch", 1, 3),
    _one("other_call", "extra_barrier", "collective-mismatch", 1, 3),
    _one("other_call", "only_gathers", "collective-mismatch", 1, 3),
    _one("beside_torch", "ddp", "collective-mismatch", 0, 3),
    _one("beside_torch", "fsdp", "collective-mismatch", 0, 3),
    _one("answers", "leaves_out", "p2p-deadlock", 0, 4),
    _one("answers", "in_tasks", "group-partial", 1, 3),
    _one("answers", "returns", "group-partial", 3, 4),
    Fault(
        "answers_asks",
        "p2p-deadlock",
        (0, 1),
        (2,),
        nproc=3,
        program="answers",
        arguments=("asks",),
        whole=True,
    ),
    _one("functional", "skips", "collective-mismatch", 2, 3),
    _one("functional", "logs", "collective-mismatch", 1, 4),
    Fault(
        "functional_drops",
        "group-partial",
        (0, 1, 2, 3),
        (),
        nproc=4,
        program="functional",
        arguments=("drops",),
        whole=True,
    ),
    _one("children", "is_killed", "rank-in-user-code", 0, 2),
    _one("children", "is_watched", "rank-in-user-code", 0, 2),
    _one("retried", "barrier", "rank-in-user-code", 1, 3),
    _one("children", "joins", "rank-duplicate", 0, 3),
    _one("held", "by_with", "rank-failed", 0, 2),
    Fault(
        "held_by_finally",
        "rank-failed",
        (0, 1),
        (),
        program="held",
        arguments=("by_finally",),
        whole=True,
    ),
    Fault("held_by_except", "rank-failed", (0, 1), (), program="held", arguments=("by_except",), whole=True),
    _says("waits_for", "hello", "rank-in-user-code", 1, 2, ", waiting for data from its child process "),
    _says("waits_for", "full_pipe", "rank-in-user-code", 1, 2, ", which waits for rank 1 to read its output"),
    _says("waits_for", "both_pipes", "rank-in-user-code", 1, 2, " pipe, which waits for rank 1 to read its"),
    _says("waits_for", "command", "rank-in-user-code", 1, 2, ", waiting for the end of its child process "),
    _says(
        "waits_for", "features", "rank-in-user-code", 1, 2, ", waiting for data from its own process by TCP"
    ),
    _says("waits_for", "named_pipe", "rank-in-user-code", 1, 2, " opens the other end of the named pipe "),
    _says(
        "waits_for", "pool", "rank-in-user-code", 1, 2, " was killed by SIGKILL, and rank 1 has been in pool"
    ),
    _says(
        "waits_for", "native_lock", "rank-in-user-code", 1, 2, ' for a lock that its thread "decoder" holds'
    ),
    _says("forked", "metric", "rank-in-user-code", 2, 3, " by a pipe, which is in all_reduce (forked.py:"),
    _says("forked", "loader", "lock-deadlock", 2, 3, ' that thread "warm-cache" of rank 2 held'),
    _says(
        "forked",
        "helper",
        "lock-deadlock",
        2,
        3,
        " for a lock that nobody can release: it has no other thread",
    ),
    _says("told", "apart", "collective-skipped", 2, 3, "SIGTERM came to all ranks at "),
    replace(
        _says("told", "half", "collective-skipped", 1, 4, "SIGUSR1 came to ranks 1 and 2 at "),
        ranks=(1, 2),
        victims=(0, 3),
    ),
    _says(
        "told",
        "in_handler",
        "collective-mismatch",
        0,
        3,
        " in the handler of SIGUSR1 and has interrupted in_handler (told.py:",
    ),
    replace(
        _says("stays", "thread", "rank-in-user-code", 2, 3, 'waits for its thread "heartbeat", in beat'),
        victims=(),
    ),
    replace(
        _says("stays", "child", "rank-in-user-code", 0, 2, "waits for the end of its child process "),
        victims=(),
    ),
    _says("stays", "watchdog", "rank-exited-early", 2, 3, "as os._exit(0) ends it"),
    _sizes("longer"),
    _sizes("wider"),
    _short("in_collective", "2", "all_reduce"),
    _short("in_barrier", "2", "barrier"),
    _short("after_the_notice", "5", "all_reduce"),
    Fault(
        "subgroups_stands",
        "rank-in-user-code",
        (2,),
        (0, 1, 3),
        nodes=2,
        program="subgroups",
        arguments=("stands",),
        whole=True,
    ),
    Fault(
        "mesh_stands",
        "rank-in-user-code",
        (2,),
        (0, 1, 3),
        nproc=4,
        program="subgroups",
        arguments=("stands", "mesh"),
        whole=True,
    ),
    Fault(
        "mpi_waits_for_command",
        "rank-in-user-code",
        (1,),
        (0, 2),
        nproc=3,
        mpi=True,
        program="mpi_styles",
        arguments=("waits_for_command",),
        whole=True,
    ),
    Fault(
        "mpi_receives_from_all",
        "mpi-unmatched",
        (1,),
        (0, 2),
        nproc=3,
        mpi=True,
        program="mpi_styles",
        arguments=("receives_from_all",),
        whole=True,
    ),
]


def _long(program: str, nproc: int, *words: str, how: str = "works_long") -> Healthy:
    return Healthy(
        f"{program}_long",
        nproc=nproc,
        program=program,
        arguments=(how, *words),
        mpi=program.startswith("mpi"),
        plain=program in STARTED_BY_PYTHON,
        whole=True,
    )


HEALTHY = [
    _long("sharded", 2),
    _long("pipeline", 3, "1"),
    _long("accumulation", 2),
    _long("subgroups", 4),
    _long("loaders", 2, how="slow_well"),
    _long("objects", 3, how="prepares_long"),
    _long("before_init", 3, how="prepares_long"),
    _long("threads", 2),
    _long("spawns", 3),
    _long("processes", 4, how="prepares_long"),
    _long("bars", 2, "1"),
    _long("held", 2, how="by_nothing"),
    _long("children", 2, how="trains_alone"),
    _long("saver", 3, how="own"),
    _long("mpi_styles", 3),
    _long("ddp_uneven", 2, how="joins_well"),
    _long("told", 3, how="together"),
    Healthy("helpers_idle", program="healthy_helpers", arguments=("idle",), whole=True),
    # With the default patience: children that hardly get a CPU on a busy machine look idle sooner.
    *(
        Healthy(
            f"helpers_{how}",
            program="healthy_helpers",
            arguments=(how,),
            notice_after=10.0,
            seconds=30.0,
            whole=True,
        )
        for how in ("tokenizes", "compiles")
    ),
]
