"""Sums up what the nodes measured at the gate: addresses, interfaces, times, memory, clocks. Pure.

The facts come from a bundle that any version, or anybody, may have written: what is missing or has another
shape counts as not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ddplaunch.agent.contract import Bundle, CheckIn
from ddplaunch.agent.text.printable import printable
from ddplaunch.report.words import count, size, some

_SINGLE = 16
"""Nodes up to which each has its own row."""
_ABSENT = {"gpus": "devices", "rdma": "devices", "interfaces": "library", "service": "status"}
"""Fact of a check that is empty or missing where the node has nothing to check."""


_HEADS = ("NODE", "HOST", "ADDRESS", "INTERFACE", "MTU", "SPEED", "HUB ANSWERS IN", "OTHERS, WITH MTU")


class Network(NamedTuple):
    """Way by which peers reach nodes. `speed` in Mbit/s, `handshake` in seconds; None: not measured."""

    nodes: list[int]
    host: str
    address: str
    interface: str
    mtu: int | None
    speed: int | None
    handshake: tuple[float, float] | None  # with the hub, the shortest and the longest
    others: str  # its other interfaces


def applies(check: str, facts: Mapping[str, Any]) -> bool:
    """Whether there was something to check on a node with these facts, by check."""
    if check == "memlock":
        return _dict(facts, "rdma").get("used", True) is not False
    return check not in _ABSENT or check not in facts or bool(_dict(facts, check).get(_ABSENT[check]))


def text(check: str, check_ins: Sequence[CheckIn]) -> str:
    """Return what these nodes have measured for a check, as one text; empty where only words tell it."""
    facts = [_dict(each.facts, check) for each in check_ins]
    if check == "configuration":
        sizes = {(each.nodes, each.nproc_per_node) for each in check_ins}
        return "; ".join(
            f"{count(nodes, 'node')} x {ranks or 'any'}" for nodes, ranks in sorted(sizes, key=str)
        )
    if check == "interfaces":
        return _taken(facts)
    if check == "memory":
        return _free(facts)
    if check == "shm":
        shared = _free(facts)
        return f"/dev/shm: {shared}" if shared else ""  # noqa: S108 - its name, nothing is opened
    if check == "cpu":
        cpus = _between(_numbers(facts, "cpus"), lambda number: f"{number:g}")
        busy = _between(_numbers(facts, "busy"), lambda share: f"{share:.0%}")
        return f"{cpus} CPUs, {busy} busy" if cpus and busy else ""
    if check == "clock":
        apart = [each for each in map(_off, check_ins) if each is not None]
        return f"within {_time(max(apart))} of the hub's clock" if apart else ""
    return ""


def networks(bundle: Bundle) -> list[Network]:
    """Return how each node is reached; of a large job, how nodes that are alike are, the odd ones first."""
    single = [_network(each) for each in bundle.check_ins]
    if len(single) <= _SINGLE:
        return single
    groups: dict[tuple[object, ...], list[Network]] = {}
    for each in single:
        groups.setdefault((each.interface, each.mtu, each.speed, each.others), []).append(each)
    merged = [_merged(group) for group in groups.values()]
    return sorted(merged, key=lambda each: (len(each.nodes), each.nodes))


def network_lines(bundle: Bundle) -> list[str]:
    """Return a table of `networks`; empty without check-ins."""
    rows: list[tuple[str, ...]] = [_HEADS]
    rows += [_row(each) for each in networks(bundle)]
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    widths = {at: max(len(row[at]) for row in rows) for at in kept}
    return ["  ".join(f"{row[at]:<{widths[at]}}" for at in kept).rstrip() for row in rows] if rows[1:] else []


def between_times(seconds: Iterable[float]) -> str:
    """Return '3 ms', or '3 to 40 ms', of these times; empty without one."""
    return _between(list(seconds), _time)


def _row(network: Network) -> tuple[str, ...]:
    speed = network.speed
    return (
        some("", network.nodes).removeprefix("s").strip(),
        network.host,
        network.address,
        network.interface,
        "" if network.mtu is None else str(network.mtu),
        "" if not speed or speed < 0 else f"{speed / 1000:g} Gbit/s" if speed >= 1000 else f"{speed} Mbit/s",
        between_times(network.handshake) if network.handshake else "",
        network.others,
    )


def _network(check_in: CheckIn) -> Network:
    named = _list(_dict(check_in.facts, "names").get("interfaces"))
    pairs = [each for each in named if isinstance(each, list) and len(each) == 2]
    interface = next((str(name) for name, address in pairs if address == check_in.address), "")
    links = _dict(_dict(check_in.facts, "interfaces"), "links")
    mtus = {name: _whole(_list(link)[:1]) for name, link in links.items()}
    handshake = _number(_dict(check_in.facts, "hub").get("round_trip"))
    return Network(
        nodes=[check_in.node],
        host=printable(check_in.host),
        address=printable(check_in.address),
        interface=printable(interface),
        mtu=mtus.pop(interface, None),
        speed=_whole(_list(links.get(interface))[1:2]),
        handshake=None if handshake is None else (handshake, handshake),
        others=", ".join(printable(f"{name} {mtu or '?'}") for name, mtu in mtus.items()),
    )


def _merged(group: Sequence[Network]) -> Network:
    """Return nodes that are alike as one: the first and the last address, and no host unless it is one."""
    first, last = group[0], group[-1]
    times = [time for each in group for time in each.handshake or ()]
    return first._replace(
        nodes=[node for each in group for node in each.nodes],
        host=first.host if len({each.host for each in group}) == 1 else "",
        address=first.address if len(group) == 1 else f"{first.address} to {last.address}",
        handshake=(min(times), max(times)) if times else None,
    )


def _off(check_in: CheckIn) -> float | None:
    """Return by how many seconds the node's clock may differ from the hub's, the message's way included."""
    hub = _dict(check_in.facts, "hub")
    received, way = _number(hub.get("received")), _number(hub.get("round_trip")) or 0.0
    if received is None:
        return None
    return max(abs(check_in.at - received), abs(check_in.at - received + way))


def _taken(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return 'Gloo takes eth0' where all nodes take interfaces of the same names."""
    taken = {
        (str(each.get("library")), *(str(pair[0]) for pair in _list(each.get("takes")) if _list(pair)))
        for each in facts
    }
    (library, *names), *more = sorted(taken)
    return printable(f"{library} takes {', '.join(names)}") if names and not more else ""


def _free(facts: Sequence[Mapping[str, Any]]) -> str:
    free, total = _between(_numbers(facts, "free"), size), _between(_numbers(facts, "total"), size)
    return f"{free} free of {total}" if free and total else ""


def _between(numbers: Sequence[float], shown: Any) -> str:
    """Return '3', or '3 to 4', of the least and the greatest number; one unit is written once."""
    if not numbers:
        return ""
    least, most = shown(min(numbers)), shown(max(numbers))
    if least == most:
        return str(least)
    number, _, unit = least.partition(" ")
    return f"{number if unit and most.endswith(f' {unit}') else least} to {most}"


def _time(seconds: float) -> str:
    if 0 < seconds < 0.00005:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _numbers(facts: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    found = [_number(each.get(name)) for each in facts]
    return [each for each in found if each is not None]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _dict(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(values: Sequence[object]) -> int | None:
    """Return the only value if it is a whole number."""
    return next((each for each in values if isinstance(each, int) and not isinstance(each, bool)), None)
