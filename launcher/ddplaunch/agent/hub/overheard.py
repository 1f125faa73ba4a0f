"""What gates say that cannot reach the hub, where a scheduler brings their output to the hub's machine.

srun carries what tasks print over connections of Slurm's own, which a firewall lets through when it lets
nothing else. So the hub knows soon, and exactly, what a node met that it would otherwise only miss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.hub.tail import Tail
from ddplaunch.agent.hub.tasks import Tasks

SETTLES = 2.0
"""Seconds from the hub's start until what is said of it counts: who cried before will come by now."""
_MARK = b'{"unreached":'


class Cry(NamedTuple):
    """One node's own verdict on why it does not reach the hub, and for how many seconds it has tried."""

    node: int
    seconds: float
    verdict: Verdict


def line(cry: Cry) -> str:
    """As a gate prints it. Whoever collects the output may put a label before it."""
    body = {"unreached": cry.node, "seconds": round(cry.seconds, 1), "verdict": codec.dump(cry.verdict)}
    return json.dumps(body, separators=(",", ":"))


class Overheard:
    """Reads all gates' output. `tasks` are the gates' own, as srun tells of them."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self.tasks = Tasks(names)
        self._output = Tail(path)

    def listen(self, now: float) -> list[Cry]:
        """What was added since the last call."""
        lines = self._output.lines()
        self.tasks.hear(lines, now)
        return [cry for text in lines if (cry := read(text)) is not None]


def read(text: bytes) -> Optional[Cry]:
    """What `line` made of it; None of any other line, or of a broken one."""
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        found = json.loads(text[start:])
        return Cry(int(found["unreached"]), float(found["seconds"]), codec.load(Verdict, found["verdict"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
