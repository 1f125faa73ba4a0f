"""What nodes are told when the way is clear, and where peers reach them."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, GatePlan, JobPlan
from ddplaunch.agent.hub import rendezvous_settings


def check_in(node: int, address: str, home: str = "a", **facts: Any) -> CheckIn:
    """As far as an agreement looks at it."""
    ports = {"responder": 40000, "master": 12345}
    return CheckIn(node, f"n{node}", 2, 1, address, ports, 0.0, machine=home, netns=home, facts=facts)


def test_node_zero_is_where_the_others_reached_its_hub() -> None:
    """Node 0 came by loopback; its address is what the other nodes used."""
    check_ins = {0: check_in(0, "127.0.0.1"), 1: check_in(1, "10.0.0.2"), 2: check_in(2, "10.0.0.3")}

    expected = {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"}
    assert expected == rendezvous_settings.addresses(check_ins, ["127.0.0.1", "10.0.0.1", "10.0.0.1"])


def test_nodes_of_one_machine_keep_loopback() -> None:
    """When everybody came by loopback there is no other address, and none is needed."""
    check_ins = {0: check_in(0, "127.0.0.1"), 1: check_in(1, "127.0.0.1")}

    assert {0: "127.0.0.1", 1: "127.0.0.1"} == rendezvous_settings.addresses(check_ins, ["127.0.0.1"] * 2)


@pytest.mark.parametrize(
    ("name", "port", "expected"),
    [
        (None, None, ("10.0.0.1", 12345)),
        ("n0.cluster", None, ("n0.cluster", 12345)),
        (None, 29500, ("10.0.0.1", 29500)),
    ],
)
def test_the_plan_comes_before_what_was_found(
    name: str | None, port: int | None, expected: tuple[str, int]
) -> None:
    """What the job file names is used; what it leaves out was found at the gate. Each has its reason."""
    plan = JobPlan("j", 1, 1, [], [], master_addr=name, master_port=port)
    agreed = rendezvous_settings.agree(plan, {0: check_in(0, "10.0.0.1")}, {0: "10.0.0.1"})

    assert expected == (agreed.master_addr, agreed.master_port)
    assert {"MASTER_ADDR", "MASTER_PORT"} == set(agreed.why)


def test_a_named_interface_is_given_to_both_libraries_in_their_own_words() -> None:
    """NCCL takes a prefix unless told `=`, Gloo takes exact names only."""
    plan = JobPlan("j", 1, 1, [], [], gate=GatePlan(interface="eth0"))
    agreed = rendezvous_settings.agree(plan, {0: check_in(0, "10.0.0.1")}, {0: "10.0.0.1"})

    assert {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"} == agreed.env
    assert set(agreed.env) < set(agreed.why)


@pytest.mark.parametrize(
    ("homes", "bindable", "expected"),
    [("aa", False, {"GLOO_SOCKET_IFNAME": "lo"}), ("aa", True, {}), ("ab", False, {}), ("aa", None, {})],
)
def test_gloo_gets_loopback_only_where_it_finds_nothing_else(
    homes: str, bindable: bool | None, expected: dict[str, str]
) -> None:
    """Only on one machine, and only when its own name leads to no address that it can use."""
    facts = {} if bindable is None else {"names": {"own_bindable": bindable}}
    check_ins = {node: check_in(node, "10.0.0.1", home, **facts) for node, home in enumerate(homes)}

    agreed = rendezvous_settings.agree(
        JobPlan("j", 2, 1, [], []), check_ins, dict.fromkeys(check_ins, "10.0.0.1")
    )

    assert expected == agreed.env
