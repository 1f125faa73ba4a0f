"""The orders that a supervisor gets from the hub. Pure.

A damaged message of the hub must not end the training: it is logged and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Callable, Optional, Union

from ddplaunch.agent.contract import codec
from ddplaunch.agent.contract.messages import Collect, End, Noted, Notice, SignalRanks, Way, load
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.transport.protocol import Body

_LONGEST = 600.0
"""Seconds, the most that an order may ask for."""

Order = Union[Collect, Notice, End, Noted, SignalRanks]


def read(lines: Iterable[tuple[str, Body]], log: Callable[[str], None]) -> Iterator[Order]:
    """Yield the orders among kinds and bodies; `log` gets a sentence about each that cannot be read."""
    for kind, body in lines:
        try:
            order = _read(kind, body)
        except codec.ContractError as error:
            log(f"cannot read the hub's message {kind[:40]!r}: {error}")
        else:
            if order is not None:
                yield order


def _read(kind: str, body: Body) -> Optional[Order]:
    message = load(kind, body, Way.HUB_TO_SUPERVISOR)
    if isinstance(message, Collect):
        return replace(message, deadline=_bounded(message.deadline))
    if isinstance(message, Notice):
        catalogue.check_end(message.verdicts)
        return message
    if isinstance(message, End):
        catalogue.check_end(message.verdicts, message.exit_code)
        return replace(message, grace=_bounded(message.grace))
    return message if isinstance(message, (Noted, SignalRanks)) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST)
