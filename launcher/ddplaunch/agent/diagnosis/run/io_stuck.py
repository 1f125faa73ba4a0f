"""The rule on storage that does not answer: a rank for which the others wait sleeps in the kernel for it.

A process that waits for a disk or a file server sleeps in state D, in functions of its file system. One that
has not woken up once over the window is not slow, it is stuck. FUSE sleeps in state S until a signal comes.
"""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Process, Wait
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.job_view import Found, JobView
from ddplaunch.agent.diagnosis.run.location import IN_LOADER
from ddplaunch.agent.diagnosis.run.stopped import how_stopped
from ddplaunch.agent.diagnosis.run.waiting import confidence_in, holder_facts, others, verdict_on
from ddplaunch.agent.system import phrases

_STORAGE = re.compile(
    r"(fuse|nfs\d?|rpc|ext4|jbd2|xfs|btrfs|f2fs|ocfs2|gfs2|zfs|zpl|ceph|cifs|smb2?|p9|v9fs|9p|lustre|ll|lov"
    r"|cl_io|osc|ptlrpc|ldlm|gpfs|beegfs|weka|blk|bio|iomap|dm|sb_start|io_schedule|folio_wait|filemap|wait_on_page|"
    r"wait_on_buffer|bit_wait_io)(_|$)|^submit_bio|^percpu_rwsem_wait$"
)
"""Functions of file systems, of the page cache, and of block devices; the last is a frozen file system's."""
_OTHER = re.compile(r"mem_cgroup|reclaim|shrink_|swap|vfork|coredump")
"""Beside them, it waits for memory or for a child."""
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
"""Cores used and wake-ups a second below which a process has not run in between."""
_SERVER = (
    "{where} does not answer: try `timeout 5 stat {mount}` on {node}, and look at its server, its network "
    "and, of FUSE, its daemon there. NFS mounted with soft,timeo=… turns a read into an error."
)
_DISK = (
    "{where} does not answer: look at `dmesg` on {node} for errors of its disk, and whether it is frozen "
    "(`fsfreeze --unfreeze {mount}`) or suspended."
)
_UNKNOWN = "Look at `cat /proc/{pid}/stack` and at the mounts of {node}: one of them does not answer."


def io_stuck(view: JobView) -> Optional[Found]:
    """Ranks, or what they wait for: their loader's workers, or a program that they have started."""
    found = {
        number: process
        for number in view.stragglers
        if number not in view.explained and (process := _stuck(view, number)) is not None
    }
    if not found:
        return None
    ranks = sorted(found)
    parts = [_part(view, number, found[number]) for number in ranks]
    facts = [
        f"rank {number}: process {process.pid} is in state {process.state} ({' < '.join(wait.functions[:4])})"
        for number, process in found.items()
        if (wait := process.waits_for) is not None and wait.functions
    ]
    verdict = verdict_on(
        view,
        "io-stuck",
        ranks,
        f"{'; '.join(parts[:3])}{others(view, ranks)}",
        [*facts[:4], *holder_facts(view, ranks)],
        _hint(view, ranks[0], found[ranks[0]]),
        confidence_in(view, ranks),
    )
    return Found(verdict, ranks)


def _stuck(view: JobView, number: int) -> Optional[Process]:
    """Return the process that waits for storage: the rank's own, or one for which the rank waits."""
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


def _part(view: JobView, number: int, process: Process) -> str:
    """'rank 3 waits in the kernel for /nas/x (nfs4 nas:/data on /nas) for 140 s, in load (data.py:20)'."""
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
    return f"{who} waits in the kernel for {what} for {phrases.span(rank.stuck_for)}{site}"


def _where(wait: Wait) -> str:
    """'nfs4 nas:/data on /mnt/nas'."""
    return f"{wait.kind} {wait.source} on {wait.mount}"


def _hint(view: JobView, number: int, process: Process) -> str:
    wait = process.waits_for or Wait()
    text = _UNKNOWN if not wait.mount else _DISK if wait.kind in _LOCAL else _SERVER
    node = view.node(view.node_of[number])
    return text.format(where=_where(wait), mount=wait.mount, node=node, pid=process.pid)
