"""Sums up round trips and MTUs of the paths that the gate tried. Pure.

Both come from the kernel of the node that tried, after a large message had passed. What it did not tell is
counted as not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Bundle, MeshResult
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.system import phrases
from ddplaunch.report import measured, reachability
from ddplaunch.report.words import and_more, count

_FAR, _FAR_AT_LEAST = 5.0, 1e-3
"""Times the median, and seconds, from which a round trip is named as long."""
_NAMED = 4
"""The most paths of one kind that are named."""


class Link(NamedTuple):
    """A path that passes. `rtt` in seconds, `mtu` in bytes; None: not known."""

    node: int
    peer: int
    rtt: float | None
    mtu: int | None


def links(bundle: Bundle) -> list[Link]:
    """Return the paths that pass, by their nodes, with the worst of several results between the same two."""
    found = []
    for (node, peer), results in sorted(reachability.tried(bundle).items()):
        passing = [each for each in results if each.outcome == "ok" and each.what not in paths.BESIDE]
        if not passing or node == peer:
            continue
        trips = [each.rtt for each in passing if each.rtt is not None]
        mtus = [each.mtu for each in passing if each.mtu is not None]
        found.append(Link(node, peer, max(trips) / 1e6 if trips else None, min(mtus, default=None)))
    return found


def lines(bundle: Bundle, names: Sequence[str] = ()) -> list[str]:
    """Return a line on round trips and one on MTUs: what most have, and the paths that differ.

    Empty where no path passes, as in a job of one node.
    """
    every = links(bundle)
    if every and not any(each.rtt or each.mtu for each in every):
        return ["round trips and path MTU: not seen"]
    return [_trips(every, names), _mtus(every, names)] if every else []


def text(result: MeshResult) -> str:
    """Return ', round trip 0.2 ms, path MTU 1500' of one result; empty where nothing was known."""
    trip = f", round trip {_time(result.rtt / 1e6)}" if result.rtt is not None else ""
    return trip + (f", path MTU {result.mtu}" if result.mtu is not None else "")


def _trips(every: Sequence[Link], names: Sequence[str]) -> str:
    known = sorted((each.rtt, each) for each in every if each.rtt is not None)
    if not known:
        return "round trips: not seen"
    least = max(_FAR * known[len(known) // 2][0], _FAR_AT_LEAST)
    far = [each for rtt, each in reversed(known) if rtt >= least]
    long = f"; long: {_named(far, names, lambda each: _time(each.rtt or 0.0))}" if far else ""
    took = measured.between_times(rtt for rtt, _ in known)
    return f"round trips: {took}{long}{_unseen(every, len(known))}"


def _mtus(every: Sequence[Link], names: Sequence[str]) -> str:
    known = [each for each in every if each.mtu is not None]
    if not known:
        return "path MTU: not seen"
    ((usual, _),) = Counter(each.mtu for each in known).most_common(1)
    odd = [each for each in known if each.mtu != usual]
    other = f"; other: {_named(odd, names, lambda each: str(each.mtu))}" if odd else ""
    return f"path MTU: {usual}{other}{_unseen(every, len(known))}"


def _time(seconds: float) -> str:
    return measured.between_times([seconds])


def _named(found: Sequence[Link], names: Sequence[str], value: Callable[[Link], str]) -> str:
    ways = [
        f"{phrases.node(each.node, names)} to {phrases.node(each.peer, names)} {value(each)}"
        for each in found[:_NAMED]
    ]
    return ", ".join([*ways, *and_more(len(found) - _NAMED, "path")])


def _unseen(every: Sequence[Link], known: int) -> str:
    return f"; not seen on {count(len(every) - known, 'path')}" if known < len(every) else ""
