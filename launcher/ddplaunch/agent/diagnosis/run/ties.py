"""What a rank in its own code waits for in another process, or inside native code, in words.

The place says where a rank is; this says for whom it waits there: a child's end, an answer, or a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import TERMINAL, Mutex, Process, RankEvidence, Tie
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import IN_EXIT, JobView
from ddplaunch.agent.system import phrases

_READ_IT = (
    "Nobody reads the pipe while rank {rank} waits, and a pipe holds 64 KiB: use communicate() or "
    "subprocess.run(capture_output=True), which read until the child ends."
)
_LOOK_AT = "Look at what process {pid} does: `cat /proc/{pid}/wchan` and `ls -l /proc/{pid}/fd` on {node}."
_OPEN_IT = "Start what writes, or reads, at the other end: a pipe is open once both have opened it."
ANSWER = "It waits for you: type there what it asks for."
_PIPE = "a pipe"
_READ_BOTH = (
    "The child writes to a pipe that rank {rank} does not read, such as its stderr, and the pipe is full. "
    "Read it in a thread, or do not ask for it (stderr=None)."
)
_BOTH_FULL = (
    "Both pipes are full: rank {rank} writes and does not read, and so does the child. Use communicate(), or "
    "read in a thread while you write."
)
_COPIED_GROUP = (
    "A forked process cannot use the process group of its parent, whose threads it does not have. Let it "
    "call no collective: `dist.is_initialized()` is true there, too."
)
_NO_PARTNER = "wait_for_partner"
"""Where the kernel keeps who opens a named pipe."""
_LONGEST = 60


_NO_DAEMON = (
    "Python waits for every thread that is no daemon before it ends: have the thread end (an Event that it "
    "looks at, then join), or start it with daemon=True."
)
_NO_DAEMON_PROCESS = (
    "Python waits for multiprocessing's children before it ends: end them first (a last item in their queue, "
    "terminate()), or start them with daemon=True."
)


_UNREAD = (
    "A process that has put something into a multiprocessing.Queue ends only when a reader has taken it out: "
    "read all of it before the reader ends, or discard it with the queue's `cancel_join_thread()`."
)


class Awaited(NamedTuple):
    """For what a rank waits: 'waiting for the end of its child process 812 (sleep 60)'."""

    text: str
    hint: str  # "": there is none better than the rule's


def awaited(view: JobView, number: int) -> Optional[Awaited]:
    """Return for what the rank's main thread waits in its own code; None if that is not known."""
    rank = view.ranks[number]
    process = rank.process
    if process is None or not _is_main(rank, process) or _is_for_torch(view, number):
        return None
    if process.mutex is not None and process.mutex.pid == process.pid:
        return Awaited(f"waiting in native code for a lock that {owner(rank, process.mutex)} holds", "")
    pipe = named_pipe(process)
    if pipe:
        return Awaited(f"waiting until somebody opens the other end of the named pipe {pipe}", _OPEN_IT)
    return None if process.tie is None else _tied(view, number, process.tie)


def _tied(view: JobView, number: int, tie: Tie) -> Awaited:
    rank = view.ranks[number]
    node = view.node(view.node_of[number])
    ends = tie.what == "end"
    who = [_name(view, number, pid, line, is_child=ends) for pid, line in zip(tie.pids, tie.commands)]
    its_own = rank.process is not None and tie.pids == [rank.process.pid]
    hint = "" if not tie.pids or its_own else _LOOK_AT.format(pid=tie.pids[0], node=node)
    stuck = len(tie.pids) == 1 and _writes_to(rank, tie.pids[0])
    unread = f", which waits for rank {number} to read its output" if stuck else ""
    if ends:
        return Awaited(
            f"waiting for the end of {who[0]}{unread}", _READ_IT.format(rank=number) if stuck else hint
        )
    if tie.by == TERMINAL:
        return Awaited(f"waiting for input from {tie.by} {tie.address}", ANSWER)
    stuck = stuck and tie.by == _PIPE
    if tie.what == "data" and stuck:
        return Awaited(f"waiting for data from {who[0]}{unread}", _READ_BOTH.format(rank=number))
    if tie.what == "data":
        whence = " and ".join(who[:2]) or tie.address
        source = f" from {whence}" if whence else ""
        call = _collective_of(rank, tie.pids)
        inside = f", which is in {call}" if call else ""
        return Awaited(f"waiting for data{source} by {tie.by}{inside}", _COPIED_GROUP if call else hint)
    whom = ", ".join(who[:2]) if who else tie.address or "somebody"
    text = f"waiting for {whom} to read what it writes to {tie.by}"
    return Awaited(f"{text}{unread}", _BOTH_FULL.format(rank=number)) if stuck else Awaited(text, hint)


def rank_awaited(view: JobView, number: int) -> Optional[int]:
    """Return the other rank from which this one waits for data, over a connection of the program's own."""
    process = view.ranks[number].process
    tie = process.tie if process is not None else None
    if tie is None or tie.what != "data" or len(tie.pids) != 1:
        return None
    other = _rank_of(view, view.node_of[number], tie.pids[0])
    return other if other != number else None


def asks(view: JobView, number: int) -> str:
    """Return 'waiting for input from the terminal /dev/pts/3'; "" if the rank does not."""
    process = view.ranks[number].process
    tie = process.tie if process is not None else None
    wait = awaited(view, number) if tie is not None and tie.by == TERMINAL else None
    return wait.text if wait is not None else ""


def named_pipe(process: Process) -> str:
    """Return the pipe that it opens, and that nobody has open at the other end; "" if there is none."""
    wait = process.waits_for
    waits = process.wchan.startswith(_NO_PARTNER)
    return wait.file if waits and wait is not None else ""


def awaited_at_end(view: JobView, number: int) -> Optional[Awaited]:
    """Return for what the Python of a rank waits whose program is over; None if that is not known."""
    rank = view.ranks[number]
    frames = stacks.main(rank.stacks)
    process = rank.process
    over = stacks.at_end(frames) if frames else view.locations[number].kind == IN_EXIT
    if not over or process is None:
        return None
    tie = process.tie
    if tie is not None and tie.what == "end":
        child = _name(view, number, tie.pids[0], tie.commands[0], is_child=True)
        return Awaited(f"waits for the end of {child}", _NO_DAEMON_PROCESS)
    if any(stacks.ends_a_queue(frame) for frame in frames):
        return Awaited("waits until somebody reads what it has put into a multiprocessing.Queue", _UNREAD)
    threads = [each for each in rank.stacks if not each.main and each.daemon is False and each.frames]
    if not threads:
        return None
    first = threads[0]
    site = stacks.user_frame(first.frames)
    more = f" and {len(threads) - 1} more" if len(threads) > 1 else ""
    where = f", in {phrases.place(site)}" if site is not None else ""
    return Awaited(f'waits for its thread "{first.thread}"{more}{where}', _NO_DAEMON)


def facts(view: JobView, number: int) -> list[str]:
    """Return what the processes do for which the rank waits, as far as the chain is known."""
    rank = view.ranks[number]
    children = {child.pid: child for child in rank.children}
    found: list[str] = []
    seen: set[int] = set()
    process = rank.process
    while process is not None and process.tie is not None and len(found) < 4:
        following = [children[pid] for pid in process.tie.pids if pid in children and pid not in seen]
        process = following[0] if following else None
        if process is not None:
            seen.add(process.pid)
            found.append(f"process {process.pid}: {_does(view, number, process)}")
    return found


def owner(rank: RankEvidence, mutex: Mutex) -> str:
    """'its thread "decoder"', 'its main thread', 'its thread 4711'."""
    if mutex.owner == mutex.pid:
        return "its main thread"
    names = [stack.thread for stack in rank.stacks if stack.tid == mutex.owner and stack.thread]
    return f'its thread "{names[0]}"' if names else f"its thread {mutex.owner}"


def _is_for_torch(view: JobView, number: int) -> bool:
    """Whether it waits within torch, or for the store: what it needs there, others know better."""
    rank = view.ranks[number]
    tie = rank.process.tie if rank.process is not None else None
    port = rank.rendezvous.port if rank.rendezvous is not None else None
    stores = tie is not None and port is not None and tie.address.endswith(f":{port}")
    inner = takewhile(lambda frame: not stacks.users([frame]), stacks.main(rank.stacks))
    return stores or bool(view.locations[number].awaits) or stacks.in_torch([*inner])


def _is_main(rank: RankEvidence, process: Process) -> bool:
    """Whether the thread that stands for the rank is its main one, whose wait was read."""
    return any(stack.main and stack.tid in (0, process.pid) for stack in rank.stacks)


def _writes_to(rank: RankEvidence, pid: int) -> bool:
    """Whether this child is stuck in writing to a pipe that only the rank reads."""
    tie = next((child.tie for child in rank.children if child.pid == pid), None)
    mine = rank.process.pid if rank.process is not None else 0
    return tie is not None and (tie.what, tie.by, tie.pids) == ("room", _PIPE, [mine])


def _collective_of(rank: RankEvidence, pids: Sequence[int]) -> str:
    """Return 'all_reduce (train.py:25)', in which the child is that was forked with the rank's groups."""
    children = [each for each in rank.children if [each.pid] == [*pids]]
    frames = stacks.main(children[0].stacks) if children else []
    name = stacks.collective(frames) if stacks.is_forked(frames) else None
    return f"{name}{phrases.at(stacks.user_frame(frames))}" if name else ""


def _name(
    view: JobView,
    number: int,
    pid: int,
    command: str,
    child_word: str = "its child process",
    is_child: bool = False,
) -> str:
    """'its child process 812 (sleep 60)', 'rank 2', 'its own process'."""
    rank = view.ranks[number]
    if rank.process is not None and pid == rank.process.pid:
        return "its own process"
    other = _rank_of(view, view.node_of[number], pid)
    if other is not None:
        return f"rank {other}"
    child = next((each for each in rank.children if each.pid == pid), None)
    shown = (child.name if child is not None else "") or phrases.clipped(command, _LONGEST)
    kind = child_word if child is not None or is_child else "process"
    return f"{kind} {pid} ({shown})" if shown else f"{kind} {pid}"


def _rank_of(view: JobView, node: int, pid: int) -> Optional[int]:
    """Return the rank that is this process of a node; None: it is no rank."""
    for rank, its in view.ranks.items():
        if its.process is not None and its.process.pid == pid and view.node_of[rank] == node:
            return rank
    return None


def _does(view: JobView, number: int, process: Process) -> str:
    tie: Optional[Tie] = process.tie
    place = stacks.user_frame(stacks.main(process.stacks))
    where = f"in {phrases.place(place)}, " if place is not None else ""
    if tie is None:
        asleep = f"asleep ({process.wchan})" if process.wchan else "asleep"
        return f"{where}{asleep if process.state == 'S' else f'state {process.state}'}"
    mine = view.ranks[number].process
    who = [
        f"rank {number}"
        if mine is not None and pid == mine.pid
        else _name(view, number, pid, command, "process")
        for pid, command in zip(tie.pids, tie.commands)
    ]
    whom = ", ".join(who[:2]) or tie.address or "somebody"
    if tie.what == "end":
        return f"{where}waits for the end of {whom}"
    return f"{where}waits for {'data from' if tie.what == 'data' else 'a reader:'} {whom} ({tie.by})"
