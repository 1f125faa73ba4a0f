"""Round trips and MTUs of the paths: what most have, and which differ."""

from __future__ import annotations

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import Bundle, MeshResult
from ddplaunch.report import gate_results
from ddplaunch.report.gate_results import Link


def of(*found: tuple[int, int, int, int], nodes: int = 4, mesh: tuple[MeshResult, ...] = ()) -> Bundle:
    """Paths that passed, by node and peer, with round trip and MTU."""
    passed: dict[str, dict[str, int]] = {}
    seen: dict[str, dict[str, list[int]]] = {}
    for node, peer, rtt, mtu in found:
        passed.setdefault(str(node), {})[str(peer)] = 2
        if rtt or mtu:
            seen.setdefault(str(node), {})[str(peer)] = [rtt, mtu]
    return given.bundle(nodes=nodes, check_ins=[], mesh=list(mesh), passed=passed, links=seen)


def test_paths_that_differ_from_most_are_named() -> None:
    """By their nodes; what passes likewise needs one line, however many there are."""
    same = [(a, b, 200, 9000) for a in range(4) for b in range(4) if a != b and {a, b} != {1, 3}]
    bundle = of(*same, (1, 3, 41_000, 1500), (3, 1, 40_000, 9000))

    assert [
        "round trips: 0.2 to 41 ms; long: node 1 to node 3 41 ms, node 3 to node 1 40 ms",
        "path MTU: 9000; other: node 1 to node 3 1500",
    ] == gate_results.link_lines(bundle)


def test_paths_that_are_alike_are_one_line() -> None:
    """Twice the median is not far, and of microseconds nothing is."""
    assert ["round trips: 20 µs to 0.4 ms", "path MTU: 1500"] == gate_results.link_lines(
        of((0, 1, 20, 1500), (1, 0, 20, 1500), (0, 2, 400, 1500), nodes=3)
    )


def test_what_was_not_seen_is_counted() -> None:
    """And where nothing was, that is said once, as of a bundle of an older agent."""
    assert [
        "round trips: 1.0 ms; not seen on 1 path",
        "path MTU: 1500; not seen on 1 path",
    ] == gate_results.link_lines(of((0, 1, 1000, 1500), (1, 0, 0, 0)))
    assert ["round trips and path MTU: not seen"] == gate_results.link_lines(of((0, 1, 0, 0), (1, 0, 0, 0)))
    assert [] == gate_results.link_lines(of(nodes=1))


def test_a_path_that_failed_has_neither() -> None:
    """Of several results between two nodes the worst counts: the master's port is one of them."""
    lost = MeshResult(1, 0, "10.0.0.1", 4000, "responder", "timeout", "", 5.0)
    slow = MeshResult(0, 1, "10.0.0.2", 4000, "responder", "ok", "packets are lost", 1.0, 900, 1400)

    assert [Link(0, 1, 0.0009, 1400)] == gate_results.links(of((0, 1, 20, 1500), mesh=(lost, slow)))
