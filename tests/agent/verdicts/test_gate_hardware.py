"""Hardware of several nodes side by side: what is a fault, what a note, what nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.agent.verdicts.test_gate import PLAN, check_in, only

from ddplaunch.agent.contract import GatePlan, ResourcePlan
from ddplaunch.agent.verdicts import gate
from ddplaunch.agent.verdicts.gate import Roll

H100, A100 = ["NVIDIA H100 80GB HBM3"], ["NVIDIA A100 80GB PCIe"]
ASKED = dataclasses.replace(PLAN, resources=ResourcePlan(gpus=8))
UP = {"devices": ["mlx5_0"], "active": 1, "used": True, "gid": ""}
NONE = {"devices": [], "active": 0, "used": False, "gid": ""}
DOWN = {"devices": ["mlx5_0"], "active": 0, "used": False, "gid": ""}


def roll(check: str, *facts: dict[str, Any], plan: Any = PLAN) -> Roll:
    """Three nodes with these facts of one check."""
    return Roll(plan, {node: check_in(node, facts={check: each}) for node, each in enumerate(facts)})


def of(*models: list[str]) -> list[dict[str, Any]]:
    """Facts of nodes with these GPUs."""
    return [{"models": each, "count": 8} for each in models]


def test_another_model_on_one_node() -> None:
    """The node that stands alone is named, with what all have."""
    verdict = only(gate.judge(roll("gpus", *of(H100, H100, A100), plan=ASKED)))

    assert ("hardware-differs", [2]) == (verdict.code, verdict.nodes)
    assert "node 2 has NVIDIA A100 80GB PCIe, the others NVIDIA H100 80GB HBM3" == verdict.sentence
    assert 3 == len(verdict.facts)


def test_a_job_that_asks_for_no_gpus_is_only_told() -> None:
    """It may know what it does."""
    odd = roll("gpus", *of(H100, H100, A100))

    assert [] == gate.judge(odd)
    said = "the GPUs differ: node 2 NVIDIA A100 80GB PCIe, elsewhere NVIDIA H100 80GB HBM3"
    assert [said] == gate.notes(odd)


@pytest.mark.parametrize("models", [(H100, H100, H100), (H100, [], H100), ([], [], [])])
def test_what_is_alike_or_not_known(models: tuple[list[str], ...]) -> None:
    """A node whose driver did not answer is not judged."""
    assert [] == gate.judge(roll("gpus", *of(*models), plan=ASKED))


@pytest.mark.parametrize("skip", ["gpus", "rdma"])
def test_a_difference_that_is_meant(skip: str) -> None:
    """The hint of each: skip that check."""
    plan = dataclasses.replace(ASKED, gate=GatePlan(skip=[skip]))
    facts = of(H100, H100, A100) if skip == "gpus" else [UP, NONE, UP]

    assert [] == gate.judge(roll(skip, *facts, plan=plan))


@pytest.mark.parametrize("other", [NONE, DOWN])
def test_rdma_on_some_nodes_only(other: dict[str, Any]) -> None:
    """NCCL decides on each node alone, and its two sides do not meet."""
    verdict = only(gate.judge(roll("rdma", UP, UP, other)))

    assert ("hardware-differs", [2]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.startswith("node 2 has no RDMA port that is up, nodes 0 and 1 have: NCCL would")


@pytest.mark.parametrize("facts", [(UP, UP, UP), (NONE, DOWN, NONE), ({**UP, "used": False}, NONE, NONE)])
def test_one_network_for_all(facts: tuple[dict[str, Any], ...]) -> None:
    """All have it, none has it, or nobody will use it."""
    assert [] == gate.judge(roll("rdma", *facts))


def test_an_index_that_means_two_things() -> None:
    """RoCE v1 and v2 do not understand each other."""
    facts = [{**UP, "gid": "RoCE v2"}, {**UP, "gid": "IB/RoCE v1"}, {**UP, "gid": "RoCE v2"}]
    verdict = only(gate.judge(roll("rdma", *facts)))

    assert ("rdma-unfit", [1]) == (verdict.code, verdict.nodes)
    assert "by NCCL_IB_GID_INDEX node 1 takes IB/RoCE v1, the others RoCE v2" == verdict.sentence
