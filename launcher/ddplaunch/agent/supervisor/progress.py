"""Measures how long a rank has made no progress, and how long it has not even moved. Pure.

Progress: a collective was called or done, new text was printed, bytes were read or sent, or the main thread
is at a new place. Movement: also CPU time, wake-ups, a runnable thread. A rank that only moves may loop for
ever, so stacks that differ only in the user's innermost function are movement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system.proc import Usage

SUSPICION = 3.0
"""Seconds without real progress after which stacks are looked at."""
_CPU_SHARE = 0.02
"""Share of a core. A waiting process with a few polling threads stays below."""
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
    sent: Optional[int] = None  # bytes through sockets; None: not counted
    frames: Optional[list[Frame]] = None  # of the main thread; None: not read
    deeper: tuple[list[Frame], ...] = ()  # of its children's main threads


class Progress:
    """The progress of one rank since it was discovered, at moment `at`."""

    def __init__(self, at: float) -> None:
        self._progressed = at
        self._moved = at
        self._otherwise = at  # of the last progress that was more than bytes
        self._last: Optional[Sample] = None
        self._bytes = 0
        self._sent: Optional[int] = None
        self._counted: Optional[tuple[int, int]] = None
        self._is_doubtful = False
        self._initialized: Optional[bool] = None
        self._seen: set[Hashable] = set()
        self._looks: deque[tuple[float, Hashable]] = deque()
        self._frames: list[Frame] = []

    def stuck_for(self, now: float) -> float:
        return max(0.0, self._looked_until(now) - self._progressed)

    def still_for(self, now: float) -> float:
        return max(0.0, self._looked_until(now) - self._moved)

    def _looked_until(self, now: float) -> float:
        """Return now, or soon after the last sample: later times are unknown."""
        return now if self._last is None else min(now, self._last.at + _AWAY)

    def suspicious(self, now: float) -> bool:
        return self.stuck_for(now) >= SUSPICION

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
        fresh = bool(self._frames) and now - self._looks[-1][0] < _WINDOW
        return fresh and self._counted == (0, 0) and bool(stacks.collective(self._frames))

    def waits(self, now: float) -> bool:
        """Whether the rank is in a collective or in init_process_group, by the samples so far."""
        if self._frames and now - self._looks[-1][0] < _WINDOW:
            if (
                stacks.collective(self._frames)
                or stacks.in_init(self._frames)
                or stacks.mpi_function(self._frames)
            ):
                return True
            # DDP waits inside backward(), without a frame of torch.distributed.
            return self.pending and not stacks.in_loader(self._frames) and self.still_for(now) >= 1.0
        return self.pending and self.still_for(now) >= 1.0

    def take(self, sample: Sample) -> None:
        last, self._last = self._last, sample
        if last is not None and sample.at - last.at > _AWAY:
            self._progressed += sample.at - last.at
            self._moved += sample.at - last.at
        if sample.printed or self._called(sample):
            self.got_on(sample.at)
        elif last is not None and self._transferred(sample, last):
            otherwise = self._otherwise
            self.got_on(sample.at)
            self._otherwise = otherwise
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
        self._progressed = self._moved = self._otherwise = at
        self._bytes = 0

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

    def _transferred(self, sample: Sample, last: Sample) -> bool:
        for before, after in _both(last, sample):
            self._bytes += after.read_since(before) + after.written - before.written
        if sample.sent is not None:
            self._bytes += max(0, sample.sent - (self._sent if self._sent is not None else sample.sent))
        self._sent = sample.sent
        return self._bytes >= _BYTES

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
    seconds = max(sample.at - last.at, 0.001)
    return (
        sample.runnable
        or sample.used.keys() != last.used.keys()
        or any(
            after.cpu - before.cpu >= _CPU_SHARE * seconds
            or after.wakeups - before.wakeups >= _WAKEUPS * seconds
            for before, after in _both(last, sample)
        )
    )


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
