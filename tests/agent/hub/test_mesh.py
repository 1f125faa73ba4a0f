"""The mesh plan, for every size up to some hundreds and some beyond: there are few enough to try them all."""

from __future__ import annotations

import math

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshTask
from ddplaunch.agent.hub import mesh

SIZES = [*range(1, 300), 511, 512, 513, 1000, 1024, 4096]


@pytest.mark.parametrize("nodes", range(1, mesh.ALL_PAIRS + 1))
def test_small_jobs_try_all_pairs(nodes: int) -> None:
    """Up to the limit everybody tries everybody else."""
    assert [set(range(nodes)) - {n} for n in range(nodes)] == mesh.partners(nodes)


def test_every_path_is_tried_in_both_directions() -> None:
    """Whoever tries a peer is tried by it, nobody tries itself, and nobody is left out."""
    for nodes in SIZES:
        found = mesh.partners(nodes)
        assert len(found) == nodes
        for node, others in enumerate(found):
            assert node not in others
            assert all(node in found[other] for other in others)
            assert others or nodes == 1


def test_large_jobs_cost_each_node_little() -> None:
    """Above the limit a node has about two partners for each doubling of the job; node 0 has everybody."""
    for nodes in SIZES:
        if nodes > mesh.ALL_PAIRS:
            found = mesh.partners(nodes)
            assert found[0] == set(range(1, nodes))
            assert max(len(others) for others in found[1:]) <= 2 * math.ceil(math.log2(nodes)) + 1


def test_ring_neighbours_are_always_tried() -> None:
    """NCCL's rings and Gloo's go from node to node: those paths are in every plan."""
    for nodes in SIZES:
        found = mesh.partners(nodes)
        assert all((node + 1) % nodes in found[node] for node in range(nodes) if nodes > 1)


def check_in(node: int, **ports: int) -> CheckIn:
    """As far as the mesh looks at it."""
    return CheckIn(node, f"n{node}", 2, 1, f"10.0.0.{node}", ports, at=0.0)


def test_the_master_port_is_tried_under_the_name_that_torch_will_use() -> None:
    """Every node, node 0 included, tries the master port; peers are tried at their own addresses."""
    plan = JobPlan("j", 2, 1, [], [], master_addr="n0.cluster")
    check_ins = {0: check_in(0, responder=40000, master=29500), 1: check_in(1, responder=40001)}

    expected = {
        0: [MeshTask(1, "10.0.0.1", 40001, "responder"), MeshTask(0, "n0.cluster", 29500, "master")],
        1: [MeshTask(0, "10.0.0.0", 40000, "responder"), MeshTask(0, "n0.cluster", 29500, "master")],
    }
    assert expected == mesh.tasks(plan, check_ins, {0: "10.0.0.0", 1: "10.0.0.1"})


def test_without_a_master_port_only_peers_are_tried() -> None:
    """When the port check was skipped there is nothing on the master port to answer."""
    plan = JobPlan("j", 2, 1, [], [])
    check_ins = {0: check_in(0, responder=40000), 1: check_in(1, responder=40001)}

    tasks = mesh.tasks(plan, check_ins, {0: "10.0.0.0", 1: "10.0.0.1"})

    assert ["responder"] == [task.what for task in tasks[1]]
