"""What the gate has found, as text: checks, measured values, and which node reaches which. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ddplaunch.agent.contract import Bundle, CheckIn, MeshResult, Status
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report.words import PLAIN, Paint, and_more, count, size, some

_SINGLE = 16
"""Up to this many nodes, each one has its own row."""
_FACT_OF = {"gpus": "devices", "rdma": "devices", "interfaces": "library", "service": "status"}
"""The fact of a check that is empty or missing if the node has nothing to check."""


_HEADS = ("NODE", "HOST", "ADDRESS", "INTERFACE", "MTU", "SPEED", "HUB ANSWERS IN", "OTHERS, WITH MTU")


class Network(NamedTuple):
    """The way by which peers reach nodes. `speed` in Mbit/s, `handshake` in seconds; None: not measured."""

    nodes: list[int]
    host: str
    address: str
    interface: str
    mtu: int | None
    speed: int | None
    handshake: tuple[float, float] | None  # with the hub, the shortest and the longest one
    others: str  # its other interfaces


def is_measured(check: str, facts: Mapping[str, Any]) -> bool:
    """Whether there was something to check on a node with these facts, given by check."""
    if check == "memlock":
        return _dict(facts, "rdma").get("used", True) is not False
    return check not in _FACT_OF or check not in facts or bool(_dict(facts, check).get(_FACT_OF[check]))


def measured_text(check: str, check_ins: Sequence[CheckIn]) -> str:
    """Return what these nodes measured for a check, as one text; empty if only words tell it."""
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
        return f"within {_milliseconds(max(apart))} of the hub's clock" if apart else ""
    return ""


def networks(bundle: Bundle) -> list[Network]:
    """Return how each node is reached; in a large job, once for nodes that are alike, the odd ones first."""
    single = [_network(each) for each in bundle.check_ins]
    if len(single) <= _SINGLE:
        return single
    groups: dict[tuple[object, ...], list[Network]] = {}
    for each in single:
        groups.setdefault((each.interface, each.mtu, each.speed, each.others), []).append(each)
    merged = [_merged(group) for group in groups.values()]
    return sorted(merged, key=lambda each: (len(each.nodes), each.nodes))


def network_lines(bundle: Bundle) -> list[str]:
    """Return a table of `networks`; empty if there are no check-ins."""
    rows: list[tuple[str, ...]] = [_HEADS]
    rows += [_row(each) for each in networks(bundle)]
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    widths = {at: max(len(row[at]) for row in rows) for at in kept}
    return ["  ".join(f"{row[at]:<{widths[at]}}" for at in kept).rstrip() for row in rows] if rows[1:] else []


def between_times(seconds: Iterable[float]) -> str:
    """Return these times as '3 ms' or '3 to 40 ms'; empty if there are none."""
    return _between(list(seconds), _milliseconds)


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
    """Return nodes that are alike as one: the first and the last address, and a host only if there is just
    one.
    """
    first, last = group[0], group[-1]
    times = [time for each in group for time in each.handshake or ()]
    return first._replace(
        nodes=[node for each in group for node in each.nodes],
        host=first.host if len({each.host for each in group}) == 1 else "",
        address=first.address if len(group) == 1 else f"{first.address} to {last.address}",
        handshake=(min(times), max(times)) if times else None,
    )


def _off(check_in: CheckIn) -> float | None:
    """Return how many seconds the node's clock may be off from the hub's, including the time the message
    took.
    """
    hub = _dict(check_in.facts, "hub")
    received, way = _number(hub.get("received")), _number(hub.get("round_trip")) or 0.0
    if received is None:
        return None
    return max(abs(check_in.at - received), abs(check_in.at - received + way))


def _taken(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return 'Gloo takes eth0' if all nodes take interfaces with the same names."""
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
    """Return '3', or '3 to 4', from the smallest and the largest number. A common unit is written once."""
    if not numbers:
        return ""
    least, most = shown(min(numbers)), shown(max(numbers))
    if least == most:
        return str(least)
    number, _, unit = least.partition(" ")
    return f"{number if unit and most.endswith(f' {unit}') else least} to {most}"


def _milliseconds(seconds: float) -> str:
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


UNTRIED, OK, SLOW, PARTLY, REFUSED, SILENT = ".", "o", "s", "p", "r", "t"
STATES = {
    UNTRIED: "not tried",
    OK: "passes",
    SLOW: "passes slowly, or only after a retry",
    PARTLY: "passes in part: large messages or many packets are lost",
    REFUSED: "refused, reset, or answered by another program",
    SILENT: "no answer, or no route",
}
"""What each letter in `rows` means, the worst last."""
_OUTCOMES = {"ok": OK, "stalled": PARTLY, "lossy": PARTLY, "timeout": SILENT, "unreachable": SILENT}
_SLOW = 1.0
"""Seconds above which a path counts as slow: a lost packet is sent again after one."""
_LETTERS = 32
"""The most nodes for which a terminal has a row each."""
Cell = tuple[int, int]


def tried_paths(bundle: Bundle) -> dict[Cell, list[MeshResult]]:
    """Return all results by (from node, to node). The master's port counts as node 0's."""
    check_ins = {each.node: each for each in bundle.check_ins}
    found: dict[Cell, list[MeshResult]] = {}
    for result in [*bundle.mesh, *paths.whole(bundle.passed, check_ins, bundle.links)]:
        found.setdefault((result.node, result.peer), []).append(result)
    return found


def path_state(results: Sequence[MeshResult]) -> str:
    """Return the letter in STATES for the worst of the results."""
    return max((_path_state_of(result) for result in results), key=list(STATES).index, default=UNTRIED)


def has_failed(results: Sequence[MeshResult]) -> bool:
    """Whether one of the results makes the path useless for a job: some or all of what was sent is lost."""
    return path_state(results) in (PARTLY, REFUSED, SILENT)


def matrix_rows(bundle: Bundle) -> list[str]:
    """Return a row for each node, with one letter of STATES for each node that it may have tried."""
    cells = tried_paths(bundle)
    return [
        "".join(path_state(cells.get((node, peer), ())) for peer in range(bundle.nodes))
        for node in range(bundle.nodes)
    ]


def map_lines(bundle: Bundle) -> list[str]:
    """Return the matrix as text: a row for each node that tries; in a large job, one for nodes that are
    alike.
    """
    matrix = matrix_rows(bundle)
    if bundle.nodes > _LETTERS:
        return _summary(matrix)
    numbers = [str(node) for node in range(bundle.nodes)]
    width = len(numbers[-1])
    heads = ["".join(number.rjust(width)[at] for number in numbers) for at in range(width)]
    edge = len("from ") + width
    lines = [f"{'to' if at == 0 else '':<{edge}}  {head}" for at, head in enumerate(heads)]
    lines += [f"from {number:>{width}}  {row}" for number, row in zip(numbers, matrix, strict=True)]
    used = [letter for letter in STATES if any(letter in row for row in matrix)]
    return [*lines, *(f"{letter} {STATES[letter]}" for letter in used)]


def _summary(matrix: Sequence[str]) -> list[str]:
    """Return one line for all nodes whose paths have the same states, the worst first."""
    groups: dict[str, list[int]] = {}
    for node, row in enumerate(matrix):
        groups.setdefault("".join(each for each in STATES if each in row and each != UNTRIED), []).append(
            node
        )
    order = list(STATES)
    ways = sorted(groups.items(), key=lambda group: list(map(order.index, group[0][::-1])), reverse=True)
    lines = []
    for letters, nodes in ways:
        counts = Counter(letter for node in nodes for letter in matrix[node])
        states = [f"{counts[each]:,} {STATES[each].partition(':')[0]}" for each in reversed(letters)]
        lines.append(f"from {some('node', nodes)}: {', '.join(states) or 'nothing was tried'}")
    return lines


def _path_state_of(result: MeshResult) -> str:
    found = _OUTCOMES.get(result.outcome, REFUSED)
    return SLOW if found == OK and (result.detail or result.seconds >= _SLOW) else found


_FAR, _FAR_AT_LEAST = 5.0, 1e-3
"""A round trip is named as long if it is this many times the median and at least this many seconds."""
_NAMED = 4
"""The most paths of one kind to name."""


class Link(NamedTuple):
    """A path that passes. `rtt` in seconds, `mtu` in bytes; None: not known."""

    node: int
    peer: int
    rtt: float | None
    mtu: int | None


def links(bundle: Bundle) -> list[Link]:
    """Return the paths that pass, by their nodes. If there are several results for one path, the worst
    counts.
    """
    found = []
    for (node, peer), results in sorted(tried_paths(bundle).items()):
        passing = [each for each in results if each.outcome == "ok" and each.what not in paths.BESIDE]
        if not passing or node == peer:
            continue
        trips = [each.rtt for each in passing if each.rtt is not None]
        mtus = [each.mtu for each in passing if each.mtu is not None]
        found.append(Link(node, peer, max(trips) / 1e6 if trips else None, min(mtus, default=None)))
    return found


def link_lines(bundle: Bundle, names: Sequence[str] = ()) -> list[str]:
    """Return a line about round trips and one about MTUs: what most paths have, and which ones differ.

    Empty if no path passes, as in a job with one node.
    """
    every = links(bundle)
    if every and not any(each.rtt or each.mtu for each in every):
        return ["round trips and path MTU: not seen"]
    return [_trips(every, names), _mtus(every, names)] if every else []


def link_text(result: MeshResult) -> str:
    """Return ', round trip 0.2 ms, path MTU 1500' for one result; empty if nothing is known."""
    trip = f", round trip {_time(result.rtt / 1e6)}" if result.rtt is not None else ""
    return trip + (f", path MTU {result.mtu}" if result.mtu is not None else "")


def _trips(every: Sequence[Link], names: Sequence[str]) -> str:
    known = sorted((each.rtt, each) for each in every if each.rtt is not None)
    if not known:
        return "round trips: not seen"
    least = max(_FAR * known[len(known) // 2][0], _FAR_AT_LEAST)
    far = [each for rtt, each in reversed(known) if rtt >= least]
    long = f"; long: {_named(far, names, lambda each: _time(each.rtt or 0.0))}" if far else ""
    took = between_times(rtt for rtt, _ in known)
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
    return between_times([seconds])


def _named(found: Sequence[Link], names: Sequence[str], value: Callable[[Link], str]) -> str:
    ways = [
        f"{phrases.node(each.node, names)} to {phrases.node(each.peer, names)} {value(each)}"
        for each in found[:_NAMED]
    ]
    return ", ".join([*ways, *and_more(len(found) - _NAMED, "path")])


def _unseen(every: Sequence[Link], known: int) -> str:
    return f"; not seen on {count(len(every) - known, 'path')}" if known < len(every) else ""


_LISTED = 20
"""The most failed connections to list: if a rack is missing there are thousands."""
_MOST_TEXTS = 8
"""The most different texts of one check to list: hundreds of nodes measure hundreds of loads."""
_OTHER_TEXTS = "similar, with other values"
_MOST_PASSED = 3
"""The same for a check that all nodes passed."""
_ABSENT = "n/a"
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNKNOWN: "unknown"}


class Finding(NamedTuple):
    """Nodes with the same result of a check. `applies`: there was something to check."""

    check: str
    status: str
    text: str
    hint: str
    nodes: list[int]
    applies: bool = True


def findings(bundle: Bundle) -> list[Finding]:
    """Return the findings in the order of the checks, only a few for each, however many nodes there are.

    For nodes that passed a check and measured different numbers, one finding has the range.
    """
    kept: dict[tuple[str, str, bool], list[Finding]] = {}
    for each in all_findings(bundle):
        kept.setdefault((each.check, each.status, each.applies), []).append(each)
    return [each for same in kept.values() for each in _few(same, bundle)]


def _few(same: list[Finding], bundle: Bundle) -> list[Finding]:
    """Return the findings of one check and status: summed up, or the first ones and one for all the
    others.
    """
    first, nodes = same[0], sorted({node for each in same for node in each.nodes})
    if first.status == Status.PASS and (len(same) > 1 or first.check == "clock"):
        text = measured_text(first.check, [each for each in bundle.check_ins if each.node in set(nodes)])
        if text:
            return [first._replace(text=text, nodes=nodes)]
    most = _MOST_PASSED if first.status == Status.PASS else _MOST_TEXTS
    if len(same) <= most + 1:
        return same
    others = sorted({node for each in same[most:] for node in each.nodes})
    return [*same[:most], same[most]._replace(text=_OTHER_TEXTS, nodes=others)]


def all_findings(bundle: Bundle) -> list[Finding]:
    """Return a finding for each different text of each check."""
    found: dict[tuple[str, str, str, str, bool], list[int]] = {}
    for check_in in bundle.check_ins:
        for check in check_in.checks:
            text = check.observed + (f"; wanted {check.wanted}" if check.wanted else "")
            applies = check.status != Status.PASS or is_measured(check.check, check_in.facts)
            name, status, text, hint = map(printable, (check.check, check.status, text, check.hint))
            found.setdefault((name, status, text, hint, applies), []).append(check_in.node)
    order = list(dict.fromkeys(name for name, *_ in found))
    whole = [Finding(*key[:4], nodes, key[4]) for key, nodes in found.items()]
    return sorted(whole, key=lambda each: order.index(each.check))


def checks_text(bundle: Bundle, paint: Paint = PLAIN, names: Sequence[str] = ()) -> str:
    """Return who reaches whom, how each node is reached, the checks in their order, and the smoke test."""
    parts = [_mesh(bundle, paint, names), network_lines(bundle), _table(bundle, paint, names)]
    parts.append([printable(event.text) for event in bundle.events if event.kind == "smoke"])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _table(bundle: Bundle, paint: Paint, names: Sequence[str]) -> list[str]:
    found = findings(bundle)
    tone = {Status.PASS: paint.good, Status.FAIL: paint.bad, Status.UNKNOWN: paint.odd}
    width = max((len(each.check) for each in found), default=0)
    lines = []
    for check, status, text, hint, nodes, applies in found:
        known = tone.get(status, paint.odd)(f"{_SHOWN.get(status, status):<7}")
        word = known if applies else f"{_ABSENT:<7}"
        where = some("node", nodes) if status == Status.PASS else phrases.nodes(nodes, names)
        lines.append(f"{check:<{width}}  {word}  {where}" + (f": {text}" if text else ""))
        if hint:
            lines.append(f"{'':<{width}}           hint: {hint}")
    return lines


def _mesh(bundle: Bundle, paint: Paint, names: Sequence[str]) -> list[str]:
    mesh = sorted(bundle.mesh, key=lambda result: (result.node, result.peer))
    failed = [result for result in mesh if result.outcome != "ok"]
    number = len(bundle.mesh) + sum(map(len, bundle.passed.values()))
    if not number:
        return ["there is one node, and no path between nodes"] if bundle.nodes == 1 else []
    took = between_times(
        result.seconds
        for results in tried_paths(bundle).values()
        for result in results
        if result.outcome == "ok"
    )
    lines = [
        f"{count(number, 'connection')} between nodes tried, {len(failed)} failed"
        + (f"; those that passed took {took}, a large message included" if took else "")
    ]
    lines += map_lines(bundle)
    lines += link_lines(bundle, names)
    lines += [
        paint.bad(
            f"{phrases.node(each.node, names)} to {phrases.node(each.peer, names)}, "
            + printable(f"{each.address}:{each.port}: {each.outcome}")
        )
        + (f" ({printable(each.detail)})" if each.detail else "")
        for each in failed[:_LISTED]
    ]
    if len(failed) > _LISTED:
        lines.append(f"… and {len(failed) - _LISTED} more")
    return lines
