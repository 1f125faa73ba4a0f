"""What the nodes have measured at the gate, for few nodes and for many."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import Bundle, CheckIn
from ddplaunch.report import gate_results

AT = given.AT
TABLE = """\
NODE  HOST  ADDRESS    INTERFACE  MTU   SPEED       HUB ANSWERS IN  OTHERS, WITH MTU
0     n0    10.0.0.10  eth0       1500  10 Gbit/s   2.0 ms          docker0 1500
1     n1    10.0.0.11  eth0       9000  100 Mbit/s  40 ms           docker0 1500"""
MEMORY = "4 to 8 GiB free of 16 GiB"
SHM = "/dev/shm: 512 MiB to 1 GiB free of 1 GiB"
LARGE = """\
NODE       HOST  ADDRESS                  INTERFACE  MTU   SPEED      HUB ANSWERS IN  OTHERS, WITH MTU
7          n7    10.0.0.17                eth0       9000  10 Gbit/s  2.0 ms          docker0 1500
0-6, 8-99        10.0.0.10 to 10.0.0.109  eth0       1500  10 Gbit/s  1.0 to 40 ms    docker0 1500"""


def check_in(
    node: int, mtu: int = 1500, speed: int = 10000, took: float = 0.002, facts: dict[str, Any] | None = None
) -> CheckIn:
    """A node with two interfaces, whose hub answered in that time."""
    address = f"10.0.0.{10 + node}"
    known = {
        "names": {"interfaces": [["lo", "127.0.0.1"], ["eth0", address]]},
        "interfaces": {"links": {"eth0": [mtu, speed], "docker0": [1500, None]}},
        "hub": {"round_trip": took, "received": AT + 0.01},
    }
    return CheckIn(node, f"n{node}", 100, 8, address, {}, AT, facts=known | (facts or {}))


def bundle(*check_ins: CheckIn) -> Bundle:
    """Of these nodes."""
    return given.bundle(nodes=len(check_ins), check_ins=list(check_ins))


def test_each_node_of_a_small_job_has_a_row() -> None:
    """Where it is, which interface peers reach it by, and how soon the hub answers."""
    small = bundle(check_in(0), check_in(1, 9000, 100, 0.04))

    assert TABLE.splitlines() == gate_results.network_lines(small)


def test_nodes_of_a_large_job_that_are_alike_share_a_row() -> None:
    nodes = [check_in(node, 9000 if node == 7 else 1500) for node in range(100)]
    nodes[0], nodes[1] = check_in(0, took=0.001), check_in(1, took=0.04)

    assert LARGE.splitlines() == gate_results.network_lines(bundle(*nodes))


def test_what_was_not_measured_has_no_column() -> None:
    """A bundle of an older agent, or of no agent at all."""
    bare = CheckIn(0, "n0", 1, 1, "10.0.0.1", {}, AT)
    broken = CheckIn(
        1,
        "n1",
        1,
        1,
        "10.0.0.2",
        {},
        AT,
        facts={"names": {"interfaces": [["lo"], 3, None]}, "interfaces": {"links": [1]}, "hub": "?"},
    )

    assert [
        "NODE  HOST  ADDRESS",
        "0     n0    10.0.0.1",
        "1     n1    10.0.0.2",
    ] == gate_results.network_lines(bundle(bare, broken))
    assert [] == gate_results.network_lines(bundle())


def taken(interface: str, address: str) -> dict[str, Any]:
    """Facts of a node on which Gloo takes that interface."""
    return {"library": "Gloo", "takes": [[interface, address]]}


@pytest.mark.parametrize(
    ("check", "facts", "text"),
    [
        ("memory", [{"free": 2**33, "total": 2**34}, {"free": 2**32, "total": 2**34}], MEMORY),
        ("shm", [{"free": 2**29, "total": 2**30}, {"free": 2**30, "total": 2**30}], SHM),
        ("cpu", [{"cpus": 8, "busy": 0.1}, {"cpus": 8, "busy": 0.934}], "8 CPUs, 10% to 93% busy"),
        ("cpu", [{"cpus": "many"}, {}], ""),
        ("disk", [{}, {}], ""),
        ("interfaces", [taken("eth0", "10.0.0.1"), taken("eth0", "10.0.0.2")], "Gloo takes eth0"),
        ("interfaces", [taken("eth0", "10.0.0.1"), taken("lo", "127.0.0.1")], ""),
    ],
)
def test_numbers_that_differ_have_a_range(check: str, facts: list[dict[str, Any]], text: str) -> None:
    """Only where all nodes have measured the same thing."""
    check_ins = [check_in(node, facts={check: each}) for node, each in enumerate(facts)]

    assert text == gate_results.measured_text(check, check_ins)


def test_clocks_are_compared_as_far_as_the_connection_allows() -> None:
    assert "within 30 ms of the hub's clock" == gate_results.measured_text(
        "clock", [check_in(0), check_in(1, took=0.04)]
    )
    assert "" == gate_results.measured_text("clock", [CheckIn(0, "n0", 1, 1, "10.0.0.1", {}, AT)])


def test_a_job_s_size_is_that_of_all_its_nodes() -> None:
    assert "100 nodes x 8" == gate_results.measured_text("configuration", [check_in(0), check_in(1)])


@pytest.mark.parametrize(
    ("check", "facts", "applies"),
    [
        ("gpus", {"gpus": {"devices": {}}}, False),
        ("gpus", {"gpus": {"devices": {"NVIDIA": 8}}}, True),
        ("rdma", {"rdma": {"devices": []}}, False),
        ("memlock", {"rdma": {"used": False}}, False),
        ("memlock", {"rdma": {"used": True}}, True),
        ("memlock", {}, True),
        ("service", {"service": {}}, False),
        ("service", {"service": {"status": "resolved"}}, True),
        ("interfaces", {"interfaces": {"links": {}}}, False),
        ("interfaces", {"interfaces": {"library": "Gloo"}}, True),
        ("gpus", {}, True),
        ("disk", {"disk": {}}, True),
    ],
)
def test_a_check_without_anything_to_check_is_known(
    check: str, facts: dict[str, Any], *, applies: bool
) -> None:
    """By its facts; without any, nothing is concluded."""
    assert applies == gate_results.is_measured(check, facts)
