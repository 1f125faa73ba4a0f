"""The model of what moves and what does not, for one rank. Pure.

`Progress` says for how long a rank has done nothing, `Steps` how long its steps take.

A rank **does** something when
- it calls a collective or completes one, enters or leaves a process group, or passes from call to call of
  MPI;
- its main thread reaches a place where it has not been since it last did something. A loop within one
  function is one place, whatever its lines, and so is library code below it;
- its main thread prints a line that differs in more than its numbers from what was printed before, or any
  line while it computes (any other line of its main thread counts as a computation);
- it transfers: 64 KiB within ten seconds, through its main thread or its sockets;
- it, or a child, waits for input from the user's terminal (only the user can go on), and for no other rank.

A rank **computes** when its processes use half a second of CPU within five seconds, or its main thread
wants to.

Everything else is **nothing**: a thread that prints, a progress bar that is redrawn, a monitor that wakes
up, sleeping in short pieces, and asking again and again whether something is there (a file, a queue, a key
in a store). Asking a store takes messages of a few bytes, which are no transfer.

`stuck_for` is the time since a rank last did something, `still_for` the time since it last did or computed.
All amounts are sums over a window: no single tick, wake-up or packet decides anything.

If a rank waits for others, only its main thread and its sockets count: threads and child processes
that log, measure or upload go on for ever in a job that hangs. While a rank waits in init_process_group,
nothing that goes through its sockets counts, because all it does there is ask. If a rank does not wait, what
its children transfer, and where they are, counts as well: they may read its data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.diagnosis.run import pace, stacks
from ddplaunch.agent.evidence import flight
from ddplaunch.agent.system.proc import MainIo, Usage

SUSPICION = 3.0
"""Seconds without anything done after which a rank's stacks are looked at."""
_CPU, _CPU_WINDOW = 0.5, 5.0
"""Seconds of CPU, and within how many seconds: a tenth of a core. A loop that polls a thousand times a second
stays below this. Waiting for a CPU counts as well, so a rank that computes is above it however many share a
core."""
_BYTES, _BYTES_WINDOW = 64 * 1024, 10.0
"""A heartbeat stays below this, the slowest transfer does not."""
_WAKEUPS, _WAKEUPS_WINDOW = 20, 5.0
"""Wake-ups of a main thread in a collective whose calls are not counted: with Gloo it sleeps until its call
is done. A debugger that reads its stack causes two."""
_WINDOW = 10.0
_AWAY = 5.0
"""If there are more seconds than this between two samples, the supervisor itself was frozen, and that time
does not count."""


class Bucket:
    """Fills when `amount` has come within `window` seconds, and is then empty again."""

    def __init__(self, amount: float, window: float) -> None:
        self._amount = amount
        self._window = window
        self._parts: deque[tuple[float, float]] = deque()

    def fills(self, at: float, part: float) -> bool:
        if part > 0:
            self._parts.append((at, part))
        while self._parts and self._parts[0][0] <= at - self._window:
            self._parts.popleft()
        if sum(part for _, part in self._parts) < self._amount:
            return False
        self._parts.clear()
        return True

    def empty(self) -> None:
        self._parts.clear()


class Sample(NamedTuple):
    """The state of a rank at one moment."""

    at: float  # time.monotonic()
    used: dict[int, Usage]  # by pid: the rank's and its children's
    printed: bool = False  # it printed something since the last sample
    repeats: bool = False  # and nothing but what it had printed before, apart from numbers
    wanted: Optional[float] = None  # seconds for which its main thread has had a CPU or waited for one so far
    counted: Optional[tuple[int, int]] = None  # collectives called and done, of all groups
    is_doubtful: bool = False  # the last collective may be done although it only counts as called
    initialized: Optional[bool] = None
    sent: Optional[int] = None  # bytes through sockets, also its children's; None: not counted
    sent_itself: Optional[int] = None  # by the rank's own process; both without small messages
    main_io: Optional[MainIo] = None  # of its main thread; None: it cannot be read
    asks: bool = False  # it waits for input from the user's terminal
    frames: Optional[list[Frame]] = None  # of the main thread; None: not read
    deeper: tuple[list[Frame], ...] = ()  # of its children's main threads


class Progress:
    """What one rank has done since it was discovered, at moment `at`."""

    def __init__(self, at: float) -> None:
        self._did = at
        self._did_itself = at  # something that no other thread and no child can have done
        self._otherwise = at  # something that was more than a transfer
        self._computed = float("-inf")
        self._counted_on = float("-inf")  # when its main thread last printed a line with other numbers
        self._last: Optional[Sample] = None
        self._cpu = Bucket(_CPU, _CPU_WINDOW)
        self._bytes, self._bytes_itself = Bucket(_BYTES, _BYTES_WINDOW), Bucket(_BYTES, _BYTES_WINDOW)
        self._wakeups = Bucket(_WAKEUPS, _WAKEUPS_WINDOW)
        self._sent: Optional[int] = None
        self._sent_itself: Optional[int] = None
        self._counted: Optional[tuple[int, int]] = None
        self._is_doubtful = False
        self._initialized: Optional[bool] = None
        self._wrote = float("-inf")  # when its main thread last wrote anything
        self._seen: set[Hashable] = set()  # places where it has been since it last did something otherwise
        self._seen_below: set[Hashable] = set()  # of its children
        self._looks: deque[tuple[float, Hashable]] = deque()
        self._frames: list[Frame] = []

    def stuck_for(self, now: float) -> float:
        """Return the seconds since it last did something."""
        did = self._did_itself if self._may_wait(now) else self._did
        return max(0.0, self._looked_until(now) - did)

    def still_for(self, now: float) -> float:
        """Return the seconds since it last did something or computed."""
        return max(0.0, self._looked_until(now) - max(self._computed, self._counted_on, self._did))

    def _looked_until(self, now: float) -> float:
        """Return now, or a moment soon after the last sample, because what came later is unknown."""
        return now if self._last is None else min(now, self._last.at + _AWAY)

    def is_suspicious(self, now: float) -> bool:
        return self.has_done_nothing_for(SUSPICION, now)

    def has_done_nothing_for(self, seconds: float, now: float) -> bool:
        return self._looked_until(now) - self._did_itself >= seconds

    def is_only_transferring(self, now: float) -> bool:
        """Whether it has only transferred for as long as makes other ranks suspicious."""
        return self._did > self._otherwise and now - self._otherwise >= SUSPICION

    @property
    def pending(self) -> bool:
        """Whether a collective has been called and is not done."""
        return self._counted is not None and self._counted[0] > self._counted[1] and not self._is_doubtful

    @property
    def leaves_doubts(self) -> bool:
        """Whether its stack was read while its counters may be wrong: only a full dump shows what is done."""
        return self._is_doubtful and bool(self._frames)

    @property
    def stack_moves(self) -> Optional[bool]:
        """Whether the main thread's stack changed within the window; None: fewer than two stacks."""
        return len({key for _, key in self._looks}) > 1 if len(self._looks) > 1 else None

    def note_call(self, at: float) -> None:
        """Note that the rank called a collective at moment `at`. Counters that are polled show this later."""
        if at > self._did:
            self.note_deed(at)

    def is_making_communicator(self, now: float) -> bool:
        """Whether the rank is in its first collective and torch has no record of it yet.

        With NCCL, torch makes the communicator before it records the call. That takes seconds, in large
        worlds minutes.
        """
        fresh = self._has_fresh_frames(now)
        return fresh and self._counted == (0, 0) and bool(stacks.collective(self._frames))

    def is_waiting(self, now: float) -> bool:
        """Whether the rank is in a collective or in init_process_group, according to the samples so far."""
        return self._is_in_call(now) or (self._may_wait(now) and self.still_for(now) >= 1.0)

    def _is_in_call(self, now: float) -> bool:
        frames = self._frames if self._has_fresh_frames(now) else []
        return bool(stacks.collective(frames) or stacks.in_init(frames) or stacks.mpi_function(frames))

    def _may_wait(self, now: float) -> bool:
        """Whether it is in a call or has one open: DDP waits inside backward(), without a c10d frame."""
        in_loader = self._has_fresh_frames(now) and stacks.in_loader(self._frames)
        return self._is_in_call(now) or (self.pending and not in_loader)

    def _has_fresh_frames(self, now: float) -> bool:
        return bool(self._frames) and now - self._looks[-1][0] < _WINDOW

    def take(self, sample: Sample) -> None:
        last, self._last = self._last, sample
        if last is not None and sample.at - last.at > _AWAY:
            away = sample.at - last.at
            self._did += away
            self._did_itself += away
            self._computed += away
            self._counted_on += away
        if last is not None:
            self._note_cpu(sample, last)
            self._note_transfers(sample, last)
        did = self._note_calls(sample) or self._note_returns(sample, last) or self._note_prints(sample, last)
        if did or (sample.asks and not self._may_wait(sample.at)):
            self.note_deed(sample.at)
        self._note_place(sample)

    def note_deed(self, at: float) -> None:
        """Note that it did something at moment `at`, which may be between two samples."""
        self._set_deed(at)
        self._seen.clear()
        self._seen_below.clear()
        self._looks.clear()
        self._frames = []

    def _set_deed(self, at: float) -> None:
        self._did = self._did_itself = self._otherwise = at
        for bucket in (self._bytes, self._bytes_itself, self._wakeups):
            bucket.empty()

    def _note_cpu(self, sample: Sample, last: Sample) -> None:
        used = sum(max(0.0, after.cpu - before.cpu) for before, after in _both(last, sample))
        if sample.wanted is not None and last.wanted is not None:
            used = max(used, sample.wanted - last.wanted)
        if self._cpu.fills(sample.at, used):
            self._computed = sample.at

    def _note_calls(self, sample: Sample) -> bool:
        changed = False
        if sample.counted is not None:
            before, self._counted = self._counted or sample.counted, sample.counted
            settled = self._is_doubtful and sample.counted[0] == before[0]  # it may have been done for long
            changed, self._is_doubtful = sample.counted != before and not settled, sample.is_doubtful
        if sample.initialized is not None:
            changed = changed or self._initialized not in (None, sample.initialized)
            self._initialized = sample.initialized
        return changed

    def _note_returns(self, sample: Sample, last: Optional[Sample]) -> bool:
        """Whether it has completed calls that nothing counts: it wakes up from each of them."""
        in_call = sample.counted is None and self._has_fresh_frames(sample.at)
        if last is None or not (in_call and stacks.collective(self._frames)):
            self._wakeups.empty()
            return False
        main = next(iter(sample.used), 0)  # the rank's own process comes first
        before, after = last.used.get(main), sample.used.get(main)
        woke = after.wakeups - before.wakeups if before is not None and after is not None else 0
        return self._wakeups.fills(sample.at, woke)

    def _note_prints(self, sample: Sample, last: Optional[Sample]) -> bool:
        """Whether its main thread has printed something new. A line is read up to one sample later."""
        if last is None:
            return sample.printed and not sample.repeats
        before, now = last.main_io, sample.main_io
        if before is None or now is None or now.written > before.written:
            self._wrote = sample.at
        if not sample.printed or self._wrote < last.at:
            return False
        if not sample.repeats or sample.at - self._computed <= _CPU_WINDOW:
            return True
        if not self._may_wait(sample.at):
            # If it is "step 412" again and again, it may count what it waits for, or do its work elsewhere,
            # slowly.
            self._counted_on = sample.at
        return False

    def _note_transfers(self, sample: Sample, last: Sample) -> None:
        sent, self._sent = self._sent, sample.sent
        sent_itself, self._sent_itself = self._sent_itself, sample.sent_itself
        in_init = self._has_fresh_frames(sample.at) and stacks.in_init(self._frames)
        through = 0 if in_init else _growth(sent, sample.sent)
        moved = through + sum(
            after.read_since(before) + after.written - before.written for before, after in _both(last, sample)
        )
        unseen = sent_itself is None or sample.sent_itself is None
        if unseen or sample.main_io is None or last.main_io is None:
            itself = moved
        else:
            itself = 0 if in_init else _growth(sent_itself, sample.sent_itself)
            itself += sum(sample.main_io) - sum(last.main_io)
        if self._bytes_itself.fills(sample.at, itself):
            self._did = self._did_itself = sample.at
        if self._bytes.fills(sample.at, moved):
            self._did = sample.at

    def _note_place(self, sample: Sample) -> None:
        """Note where the rank and its children are. Any new place but the first counts as something done."""
        if sample.frames is None:
            return
        self._frames = sample.frames
        self._looks.append((sample.at, tuple(sample.frames)))
        while self._looks[0][0] < sample.at - _WINDOW:
            self._looks.popleft()
        first, place = not self._seen, _place(sample.frames) if sample.frames else None
        below = {_place(frames) for frames in sample.deeper if frames}
        is_new = place is not None and place not in self._seen
        is_new_below = bool(below - self._seen_below)
        self._seen |= {place} if place is not None else set()
        self._seen_below |= below
        if is_new and not first:
            self._set_deed(sample.at)
        elif is_new_below and not first:
            self._did = self._otherwise = sample.at


def _growth(before: Optional[int], after: Optional[int]) -> int:
    return 0 if before is None or after is None else max(0, after - before)


def _both(last: Sample, sample: Sample) -> list[tuple[Usage, Usage]]:
    """Return the counters of each process that is in both samples, then and now."""
    return [(last.used[pid], after) for pid, after in sample.used.items() if pid in last.used]


def _place(frames: list[Frame]) -> Hashable:
    """Return the place of a stack, coarse enough that a loop within one function stays at one place."""
    if any("importlib" in frame.file for frame in frames):
        return tuple((frame.file, frame.name) for frame in frames)  # every import happens only once
    user = stacks.user_frame(frames)
    outer = frames[frames.index(user) :] if user in frames else frames
    return (outer[0].file, outer[0].name), tuple((frame.file, frame.name, frame.line) for frame in outer[1:])


# --- how long a step takes

_CHANGES = 60
_FEWEST_CHANGES = 10
"""Changes of the counters before the recorder is read, because a program's first steps differ from all
others."""
_READ_PAUSE, _LONGER_PAUSE = 60.0, 4
_STEPS = 2
_LATE_STEPS = 3.0
"""If this many steps, and at least a second, pass without a collective, the pace is no longer known."""


class Steps:
    """Measures how long a step of one rank takes, from the counters in its hook's answers.

    torch's flight recorder shows how many collectives a step has. It is read after the first steps, again
    after a minute, and then each time after four times as long. Between these, the counters of each second
    cost the rank nothing more.
    """

    def __init__(self) -> None:
        self._changes: deque[tuple[float, dict[str, int]]] = deque(maxlen=_CHANGES)  # called, by backend
        self._backend = ""
        self._per_step = 0.0
        self._due = 0.0
        self._pause = _READ_PAUSE

    def claim_read(self, now: float) -> bool:
        """Return whether to read the recorder now. If so, it is not read again before a pause has passed.

        That also holds if no answer comes: on a busy machine the next one would be as late.
        """
        if len(self._changes) < _FEWEST_CHANGES or now < self._due:
            return False
        self._due = now + self._pause
        return True

    def take(self, at: float, answer: Optional[dict[str, Any]]) -> None:
        dumps: dict[str, dict[str, Any]] = (answer or {}).get("recorders") or {}
        called = {
            name: sum(each for each, _ in flight.counters(dump, as_brief=True).values())
            for name, dump in dumps.items()
        }
        before = self._changes[-1][1] if self._changes else {}
        if (answer or {}).get("is") == "steps":
            self._learn(at, dumps)
        if dumps and any(called.get(name, 0) < number for name, number in before.items()):
            self._changes.clear()  # it has made its groups again
        if called != before and any(called.values()):
            self._changes.append((at, called))

    def _learn(self, at: float, dumps: dict[str, dict[str, Any]]) -> None:
        self._due, self._pause = at + self._pause, _LONGER_PAUSE * self._pause
        known = [(flight.per_step(d), name) for name, d in dumps.items() if pace.steady(flight.step_times(d))]
        while not self._per_step and len(self._changes) > 1:
            self._changes.popleft()  # the first steps are no measure
        self._per_step, self._backend = max(known, default=(0.0, ""))

    def seconds(self, now: float) -> Optional[float]:
        """Return the mean step over roughly the last minute, in seconds; None if it is not known."""
        if not self._per_step or len(self._changes) < _STEPS:
            return None
        (begin, first), (end, last) = self._changes[0], self._changes[-1]
        steps = (last.get(self._backend, 0) - first.get(self._backend, 0)) / self._per_step
        if steps < _STEPS or now - end > _LATE_STEPS * max(1.0, (end - begin) / steps):
            return None
        return round((end - begin) / steps, 4)
