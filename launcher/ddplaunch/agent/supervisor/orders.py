"""The orders that a supervisor gets from the hub. Pure.

A hub that sends nonsense must not end a training: what cannot be read is told, and not done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Callable, NamedTuple, Optional, Union

from ddplaunch.agent.contract import Verdict, codec
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.transport.protocol import Body, Message

_LONGEST = 600.0
"""Seconds, of any order."""


class Collect(NamedTuple):
    """Send the evidence of all ranks, as the answer `id`, within so many seconds."""

    id: int
    seconds: float


class Tell(NamedTuple):
    """Tell the user what is wrong. With an exit code the job ends by it, after `grace` seconds at most."""

    verdicts: list[Verdict]
    exit_code: Optional[int] = None
    grace: float = 0.0


class Noted(NamedTuple):
    """The hub has kept that this node has finished."""


Order = Union[Collect, Tell, Noted]


def read(messages: Iterable[Message], say: Callable[[str], None]) -> Iterator[Order]:
    """The orders among the messages; `say` is given a sentence about each that cannot be read."""
    for kind, body in messages:
        try:
            order = _read(kind, body)
        except codec.ContractError as error:
            say(f"the hub sent what cannot be read, in its message {kind[:40]!r}: {error}")
        else:
            if order is not None:
                yield order


def _read(kind: str, body: Body) -> Optional[Order]:
    if kind == "collect":
        return Collect(codec.load(int, body.get("id")), _seconds(body.get("deadline")))
    if kind == "noted":
        return Noted()
    if kind not in ("notice", "end"):
        return None
    verdicts = catalogue.load_verdicts(body.get("verdicts"))
    if kind == "notice":
        return Tell(verdicts)
    return Tell(verdicts, catalogue.load_exit_code(body.get("exit_code")), _seconds(body.get("grace")))


def _seconds(data: object) -> float:
    return min(max(codec.load(float, data), 0.0), _LONGEST)
