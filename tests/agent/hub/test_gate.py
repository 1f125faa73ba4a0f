"""The hub's side of the gate: preliminary verdicts, and the settings that all nodes get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, GatePlan, JobPlan, Verdict
from ddplaunch.agent.hub import gate
from ddplaunch.agent.hub.gate import PreliminaryVerdicts
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.saying import say


@pytest.fixture(name="record")
def fixture_record(tmp_path: Path) -> Iterator[JobRecord]:
    """Of a job of three nodes."""
    record = JobRecord(JobPlan("trial", 3, 2, ["{python}"], ["train.py"]), str(tmp_path), 0)
    yield record
    record.close()


def unreached(*nodes: int) -> Verdict:
    """Nodes that do not reach the hub."""
    return Verdict.of("port-filtered", f"{len(nodes)} in vain", "gate", nodes=[*nodes])


def told(record: JobRecord) -> list[str]:
    """Events, oldest first."""
    return [event.text for event in record.bundle().events]


def test_a_preliminary_verdict_is_logged_once_while_it_holds(record: JobRecord) -> None:
    """Again for another first node, and after it had passed."""
    outlook = PreliminaryVerdicts(record)
    logged = []
    for nodes in ([1], [1], [1, 2], [0], [], [0]):
        outlook.publish([unreached(*nodes)] if nodes else [])
        logged.append(len(told(record)))
        assert [verdict.nodes for verdict in record.verdicts] == ([nodes] if nodes else [])

    assert [1, 1, 1, 2, 2, 3] == logged
    assert {"port-filtered: 1 in vain"} == set(told(record))


def test_a_preliminary_verdict_names_the_machine_of_a_pod(record: JobRecord) -> None:
    record.update_node(1, host="d-1 on worker2")
    one, zero = (subjects.node(node, ["d-0", "d-1"]) for node in (1, 0))
    verdict = Verdict.of("port-filtered", say(one, " -> ", zero, ": no answer"), "gate", nodes=[1])
    PreliminaryVerdicts(record).publish([verdict])

    sentence = "node 1 (d-1 on worker2) -> node 0 (d-0): no answer"
    assert [f"port-filtered: {sentence}"] == told(record)
    assert [sentence] == [each.sentence for each in record.verdicts]


def check_in(node: int, address: str, home: str = "a", **facts: Any) -> CheckIn:
    """As far as an agreement looks at it."""
    ports = {"responder": 40000, "master": 12345}
    return CheckIn(node, f"n{node}", 2, 1, address, ports, 0.0, machine=home, netns=home, facts=facts)


def test_node_zero_is_where_the_others_reached_its_hub_and_loopback_where_all_are_there() -> None:
    apart = {0: check_in(0, "127.0.0.1"), 1: check_in(1, "10.0.0.2"), 2: check_in(2, "10.0.0.3")}
    together = {0: check_in(0, "127.0.0.1"), 1: check_in(1, "127.0.0.1")}

    expected = {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"}
    assert expected == gate.peer_addresses(apart, ["127.0.0.1", "10.0.0.1", "10.0.0.1"])
    assert dict.fromkeys((0, 1), "127.0.0.1") == gate.peer_addresses(together, ["127.0.0.1"] * 2)


@pytest.mark.parametrize(
    ("name", "port", "expected"),
    [
        (None, None, ("10.0.0.1", 12345)),
        ("n0.cluster", None, ("n0.cluster", 12345)),
        (None, 29500, ("10.0.0.1", 29500)),
    ],
)
def test_the_address_and_port_in_the_plan_take_precedence(
    name: str | None, port: int | None, expected: tuple[str, int]
) -> None:
    plan = JobPlan("j", 1, 1, [], [], master_addr=name, master_port=port)
    agreed = gate.agree_on_settings(plan, {0: check_in(0, "10.0.0.1")}, {0: "10.0.0.1"})

    assert expected == (agreed.master_addr, agreed.master_port)
    assert {"MASTER_ADDR", "MASTER_PORT"} == set(agreed.why)


def test_a_named_interface_is_given_to_both_libraries_in_their_own_words() -> None:
    """NCCL takes a prefix unless told `=`, Gloo takes exact names only."""
    plan = JobPlan("j", 1, 1, [], [], gate=GatePlan(interface="eth0"))
    agreed = gate.agree_on_settings(plan, {0: check_in(0, "10.0.0.1")}, {0: "10.0.0.1"})

    assert {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"} == agreed.env
    assert set(agreed.env) < set(agreed.why)


@pytest.mark.parametrize(
    ("homes", "bindable", "expected"),
    [("aa", False, {"GLOO_SOCKET_IFNAME": "lo"}), ("aa", True, {}), ("ab", False, {}), ("aa", None, {})],
)
def test_gloo_gets_loopback_only_where_it_finds_nothing_else(
    homes: str, bindable: bool | None, expected: dict[str, str]
) -> None:
    facts = {} if bindable is None else {"names": {"own_bindable": bindable}}
    check_ins = {node: check_in(node, "10.0.0.1", home, **facts) for node, home in enumerate(homes)}

    agreed = gate.agree_on_settings(
        JobPlan("j", 2, 1, [], []), check_ins, dict.fromkeys(check_ins, "10.0.0.1")
    )

    assert expected == agreed.env
