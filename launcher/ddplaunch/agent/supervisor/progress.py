"""Measures how long a rank has made no progress, and how long it has not even moved. Pure.

Progress: a collective was called or done, new text was printed, bytes were read or sent, or the main thread
is at a new place. Movement: also CPU time, wake-ups, a runnable thread. A rank that only moves may loop for
ever, so stacks that differ only in the user's innermost function are movement.

Of a rank that waits for others, only its main thread and its sockets count: threads and child processes that
log, measure or upload go on for ever in a job that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system.proc import MainIo, Usage

SUSPICION = 3.0
"""Seconds without real progress after which stacks are looked at."""
_CPU_SHARE = 0.02
"""Share of a core. A waiting process with a few polling threads stays below."""
_CPU_LEAST = 0.015
"""Seconds, however soon one sample follows another: the kernel counts in steps of 0.01, and the threads of a
waiting rank make one of those every few seconds."""
_WAKEUPS = 2.0
"""Wake-ups per second of one main thread. A waiting DataLoader wakes up every 5 s, and so do its workers."""
_BYTES = 64 * 1024
"""Bytes since the last progress. A heartbeat stays below for minutes, the slowest transfer does not."""
_WINDOW = 10.0
_AWAY = 5.0
"""Seconds between two samples beyond which the supervisor itself was frozen: that time does not count."""


class Sample(NamedTuple):
    """The state of a rank at one moment."""

    at: float  # time.monotonic()
    used: dict[int, Usage]  # by pid: the rank's and its children's
    runnable: bool
    printed: bool  # it printed something new since the last sample
    counted: Optional[tuple[int, int]] = None  # collectives called and done, of all groups
    is_doubtful: bool = False  # whether the last collective may be done although it counts as called only
    initialized: Optional[bool] = None
    sent: Optional[int] = None  # bytes through sockets, of its children as well; None: not counted
    sent_itself: Optional[int] = None  # bytes through sockets of the rank's own process
    main_io: Optional[MainIo] = None  # of its main thread; None: cannot be read
    frames: Optional[list[Frame]] = None  # of the main thread; None: not read
    deeper: tuple[list[Frame], ...] = ()  # of its children's main threads


class Progress:
    """The progress of one rank since it was discovered, at moment `at`."""

    def __init__(self, at: float) -> None:
        self._progressed = at
        self._by_itself = at  # of the last progress that no other thread and no child can have made
        self._otherwise = at  # of the last progress that was more than bytes
        self._moved = at
        self._last: Optional[Sample] = None
        self._bytes = self._bytes_itself = 0  # since the last progress
        self._sent: Optional[int] = None
        self._sent_itself: Optional[int] = None
        self._counted: Optional[tuple[int, int]] = None
        self._is_doubtful = False
        self._initialized: Optional[bool] = None
        self._seen: set[Hashable] = set()
        self._looks: deque[tuple[float, Hashable]] = deque()
        self._frames: list[Frame] = []

    def stuck_for(self, now: float) -> float:
        progressed = self._by_itself if self._may_wait(now) else self._progressed
        return max(0.0, self._looked_until(now) - progressed)

    def still_for(self, now: float) -> float:
        return max(0.0, self._looked_until(now) - self._moved)

    def _looked_until(self, now: float) -> float:
        """Return now, or soon after the last sample: later times are unknown."""
        return now if self._last is None else min(now, self._last.at + _AWAY)

    def suspicious(self, now: float) -> bool:
        return self._looked_until(now) - self._by_itself >= SUSPICION

    def only_transfers(self, now: float) -> bool:
        """Whether bytes were its only progress for as long as makes other ranks suspicious."""
        return self._progressed > self._otherwise and now - self._otherwise >= SUSPICION

    @property
    def pending(self) -> bool:
        """Whether a collective was called and is not done."""
        return self._counted is not None and self._counted[0] > self._counted[1] and not self._is_doubtful

    @property
    def leaves_doubts(self) -> bool:
        """Whether its stack was read while its counters may be wrong: only a full dump tells what is done."""
        return self._is_doubtful and bool(self._frames)

    @property
    def stack_moves(self) -> Optional[bool]:
        """Whether the main thread's stack changed within the window; None: there are less than two stacks."""
        return len({key for _, key in self._looks}) > 1 if len(self._looks) > 1 else None

    def called_at(self, at: float) -> None:
        """Note that the rank called a collective at moment `at`: counters that are polled show it later."""
        if at > self._progressed:
            self.got_on(at)

    def makes_communicator(self, now: float) -> bool:
        """Whether the rank is in its first collective, and torch has no record of it yet.

        With NCCL, torch makes the communicator before it records the call: for seconds, in large worlds for
        minutes.
        """
        fresh = self._has_fresh_frames(now)
        return fresh and self._counted == (0, 0) and bool(stacks.collective(self._frames))

    def waits(self, now: float) -> bool:
        """Whether the rank is in a collective or in init_process_group, by the samples so far."""
        return self._is_in_call(now) or (self._may_wait(now) and self.still_for(now) >= 1.0)

    def _is_in_call(self, now: float) -> bool:
        frames = self._frames if self._has_fresh_frames(now) else []
        return bool(stacks.collective(frames) or stacks.in_init(frames) or stacks.mpi_function(frames))

    def _may_wait(self, now: float) -> bool:
        """Whether it is in a call, or has one open: DDP waits inside backward(), without a frame of c10d."""
        in_loader = self._has_fresh_frames(now) and stacks.in_loader(self._frames)
        return self._is_in_call(now) or (self.pending and not in_loader)

    def _has_fresh_frames(self, now: float) -> bool:
        return bool(self._frames) and now - self._looks[-1][0] < _WINDOW

    def take(self, sample: Sample) -> None:
        last, self._last = self._last, sample
        if last is not None and sample.at - last.at > _AWAY:
            self._progressed += sample.at - last.at
            self._by_itself += sample.at - last.at
            self._moved += sample.at - last.at
        if last is not None:
            self._transfers(sample, last)
        if self._called(sample) or (sample.printed and _may_have_printed(sample, last)):
            self.got_on(sample.at)
        elif sample.printed:
            self._progressed = self._moved = sample.at
        if self._stands_anew(sample):
            self._progress(sample.at)
        if last is None or _moves(sample, last):
            self._moved = sample.at

    def got_on(self, at: float) -> None:
        """Note progress at moment `at`, between two samples."""
        self._progress(at)
        self._seen.clear()
        self._looks.clear()
        self._frames = []

    def _progress(self, at: float) -> None:
        self._progressed = self._by_itself = self._otherwise = self._moved = at
        self._bytes = self._bytes_itself = 0

    def _called(self, sample: Sample) -> bool:
        changed = False
        if sample.counted is not None:
            before, self._counted = self._counted or sample.counted, sample.counted
            settled = self._is_doubtful and sample.counted[0] == before[0]  # it may be done for long
            changed, self._is_doubtful = sample.counted != before and not settled, sample.is_doubtful
        if sample.initialized is not None:
            changed = changed or self._initialized not in (None, sample.initialized)
            self._initialized = sample.initialized
        return changed

    def _transfers(self, sample: Sample, last: Sample) -> None:
        sent, self._sent = self._sent, sample.sent
        sent_itself, self._sent_itself = self._sent_itself, sample.sent_itself
        moved = _growth(sent, sample.sent)
        moved += sum(
            after.read_since(before) + after.written - before.written for before, after in _both(last, sample)
        )
        self._bytes += moved
        unseen = sent_itself is None or sample.sent_itself is None
        if unseen or sample.main_io is None or last.main_io is None:
            self._bytes_itself += moved
        else:
            self._bytes_itself += _growth(sent_itself, sample.sent_itself)
            self._bytes_itself += sum(sample.main_io) - sum(last.main_io)
        if self._bytes_itself >= _BYTES:
            self._by_itself, self._bytes_itself = sample.at, 0
        if self._bytes >= _BYTES or self._by_itself == sample.at:
            self._progressed = self._moved = sample.at
            self._bytes = 0

    def _stands_anew(self, sample: Sample) -> bool:
        """Whether a stack is at a new place since the last other progress. The first stack is never new."""
        if sample.frames is None:
            return False
        self._frames = sample.frames
        self._looks.append((sample.at, tuple(sample.frames)))
        while self._looks[0][0] < sample.at - _WINDOW:
            self._looks.popleft()
        places = {_place(frames) for frames in (sample.frames, *sample.deeper) if frames}
        first, new = not self._seen, places - self._seen
        self._seen |= places
        if len(self._looks) > 1 and self._looks[-1][1] != self._looks[-2][1]:
            self._moved = sample.at
        return bool(new) and not first


def _moves(sample: Sample, last: Sample) -> bool:
    seconds = sample.at - last.at
    return (
        sample.runnable
        or sample.used.keys() != last.used.keys()
        or any(
            after.cpu - before.cpu >= max(_CPU_SHARE * seconds, _CPU_LEAST)
            or after.wakeups - before.wakeups >= max(_WAKEUPS * seconds, 2)
            for before, after in _both(last, sample)
        )
    )


def _may_have_printed(sample: Sample, last: Optional[Sample]) -> bool:
    """Whether its main thread may have: another thread prints as well, and a child does."""
    if last is None or last.main_io is None or sample.main_io is None:
        return True
    return sample.main_io.written > last.main_io.written


def _growth(before: Optional[int], after: Optional[int]) -> int:
    return 0 if before is None or after is None else max(0, after - before)


def _both(last: Sample, sample: Sample) -> list[tuple[Usage, Usage]]:
    """Return the counters of each process that is in both samples, then and now."""
    return [(last.used[pid], after) for pid, after in sample.used.items() if pid in last.used]


def _place(frames: list[Frame]) -> Hashable:
    """Return the place of a stack, coarse enough that a loop within one function stays at one place."""
    if any("importlib" in frame.file for frame in frames):
        return tuple((frame.file, frame.name) for frame in frames)  # every import happens once
    user = stacks.user_frame(frames)
    outer = frames[frames.index(user) :] if user in frames else frames
    return (outer[0].file, outer[0].name), tuple((frame.file, frame.name, frame.line) for frame in outer[1:])
