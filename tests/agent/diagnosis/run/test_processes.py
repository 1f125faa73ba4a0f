"""The rule on ranks that get no CPU, and what it leaves to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import LOADER, in_evaluate, in_loader, job, only, rank, stack

from ddplaunch.agent.contract import Frame, Process, RankEvidence, Verdict, Wait
from ddplaunch.agent.diagnosis.run.decide import judge

THROTTLED = Process(
    1003, "R", threads=64, cpu_share=2.0, ran=0.03, delayed=0.92, throttled=0.95, cpu_limit=2.0
)
CROWDED = Process(1003, "R", threads=16, cpu_share=0.1, ran=0.1, delayed=0.84)
OTHER = Process(4711, command="./simulate --all", cpu_share=7.8)


def on(process: Process, step: float = 2.0, **more: Any) -> Verdict:
    """The verdict on rank 3 with this process, whose steps used to take `step` seconds."""
    starved = rank(
        3, in_evaluate(), 16, process=process, stuck_for=50.0, still_for=50.0, step_times=[step] * 9
    )
    return only(job(rank(0), rank(1), rank(2), starved, **more))


def test_a_quota_is_used_up() -> None:
    """Share, limit and threads are named, and the hint asks for more CPUs or fewer threads."""
    verdict = on(THROTTLED)

    assert ("cpu-starved", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert (
        "rank 3 is runnable and throttled 92 % of the time (limit 2 CPUs, 64 threads), in evaluate "
        "(eval.py:140), the others wait in all_reduce 17 (train.py:92)"
    ) == verdict.sentence
    assert "resources.cpus" in verdict.hint


def test_others_have_the_cpus() -> None:
    """They are named where they are seen; no quota is blamed."""
    verdict = on(CROWDED, busiest=[OTHER])

    assert "rank 3 is runnable and without a CPU for 84 % of the time (16 threads)" in verdict.sentence
    assert "node 1, not of this job: pid 4711 (./simulate --all) uses 7.8 CPUs" in verdict.facts
    assert "Other processes use the CPUs of node 1" in verdict.hint


@pytest.mark.parametrize(
    ("process", "step"),
    [
        (CROWDED, 0.005),
        (replace(CROWDED, ran=0.3, delayed=0.7), 20.0),
        (replace(CROWDED, delayed=0.4), 2.0),
        (replace(THROTTLED, state="S"), 2.0),
        (Process(1003, "R", cpu_share=1.0), 2.0),
    ],
)
def test_what_is_no_starvation(process: Process, step: float) -> None:
    """It has had CPU for many steps, or has enough, or sleeps, or was never measured: it may loop."""
    verdict = on(process, step)

    assert "rank-in-user-code" == verdict.code


def test_the_general_verdict_tells_of_missing_cpu() -> None:
    """Where the rule abstains, the share stands in the facts."""
    facts = on(CROWDED, 0.005).facts

    assert (
        "rank 3: burns 0.1 cores, without a CPU for 84 % of the time (16 threads), nothing new for 50 s"
        in facts
    )


@pytest.mark.parametrize(("starves", "code"), [(True, "cpu-starved"), (False, "rank-in-dataloader")])
def test_a_loader_worker_starves(starves: bool, code: str) -> None:
    """The rank itself sleeps until its batch is there."""
    frames = stack(
        Frame("decode", "/job/data.py", 20), Frame("fetch", LOADER, 52), Frame("_worker_loop", LOADER, 3)
    )
    at_work = replace(CROWDED if starves else Process(1, "R"), pid=812, role="loader", stacks=frames)
    verdict = only(job(rank(0), rank(1, in_loader(), 16, children=[at_work])))

    assert (code, [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert starves == ("rank 1's DataLoader worker 812 is runnable and without a CPU" in verdict.sentence)


def test_a_slow_job_says_that_it_is_throttled() -> None:
    """It moves, so nobody calls it hung; the reason stands beside the pace."""
    ranks = [
        rank(0, stuck_for=6.0, step_times=[14.0, 14.0]),
        rank(1, in_evaluate(), 16, still_for=0.0, stuck_for=6.0, step_times=[14.0], process=THROTTLED),
    ]
    (verdict,) = judge(job(*ranks, why="asked"))

    assert (
        "not hung: a step takes 14 s; rank 1 is in evaluate (eval.py:140) while the others wait; rank 1 is "
        "throttled 92 % of the time (limit 2 CPUs, 64 threads)"
    ) == verdict.sentence
    assert "resources.cpus" in verdict.hint


# --- The rule on storage that does not answer, and what it leaves to others.


NFS = Wait(
    ["rpc_wait_bit_killable", "__wait_on_bit", "nfs4_run_open_task"],
    "/nas/step-40.pt",
    "/nas",
    "nfs4",
    "nas:/export",
)
FILE = Wait(["percpu_rwsem_wait", "vfs_write"], "/scratch/x", "/scratch", "ext4", "/dev/loop0")


def stuck(pid: int = 1003, state: str = "D", wait: Wait | None = NFS, **more: Any) -> Process:
    """A process that sleeps in the kernel."""
    function = wait.functions[0] if wait is not None and wait.functions else ""
    return Process(pid, state, wchan=function, waits_for=wait, **more)


def straggler(process: Process, **more: Any) -> RankEvidence:
    """Rank 3, in its own evaluate()."""
    return rank(3, in_evaluate(), 16, process=process, stuck_for=140.0, still_for=140.0, **more)


def on_file(process: Process) -> Verdict:
    """The verdict on rank 3 with this process, for which three others wait."""
    return only(job(rank(0), rank(1), rank(2), straggler(process)))


def test_a_rank_waits_for_storage() -> None:
    """File, mount, line and seconds are named."""
    verdict = on_file(stuck())

    assert ("io-stuck", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert (
        "rank 3 has waited in the kernel for /nas/step-40.pt (nfs4 nas:/export on /nas) for 2 min, in "
        "evaluate (eval.py:140), the others wait in all_reduce 17 (train.py:92)"
    ) == verdict.sentence
    assert "timeout 5 stat /nas` on node 1" in verdict.hint


@pytest.mark.parametrize(
    "process",
    [
        stuck(wait=FILE),
        stuck(wait=Wait(["nfs_wait_bit_killable.constprop.0"])),
        stuck(wait=Wait(["io_schedule"])),
        stuck(state="S", wait=replace(NFS, kind="fuse", functions=["request_wait_answer"])),
    ],
)
def test_what_proves_storage(process: Process) -> None:
    """A file on a real file system, a function of one, or FUSE's own sleep."""
    assert "io-stuck" == on_file(process).code


def test_storage_without_a_known_file() -> None:
    """Where only the kernel's function may be read, that is given."""
    verdict = on_file(stuck(wait=Wait(["nfs_wait_bit_killable"])))

    assert "rank 3 has waited in the kernel for storage (nfs_wait_bit_killable) for 2 min" in verdict.sentence
    assert "/proc/1003/stack" in verdict.hint


@pytest.mark.parametrize(
    "process",
    [
        stuck(wait=None),
        stuck(wait=Wait(["kernel_clone", "__do_sys_vfork"])),
        stuck(wait=Wait(["_nv037063rm"])),
        stuck(wait=replace(FILE, functions=["mem_cgroup_handle_over_high"])),
        stuck(wait=replace(FILE, kind="proc", functions=["mutex_lock"])),
        stuck(wakeups=2.0),
        stuck(cpu_share=0.3),
        stuck(state="S", wait=replace(FILE, functions=["pipe_read"])),
        stuck(state="S", wait=replace(FILE, functions=["locks_lock_inode_wait"], holder=-1)),
    ],
)
def test_what_is_no_storage_that_hangs(process: Process) -> None:
    """A child, a GPU, memory, slow storage, a pipe, a lock: the general verdict stays."""
    assert "rank-in-user-code" == on_file(process).code


def test_a_rank_that_waits_in_a_collective_is_no_straggler() -> None:
    """Whatever its process does, it has called what the others have called."""
    verdict = only(job(rank(0), rank(1, process=stuck())))

    assert "unknown" == verdict.code


def test_a_loader_worker_waits_for_storage() -> None:
    """The rank is named, its worker stands in the sentence, and the worker that is idle does not count."""
    verdict = only(job(rank(0), rank(1, in_loader(), 16, children=[worker(812, NFS), worker(813)])))

    assert ("io-stuck", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1's DataLoader worker 812 has waited in the kernel for /nas/step-40.pt (nfs4 nas:/export on "
        "/nas) for 11 s, in read_shard (data.py:20); rank 1 is in DataLoader.__next__ (train.py:40), "
        "the other waits in all_reduce 17 (train.py:92)"
    ) == verdict.sentence


def test_a_loader_with_a_worker_that_computes_is_not_stuck() -> None:
    """The rank may wait for that one."""
    at_work = replace(worker(813), stacks=worker(812, NFS).stacks, state="R", cpu_share=1.0)
    verdict = only(job(rank(0), rank(1, in_loader(), 16, children=[worker(812, NFS), at_work])))

    assert "rank-in-dataloader" == verdict.code


@pytest.mark.parametrize(("wchan", "code"), [("do_wait", "io-stuck"), ("futex_do_wait", "rank-in-user-code")])
def test_a_program_that_the_rank_waits_for(wchan: str, code: str) -> None:
    """A copy that hangs is the rank's hang where it waits for its end, and else its own affair."""
    waits = straggler(Process(1003, "S", wchan=wchan), children=[stuck(900, role="other")])
    verdict = only(job(rank(0), rank(1), rank(2), waits))

    assert code == verdict.code


def worker(pid: int, wait: Wait | None = None) -> Process:
    """A worker of a DataLoader: it reads a shard, or waits for work."""
    task = [Frame("read_shard", "/job/data.py", 20), Frame("fetch", LOADER, 52)] if wait else []
    frames = stack(*task, Frame("_worker_loop", LOADER, 320))
    return stuck(pid, "D" if wait else "S", wait, role="loader", stacks=frames)


# --- The rule on ranks that something outside has stopped.


@pytest.mark.parametrize(
    ("process", "how", "hint"),
    [
        (Process(1003, "T", wchan="do_signal_stop"), "by a signal (SIGSTOP or SIGTSTP)", "kill -CONT 1003"),
        (Process(1003, "t", wchan="ptrace_stop"), "by a debugger", "TracerPid /proc/1003"),
        (Process(1003, "D", wchan="__refrigerator"), "in a frozen cgroup", "unpause"),
    ],
)
def test_a_rank_is_stopped(process: Process, how: str, hint: str) -> None:
    """It is not said to be busy in its own code, and the hint fits."""
    stopped = rank(3, in_evaluate(), 16, process=process)
    verdict = only(job(rank(0), rank(1), rank(2), stopped))

    assert ("rank-stopped", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert f"rank 3 is stopped {how} on node 1, in evaluate (eval.py:140)" == verdict.sentence
    assert hint in verdict.hint


def test_a_rank_is_stopped_within_a_collective() -> None:
    """All seem to wait for each other; the one that cannot run is named."""
    stopped = rank(1, process=Process(1001, "T"))
    verdict = only(job(rank(0), stopped))

    assert ("rank-stopped", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_rank_that_computes_is_not_stopped() -> None:
    """One look may fall on a moment between two; the CPU that it used says that it runs."""
    busy = rank(1, in_evaluate(), 16, process=Process(1001, "T", cpu_share=0.9))
    verdict = only(job(rank(0), busy))

    assert "rank-in-user-code" == verdict.code
