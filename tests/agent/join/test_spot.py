"""Which node this is, of how many, and where node 0 is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from ddplaunch.agent.join.spot import CannotJoinError, Options, Spot, find, nodes_of_command

TORCHRUN = ["torchrun", "--nproc-per-node=2", "train.py"]
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
STATIC = ["torchrun", "--nnodes=3", "--node-rank=2", "--master-addr=n0", "--master-port", "29511", "t.py"]
INDEXED = {"JOB_COMPLETION_INDEX": "3", "PET_NNODES": "4"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}


def spot(
    command: list[str] = TORCHRUN, environment: Mapping[str, str] = MappingProxyType({}), host: str = ""
) -> Spot:
    """Without options."""
    return find(Options(), command, environment, host)


def refused(
    command: list[str] = TORCHRUN,
    environment: Mapping[str, str] = MappingProxyType({}),
    options: Options = Options(),  # noqa: B008 - it cannot be changed
) -> str:
    """The sentence."""
    with pytest.raises(CannotJoinError) as caught:
        find(options, command, environment)
    return str(caught.value)


PET = {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "n0", "PET_MASTER_PORT": "29511"}


def test_torchruns_own_arguments_or_its_variables_suffice() -> None:
    assert Spot(2, 3, "n0", "n0", 29511) == spot(STATIC) == spot(environment=PET)


@pytest.mark.parametrize(
    ("words", "address", "port"),
    [
        (["--rdzv-backend=c10d", "--rdzv-endpoint=n0:29600"], "n0", 29600),
        (["--rdzv_backend=c10d", "--rdzv_endpoint", "n0"], "n0", 29400),
        (["--rdzv-endpoint=[fd00::1]:29600"], "fd00::1", 29600),
        (["--rdzv-backend=c10d", "--rdzv-endpoint=fd00::1"], "fd00::1", 29400),
        (["--rdzv-backend=c10d", "--master-addr=n9", "--rdzv-endpoint=n0:1"], "n0", 1),
    ],
)
def test_the_rendezvous_endpoint_is_the_master(words: list[str], address: str, port: int) -> None:
    found = spot(["torchrun", "--nnodes=2", *words, "t.py"], {"PET_NODE_RANK": "1"})

    assert (address, address, port) == (found.master, found.master_addr, found.master_port)


def test_an_endpoint_of_etcd_is_not_node_zero() -> None:
    command = ["torchrun", "--nnodes=2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=etcd:2379", "t.py"]

    assert "the name or address of node 0 is not given" in refused(command, {"PET_NODE_RANK": "1"})


def test_a_step_of_slurm_needs_no_arguments() -> None:
    wanted = Spot(1, 2, "n1", None, None, ["n1", "n2"], occasion="slurm 7.0", attempt=1)

    assert wanted == spot(environment={**STEP, "SLURM_RESTART_COUNT": "1"})


def test_a_batch_script_of_slurm_runs_on_one_node() -> None:
    said = refused(TORCHRUN, {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"})

    assert (
        "this node cannot join: the number of nodes, the rank of this node and the name or address of node 0 "
        "are not given" == said
    )


def test_a_pod_finds_node_zero_by_its_own_name() -> None:
    found = spot(TORCHRUN, INDEXED, "digits-3.digits.ns.svc.cluster.local")

    seen = found.node, found.nodes, found.master, found.master_addr
    assert (3, 4, "digits-0.digits.ns.svc.cluster.local", None) == seen
    assert "the name or address of node 0 is not given" in refused(TORCHRUN, INDEXED)


def test_mpirun_counts_nodes_where_it_starts_one_process_on_each() -> None:
    found = spot(TORCHRUN, {**STEP, **OPEN_MPI, "MASTER_ADDR": "n5"})

    assert (1, 2, "n5", "n5") == (found.node, found.nodes, found.master, found.master_addr)
    assert "--map-by ppr:1:node" in refused(TORCHRUN, {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"})


IN_SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "PMIX_NAMESPACE": "212"}


def test_mpirun_in_a_job_of_slurm_starts_on_its_first_nodes() -> None:
    step = {"SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "n2"}

    found = spot(TORCHRUN, {**OPEN_MPI, **IN_SLURM, **step, "SLURMD_NODENAME": "n2"})

    assert (1, 2, "n1", ["n1", "n2"]) == (found.node, found.nodes, found.master, found.names)
    assert "slurm 7 212" == found.occasion


@pytest.mark.parametrize("here", ["n1", "n3", "nodes_of_command"])
def test_mpirun_in_another_order_says_nothing_of_node_zero(here: str) -> None:
    said = refused(TORCHRUN, {**OPEN_MPI, **IN_SLURM, "SLURMD_NODENAME": here})

    assert "the name or address of node 0 is not given" in said


@pytest.mark.parametrize(
    ("options", "command", "environment", "wanted"),
    [
        (Options(nodes=4, node_rank=3, master="m", port=1), TORCHRUN, STEP, (3, 4, "m", 1)),
        (Options(nodes=3), ["torchrun", "--nnodes=2:4", "t.py"], STEP, (1, 3, "n1", None)),
        (Options(), STATIC, {**STEP, "PET_NNODES": "9", "MASTER_ADDR": "n9"}, (2, 3, "n0", 29511)),
        (Options(), TORCHRUN, {**STEP, "PET_NNODES": "5"}, (1, 5, "n1", None)),
        (Options(master="10.0.0.1"), STATIC, {}, (2, 3, "10.0.0.1", 29511)),
    ],
)
def test_options_go_before_arguments_variables_and_the_scheduler(
    options: Options, command: list[str], environment: dict[str, str], wanted: tuple[Any, ...]
) -> None:
    found = find(options, command, environment)

    assert wanted == (found.node, found.nodes, found.master, found.master_port)


@pytest.mark.parametrize(
    ("options", "command", "environment", "said"),
    [
        (Options(nodes=2), STATIC, {}, "nodes 2 contradicts torchrun's --nnodes=3"),
        (Options(node_rank=1), STATIC, {}, "node rank 1 contradicts torchrun's --node-rank=2"),
        (Options(port=1), STATIC, {}, "port 1 contradicts torchrun's --master-port=29511"),
        (Options(node_rank=3), TORCHRUN, STEP, "there is no node 3 in a job of 2 nodes"),
        (Options(), TORCHRUN, {**STEP, "SLURM_STEP_NUM_TASKS": "4"}, "srun starts 4 tasks on 2 nodes"),
        (Options(), TORCHRUN, {**STEP, "PET_NNODES": "two"}, "PET_NNODES=two is not a number"),
        (Options(), ["torchrun", "--standalone", "t.py"], STEP, "--standalone is for one node"),
        (Options(), ["torchrun", "--nnodes=1:4", "t.py"], STEP, "the number of nodes is not given"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(
    options: Options, command: list[str], environment: dict[str, str], said: str
) -> None:
    assert said in refused(command, environment, options)


def test_tasks_of_srun_may_be_nodes_where_the_user_counts_them() -> None:
    found = find(Options(nodes=4, node_rank=3), TORCHRUN, {**STEP, "SLURM_STEP_NUM_TASKS": "4"})

    assert (3, 4, []) == (found.node, found.nodes, found.names)


def test_a_job_of_one_node_joins_itself() -> None:
    assert Spot(0, 1, "127.0.0.1") == spot(["torchrun", "--nnodes=1", "t.py"])


@pytest.mark.parametrize(
    ("command", "environment", "nodes"),
    [
        (STATIC, {}, "3"),
        (TORCHRUN, {"PET_NNODES": "2"}, "2"),
        (TORCHRUN, STEP, "2"),
        (TORCHRUN, {}, None),
        (["torchrun", "--nnodes=1", "t.py"], STEP, None),
        (["torchrun", "--standalone", "t.py"], STEP, None),
        (["torchrun", "--nnodes=1:4", "t.py"], {}, None),
        (TORCHRUN, {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"}, None),
    ],
)
def test_without_joining_a_job_of_several_nodes_is_known(
    command: list[str], environment: dict[str, str], nodes: str | None
) -> None:
    fact = nodes_of_command(command, environment)

    assert nodes == (fact.value if fact else None)


def test_torchruns_id_tells_jobs_apart_only_without_a_scheduler() -> None:
    """Nodes that a scheduler has put together meet all the same, and the gate says that their ids differ."""
    command = ["torchrun", "--nnodes=2", "--node-rank=1", "--master-addr=n1", "--rdzv-id=17", "t.py"]
    by_hand, in_step = spot(command), spot(command, STEP)

    assert ("17", "17") == (by_hand.occasion, by_hand.rdzv_id)
    assert ("slurm 7.0", None) == (in_step.occasion, in_step.rdzv_id)
