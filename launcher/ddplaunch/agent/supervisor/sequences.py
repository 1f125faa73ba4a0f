"""Counts a rank's calls by torch's sequence numbers, where torch keeps no record of calls with Gloo. Pure.

`rank_evidence` calls it with what a rank's hook has answered. torch before 2.8 says how many collectives a
group has begun, also those of DDP in backward(), and nothing else about them. Whether one is open follows
from the main thread: in the program's call, it is the last one; in torch's own, it may be several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from ddplaunch.agent.contract import Collective, Frame, Group
from ddplaunch.agent.diagnosis.run import stacks

Counted = Mapping[str, tuple[int, Optional[int], Optional[int]]]
"""By group: torch's sequence number, and the program's collectives and messages, as the hook reports them."""
_UNCOUNTED = "monitored_barrier"
"""It sends and receives, and torch does not count it."""


def groups(
    counted: Counted, members: Mapping[str, list[int]], descriptions: Mapping[str, str], is_open: str
) -> list[Group]:
    """Return by name the groups whose collectives can be counted. `is_open`: the one whose last is open."""
    return [
        Group(name, members.get(name, []), begun, begun - (name == is_open), descriptions.get(name, ""))
        for name, (begun, _) in sorted(_collectives(counted).items())
    ]


def open_group(
    counted: Counted, frames: Sequence[Frame], calls: Sequence[Collective], is_asleep: bool
) -> str:
    """Return the group in whose collective the main thread waits; "" if there is none, or it is not known.

    `frames`: of the main thread; `calls`: the program's own, from the hook's ring. torch's own calls are in
    the group that has begun more than the program has called, if there is only one such group.
    """
    known = _collectives(counted)
    last = calls[-1] if calls else None
    inside = last is not None and last.state == "entered" and not last.p2p and last.op != _UNCOUNTED
    if last is not None and inside and stacks.collective(frames):
        return last.group if known.get(last.group, (0, 0))[0] else ""
    if not is_asleep or stacks.torchs_own(frames) is None:
        return ""
    more = [name for name, (begun, own) in known.items() if begun > own]
    return more[0] if len(more) == 1 and len(known) == len(counted) else ""


def _collectives(counted: Counted) -> dict[str, tuple[int, int]]:
    """Return how many collectives each group has begun, and how many of them the program has called.

    The program cannot have called more than were begun: then the numbers are of different things.
    """
    return {
        name: (number - messages, own)
        for name, (number, own, messages) in counted.items()
        if own is not None and messages is not None and own <= number - messages
    }
