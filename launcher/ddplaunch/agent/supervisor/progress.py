"""Measures how long a rank has made no progress, and how long it has not even moved. Pure.

Real progress: a collective was called or done, something new was printed, bytes were read or sent, or the
main thread stands where it never stood. Movement: also CPU time, wake-ups, being runnable. A rank that only
moves may loop for ever, so stacks that differ in the innermost function of the user alone are movement.
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
"""Of a core. What a waiting process with a few polling threads burns stays below."""
_WAKEUPS = 2.0
"""A second, of one main thread. A DataLoader that waits looks up once in 5 seconds, and so do its workers."""
_BYTES = 64 * 1024
"""Since the last progress. A heartbeat stays below for minutes, the slowest useful transfer does not."""
_WINDOW = 10.0
_AWAY = 5.0
"""Seconds between two samples beyond which the supervisor was frozen itself: they count for nothing."""


class Sample(NamedTuple):
    """One look at a rank."""

    at: float  # time.monotonic()
    used: dict[int, Usage]  # by pid: the rank's and its children's
    runnable: bool
    printed: bool  # it printed something new since the last sample
    counted: Optional[tuple[int, int]] = None  # collectives called and done, of all groups
    is_doubtful: bool = False  # whether the last that was called may be done all the same
    initialized: Optional[bool] = None
    sent: Optional[int] = None  # bytes through sockets, when they were asked for
    frames: Optional[list[Frame]] = None  # of the main thread, when it was looked at
    deeper: tuple[list[Frame], ...] = ()  # of its children's main threads


class Progress:
    """The state of one rank since it was found at moment `at`."""

    def __init__(self, at: float) -> None:
        self._progressed = at
        self._moved = at
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
        """Now, unless nobody has looked for long: what happened since the last sample is not known."""
        return now if self._last is None else min(now, self._last.at + _AWAY)

    def suspicious(self, now: float) -> bool:
        return self.stuck_for(now) >= SUSPICION

    @property
    def pending(self) -> bool:
        """A collective was called and is not done."""
        return self._counted is not None and self._counted[0] > self._counted[1] and not self._is_doubtful

    @property
    def leaves_doubts(self) -> bool:
        """It was looked at, and its counters may be wrong: by them it might wait for what is done, and what
        it has done is told wrong even where its stack says that it waits.
        """
        return self._is_doubtful and bool(self._frames)

    @property
    def stack_moves(self) -> Optional[bool]:
        """Whether the main thread's stack differed within the window; None: it was not looked at twice."""
        return len({key for _, key in self._looks}) > 1 if len(self._looks) > 1 else None

    def waits(self, now: float) -> bool:
        """Whether it stands in a collective or in init_process_group, as far as is known without asking."""
        if self._frames and now - self._looks[-1][0] < _WINDOW:
            if (
                stacks.collective(self._frames)
                or stacks.in_init(self._frames)
                or stacks.mpi_function(self._frames)
            ):
                return True
            # DDP waits inside of backward(), where no frame of torch.distributed shows.
            return self.pending and not stacks.in_loader(self._frames) and self.still_for(now) >= 1.0
        return self.pending and self.still_for(now) >= 1.0

    def take(self, sample: Sample) -> None:
        last, self._last = self._last, sample
        if last is not None and sample.at - last.at > _AWAY:
            self._progressed += sample.at - last.at
            self._moved += sample.at - last.at
        if sample.printed or self._called(sample) or (last is not None and self._transferred(sample, last)):
            self.got_on(sample.at)
        if self._stands_anew(sample):
            self._progress(sample.at)
        if last is None or _moves(sample, last):
            self._moved = sample.at

    def got_on(self, at: float) -> None:
        """Real progress at moment `at`, seen between two samples."""
        self._progress(at)
        self._seen.clear()
        self._looks.clear()
        self._frames = []

    def _progress(self, at: float) -> None:
        self._progressed = self._moved = at
        self._bytes = 0

    def _called(self, sample: Sample) -> bool:
        changed = False
        if sample.counted is not None:
            before, self._counted = self._counted or sample.counted, sample.counted
            found_out = self._is_doubtful and sample.counted[0] == before[0]  # it may be done for long
            changed, self._is_doubtful = sample.counted != before and not found_out, sample.is_doubtful
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
        """Whether a stack was never seen since other progress. The first look only says where it stands."""
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
    """Return what each process that is in both had done then and has done now."""
    return [(last.used[pid], after) for pid, after in sample.used.items() if pid in last.used]


def _place(frames: list[Frame]) -> Hashable:
    """Return where a stack stands, coarse enough that a loop within one function is always the same place."""
    if any("importlib" in frame.file for frame in frames):
        return tuple((frame.file, frame.name) for frame in frames)  # every import happens once
    user = stacks.user_frame(frames)
    outer = frames[frames.index(user) :] if user in frames else frames
    return (outer[0].file, outer[0].name), tuple((frame.file, frame.name, frame.line) for frame in outer[1:])
