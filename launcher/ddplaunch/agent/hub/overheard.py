"""What gates say that cannot reach the hub, where a scheduler brings their output to the hub's machine.

srun carries what tasks print over connections of Slurm's own, which a firewall lets through when it lets
nothing else. So the hub knows soon, and exactly, what a node met that it would otherwise only miss.
"""

from __future__ import annotations

import json
from typing import NamedTuple, Optional

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Verdict

_MARK = b'{"unreached":'
_AT_ONCE = 1 << 20


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
    """Reads a file that grows, or that there is not."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def listen(self) -> list[Cry]:
        """What was added since the last call, as far as whole lines go."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_AT_ONCE)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole) or (len(data) if len(data) == _AT_ONCE else 0)
        return [cry for text in whole.splitlines() if (cry := _read(text)) is not None]


def _read(text: bytes) -> Optional[Cry]:
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        found = json.loads(text[start:])
        return Cry(int(found["unreached"]), float(found["seconds"]), codec.load(Verdict, found["verdict"]))
    except (ValueError, KeyError, TypeError):
        return None  # somebody else's line, or a broken one
