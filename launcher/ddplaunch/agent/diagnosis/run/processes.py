"""Rules on a rank whose process does not run, according to the kernel: without a CPU, stuck, or stopped.

cpu-starved: its cgroup's quota is used up, or other processes use the CPUs. A rank that loops for ever on a
full machine looks the same, so the rule demands that the rank has had less CPU since its last progress than a
few of its usual steps take.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Callable, Optional

from ddplaunch.agent.contract import Process, Verdict, Wait
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.stragglers import (
    STARVED,
    confidence_in,
    holder_facts,
    others,
    starved,
    verdict_on,
)
from ddplaunch.agent.diagnosis.run.view import IN_LOADER, Found, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import say

_LESS = 3.0
"""A starved process has waited for a CPU at least this many times as long as it has had one."""
_STEPS = 3.0
"""A starved rank has had less CPU time than this many of its usual steps take."""
_MUCH = 0.1
"""CPUs above which a child process is named."""
_QUOTA = (
    "The cgroup of {who} may use {limit:g} CPUs, and {threads} threads share them. Ask for more "
    "(`resources.cpus`), or start fewer threads: OMP_NUM_THREADS, torch.set_num_threads(), num_workers."
)
_CROWD = (
    "Other processes use the CPUs of {node}: end those that do not belong there, ask for a node of your own, "
    "or start no more threads in all ranks together (OMP_NUM_THREADS, num_workers) than it has CPUs."
)


def cpu_starved(view: JobView) -> Optional[Found]:
    """Return the verdict on stragglers, or their loader workers, that are runnable but do not run."""
    return _not_running(
        view, "cpu-starved", _starving, _starved_part, _crowd, _starved_hint, sure.STARVED_MOST
    )


def _not_running(
    view: JobView,
    code: str,
    find: Callable[[JobView, int], Optional[Process]],
    part: Callable[[JobView, int, Process], str],
    facts: Callable[[JobView, dict[int, Process]], list[str]],
    hint: Callable[[JobView, int, Process], str],
    most: float,
) -> Optional[Found]:
    """Return the verdict on the stragglers for which `find` returns a process that does not run.

    `part`, `facts` and `hint` describe these; `most` is the confidence if counters and stacks agree.
    """
    open_ranks = [rank for rank in view.stragglers if rank not in view.explained]
    found = {rank: its for rank in open_ranks if (its := find(view, rank)) is not None}
    if not found:
        return None
    ranks = sorted(found)
    first = ranks[0], found[ranks[0]]
    parts = "; ".join([part(view, rank, found[rank]) for rank in ranks[:3]])
    verdict = verdict_on(
        view,
        code,
        ranks,
        f"{parts}{others(view, ranks)}",
        [*facts(view, found), *holder_facts(view, ranks)],
        hint(view, *first),
        min(confidence_in(view, ranks), most),
    )
    return Found(verdict, ranks)


def _starving(view: JobView, number: int) -> Optional[Process]:
    rank = view.ranks[number]
    if rank.process is None:
        return None
    usual = median(rank.step_times[-8:]) if rank.step_times else view.evidence.notice_after
    suspects = [rank.process]
    if view.locations[number].kind == IN_LOADER:
        at_work = [
            child for child in rank.children if stacks.worker_task(stacks.main(child.stacks)) is not None
        ]
        suspects = at_work or suspects
    starving = [each for each in suspects if _starves(each) and each.ran * rank.stuck_for <= _STEPS * usual]
    return starving[0] if len(starving) == len(suspects) else None


def _starves(process: Process) -> bool:
    return process.delayed >= max(STARVED, _LESS * process.ran) and process.state == "R"


def _crowd(view: JobView, found: dict[int, Process]) -> list[str]:
    """Return facts on the programs that use the first rank's CPUs; none if its quota is used up."""
    number = min(found)
    if _is_throttled(found[number]):
        return []
    node = view.nodes[view.node_of[number]]
    own = [each for each in view.ranks[number].children if each.role != "loader" and each.cpu_share >= _MUCH]
    named = [(f"{view.node(node.node)}, not of this job", each) for each in node.busiest]
    named += [(f"started by rank {number}", each) for each in own[:3]]
    return [
        f"{who}: pid {each.pid} ({phrases.clipped(each.command, 60)}) uses {each.cpu_share:.1f} CPUs"
        for who, each in named
    ]


def _starved_part(view: JobView, number: int, process: Process) -> str:
    """'rank 5 is runnable and throttled 92 % of the time (limit 2 CPUs, 64 threads), in step (t.py:40)'."""
    own = process is view.ranks[number].process
    who = f"rank {number}" if own else f"rank {number}'s DataLoader worker {process.pid}"
    location = view.locations[number]
    site = f", in {location}" if location.site is not None else ""
    return f"{who} is runnable and {starved(process)}{site}"


def _is_throttled(process: Process) -> bool:
    return (process.throttled or 0.0) >= STARVED and bool(process.cpu_limit)


def _starved_hint(view: JobView, number: int, process: Process) -> str:
    if not _is_throttled(process):
        return _CROWD.format(node=view.node(view.node_of[number]))
    return _QUOTA.format(who=subjects.ranks([number]), limit=process.cpu_limit, threads=process.threads)


# --- io-stuck: storage does not answer, and a rank sleeps in the kernel for it
#
# A process that waits for a disk or a file server sleeps in state D, in functions of its file system. If it
# has not woken up once within the window, it is not slow but stuck. FUSE sleeps in state S until a signal
# comes.


_STORAGE = re.compile(
    r"(fuse|nfs\d?|rpc|ext4|jbd2|xfs|btrfs|f2fs|ocfs2|gfs2|zfs|zpl|ceph|cifs|smb2?|p9|v9fs|9p|lustre|ll|lov"
    r"|cl_io|osc|ptlrpc|ldlm|gpfs|beegfs|weka|blk|bio|iomap|dm|sb_start|io_schedule|folio_wait|filemap|wait_on_page|"
    r"wait_on_buffer|bit_wait_io)(_|$)|^submit_bio|^percpu_rwsem_wait$"
)
"""Functions of file systems, of the page cache, and of block devices; the last is a frozen file system's."""
_OTHER = re.compile(r"mem_cgroup|reclaim|shrink_|swap|vfork|coredump")
"""With one of these, it waits for memory or for a child."""
_FUSE_ANSWER = "request_wait_answer"
_NO_STORAGE = frozenset(
    [
        "proc",
        "sysfs",
        "cgroup",
        "cgroup2",
        "devtmpfs",
        "devpts",
        "tmpfs",
        "debugfs",
        "tracefs",
        "bpf",
        "mqueue",
    ]
)
_LOCAL = frozenset(["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "zfs", "vfat"])
_RESTS = 0.02, 0.5
"""Cores used, and wake-ups a second, below which a process counts as not having run."""
_SERVER = (
    "{where} does not answer: try `timeout 5 stat {mount}` on {node}, and look at its server, its network "
    "and, with FUSE, its daemon there. NFS mounted with soft,timeo=… turns a read into an error."
)
_DISK = (
    "{where} does not answer: look at `dmesg` on {node} for errors of its disk, and whether it is frozen "
    "(`fsfreeze --unfreeze {mount}`) or suspended."
)
_UNKNOWN = "Look at `cat /proc/{pid}/stack` and at the mounts of {node}: one of them does not answer."


def io_stuck(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks, or their loader workers or programs, that wait for storage."""
    return _not_running(view, "io-stuck", _stuck, _storage_part, _storage_facts, _storage_hint, 1.0)


def _storage_facts(_: JobView, found: dict[int, Process]) -> list[str]:
    return [
        f"rank {number}: process {process.pid} is in state {process.state} ({' < '.join(wait.functions[:4])})"
        for number, process in found.items()
        if (wait := process.waits_for) is not None and wait.functions
    ][:4]


def _stuck(view: JobView, number: int) -> Optional[Process]:
    """Return the process that waits for storage: the rank itself, or one for which the rank waits."""
    rank = view.ranks[number]
    process = rank.process
    if process is None or how_stopped(process):
        return None
    if waits_for_storage(process):
        return process
    if view.locations[number].kind == IN_LOADER:
        workers = [child for child in rank.children if child.role == "loader"]
        hanging = [child for child in workers if waits_for_storage(child)]
        at_work = [
            child
            for child in workers
            if child not in hanging and stacks.worker_task(stacks.main(child.stacks)) is not None
        ]
        return None if at_work or not hanging else hanging[0]
    if process.wchan.startswith("do_wait"):  # of waitpid(2): it waits for a program that it has started
        started = [child for child in rank.children if child.role != "loader"]
        return started[0] if len(started) == 1 and waits_for_storage(started[0]) else None
    return None


def waits_for_storage(process: Process) -> bool:
    """Whether it sleeps in the kernel for storage, and has not woken up for seconds."""
    wait = process.waits_for
    cores, wakeups = _RESTS
    if wait is None or process.cpu_share >= cores or process.wakeups >= wakeups:
        return False
    names = [name.partition(".")[0] for name in wait.functions]
    if any(map(_OTHER.search, names)):
        return False
    if process.state == "S":
        return names[:1] == [_FUSE_ANSWER]
    if process.state != "D":
        return False
    is_storage = bool(wait.file and wait.mount) and wait.kind not in _NO_STORAGE
    return is_storage or any(map(_STORAGE.match, names))


def _storage_part(view: JobView, number: int, process: Process) -> str:
    """'rank 3 has waited in the kernel for /nas/x (nfs4 nas:/x on /nas) for 140 s, in load (data.py:20)'."""
    rank = view.ranks[number]
    wait = process.waits_for or Wait()
    function = f" ({wait.functions[0].partition('.')[0]})" if wait.functions else ""
    what = f"{wait.file} ({_where(wait)})" if wait.file else f"storage{function}"
    who = f"rank {number}"
    location = view.locations[number]
    site = f", in {location}" if location.site is not None else ""
    if process is not rank.process:
        kind = "DataLoader worker" if location.kind == IN_LOADER else "child process"
        who = f"rank {number}'s {kind} {process.pid}"
        task = stacks.worker_task(stacks.main(process.stacks)) if process.stacks else None
        own = f", in {phrases.place(task)}" if task is not None else ""
        site = f"{own}; rank {number} is in {location}" if location.site is not None else own
    return f"{who} has waited in the kernel for {what} for {phrases.span(rank.stuck_for)}{site}"


def _where(wait: Wait) -> str:
    """'nfs4 nas:/data on /mnt/nas'."""
    return f"{wait.kind} {wait.source} on {wait.mount}"


def _storage_hint(view: JobView, number: int, process: Process) -> str:
    wait = process.waits_for or Wait()
    text = _UNKNOWN if not wait.mount else _DISK if wait.kind in _LOCAL else _SERVER
    node = view.node(view.node_of[number])
    return text.format(where=_where(wait), mount=wait.mount, node=node, pid=process.pid)


# --- rank-stopped: by a signal, a debugger or a frozen cgroup


_SIGNAL = "by a signal (SIGSTOP or SIGTSTP)"
_DEBUGGER = "by a debugger"
_FREEZER = "in a frozen cgroup"
_FROZEN = ("__refrigerator", "do_freezer_trap")
"""Where the kernel keeps a frozen process, by cgroup v1 and v2."""
_HINTS = {
    _SIGNAL: "A person, a job-control shell or the scheduler stops processes like this. "
    "`kill -CONT {pid}` on {node} lets it continue.",
    _DEBUGGER: "Let the debugger continue or detach: `grep TracerPid /proc/{pid}/status` on {node} names it.",
    _FREEZER: "A container runtime or a scheduler has frozen it: `cat /proc/{pid}/cgroup` on {node} names "
    "the group; unpause the container, or resume the job.",
}


def rank_stopped(view: JobView) -> Optional[Verdict]:
    """Return the verdict on living ranks that cannot run, wherever they are, while nothing moves."""
    found = {rank: how for rank in view.alive if (how := how_stopped(view.ranks[rank].process))}
    if not found:
        return None
    first = min(found)
    same = [rank for rank, how in found.items() if how == found[first]]
    node = view.node(view.node_of[first])
    location = view.locations[first]
    place = f", in {location}" if location.site is not None else ""
    victims = [rank for rank in view.victims_of(sorted(found)) if rank in view.waiting]
    facts = [f"rank {rank}: process {view.ranks[rank].pid} is stopped {how}" for rank, how in found.items()]
    return view.verdict(
        code="rank-stopped",
        sentence=say(
            subjects.ranks(same),
            f" {phrases.one_or(same, 'is', 'are')} stopped {found[first]} on ",
            view.named(view.nodes_of(same)),
            place,
        ),
        ranks=sorted(found),
        victims=victims,
        confidence=sure.STOPPED,
        facts=[*facts[:4], *view.counts()],
        hint=_HINTS[found[first]].format(pid=view.ranks[first].pid, node=node),
    )


def how_stopped(process: Optional[Process]) -> str:
    """'by a signal (SIGSTOP or SIGTSTP)'; empty if it may run."""
    if process is None or process.cpu_share >= 0.1:
        return ""
    if process.state == "T":
        return _SIGNAL
    if process.state == "t":
        return _DEBUGGER
    frozen = process.wchan.partition(".")[0] in _FROZEN
    return _FREEZER if frozen else ""
