"""One rank's samples, a second apart."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.supervisor.rank_progress import Progress, Sample
from ddplaunch.agent.system.proc import Usage

RANK, LOADER = 100, 101
C10D = "/opt/torch/distributed/distributed_c10d.py"
TRAIN = "/job/train.py"


class Clock:
    """Feeds one rank with a sample a second; what is not said stays as it was."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.progress = Progress(self.now)
        self.used = {RANK: Usage(5.0, 1000, 1000, 50)}

    def second(
        self,
        cpu: float = 0.0,
        wakeups: int = 0,
        read: int = 0,
        written: int = 0,
        pid: int = RANK,
        length: float = 1.0,
        **more: Any,
    ) -> None:
        self.now += length
        old = self.used.get(pid, Usage(0.0, 0, 0, 0))
        self.used[pid] = Usage(old.cpu + cpu, old.read + read, old.written + written, old.wakeups + wakeups)
        self.progress.take(Sample(self.now, dict(self.used), **more))

    def seconds(self, count: int, **more: Any) -> None:
        for _ in range(count):
            self.second(**more)

    @property
    def stuck(self) -> float:
        return self.progress.stuck_for(self.now)

    @property
    def still(self) -> float:
        return self.progress.still_for(self.now)


def location(*places: tuple[str, int], file: str = TRAIN) -> list[Frame]:
    """A stack of (function, line), innermost first."""
    return [Frame(name, file, line) for name, line in places]


IN_COLLECTIVE = [Frame("all_reduce", C10D, 4181), *location(("main", 12), ("<module>", 20))]
