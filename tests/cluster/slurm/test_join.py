"""`run --join` as a step of anybody's job: srun starts it on every node, and it finds out all the rest."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.training import SIX_STEPS, TORCHRUN

from ddplaunch.agent.contract import Exit
from ddplaunch.render.archive import agent_archive

PLAIN = [sys.executable, "-c", "import os; print('meet at', os.environ['MASTER_ADDR'], flush=True)"]
FAILS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
if dist.get_rank() == 3:
    raise ValueError("no batch")
dist.all_reduce(torch.ones(4))
"""


COUNT = """
import os, signal, sys, time
count = 0
def came(*_):
    global count
    count += 1
    print("came", count, flush=True)
signal.signal(signal.SIGUSR1, came)
print("ready", flush=True)
while not os.path.exists("stop"):
    time.sleep(0.1)
print("counted", count, flush=True)
"""


@dataclass
class Step:
    """How srun ended, and what each node has printed."""

    code: int
    output: dict[str, str]
    said: str


class Srun:
    """Two nodes of the cluster, and the agent's archive that both of them see."""

    def __init__(self, cluster: Cluster, work: Path, agent: Path) -> None:
        self._cluster = cluster
        self._work = work
        self._agent = agent

    def join(
        self,
        *command: str,
        options: tuple[str, ...] = (),
        tasks: int = 1,
        user: str = "root",
        python: str = sys.executable,
    ) -> Step:
        """To its end. `options`: of `run`, beside `--join`. `tasks`: of srun, on every node."""
        words = ["runuser", f"--user={user}", "--", "srun", "-N2", f"--ntasks-per-node={tasks}", "--mem=2000"]
        words += ["--output=out-%n", python, "-I", "-S", str(self._agent), "run", *options, "--join"]
        done = self._cluster.login([*words, "--", *command], cwd=self._work, check=False, timeout=240)
        files = {f"n{node + 1}": self._work / f"out-{node}" for node in range(2)}
        output = {name: file.read_text() if file.exists() else "" for name, file in files.items()}
        return Step(done.returncode, output, done.stdout + done.stderr)

    def join_by_mpirun(self, *command: str) -> tuple[int, str]:
        """A batch script, whose mpirun starts a node beside itself, and the other through srun."""
        run = shlex.join([sys.executable, "-I", "-S", str(self._agent), "run", "--join", "--", *command])
        as_root = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        script = self._work / "batch.sh"
        script.write_text(f"#!/bin/sh\n{as_root}\nexec mpirun --map-by ppr:1:node {run}\n")
        words = ["sbatch", "--wait", "-N2", "--ntasks-per-node=1", "--mem=2000", "--output=out", str(script)]
        done = self._cluster.login(words, cwd=self._work, check=False, timeout=240)
        return done.returncode, (self._work / "out").read_text()


@pytest.fixture(name="srun")
def _srun(cluster: Cluster, work: Path) -> Srun:
    work.chmod(0o777)
    archive = work / "agent.pyz"
    archive.write_bytes(agent_archive())
    (work / "train.py").write_text(SIX_STEPS)
    (work / "fails.py").write_text(FAILS)
    return Srun(cluster, work, archive)


def test_torchrun_needs_no_arguments(cluster: Cluster, srun: Srun) -> None:
    """Rank, number, names and key are Slurm's, address and port the gate's; nothing is left on the nodes."""
    step = srun.join(TORCHRUN, "--nproc-per-node=2", "train.py")

    assert 0 == step.code, step
    assert ["trained with 4"] * 4 == [
        line for text in step.output.values() for line in text.splitlines() if "trained" in line
    ]
    left = {node: cluster.leftovers(node) for node in cluster.nodes}
    assert [] == [file for files in left.values() for file in files if not _torchs_own(file)]


def _torchs_own(file: str) -> bool:
    """Whether torch has made it: its compiler, when it is imported, or torchrun, which leaves its folder."""
    return file.startswith(("/tmp/torchinductor_", "/tmp/torchelastic_"))


@pytest.mark.whole
def test_mpirun_starts_the_nodes(srun: Srun) -> None:
    """Ranks are Open MPI's, names and key Slurm's: no option is needed here either."""
    code, output = srun.join_by_mpirun("sh", "-c", "echo $(hostname) is node $DDPLAUNCH_NODE by $MASTER_ADDR")

    assert 0 == code, output
    for line in ("n1 is node 0 by 10.99.0.11", "n2 is node 1 by 10.99.0.11"):
        assert line in output.splitlines()


@pytest.mark.whole
def test_one_verdict_is_read_on_every_node(srun: Srun) -> None:
    """Rank 3 sleeps on the second node: both nodes name it, in the same words, and end as a hang."""
    options = ("--notice-after=4", "--kill-after=8")

    step = srun.join(TORCHRUN, "--nproc-per-node=2", "train.py", "3", options=options)

    assert Exit.HANG == step.code, step
    for output in step.output.values():
        assert (
            "rank-in-user-code: rank 3 has been in the script (train.py:6)"
            in output.split("ddplaunch verdict")[1]
        )
        assert "ranks 0-2 wait in all_reduce 4" in output


@pytest.mark.whole
def test_a_rank_that_fails_is_the_verdict_on_every_node(srun: Srun) -> None:
    """Its torchrun ends with a failure, and those of the other nodes cannot go on without it."""
    step = srun.join(TORCHRUN, "--nproc-per-node=2", "fails.py")

    assert 1 == step.code, step  # torchrun's own
    for output in step.output.values():
        verdict = output.split("ddplaunch verdict")[1]
        assert "rank-failed: rank 3 raised ValueError: no batch (fails.py:6)" in verdict


@pytest.mark.whole
def test_the_code_of_srun_is_that_of_the_node_that_fails(srun: Srun) -> None:
    """It is the highest of all nodes; the other's command is ended, and its code is lower."""
    step = srun.join("sh", "-c", "if [ $SLURM_NODEID = 1 ]; then exit 7; fi; exec sleep 100")

    assert 7 == step.code, step
    for output in step.output.values():
        assert "node 1 (n2)'s launch command ended with exit code 7" in " ".join(output.split())


@pytest.mark.whole
def test_a_script_that_goes_on_after_a_failure_ends_as_without_us(srun: Srun) -> None:
    """The ranks of its second torchrun are an attempt of their own, on both nodes."""
    start = f"{TORCHRUN} --nnodes=2 --node-rank=$SLURM_NODEID --nproc-per-node=2"
    where = "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"

    step = srun.join("sh", "-c", f"{start} {where} fails.py || {start} {where} train.py")

    assert 0 == step.code, step
    assert 4 == sum(output.count("trained with 4") for output in step.output.values())
    assert "attempt 0.1" in step.output["n1"]
    assert "ddplaunch verdict" not in "".join(step.output.values())


def test_a_fault_at_the_gate_starts_nothing(cluster: Cluster, srun: Srun) -> None:
    """Node 0's own name is a loopback address there, and both nodes say so."""
    cluster.hosts("n1").write_text("127.0.0.1 localhost\n127.0.1.1 n1\n10.99.0.12 n2\n10.99.0.13 n3\n")

    step = srun.join(*PLAIN)

    assert Exit.MISCONFIGURED == step.code, step
    for output in step.output.values():
        assert "master-is-loopback: node 0 (n1)'s own name n1 resolves to 127.0.1.1" in output
        assert "meet at" not in output


@pytest.mark.whole
def test_a_node_that_cannot_ask_for_the_key_says_why(cluster: Cluster, srun: Srun) -> None:
    """As it would say it at the gate, of which this is the first step."""
    cluster.hosts("n2").write_text("127.0.0.1 localhost\n10.99.0.12 n2\n10.99.0.13 n3\n")

    step = srun.join(*PLAIN, options=("--gate-timeout=20",))

    assert "dns-not-found: node 1 (n2) cannot resolve n1: no such name" in step.output["n2"]
    assert "node-missing: node 1 (n2)" in step.output["n1"]


@pytest.mark.whole
def test_the_same_by_another_user(srun: Srun) -> None:
    """Nobody special may join his own nodes."""
    step = srun.join("sh", "-c", "echo meet at $MASTER_ADDR", python="/usr/bin/python3", user="nobody")

    assert 0 == step.code, step
    assert ["meet at 10.99.0.11"] * 2 == [
        line for text in step.output.values() for line in text.splitlines() if "meet at" in line
    ]


@pytest.mark.whole
def test_several_tasks_on_a_node_are_refused(srun: Srun) -> None:
    """Each would take itself for a node."""
    step = srun.join(*PLAIN, tasks=2)

    assert Exit.MISCONFIGURED == step.code, step
    assert "srun starts 4 tasks on 2 nodes, where it takes --ntasks-per-node=1" in step.output["n1"]


@pytest.mark.whole
def test_a_signal_of_scancel_comes_as_often_as_without_us(srun: Srun, cluster: Cluster, work: Path) -> None:
    """Once to the steps, however this Slurm signals them; also with the batch script, or to it alone."""
    (work / "count.py").write_text(COUNT)
    plain = shlex.join([sys.executable, "count.py"])
    ours = shlex.join([sys.executable, "-I", "-S", str(work / "agent.pyz"), "run", "--join", "--"])
    step = "srun --overlap -N2 --ntasks-per-node=1"
    (work / "batch.sh").write_text(
        f"#!/bin/bash\ntrap : USR1\n{step} --mem=100 --output=plain-%n {plain} &\n"
        f"{step} --mem=800 --output=ours-%n {ours} {plain} &\n"
        "until [ -e stop ]; do wait; sleep 0.1; done; wait\n"
    )
    words = ["sbatch", "--parsable", "-N2", "--ntasks-per-node=1", "--mem=1000", "--output=out", "batch.sh"]
    number = cluster.login(words, cwd=work).stdout.strip()
    files = [work / f"{name}-{node}" for name in ("plain", "ours") for node in range(2)]

    def said(text: str) -> None:
        def all_say() -> bool:
            return all(file.exists() and text in file.read_text() for file in files)

        cluster.until(all_say, text, 90.0, lambda: "".join(each.read_text() for each in work.glob("*-?")))

    said("ready")
    cluster.login(["scancel", "--signal=USR1", number])
    said("came 1")
    cluster.login(["scancel", "--full", "--signal=USR1", number])
    said("came 2")
    cluster.login(["scancel", "--batch", "--signal=USR1", number])
    (work / "stop").touch()
    said("counted 2")
