"""Settings that differ: which of them end a job, and which are only told."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, Verdict
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView

DEBUG = "TORCH_DISTRIBUTED_DEBUG"


def check_in(node: int, environment: dict[str, str], gpus: bool, **facts: Any) -> CheckIn:
    """A node on a machine of its own."""
    given = {"configuration": {"environment": environment, "gpus": gpus}, **facts}
    ports = {"responder": 40000}
    return CheckIn(node, f"n{node}", 3, 1, f"10.0.0.{node}", ports, 0.0, f"m{node}", "net", 1, given)


def view(*environments: dict[str, str], gpus: bool = True, rdma: bool = False) -> GateView:
    """A node for each."""
    facts = {"rdma": {"active": 1}} if rdma else {}
    plan = JobPlan("trial", len(environments), 1, ["{python}"], ["train.py"])
    nodes = {node: check_in(node, each, gpus, **facts) for node, each in enumerate(environments)}
    return GateView(plan, {node: CheckIn(**{**vars(c), "nodes": len(nodes)}) for node, c in nodes.items()})


def only(verdicts: list[Verdict]) -> Verdict:
    """The single one."""
    (verdict,) = verdicts
    return verdict


def test_the_odd_one_is_named_with_its_value_and_theirs() -> None:
    """And what comes of it."""
    verdict = only(decide.judge(view({}, {DEBUG: "DETAIL"}, {DEBUG: "INFO"}, gpus=False)))

    assert ("environment-differs", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence == (
        f"node 1 has {DEBUG}=DETAIL, the others no {DEBUG}: with DETAIL ranks agree on every collective "
        "beforehand, and wait for all others to do so"
    )
    assert f"node 2: {DEBUG}=INFO" in verdict.facts


def test_all_that_is_odd_on_one_node_is_told_at_once() -> None:
    """One file has set it all, more often than not."""
    verdict = only(decide.judge(view({"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, {}, {})))

    assert [0] == verdict.nodes
    assert verdict.sentence.startswith(
        "node 0 has NCCL_ALGO=Tree and NCCL_PROTO=LL, the others no NCCL_ALGO and no NCCL_PROTO: each of NCCL"
    )


def test_of_two_nodes_node_zero_is_right() -> None:
    """Somebody has to be."""
    verdict = only(decide.judge(view({"NCCL_BUFFSIZE": "1048576"}, {})))

    assert "node 1 has no NCCL_BUFFSIZE, node 0 NCCL_BUFFSIZE=1048576" in verdict.sentence


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (DEBUG, "INFO", "OFF"),
        ("TORCH_DIST_INIT_BARRIER", "0", ""),
        ("TORCH_GLOO_LAZY_INIT", "false", ""),
        ("GLOO_DEVICE_TRANSPORT", "tcp", ""),
        ("GLOO_SOCKET_IFNAME", "eth0", "eth1"),
        ("NCCL_SOCKET_IFNAME", "eth0", "ens3"),
        ("NCCL_IB_HCA", "mlx5_0", "mlx5_2"),
        ("NCCL_PROTO", "simple", "Simple"),
        ("NCCL_DEBUG", "INFO", ""),
        ("OMP_NUM_THREADS", "4", "8"),
        ("NCCL_IB_DISABLE", "1", ""),
        ("NCCL_NET", "Socket", ""),
        ("NCCL_NET_PLUGIN", "none", ""),
    ],
)
def test_what_may_differ_is_a_note(name: str, one: str, other: str) -> None:
    """It means the same, or is a matter of each node's own; here are no RDMA devices."""
    odd = view({name: one}, {name: other}, {name: other})

    assert [] == decide.judge(odd)
    assert [name] == [note.partition(" ")[0] for note in decide.notes(odd)]


@pytest.mark.parametrize(
    ("name", "value"), [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"), ("NCCL_NET_PLUGIN", "ofi")]
)
def test_two_networks_do_not_meet(name: str, value: str) -> None:
    """Where there are RDMA devices, NCCL takes them unless it was told otherwise."""
    verdict = only(decide.judge(view({}, {}, {name: value}, rdma=True)))

    assert ("environment-differs", [2]) == (verdict.code, verdict.nodes)
    assert "do not meet across two networks" in verdict.sentence


def test_without_gpus_nccl_does_not_matter() -> None:
    """Gloo does not read its settings."""
    odd = view({"NCCL_ALGO": "Tree"}, {}, {}, gpus=False)

    assert [] == decide.judge(odd)
    assert ["NCCL_ALGO differs: node 0 Tree, elsewhere not set"] == decide.notes(odd)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_P2P_NET_CHUNKSIZE", "131072"),
        ("NCCL_P2P_NET_CHUNKSIZE", "0x20000"),
        ("NCCL_PAT_ENABLE", "2"),
        ("NCCL_CROSS_NIC", " 2"),
    ],
)
def test_a_default_that_is_written_out(name: str, value: str) -> None:
    """It is as good as not set, and not even told."""
    facts = view({name: value}, {}, {}, rdma=True)

    assert ([], []) == (decide.judge(facts), decide.notes(facts))


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_BUFFSIZE", "4194304"), ("NCCL_P2P_NET_CHUNKSIZE", "65536"), ("NCCL_PAT_ENABLE", "1")],
)
def test_what_is_not_the_default_everywhere(name: str, value: str) -> None:
    """NCCL 2.18 has another on ARM: that is left to a person."""
    assert [name in verdict.sentence for verdict in decide.judge(view({name: value}, {}, {}))] == [True]
