"""A setting that one node alone has: what torch makes of it, and what the gate says before."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gate.clusters import Cluster, Make, MakeCluster
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Job, make_plan
from tests.agent.gate.torches import TORCH

from ddplaunch.agent.contract import Exit

SUM = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones), flush=True)
dist.destroy_process_group()
"""
Ranks = Callable[[list[dict[str, str]]], list[str]]


@pytest.fixture(name="ranks")
def _ranks(network: Make) -> Ranks:
    """A function that runs a rank of torch on a host for each environment; returns what each says."""

    def run(environments: list[dict[str, str]]) -> list[str]:
        hosts = network(len(environments))
        started = [
            _rank(host, node, len(hosts), own) for node, (host, own) in enumerate(zip(hosts, environments))
        ]
        return [rank.communicate(timeout=120)[0] for rank in started]

    return run


def _rank(host: Host, rank: int, size: int, own: dict[str, str]) -> subprocess.Popen[str]:
    where = {"MASTER_ADDR": "n0", "MASTER_PORT": "29500", "WORLD_SIZE": str(size), "RANK": str(rank)}
    env = {**os.environ, **where, **own, "OMP_NUM_THREADS": "1"}
    words = [*host.words, TORCH, "-c", SUM]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=quiet, text=True, env=env)


def start(trial: Cluster, odd: int, **own: str) -> None:
    """All gates, of which one has these variables."""
    for node in range(len(trial.hosts)):
        trial.start(node, env=own if node == odd else {})


@pytest.mark.fault("environment-differs")
def test_a_node_that_alone_tells_torch_to_check_collectives_is_named(cluster: MakeCluster) -> None:
    trial = cluster(3)
    start(trial, 1, TORCH_DISTRIBUTED_DEBUG="DETAIL")

    assert ("environment-differs", [1]) == trial.verdict()
    said = trial.job.verdict.sentence
    assert said.startswith("node 1 (n1) has TORCH_DISTRIBUTED_DEBUG=DETAIL, the others no TORCH_DIST")
    assert "set it for all nodes, by `env` in the job file" in trial.job.verdict.hint


def test_what_the_job_file_sets_stands_above_what_a_node_sets(cluster: MakeCluster) -> None:
    trial = cluster(2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    start(trial, 1, TORCH_DISTRIBUTED_DEBUG="OFF")

    trial.starts()


@pytest.mark.fault("environment-differs")
def test_nccls_own_file_counts_as_a_nodes_environment(cluster: MakeCluster, tmp_path: Path) -> None:
    trial = cluster(2)
    for host in trial.hosts:
        host.environment["GPU"] = "nvidia0"
    (tmp_path / "nccl.conf").write_text("NCCL_PROTO=LL\n")
    start(trial, 0, NCCL_CONF_FILE=str(tmp_path / "nccl.conf"))

    assert ("environment-differs", [1]) == trial.verdict()
    assert "node 1 (n1) has no NCCL_PROTO, node 0 (n0) NCCL_PROTO=LL: each" in trial.job.verdict.sentence


def test_what_each_node_may_have_for_itself_is_noted(cluster: MakeCluster) -> None:
    trial = cluster(2)
    start(trial, 1, NCCL_DEBUG="INFO", OMP_NUM_THREADS="3", TORCH_DISTRIBUTED_DEBUG="INFO")

    trial.starts()
    assert "note: NCCL_DEBUG differs: node 1 (n1) INFO, elsewhere not set" in trial.gates[0].output


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        ("TORCH_DIST_INIT_BARRIER", "1"),
        ("TORCH_GLOO_LAZY_INIT", "1"),
        ("GLOO_DEVICE_TRANSPORT", "UV"),
    ],
)
def test_torch_does_not_come_through_with_it_on_one_node(ranks: Ranks, name: str, value: str) -> None:
    """What the rule rests on, with real ranks: the one that has it does not get its sum."""
    assert "sum 2\n" != ranks([{}, {name: value}])[1]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(("name", "value"), [("TORCH_DISTRIBUTED_DEBUG", "INFO"), ("USE_LIBUV", "0")])
def test_torch_comes_through_with_what_is_only_noted(ranks: Ranks, name: str, value: str) -> None:
    """And why it is no verdict."""
    assert ["sum 2\n"] * 2 == ranks([{}, {name: value}])


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("odd", [0, 1])
def test_torchrun_waits_with_it_on_one_node(network: Make, tmp_path: Path, odd: int) -> None:
    """Without what it does not write down, the other node's torchrun starts no rank."""
    (tmp_path / "rank.py").write_text("print('rank')\n")
    words = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=n0"]
    started: list[Any] = []
    for node, host in enumerate(network(2)):
        env = {**os.environ, **({"TORCH_ELASTIC_WORKER_IDENTICAL": "1"} if node == odd else {})}
        command = [*host.words, TORCH, *words, f"--node-rank={node}", str(tmp_path / "rank.py")]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=env, start_new_session=True, **pipes))
    try:
        assert started[odd].stdout.readline() == b"rank\n"
        assert [] == select.select([started[1 - odd].stdout], [], [], 10.0)[0]
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.fault("secret-missing")
def test_a_job_whose_secret_one_node_lacks_is_refused(job: Job) -> None:
    plan = make_plan(launch=[], command=[], secrets={"TOKEN": {"env": "TRIAL_TOKEN"}})
    job.hub(plan)
    gates = [job.gate(plan, 0, env={"TRIAL_TOKEN": "hush"}), job.gate(plan, 1)]

    assert [Exit.MISCONFIGURED] * 2 == [gate.wait() for gate in gates]
    assert ("secret-missing", [1]) == (job.verdict.code, job.verdict.nodes)
    assert (
        "node 1: the secret TOKEN is not there: the variable TRIAL_TOKEN is not set" in job.verdict.sentence
    )
    assert "hush" not in "".join(gate.output for gate in gates)
