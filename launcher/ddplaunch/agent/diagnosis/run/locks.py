"""Rules about a rank that waits for a lock: its threads for each other, for the GIL, or for a lock on a file.

Two looks at the kernel's account of a thread prove it: a thread that asks for the GIL wakes up every few
milliseconds, and one that waits without a timeout on a futex private to its process waits for its siblings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import AnyFact, Fact, Frame, RankEvidence, Stack, Verdict, Wait
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import stacks, stragglers
from ddplaunch.agent.diagnosis.run.stragglers import confidence_in, holder_facts, others, verdict_on
from ddplaunch.agent.diagnosis.run.view import IN_LOADER, Found, JobView, file_lock_wait, lock_file
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, joined, say

_PATIENCE = 0.7
"""Share of the patience for which this must have lasted, because some passes while evidence is taken."""
_RELEASE = (
    "While native code holds the GIL, no thread of the process runs Python, and no signal is handled. "
    "Release it around the call{} (Py_BEGIN_ALLOW_THREADS, `with nogil`, gil_scoped_release, ctypes.CDLL "
    "instead of PyDLL), or find out why the call does not return."
)
_PATTERN = (
    "If {} matches a regular expression, it may backtrack without end: with a repetition inside a "
    "repetition, such as `(a+)+`, a few dozen characters that do not match are enough. Rewrite the "
    "expression, or shorten the text. Otherwise, find out why the native call does not return."
)
_DESTROYS = (
    "With Gloo, torch before 2.8 may block itself here: it holds the GIL while it waits for Gloo's threads, "
    "and one of them needs it (pytorch/pytorch#154976). Use torch 2.8 or newer. If you do already, find out "
    "why the call does not return."
)
_DESTROY = re.compile(r"\bdestroy_process_group\(")
_MATCHES = re.compile(r"\.(match|search|fullmatch|findall|finditer|sub|subn)\(")
_ORDER = (
    "Take locks in the same order in all threads, and hold none while you wait for another thread; "
    "acquire(timeout=…), join(timeout=…) and get(timeout=…) turn this into an error."
)
_POOL = (
    "A task that waits for another task of its own pool holds one of the pool's threads. Once all threads "
    "wait like this, no thread is left for the tasks behind them: call the function directly, or give the "
    "inner tasks another pool."
)
_FORKED = (
    "Most likely a thread of the rank held the lock when the worker was forked. Start such threads after the "
    "DataLoader's workers, make a new lock in worker_init_fn, or have the workers spawned: "
    "DataLoader(multiprocessing_context='spawn')."
)
_FORKED_CHILD = (
    "Most likely a thread of the rank held the lock when the process was forked. Start processes before such "
    "threads, or have them spawned: multiprocessing.get_context('spawn')."
)
_RELEASED = "Release the lock on every path (`with lock:`); one that a thread takes twice must be an RLock."

_LOCK = re.compile(r"with [\w.\[\]'\"]+( as \w+)?:|(\w+ = |if (not )?|return )?[\w.\[\]'\"]*\.?acquire\(")
"""Statements that take a lock."""
_THREADING = re.compile(r"(^|/)threading\.py$")
_FUTURES = re.compile(r"(^|/)concurrent/futures/(_base|thread)\.py$")
_HELPERS = re.compile(
    r"(^|/)(torch/utils/data/_utils/pin_memory|multiprocessing/(queues|resource_sharer)|tqdm/_monitor)\.py$"
)
"""Libraries whose threads hold no lock of the program."""


class _Wait(NamedTuple):
    stack: Stack
    kind: str


_ON_LOCK, _ON_THREAD, _ON_RESULT = "waits for a lock", "joins a thread", "waits for a future's result"
_ON_EVENT, _IDLE = "waits for a queue or an event", "waits for work"


def gil_held(view: JobView) -> Optional[Found]:
    """Return the verdict on stragglers in which one thread's native code holds the GIL."""
    found = {rank: held for rank in _open(view) if (held := _holder(view, view.ranks[rank]))}
    if not found:
        return None
    parts: dict[str, list[int]] = {}
    facts: list[AnyFact] = []
    for rank, stack in found.items():
        site = stacks.user_frame(stack.frames) or stack.frames[0]
        called = f"in native code called from {phrases.place(site)}"
        inside = f"inside {stack.native}{phrases.at(site)}" if stack.native else called
        thread = "" if stack.main else f", in {_thread(stack)}"
        parts.setdefault(f"{inside}{thread}", []).append(rank)
        facts.append(view.of_rank(f"rank {rank}: {stacks.chain(stack.frames)}", rank))
        facts += view.line_shown(rank, site)
        facts.append(
            f"rank {rank}: another thread has asked for the GIL for {phrases.span(view.ranks[rank].gil_wait)}"
        )
        facts += _process(view, rank)
    whats = [
        say(subjects.ranks(ranks), f" {phrases.one_or(ranks, 'holds', 'hold')} the GIL {what}")
        for what, ranks in parts.items()
    ]
    first = next(iter(found.values()))
    caller = stacks.user_frame(first.frames)
    line = view.line_of(next(iter(found)), caller) if caller is not None and not first.native else ""
    if caller is not None and _MATCHES.search(line):
        hint = _PATTERN.format(phrases.place(caller))
    elif _DESTROY.search(line):
        hint = _DESTROYS
    else:
        hint = _RELEASE.format(phrases.at(caller))
    return _found_threads(view, "gil-held", list(found), joined("; ", whats[:3]), facts, hint)


def _holder(view: JobView, rank: RankEvidence) -> Optional[Stack]:
    """Return the thread that holds the GIL; None if that is not proven."""
    if rank.gil_wait < _PATIENCE * view.evidence.notice_after:
        return None
    able = [stack for stack in rank.stacks if stack.frames]
    if rank.stack_source == "py-spy":
        able = [stack for stack in able if stack.owns_gil]
    else:  # faulthandler does not say which one; it is none that waits for a lock
        able = [stack for stack in able if _kind(view, rank, stack) is None]
    return able[0] if len(able) == 1 else None


def lock_deadlock(view: JobView) -> Optional[Found]:
    """Return the verdict on stragglers, or their loader workers, all of whose threads wait for locks."""
    parts, ranks, hints = [], [], []
    facts: list[AnyFact] = []
    for number in _open(view):
        rank = view.ranks[number]
        if stacks.at_end(stacks.main(rank.stacks)):
            continue  # its program is over; the lock on which Python waits there is a thread's own end
        whom, where, hint = f"rank {number}", rank.stacks, _RELEASED
        forked = _forked(view, number)
        if forked is not None:
            ranks.append(number)
            parts.append(forked.sentence)
            hints.append(forked.hint)
            facts += [*forked.facts, *_process(view, number)]
            continue
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
        alone = len(busy) == 1 or _left_locked(busy)
        hints.append(hint if alone else _POOL if all(map(_waits_in_pool, busy[1:])) else _ORDER)
        facts += view.own_last_lines([number]) if alone else []
        for wait in busy[:4]:
            facts.append(f"{whom}, {_thread(wait.stack)}: {stacks.chain(wait.stack.frames)}")
            facts += view.line_shown(number, _site(wait.stack))
        facts += _process(view, number)
    if not ranks:
        return None
    return _found_threads(view, "lock-deadlock", ranks, "; ".join(parts[:3]), facts, hints[0])


class _Forked(NamedTuple):
    sentence: str
    facts: list[AnyFact]
    hint: str


def _forked(view: JobView, number: int) -> Optional[_Forked]:
    """Return the child for which a rank waits, and which waits for a lock that no thread of it can release.

    A forked child has only the thread that forked it, and a copy of each lock as it was then. A lock whose
    owner is not known is one of those if nobody is there who could have it.
    """
    rank = view.ranks[number]
    loads = view.locations[number].kind == IN_LOADER
    waits = loads or stacks.waits_for_process(stacks.main(rank.stacks))
    if rank.stuck_for < _PATIENCE * view.evidence.notice_after or not waits:
        return None
    for child in rank.children:
        frames = stacks.main(child.stacks)
        mutex = child.mutex
        inherited = mutex is not None and mutex.pid != child.pid
        alone = not child.unseen_threads and all(each.main or _is_helper(each) for each in child.stacks)
        locked = (inherited or alone) and any(each.main and each.on_lock for each in child.stacks)
        site = stacks.worker_task(frames) if loads else stacks.user_frame(frames)
        if not locked or site is None or (child.role == "loader") != loads:
            continue
        whom = f"rank {number}'s {'DataLoader worker' if loads else 'child process'} {child.pid}"
        why = "a lock that nobody can release: it has no other thread of the program"
        if mutex is not None and inherited:
            held = f"{_owner(rank, mutex.owner)} of rank {number} held when it forked the process"
            why = f"a lock of native code that {held}: the copy there has no thread that could release it"
        return _Forked(
            f"{whom} waits in {phrases.place(site)} for {why}",
            [f"{whom}: {stacks.chain(frames)}", *view.line_shown(number, site)],
            _FORKED if loads else _FORKED_CHILD,
        )
    return None


def _owner(rank: RankEvidence, tid: int) -> str:
    """'thread "decoder"', 'the main thread', 'thread 4711'."""
    process = rank.process
    if process is not None and tid == process.pid:
        return "the main thread"
    names = [stack.thread for stack in rank.stacks if stack.tid == tid and stack.thread]
    return f'thread "{names[0]}"' if names else f"thread {tid}"


def _deadlock(view: JobView, rank: RankEvidence, threads: Sequence[Stack]) -> Optional[list[_Wait]]:
    """Return what each thread of a process waits for, the main one first; None: one of them may go on.

    Native code waits for native threads, which are not seen. A callback of these may set an event or a
    future, so waits for events and futures alone, without a lock or a thread that is joined, prove nothing. A
    rank whose collective is pending is no straggler, and never comes here.
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


def _waits_in_pool(wait: _Wait) -> bool:
    """Whether it is a thread of a pool, whose task waits for the result of another task."""
    return wait.kind == _ON_RESULT and any(
        frame.name == "_worker" and _FUTURES.search(frame.file) for frame in wait.stack.frames
    )


def _is_helper(stack: Stack) -> bool:
    outermost = [frame for frame in stack.frames if not _THREADING.search(frame.file)][-1:]
    return any(_HELPERS.search(frame.file) for frame in outermost)


def _sentence(whom: str, waits: Sequence[_Wait]) -> str:
    main, *others = waits
    if not others:
        place = phrases.place(_site(main.stack))
        return f"{whom} waits in {place} for a lock that none of its threads will release"
    if _left_locked(waits):
        names = " and ".join(_thread(each.stack) for each in others[:2]) + " and others" * (len(others) > 2)
        wait = f"{phrases.one_or(others, 'waits', 'wait')} in {phrases.place(_site(others[0].stack))}"
        return (
            f"{names} of {whom} {wait} for a lock that no thread there will release; MainThread joins a "
            f"thread in {phrases.place(_site(main.stack))}"
        )
    each = [f"{_thread(stack)} {kind} in {phrases.place(_site(stack))}" for stack, kind in waits[:3]]
    return f"{whom}'s threads wait for each other: {', '.join(each)}"


def _left_locked(waits: Sequence[_Wait]) -> bool:
    """Whether the main thread joins a thread, and all others wait at one line for a lock.

    Then the main thread holds it, or one that has ended.
    """
    main, *others = waits
    return (
        main.kind == _ON_THREAD
        and all(each.kind == _ON_LOCK for each in others)
        and len({_site(each.stack) for each in others}) == 1
    )


def _thread(stack: Stack) -> str:
    if stack.thread == "MainThread" or (stack.main and not stack.thread):
        return "MainThread"
    return f'thread "{stack.thread}"' if stack.thread else "another thread"


def _site(stack: Stack) -> Frame:
    return stacks.user_frame(stack.frames) or stack.frames[0]


def _open(view: JobView) -> list[int]:
    return [rank for rank in view.stragglers if rank not in view.explained]


def _process(view: JobView, number: int) -> list[Fact]:
    rank = view.ranks[number]
    if rank.process is None:
        return []
    text = f"rank {number}: {stragglers.doing(rank.process)}, nothing new for {phrases.span(rank.stuck_for)}"
    return [view.of_rank(text, number)]


def _found_threads(
    view: JobView, code: str, ranks: list[int], what: Sayable, facts: list[AnyFact], hint: str
) -> Found:
    sentence = say(what, stragglers.others(view, ranks))
    confidence = sure.THREADS_WAIT if view.waiting else sure.THREADS_WAIT_ALONE
    verdict = stragglers.verdict_on(
        view, code, ranks, sentence, [*facts[:16], *view.counts()], hint, confidence
    )
    return Found(verdict, ranks)


# --- a lock around a collective: ranks whose threads took it in another order wait for one another


class _Around(NamedTuple):
    """The thread that is in a collective, and the one that waits for a lock."""

    inside: Stack
    outside: Stack


def lock_around_collective(view: JobView) -> Optional[Verdict]:
    """Return the verdict if one thread of each rank is in a collective and another one waits for a lock.

    In some ranks the main thread is in the collective, in others it waits: each collective lacks the ranks
    of the other kind, and none of these can come, because the lock is held until the collective is over. Who
    holds a lock is not seen; that both threads are at a lock or in a collective is.
    """
    kinds: dict[bool, dict[int, _Around]] = {True: {}, False: {}}
    for rank in view.alive:
        around = _around(view, rank)
        if around is None:
            return None
        kinds[around.inside.main][rank] = around
    if not all(kinds.values()):
        return None
    parts, facts = [], []
    for its in kinds.values():
        first, (inside, outside) = next(iter(its.items()))
        what = f"{stacks.collective(inside.frames)}{phrases.at(_site(inside))}"
        parts.append(
            say(
                subjects.ranks(its),
                f" {phrases.one_or([*its], 'is', 'are')} in {what} in {_thread(inside)}, and "
                f"{_thread(outside)} waits for a lock in {phrases.place(_site(outside))}",
            )
        )
        facts += view.line_shown(first, _site(outside))
    ranks = sorted(view.alive)
    return view.verdict(
        code="lock-deadlock",
        sentence=say(joined("; ", parts), ": each collective waits for the others"),
        ranks=ranks,
        victims=[],
        confidence=sure.LOCK_AROUND_COLLECTIVE,
        facts=[*facts, *view.counts()],
        hint=_NOT_AROUND,
    )


_NOT_AROUND = (
    "Hold no lock during a collective: which thread takes it first is chance, and differs between ranks. "
    "Copy what the thread needs under the lock, and call the collective after it; or call all collectives in "
    "one thread."
)


def _around(view: JobView, rank: int) -> Optional[_Around]:
    threads = [stack for stack in view.ranks[rank].stacks if stacks.is_own(stack.frames)]
    inside = [stack for stack in threads if stacks.collective(stack.frames)]
    outside = [stack for stack in threads if _kind(view, view.ranks[rank], stack) == _ON_LOCK]
    if len(inside) != 1 or len(outside) != 1 or inside[0].main == outside[0].main:
        return None
    return _Around(inside[0], outside[0])


# --- locks on files: the holder of a lock is the first cause
#
# The codes are those of a rank in its own code, or late to init_process_group: only the cause is more exact.
# `JobView.queued` has the ranks that wait while another one works and may hold the lock.


_DEADLOCK = (
    "Let rank {holder} release the lock before {place}: a rank that waits for all others must hold nothing "
    "that one of them needs to get there."
)
_WORKS = (
    "The others need what rank {holder} does under the lock: do it before the job, keep it short, or let "
    "them wait in a barrier after it, with a timeout of the process group that is long enough."
)
_FOREIGN = "See what {whom} is doing on {node} (`lslocks -p {pid}`); it may be left over from an earlier job."
_LEFT = "A build that was killed leaves its lock behind. If no build runs on any node, {do}."
_MADE = (
    "A rank may have raised, or have been killed, after it made the file: let it remove the file in a "
    "`finally`. If no process has this lock any more, remove the file."
)
_SOMEBODY = "`lslocks` on {node} shows who holds the lock; it may be a process of another node or container."


@dataclass(frozen=True)
class _Lock:
    """A lock on a file, the ranks that wait for it, and the rank that holds it, if one does."""

    wait: Wait
    ranks: list[int]
    place: str  # where they wait
    holder: Optional[int]
    others: list[int]  # all that wait for a lock, this one or another, that a working rank holds

    @property
    def queue(self) -> Text:
        """'ranks 1 and 2 wait for the lock on /data/cache.lock in load (data.py:20)'."""
        verb = phrases.one_or(self.ranks, "waits", "wait")
        file = self.wait.file or "a file"
        return say(subjects.ranks(self.ranks), f" {verb} for the lock on {file} in {self.place}")


class _Cause(NamedTuple):
    ranks: list[int]
    sentence: Text
    hint: str


def queued(view: JobView) -> Optional[Found]:
    """Ranks that wait for what a working rank may give. No rank was seen to hold it, so none is blamed."""
    return Found(None, view.queued)


def late_for_a_lock(view: JobView) -> Optional[Found]:
    """Ranks that have not called init_process_group, because of a lock."""
    return _found_lock(view, view.late, "rank-late-to-init")


def waits_for_a_lock(view: JobView) -> Optional[Found]:
    """Ranks for which the others wait in a collective, and which wait for a lock."""
    return _found_lock(view, [rank for rank in view.stragglers if rank not in view.late], "rank-in-user-code")


def _found_lock(view: JobView, ranks: list[int], code: str) -> Optional[Found]:
    lock = _wanted_lock(view, [rank for rank in ranks if rank not in view.explained])
    if lock is None:
        return None
    if lock.holder is None:
        cause = _held_by_no_rank(view, lock)
    elif lock.holder in view.waiting:
        cause = _held_in_a_collective(view, lock, lock.holder)
    elif lock.others:
        cause = _held_at_work(view, lock, lock.holder)
    else:
        return None  # it waits for a lock too, perhaps one that it holds itself
    late = cause.ranks if lock.others else lock.ranks
    missed = [rank for rank in late if rank in view.late]
    never = say(subjects.ranks(missed), " never reached init_process_group; ") if missed else ""
    left_behind = bool(lock_file(view.ranks[lock.ranks[0]]))
    found = verdict_on(
        view,
        code,
        cause.ranks,
        say(never, cause.sentence, others(view, cause.ranks)),
        [
            *(
                f"rank {rank}: process {view.ranks[rank].pid} waits for the lock of pid {lock.wait.holder}"
                for rank in lock.ranks[:4]
                if lock.wait.holder
            ),
            *holder_facts(view, [rank for rank in cause.ranks if rank not in view.waiting]),
        ],
        cause.hint,
        sure.LOCK_FILE_LEFT if left_behind else confidence_in(view, lock.ranks),
    )
    victims = {*found.victims, *lock.ranks, *lock.others} - {*cause.ranks}
    if left_behind:
        return Found(replace(found, ranks=[], nodes=[], victims=sorted({*victims, *lock.ranks})), lock.ranks)
    queue = [*lock.ranks, *lock.others] if lock.others else []  # for whose wait the holder alone is to blame
    return Found(replace(found, victims=sorted(victims)), [*cause.ranks, *queue])


def _wanted_lock(view: JobView, ranks: list[int]) -> Optional[_Lock]:
    """Return the lock for which the first of these ranks waits, preferring one that a working rank holds."""
    waits = {rank: wait for rank in ranks if (wait := file_lock_wait(view.ranks[rank])) is not None}
    if not waits:
        return None
    holders = {rank: _rank_of(view, rank, wait.holder) for rank, wait in waits.items()}
    of_worker = [rank for rank, its in holders.items() if its in view.stragglers and its not in waits]
    first = (of_worker or [*waits])[0]
    wait, place = waits[first], view.locations[first]
    same = [
        rank
        for rank, its in waits.items()
        if (its.file, its.holder) == (wait.file, wait.holder)
        and (its.file or str(view.locations[rank]) == str(place))
    ]
    return _Lock(wait, same, str(replace(place, awaits="")), holders[first], of_worker)


def _held_by_no_rank(view: JobView, lock: _Lock) -> _Cause:
    """Another process holds the lock, or no holder was seen: name the ranks that wait for it."""
    first, holder = lock.ranks[0], lock.wait.holder
    node = view.node(view.node_of[first])
    if holder > 0:
        command = f" ({phrases.clipped(lock.wait.command, 80)})" if lock.wait.command else ""
        whom = f"pid {holder}{command}"
        hint = _FOREIGN.format(whom=whom, node=node, pid=holder)
        return _Cause(lock.ranks, say(lock.queue, f", which {whom} holds"), hint)
    if lock_file(view.ranks[first]):
        return _Cause(lock.ranks, say(lock.queue, "; whoever has made this file has not removed it"), _MADE)
    frame = stacks.polls(stacks.main(view.ranks[first].stacks))
    hint = _SOMEBODY.format(node=node)
    if frame is not None and "baton" in frame.file:
        file = lock.wait.file
        do = f"`rm {file}`" if file else "remove the file `lock` in the folder of the build"
        hint = _LEFT.format(do=do)
    seen = ", which another process holds" if holder else "; no holder was seen"
    return _Cause(lock.ranks, say(lock.queue, seen), hint)


def _held_in_a_collective(view: JobView, lock: _Lock, holder: int) -> _Cause:
    """The holder waits for the ranks that wait for its lock: neither can go on."""
    place = view.locations[holder]
    waits = say(f"rank {holder} holds it and waits for ", subjects.ranks(lock.ranks), f" in {place}")
    hint = _DEADLOCK.format(holder=holder, place=place)
    return _Cause(sorted([holder, *lock.ranks]), say(lock.queue, "; ", waits), hint)


def _held_at_work(view: JobView, lock: _Lock, holder: int) -> _Cause:
    """The holder works while it has the lock: the others come after it."""
    verb = phrases.one_or(lock.ranks, "waits", "wait")
    holds = f"rank {holder} is in {view.locations[holder]} and holds the lock on {lock.wait.file}"
    queue = say("for which ", subjects.ranks(lock.ranks), f" {verb} in {lock.place}")
    elsewhere = view.places([rank for rank in lock.others if rank not in lock.ranks])
    works = joined("; ", [say(f"{holds}, ", queue), *elsewhere])
    return _Cause([holder], works, _WORKS.format(holder=holder))


def _rank_of(view: JobView, number: int, pid: int) -> Optional[int]:
    """Return the rank on rank `number`'s machine that is this process, or whose loader worker it is."""
    machine = view.nodes[view.node_of[number]].machine
    for other, rank in view.ranks.items():
        here = view.node_of[other] == view.node_of[number] or (
            machine and view.nodes[view.node_of[other]].machine == machine
        )
        workers = [child.pid for child in rank.children if child.role == "loader"]
        own = [rank.pid, *([rank.process.pid] if rank.process is not None else []), *workers]
        if here and rank.alive and pid in own:
            return other
    return None
