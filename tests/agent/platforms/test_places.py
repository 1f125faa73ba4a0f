"""Names and the hub's address, out of what a pod is given and what it finds in its resolv.conf."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gate.jobs import make_plan

from ddplaunch.agent.contract import Env
from ddplaunch.agent.platforms import places

PATTERN = "run-{node}.run.team.svc.{domain}"
OF_A_POD = (
    "search team.svc.cluster.local svc.cluster.local cluster.local example.org\nnameserver 10.96.0.10\n"
)


@pytest.fixture(name="resolv")
def _resolv(tmp_path: Path) -> str:
    """A pod's resolv.conf."""
    path = tmp_path / "resolv.conf"
    path.write_text(OF_A_POD)
    return str(path)


def test_a_pattern_names_every_node_in_the_clusters_domain_unless_the_plan_does(resolv: str) -> None:
    names = [f"run-{node}.run.team.svc.cluster.local" for node in range(2)]
    assert names == places.names(make_plan(), {Env.NAMES: PATTERN}, resolv)
    assert ["a", "b"] == places.names(make_plan(names=["a", "b"]), {Env.NAMES: PATTERN}, resolv)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (OF_A_POD, "cluster.local"),
        ("nameserver 10.0.0.1\noptions ndots:5\nsearch svc.k8s.example.org.\n", "k8s.example.org"),
        ("search a.svc.corp a.example\n", "corp"),
        ("search example.org\n", ""),
        ("", ""),
    ],
)
def test_a_clusters_domain_stands_behind_any_svc_in_the_list(tmp_path: Path, text: str, domain: str) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    assert domain == places.domain(str(path))


def test_a_pod_without_the_clusters_name_server_is_told_the_keys_that_mend_it(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 10.0.0.1\n")
    with pytest.raises(places.UnplacedError) as raised:
        places.names(make_plan(), {Env.NAMES: PATTERN}, str(path))

    assert str(path) in str(raised.value)
    assert Env.NAMES in str(raised.value)
    assert "ClusterFirstWithHostNet" in raised.value.hint
    assert "`kubernetes.cluster_domain`" in raised.value.hint


def test_all_nodes_of_an_attempt_work_out_one_port_and_never_an_ephemeral_one(resolv: str) -> None:
    environment = {Env.HUB: "run-0.run.team.svc.{domain}:0"}
    ports = [
        places.hub(make_plan(), attempt, key, environment, resolv)[0].port
        for attempt, key in [(0, b"k"), (0, b"k"), (1, b"k"), (0, b"other")]
    ]

    assert ports[0] == ports[1]
    assert 3 == len(set(ports))
    assert all(10000 <= port < 32768 for port in ports)


def test_neither_an_empty_variable_nor_a_name_without_a_port_is_a_hub(resolv: str) -> None:
    for value in ("", "run-0"):
        with pytest.raises(places.UnplacedError, match="wanted host:port of the hub"):
            places.hub(make_plan(), 0, b"k", {Env.HUB: value}, resolv)
