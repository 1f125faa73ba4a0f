"""Counts a rank's calls by torch's sequence numbers, where torch keeps no record of calls with Gloo. Pure.

`rank_evidence` calls it with what a rank's hook has answered. torch before 2.8 says how many collectives a
group has begun, also those of DDP in backward(), and nothing else about them. Whether one is open follows
from the main thread: in the program's call, it is the last one; in torch's own, it may be several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import Collective, Frame, Group
from ddplaunch.agent.diagnosis.run import stacks

_UNCOUNTED = "monitored_barrier"
"""It sends and receives, and torch does not count it."""


def groups(
    begun: Mapping[str, int], members: Mapping[str, list[int]], descriptions: Mapping[str, str], is_open: str
) -> list[Group]:
    """Return all groups by name. `begun`: their collectives; `is_open`: the group whose last one is open."""
    return [
        Group(
            name,
            members.get(name, []),
            begun.get(name, 0),
            begun.get(name, 0) - (name == is_open),
            descriptions.get(name, ""),
        )
        for name in sorted({*begun, *members})
    ]


def open_group(
    begun: Mapping[str, int], frames: Sequence[Frame], calls: Sequence[Collective], is_asleep: bool
) -> str:
    """Return the group in whose collective the main thread waits; "" if it waits in none, or in one unknown.

    `frames`: of the main thread; `calls`: the program's own, from the hook's ring. torch's own calls are in
    the group that has begun more than the program has called, if there is only one such group.
    """
    last = calls[-1] if calls else None
    inside = last is not None and last.state == "entered" and not last.p2p and last.op != _UNCOUNTED
    if last is not None and inside and stacks.collective(frames):
        return last.group if begun.get(last.group) else ""
    if not is_asleep or stacks.torchs_own(frames) is None:
        return ""
    called = {call.group: call.seq for call in calls if not call.p2p}
    more = [name for name, number in begun.items() if number > called.get(name, 0)]
    return more[0] if len(more) == 1 else ""
