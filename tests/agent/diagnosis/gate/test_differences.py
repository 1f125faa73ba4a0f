"""Settings that differ: which of them end a job, and which are only told."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.agent.diagnosis.gate.check_ins import PLAN, check_in, only

from ddplaunch.agent.contract import (
    CheckIn,
    CheckResult,
    GatePlan,
    JobPlan,
    MeshResult,
    ResourcePlan,
    Status,
    Verdict,
)
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView

DEBUG = "TORCH_DISTRIBUTED_DEBUG"


def with_environment(node: int, environment: dict[str, str], gpus: bool, **facts: Any) -> CheckIn:
    """A node on a machine of its own."""
    given = {"configuration": {"environment": environment, "gpus": gpus}, **facts}
    ports = {"responder": 40000}
    return CheckIn(node, f"n{node}", 3, 1, f"10.0.0.{node}", ports, 0.0, f"m{node}", "net", 1, given)


def view(*environments: dict[str, str], gpus: bool = True, rdma: bool = False) -> GateView:
    """A node for each."""
    facts = {"rdma": {"active": 1}} if rdma else {}
    plan = JobPlan("trial", len(environments), 1, ["{python}"], ["train.py"])
    nodes = {node: with_environment(node, each, gpus, **facts) for node, each in enumerate(environments)}
    return GateView(plan, {node: CheckIn(**{**vars(c), "nodes": len(nodes)}) for node, c in nodes.items()})


def the_verdict(verdicts: list[Verdict]) -> Verdict:
    """The single one."""
    (verdict,) = verdicts
    return verdict


def test_the_odd_one_is_named_with_its_value_and_theirs() -> None:
    """And what comes of it."""
    verdict = the_verdict(decide.judge(view({}, {DEBUG: "DETAIL"}, {DEBUG: "INFO"}, gpus=False)))

    assert ("environment-differs", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence == (
        f"node 1 has {DEBUG}=DETAIL, the others no {DEBUG}: with DETAIL ranks agree on every collective "
        "beforehand, and wait for all others to do so"
    )
    assert f"node 2: {DEBUG}=INFO" in verdict.facts


def test_all_that_is_odd_on_one_node_is_told_at_once() -> None:
    """One file has set it all, more often than not."""
    verdict = the_verdict(decide.judge(view({"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, {}, {})))

    assert [0] == verdict.nodes
    assert verdict.sentence.startswith(
        "node 0 has NCCL_ALGO=Tree and NCCL_PROTO=LL, the others no NCCL_ALGO and no NCCL_PROTO: each of NCCL"
    )


def test_of_two_nodes_node_zero_is_right() -> None:
    """Somebody has to be."""
    verdict = the_verdict(decide.judge(view({"NCCL_BUFFSIZE": "1048576"}, {})))

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
    verdict = the_verdict(decide.judge(view({}, {}, {name: value}, rdma=True)))

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


# --- Hardware of several nodes side by side: what is a fault, what a note, what nothing.


H100, A100 = ["NVIDIA H100 80GB HBM3"], ["NVIDIA A100 80GB PCIe"]
ASKED = dataclasses.replace(PLAN, resources=ResourcePlan(gpus=8))
UP = {"devices": ["mlx5_0"], "active": 1, "used": True, "gid": ""}
NONE = {"devices": [], "active": 0, "used": False, "gid": ""}
DOWN = {"devices": ["mlx5_0"], "active": 0, "used": False, "gid": ""}


def hardware_view(check: str, *facts: dict[str, Any], plan: Any = PLAN) -> GateView:
    """Three nodes with these facts of one check."""
    return GateView(plan, {node: check_in(node, facts={check: each}) for node, each in enumerate(facts)})


def of(*models: list[str]) -> list[dict[str, Any]]:
    """Facts of nodes with these GPUs."""
    return [{"models": each, "count": 8} for each in models]


def test_another_model_on_one_node() -> None:
    """The node that stands alone is named, with what all have."""
    verdict = only(decide.judge(hardware_view("gpus", *of(H100, H100, A100), plan=ASKED)))

    assert ("hardware-differs", [2]) == (verdict.code, verdict.nodes)
    assert "node 2 has NVIDIA A100 80GB PCIe, the others NVIDIA H100 80GB HBM3" == verdict.sentence
    assert 3 == len(verdict.facts)


def test_a_job_that_asks_for_no_gpus_is_only_told() -> None:
    """It may know what it does."""
    odd = hardware_view("gpus", *of(H100, H100, A100))

    assert [] == decide.judge(odd)
    said = "the GPUs differ: node 2 NVIDIA A100 80GB PCIe, elsewhere NVIDIA H100 80GB HBM3"
    assert [said] == decide.notes(odd)


def counted(*counts: int | None, plan: Any = ASKED) -> GateView:
    """Nodes with so many GPUs that are visible to the job."""
    return hardware_view("gpus", *({"models": H100, "count": count} for count in counts), plan=plan)


def test_a_gpu_less_on_one_node() -> None:
    """It has fallen off the bus, say: the job asks for 8, and the others have them."""
    verdict = only(decide.judge(counted(8, 7, 8)))

    assert ("hardware-differs", [1]) == (verdict.code, verdict.nodes)
    assert f"node 1 has 7 x {H100[0]}, the others 8 x {H100[0]}" == verdict.sentence


def test_another_model_and_fewer_of_it() -> None:
    """One verdict for the node's hardware."""
    facts = [{"models": H100, "count": 8}, {"models": A100, "count": 4}, {"models": H100, "count": 8}]
    verdict = only(decide.judge(hardware_view("gpus", *facts, plan=ASKED)))

    assert f"node 1 has 4 x {A100[0]}, the others 8 x {H100[0]}" == verdict.sentence


@pytest.mark.parametrize("counts", [(8, 16, 8), (7, 7, 7), (9, 8, 12), (8, 7, None)])
def test_more_than_enough_or_the_same_everywhere(counts: tuple[int | None, ...]) -> None:
    """Not every scheduler hides what it did not give; one card may serve several ranks, or be cut up."""
    assert ([], []) == (decide.judge(counted(*counts)), decide.notes(counted(*counts)))


def test_fewer_than_ranks_where_none_are_asked_for() -> None:
    """A note, for they may be no matter to it: these nodes have two ranks each."""
    odd = counted(8, 1, 4, plan=PLAN)

    assert [] == decide.judge(odd)
    assert [f"the GPUs differ: node 1 1 x {H100[0]}, elsewhere 2 x {H100[0]}"] == decide.notes(odd)


def test_a_node_without_any_is_told_once() -> None:
    """By itself, as gpu-missing."""
    lost = CheckResult("gpus", Status.FAIL, "no device of a GPU is here", code="gpu-missing")
    facts = counted(8, 8, 8)
    facts.check_ins[1] = check_in(1, (lost,), facts={"gpus": {"devices": {}, "models": [], "count": 0}})

    assert ["gpu-missing"] == [verdict.code for verdict in decide.judge(facts)]


def test_a_rail_that_one_node_lacks() -> None:
    """NCCL works without, and slower: a note, unless nobody sends by RDMA."""
    facts = [{**UP, "active": 8}, {**UP, "active": 7}, {**UP, "active": 8}]
    said = "the number of RDMA ports that are up differs, and all go by the fewest: node 1 7, elsewhere 8"

    assert ([], [said]) == (
        decide.judge(hardware_view("rdma", *facts)),
        decide.notes(hardware_view("rdma", *facts)),
    )
    assert [] == decide.notes(hardware_view("rdma", *({**each, "used": False} for each in facts)))


@pytest.mark.parametrize("models", [(H100, H100, H100), (H100, [], H100), ([], [], [])])
def test_what_is_alike_or_not_known(models: tuple[list[str], ...]) -> None:
    """A node whose driver did not answer is not judged."""
    assert [] == decide.judge(hardware_view("gpus", *of(*models), plan=ASKED))


@pytest.mark.parametrize("skip", ["gpus", "rdma"])
def test_a_difference_that_is_meant(skip: str) -> None:
    """The hint of each: skip that check."""
    plan = dataclasses.replace(ASKED, gate=GatePlan(skip=[skip]))
    facts = of(H100, H100, A100) if skip == "gpus" else [UP, NONE, UP]

    assert [] == decide.judge(hardware_view(skip, *facts, plan=plan))


@pytest.mark.parametrize("other", [NONE, DOWN])
def test_rdma_on_some_nodes_only(other: dict[str, Any]) -> None:
    """NCCL decides on each node alone, and its two sides do not meet."""
    verdict = only(decide.judge(hardware_view("rdma", UP, UP, other)))

    assert ("hardware-differs", [2]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.startswith("node 2 has no RDMA port that is up, nodes 0 and 1 have: NCCL would")


@pytest.mark.parametrize("facts", [(UP, UP, UP), (NONE, DOWN, NONE), ({**UP, "used": False}, NONE, NONE)])
def test_one_network_for_all(facts: tuple[dict[str, Any], ...]) -> None:
    """All have it, none has it, or nobody will use it."""
    assert [] == decide.judge(hardware_view("rdma", *facts))


def test_an_index_that_means_two_things() -> None:
    """RoCE v1 and v2 do not understand each other."""
    facts = [{**UP, "gid": "RoCE v2"}, {**UP, "gid": "IB/RoCE v1"}, {**UP, "gid": "RoCE v2"}]
    verdict = only(decide.judge(hardware_view("rdma", *facts)))

    assert ("rdma-unfit", [1]) == (verdict.code, verdict.nodes)
    assert "by NCCL_IB_GID_INDEX node 1 takes IB/RoCE v1, the others RoCE v2" == verdict.sentence


def linked(*links: list[int | None], plan: Any = PLAN, takes: str = "eth0", **more: Any) -> GateView:
    """Nodes whose library takes eth0, with these MTUs and speeds; docker0 is everybody's."""
    choice = {"library": "Gloo", "takes": [[takes, "x"]], "why": "", "set": False} if takes else {}
    facts = [{**choice, "links": {"eth0": each, "docker0": [1500, None]}} for each in links]
    here = {
        node: check_in(
            node, facts={"interfaces": each, "names": {"interfaces": [["eth0", f"10.0.0.{node}"]]}}
        )
        for node, each in enumerate(facts)
    }
    return GateView(plan, here, **more)


@pytest.mark.parametrize("takes", ["eth0", ""])
def test_packets_of_another_size_on_one_node(takes: str) -> None:
    """A note, for TCP agrees on a size between two ends: by the library's interface, or the way it came."""
    odd = linked([1500, None], [9000, None], [1500, None], takes=takes)

    assert [] == decide.judge(odd)
    assert ["the MTU is 9000 on node 1, 1500 on all other nodes"] == decide.notes(odd)
    assert [] == decide.notes(linked([9000, None], [9000, None], [9000, None], takes=takes))


@pytest.mark.parametrize("takes", ["docker0", "eth1"])
def test_only_what_is_used_counts(takes: str) -> None:
    """Of other interfaces nothing is said, nor of those that are not known."""
    assert [] == decide.notes(linked([1500, None], [9000, None], [1500, None], takes=takes))


def test_a_black_hole_rests_on_the_sizes_too() -> None:
    """The facts say who believes what; or, if all believe the same, that the path carries less."""
    bad = [MeshResult(1, 2, "10.0.0.2", 4000, "responder", "stalled", seconds=3.0)]
    for sizes, said in (
        ((1500, 9000, 9000), "the MTU is 1500 on node 0, 9000 on all other nodes"),
        ((9000, 9000, 9000), "the MTU is 9000 on all nodes"),
    ):
        verdict = only(decide.judge(linked(*([size, None] for size in sizes), mesh=bad)))
        assert ("mtu-black-hole", said) == (verdict.code, verdict.facts[-1])


@pytest.mark.parametrize(
    ("speeds", "notes"),
    [
        (
            (100000, 100000, 10000),
            ["the network is slower on some nodes: 10 Gbit/s on node 2, 100 elsewhere"],
        ),
        ((100000, 25000, 100000), []),
        ((None, 1000, 1000), []),
        ((10000, None, 1000), ["the network is slower on some nodes: 1 Gbit/s on node 2, 10 elsewhere"]),
    ],
)
def test_a_slow_link(speeds: tuple[int | None, ...], notes: list[str]) -> None:
    """Ten times slower is worth a word; what is not known is not."""
    assert notes == decide.notes(linked(*([1500, speed] for speed in speeds)))
