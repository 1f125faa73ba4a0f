"""The collective smoke test: real ranks of real torch, in namespaces whose faults the mesh does not see."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gate.clusters import GATE_PORT, MASTER_PORT, Cluster, Make, MakeCluster
from tests.agent.gate.devices import add
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, Job, wait_for
from tests.agent.gate.torches import TORCH

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.diagnosis.gate import smoke_test
from ddplaunch.agent.gate import smoke
from ddplaunch.agent.system import processes

GLOO = "GLOO_SOCKET_IFNAME"
ALONE = {"smoke_test": True, "skip": ["mesh"]}
"""Nothing but the smoke test looks at the network."""
WRONG = """
import sys
if "smoke_rank.py" in " ".join(sys.orig_argv):
    import torch.distributed as distributed
    right = distributed.all_reduce
    def all_reduce(numbers):
        right(numbers)
        numbers[-1] += numbers.numel() > 4096
    distributed.all_reduce = all_reduce
"""

BOOTSTRAP = """
import ctypes, glob, sys
(path,) = [p for folder in sys.path for p in glob.glob(folder + "/nvidia/nccl/lib/libnccl.so.2")]
ctypes.CDLL(path).ncclGetUniqueId(ctypes.create_string_buffer(128))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(name="cluster")
def _cluster(network: Make, job: Job) -> MakeCluster:
    """A function that makes a Cluster of so many hosts, with one rank each."""
    return lambda count, **changes: Cluster(
        job, network(count), **{"python": TORCH, "nproc_per_node": 1, **changes}
    )


def start_with(trial: Cluster, env: dict[str, str]) -> None:
    """Node 1 alone has these variables."""
    trial.start(0)
    trial.start(1, env=env)


def mended(trial: Cluster, **changes: Any) -> None:
    """On the same hosts the job starts once a hint was followed."""
    trial.plan = replace(trial.plan, **changes)
    trial.mended()


def drop(host: Host, what: str) -> None:
    """Of all that comes to this host, but for the gate's and the master's own."""
    spared = f"{{ {GATE_PORT}, {MASTER_PORT} }}"
    host.firewall(f"tcp dport {spared} accept", f"tcp sport {spared} accept", f"{what} drop")


def test_all_ranks_add_up_with_what_the_gate_has_set(cluster: MakeCluster) -> None:
    """With what the gate has set: by itself Gloo would take a bridge that leads nowhere."""
    trial = cluster(2, nproc_per_node=2, gate={"smoke_test": True})
    add(trial.hosts[1], "docker0", "10.7.0.1/16")
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.7.0.1"})
    trial.starts()
    assert f"{GLOO}=eth0 is set" in trial.gates[1].output
    for gate in trial.gates.values():
        assert "ok    smoke  gloo all_reduce of 4 ranks: 4 B to 16 MiB in " in gate.output, gate.output


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
@pytest.mark.parametrize(
    ("host", "said"), [(0, "cannot connect to rank 0's store"), (1, "cannot connect to 10.77.0.")]
)
def test_closed_ports_of_the_kernels_choice_are_found_though_the_fixed_ones_are_open(
    cluster: MakeCluster, host: int, said: str
) -> None:
    trial = cluster(3, gate=ALONE)
    drop(trial.hosts[host], 'iifname "eth0" tcp dport 32768-60999 tcp flags & (syn | ack) == syn')

    assert ("port-filtered", [host]) == trial.verdict()
    assert said in trial.job.verdict.sentence
    assert "open all TCP ports between the nodes" in trial.job.verdict.hint


@pytest.mark.whole
@pytest.mark.fault("mtu-black-hole")
def test_vanishing_large_packets_are_told_by_what_still_adds_up(cluster: MakeCluster) -> None:
    trial = cluster(2, gate=ALONE)
    drop(trial.hosts[1], "meta length > 1000")

    assert ("mtu-black-hole", [0, 1]) == trial.verdict()
    said = trial.job.verdict.sentence
    assert "node 0 (n0) -> 10.77.0.2: 1 KiB add up, and nothing larger is confirmed" == said


@pytest.mark.fault("backend-unfit")
def test_real_nccl_is_quoted_where_it_fails_and_gloo_passes(cluster: MakeCluster) -> None:
    """There is a device of a GPU, and no driver behind it: real NCCL says so, and it is quoted.

    A job that says gloo starts there, and hears of it.
    """
    trial = cluster(2, gate={"smoke_test": True})
    for host in trial.hosts:
        host.environment["GPU"] = "nvidia0"

    assert ("backend-unfit", [0, 1]) == trial.verdict()
    sentence = (
        "nccl fails on ranks 0 and 1 in CUDA, where gloo's all_reduce passes: RuntimeError: Found no NVIDIA"
    )
    assert trial.job.verdict.sentence.startswith(sentence)
    assert "A job without GPUs takes gloo" in trial.job.verdict.hint
    assert "ok    smoke  gloo all_reduce of 2 ranks" in trial.gates[1].output

    mended(trial, command=["train.py", "--backend", "gloo"])
    assert "FAIL  smoke  nccl: rank 1 stands" in trial.gates[1].output


@pytest.mark.fault("image-lacks")
def test_a_node_whose_torch_cannot_be_imported_is_named(cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "broken" / "torch").mkdir(parents=True)
    text = "raise ImportError('libcudart.so.13: cannot open shared object file')"
    (tmp_path / "broken" / "torch" / "__init__.py").write_text(text)
    trial = cluster(2, gate={"smoke_test": True, "skip": ["mesh", "versions"]})
    start_with(trial, {"PYTHONPATH": str(tmp_path / "broken")})

    assert ("image-lacks", [1]) == trial.verdict()
    assert "node 1 (n1): torch cannot be imported: ImportError: libcudart.so.13" in trial.job.verdict.sentence


def test_what_the_real_nccl_says_without_an_interface_is_understood(tmp_path: Path) -> None:
    """Its bootstrap needs no GPU, so that its own words can be had here."""
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "log"), "NCCL_SOCKET_IFNAME": "nosuch"}
    subprocess.run([TORCH, "-c", BOOTSTRAP], env={**os.environ, **env}, check=True)
    found = smoke_test.nccl_layer([smoke.nccl_lines(str(tmp_path / "log"))], "", between_nodes=True)

    assert found is not None
    assert ("bootstrap", True) == (found.name, found.sure)
    assert "no socket interface found" in found.line


@pytest.mark.whole
@pytest.mark.fault("backend-unfit")
def test_a_rank_whose_sums_are_wrong_is_named(cluster: MakeCluster, tmp_path: Path) -> None:
    """One number of many, on one node, from some size on: a link or a memory that nobody checks."""
    (tmp_path / "sitecustomize.py").write_text(WRONG)
    trial = cluster(2, gate=ALONE)
    start_with(trial, {"PYTHONPATH": str(tmp_path)})

    assert ("backend-unfit", [1]) == trial.verdict()
    sentence = (
        "gloo fails on rank 1 at all_reduce of more than 1 KiB: 65536 bytes add up to 3 to 4 instead of 3"
    )
    assert sentence == trial.job.verdict.sentence


def test_nothing_outlives_a_gate_that_is_killed(cluster: MakeCluster) -> None:
    trial = cluster(2, gate=ALONE)
    trial.start(1)
    trial.start(0)
    gate = trial.gates[0]
    wait_for(lambda: [pid for pid in ranks(gate) if "libtorch" in read(pid, "maps")], 60.0)
    children = ranks(gate)
    for pid in children:
        os.kill(pid, signal.SIGSTOP)  # deaf, as one that hangs in a driver
    gate.process.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in children))
    assert Exit.NODE_AT_FAULT == trial.gates[1].wait(60.0)
    assert "node 0 (n0) checked in and then went away" in trial.gates[1].output


def ranks(gate: Agent) -> list[int]:
    """Processes of the smoke test below a gate."""
    return [pid for pid in processes.descendants(gate.process.pid) if "smoke_rank.py" in read(pid, "cmdline")]


def read(pid: int, name: str) -> str:
    """Of /proc; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether it is still such a rank: numbers are used again."""
    return "smoke_rank.py" in read(pid, "cmdline")
