"""Rules about a rank whose threads cannot go on: native code keeps the GIL, or each waits for a lock.

Two looks at the kernel's account of a thread prove it: one that asks for the GIL wakes up every few
milliseconds, and one that waits without a timeout for a futex of its process alone waits for its siblings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Frame, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import stacks, waiting
from ddplaunch.agent.diagnosis.run.job_view import Found, JobView
from ddplaunch.agent.diagnosis.run.location import IN_LOADER
from ddplaunch.agent.system import phrases, subjects

_PATIENCE = 0.7
"""Share of the patience for which it must have been so: some of it passes while evidence is taken."""
_RELEASE = (
    "While native code holds the GIL, no thread of the process runs Python, and no signal is handled. "
    "Release it around the call{} (Py_BEGIN_ALLOW_THREADS, `with nogil`, gil_scoped_release, ctypes.CDLL "
    "instead of PyDLL), or see why the call does not return."
)
_ORDER = (
    "Take locks in one order in all threads, and hold none while you wait for another thread; "
    "acquire(timeout=…), join(timeout=…) and get(timeout=…) turn this into an error."
)
_FORKED = (
    "Most likely a thread of the rank held the lock when the worker was forked. Start such threads after the "
    "DataLoader's workers, make a new lock in worker_init_fn, or have the workers spawned: "
    "DataLoader(multiprocessing_context='spawn')."
)
_RELEASED = "Release the lock on every path (`with lock:`); one that its own thread takes twice is an RLock."

_LOCK = re.compile(r"with [\w.\[\]'\"]+( as \w+)?:|(\w+ = |if (not )?|return )?[\w.\[\]'\"]*\.?acquire\(")
"""Statements that take a lock."""
_THREADING = re.compile(r"(^|/)threading\.py$")
_FUTURES = re.compile(r"(^|/)concurrent/futures/(_base|thread)\.py$")
_HELPERS = re.compile(
    r"(^|/)(torch/utils/data/_utils/pin_memory|multiprocessing/(queues|resource_sharer)|tqdm/_monitor)\.py$"
)
"""Whose threads hold no lock of the program."""


class _Wait(NamedTuple):
    stack: Stack
    kind: str


_ON_LOCK, _ON_THREAD, _ON_RESULT = "waits for a lock", "joins a thread", "waits for a future's result"
_ON_EVENT, _IDLE = "waits for a queue or an event", "waits for work"


def gil_held(view: JobView) -> Optional[Found]:
    """Return the verdict on stragglers in which native code of one thread holds the GIL."""
    found = {rank: held for rank in _open(view) if (held := _holder(view, view.ranks[rank]))}
    if not found:
        return None
    parts: dict[str, list[int]] = {}
    facts = []
    for rank, stack in found.items():
        site = stacks.user_frame(stack.frames) or stack.frames[0]
        called = f"in native code called from {phrases.place(site)}"
        inside = f"inside {stack.native}{phrases.at(site)}" if stack.native else called
        thread = "" if stack.main else f", in {_thread(stack)}"
        parts.setdefault(f"{inside}{thread}", []).append(rank)
        facts.append(f"rank {rank}: {stacks.chain(stack.frames)}")
        facts += view.line_shown(rank, site)
        facts.append(
            f"rank {rank}: another thread has asked for the GIL for {phrases.span(view.ranks[rank].gil_wait)}"
        )
        facts += _process(view.ranks[rank])
    whats = [
        f"{subjects.ranks(ranks)} {phrases.one_or(ranks, 'holds', 'hold')} the GIL {what}"
        for what, ranks in parts.items()
    ]
    first = next(iter(found.values()))
    hint = _RELEASE.format(phrases.at(stacks.user_frame(first.frames)))
    return _found(view, "gil-held", list(found), "; ".join(whats[:3]), facts, hint)


def _holder(view: JobView, rank: RankEvidence) -> Optional[Stack]:
    """Return the thread that holds the GIL; None where that is not proven."""
    if rank.gil_wait < _PATIENCE * view.evidence.notice_after:
        return None
    able = [stack for stack in rank.stacks if stack.frames]
    if rank.stack_source == "py-spy":
        able = [stack for stack in able if stack.owns_gil]
    else:  # faulthandler does not say which it is: not one that waits for a lock
        able = [stack for stack in able if _kind(view, rank, stack) is None]
    return able[0] if len(able) == 1 else None


def lock_deadlock(view: JobView) -> Optional[Found]:
    """Return the verdict on stragglers, or loader workers of theirs, all of whose threads wait for locks."""
    parts, facts, ranks, hints = [], [], [], []
    for number in _open(view):
        rank = view.ranks[number]
        whom, where, hint = f"rank {number}", rank.stacks, _RELEASED
        if view.locations[number].kind == IN_LOADER:
            stuck = [
                child
                for child in rank.children
                if child.role == "loader" and stacks.worker_task(stacks.main(child.stacks))
            ]
            if len(stuck) != 1:
                continue
            whom, where = f"rank {number}'s DataLoader worker {stuck[0].pid}", stuck[0].stacks
            hint = _FORKED
        waits = _deadlock(view, rank, where)
        if waits is None:
            continue
        ranks.append(number)
        busy = [wait for wait in waits if wait.kind != _IDLE]
        parts.append(_sentence(whom, busy))
        hints.append(hint if len(busy) == 1 else _ORDER)
        for wait in busy[:4]:
            facts.append(f"{whom}, {_thread(wait.stack)}: {stacks.chain(wait.stack.frames)}")
            facts += view.line_shown(number, _site(wait.stack))
        facts += _process(rank)
    if not ranks:
        return None
    return _found(view, "lock-deadlock", ranks, "; ".join(parts[:3]), facts, hints[0])


def _deadlock(view: JobView, rank: RankEvidence, threads: Sequence[Stack]) -> Optional[list[_Wait]]:
    """Return what each thread of a process waits for, the main one first; None: one of them may go on.

    Waits of native code are for native threads, which are not seen. A callback of theirs may set an event or
    a future; so of these alone, without a lock or a thread that is joined, nothing is concluded. A rank whose
    collective is pending is no straggler, and never comes here.
    """
    # Native threads of NCCL use CPU all the time.
    still = rank.stuck_for if rank.backend == "nccl" else rank.still_for
    if rank.stack_moves or still < _PATIENCE * view.evidence.notice_after:
        return None
    waits = []
    for stack in threads:
        if _is_helper(stack):
            continue
        kind = _kind(view, rank, stack) if stack.on_lock else None
        if kind is None:
            return None
        waits.append(_Wait(stack, kind))
    if not waits or not waits[0].stack.main:
        return None
    main, others = waits[0].kind, {wait.kind for wait in waits[1:]} - {_IDLE}
    if main == _ON_LOCK or others & {_ON_LOCK, _ON_THREAD}:
        return waits
    return waits if others and main in (_ON_THREAD, _ON_RESULT) else None


def _kind(view: JobView, rank: RankEvidence, stack: Stack) -> Optional[str]:
    """Return what a thread waits for by its innermost frames; None: for nothing of Python's own."""
    inner = stack.frames[0] if stack.frames else Frame("", "", 0)
    names = {frame.name.rpartition(".")[2] for frame in stack.frames[:3] if _THREADING.search(frame.file)}
    if names & {"join", "_wait_for_tstate_lock"}:
        return _ON_THREAD
    if "wait" in names:
        futures = [frame for frame in stack.frames[1:3] if _FUTURES.search(frame.file)]
        return _ON_RESULT if futures else _ON_EVENT
    if _FUTURES.search(inner.file):
        return _IDLE
    return _ON_LOCK if _LOCK.match(view.line_of(rank.rank, inner)) else None


def _is_helper(stack: Stack) -> bool:
    outermost = [frame for frame in stack.frames if not _THREADING.search(frame.file)][-1:]
    return any(_HELPERS.search(frame.file) for frame in outermost)


def _sentence(whom: str, waits: Sequence[_Wait]) -> str:
    main, *others = waits
    if not others:
        place = phrases.place(_site(main.stack))
        return f"{whom} waits in {place} for a lock that none of its threads will release"
    each = [f"{_thread(stack)} {kind} in {phrases.place(_site(stack))}" for stack, kind in waits[:3]]
    return f"{whom}'s threads wait for each other: {', '.join(each)}"


def _thread(stack: Stack) -> str:
    if stack.main:
        return "MainThread"
    return f'thread "{stack.thread}"' if stack.thread else "another thread"


def _site(stack: Stack) -> Frame:
    return stacks.user_frame(stack.frames) or stack.frames[0]


def _open(view: JobView) -> list[int]:
    return [rank for rank in view.stragglers if rank not in view.explained]


def _process(rank: RankEvidence) -> list[str]:
    if rank.process is None:
        return []
    return [
        f"rank {rank.rank}: {waiting.doing(rank.process)}, nothing new for {phrases.span(rank.stuck_for)}"
    ]


def _found(view: JobView, code: str, ranks: list[int], what: str, facts: list[str], hint: str) -> Found:
    sentence = f"{what}{waiting.others(view, ranks)}"
    sure = 0.95 if view.waiting else 0.8
    verdict = waiting.verdict_on(view, code, ranks, sentence, [*facts[:16], *view.counts()], hint, sure)
    return Found(verdict, ranks)
