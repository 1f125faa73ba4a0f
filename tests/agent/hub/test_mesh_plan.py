"""The mesh plan, for every size up to some hundreds and some beyond: there are few enough to try them all."""

from __future__ import annotations

import math

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshTask
from ddplaunch.agent.hub import mesh_plan

SIZES = [*range(1, 300), 511, 512, 513, 1000, 1024, 4096]


@pytest.mark.parametrize("nodes", range(1, mesh_plan.ALL_PAIRS + 1))
def test_small_jobs_try_all_pairs(nodes: int) -> None:
    assert [set(range(nodes)) - {n} for n in range(nodes)] == mesh_plan.partners(nodes)


def test_every_path_is_tried_in_both_directions_by_several_nodes_and_costs_each_little() -> None:
    """Nobody tries itself; rings of NCCL and Gloo go from node to node, and those paths are in every plan."""
    for nodes in SIZES:
        found = mesh_plan.partners(nodes)
        assert len(found) == nodes
        for node, others in enumerate(found):
            assert node not in others
            assert all(node in found[other] for other in others)
            assert nodes == 1 or (node + 1) % nodes in others
        assert min(map(len, found)) >= min(12, nodes - 1)
        assert nodes <= mesh_plan.ALL_PAIRS or max(map(len, found)) <= 2 * math.ceil(math.log2(nodes)) + 16


def test_any_two_racks_try_each_other() -> None:
    """Runs of nodes as long as `block` says, from its multiples on: a path joins every two of them."""
    for nodes in SIZES:
        size = mesh_plan.block(nodes)
        racks = nodes // size
        joined = {
            (node // size, peer // size)
            for node, peers in enumerate(mesh_plan.partners(nodes))
            for peer in peers
        }
        wanted = {(a, b) for a in range(racks) for b in range(racks) if a != b}
        assert wanted <= joined
        assert size <= max(2, math.sqrt(nodes) / 2)


def test_everybody_tries_node_zero() -> None:
    """All will look for the store there: by the master port, or where there is none by another one."""
    plan = JobPlan("j", 100, 1, [], [])
    check_ins = {node: check_in(node, responder=40000 + node) for node in range(100)}
    addresses = {node: each.address for node, each in check_ins.items()}

    assert all(
        0 in [task.peer for task in tasks]
        for n, tasks in mesh_plan.tasks(plan, check_ins, addresses).items()
        if n
    )
    check_ins[0] = check_in(0, responder=40000, master=29500)
    found = mesh_plan.tasks(plan, check_ins, addresses)
    assert {"master"} == {tasks[-1].what for tasks in found.values()}
    assert len(found[0]) == len(mesh_plan.partners(100)[0]) + 1


def test_thousands_of_nodes_come_to_the_master_port_one_after_the_other() -> None:
    """In a second no more than one process can answer; a small job does not wait."""
    plan = JobPlan("j", 2000, 1, [], [])
    check_ins = {node: check_in(node, responder=40000, master=29500) for node in range(2000)}
    addresses = {node: each.address for node, each in check_ins.items()}

    times = [tasks[-1].after for tasks in mesh_plan.tasks(plan, check_ins, addresses).values()]

    assert times == sorted(times)
    assert 1.9 < times[-1] < 2.1
    assert max(sum(start <= at < start + 0.1 for at in times) for start in times) <= 101


def check_in(node: int, **ports: int) -> CheckIn:
    """As far as the mesh looks at it."""
    return CheckIn(node, f"n{node}", 2, 1, f"10.0.0.{node}", ports, at=0.0)


def test_the_master_port_is_tried_under_the_name_that_torch_will_use() -> None:
    plan = JobPlan("j", 2, 1, [], [], master_addr="n0.cluster")
    check_ins = {0: check_in(0, responder=40000, master=29500), 1: check_in(1, responder=40001)}

    expected = {
        0: [MeshTask(1, "10.0.0.1", 40001, "responder"), MeshTask(0, "n0.cluster", 29500, "master")],
        1: [MeshTask(0, "10.0.0.0", 40000, "responder"), MeshTask(0, "n0.cluster", 29500, "master")],
    }
    assert expected == mesh_plan.tasks(plan, check_ins, {0: "10.0.0.0", 1: "10.0.0.1"})
