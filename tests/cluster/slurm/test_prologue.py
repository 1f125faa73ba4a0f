"""The sourced prologue in batch scripts that know nothing else of ddplaunch, on real nodes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.machines import ROOT

SHOW = """
env | grep -E '^(MASTER|NCCL|GLOO|DDPLAUNCH|_ddplaunch)' | sort
declare -F
echo after
"""
TRAIN = """
srun torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\
    {program} --epochs 1
"""


class Script:
    """A batch script that sources the prologue, and what became of it."""

    def __init__(self, cluster: Cluster, opt: Path, work: Path) -> None:
        self._cluster = cluster
        self._work = work
        self._source = f"source {opt}/prologue.sh"

    def run(self, after: str, *options: str, before: str = "set -eu") -> tuple[str, str]:
        """Exit code as Slurm tells it, and output."""
        text = f"#!/bin/bash\n{before}\n{self._source}\n{after}"
        job = self._cluster.submit(text, *(options or ["--nodes=3"]), cwd=self._work)
        self._cluster.ended(job, 120)
        shown = self._cluster.login(["scontrol", "show", "job", str(job)]).stdout
        code = next(word for word in shown.split() if word.startswith("ExitCode="))
        return code, (self._work / f"slurm-{job}.out").read_text()


@pytest.fixture(name="script")
def _script(cluster: Cluster, opt: Path, work: Path) -> Script:
    return Script(cluster, opt, work)


def settled(output: str) -> dict[str, str]:
    """What `SHOW` printed."""
    lines = [line.partition("=") for line in output.splitlines() if not line.startswith("[ddplaunch] ")]
    return {name: value for name, equals, value in lines if equals}


def test_a_clear_way_is_settled_and_explained(cluster: Cluster, script: Script) -> None:
    """The script goes on with address and port of node 0 and nothing else of ours; no file stays."""
    code, output = script.run(SHOW)

    found = settled(output)
    assert ("ExitCode=0:0", True) == (code, output.endswith("after\n")), output
    assert ["MASTER_ADDR", "MASTER_PORT"] == list(found)
    assert cluster.address("n1") == found["MASTER_ADDR"]
    assert "declare -f" not in output
    assert "[ddplaunch] MASTER_ADDR=10.99.0.11: node 0 is reached there by the other nodes\n" in output
    assert {node: [] for node in cluster.nodes} == {node: cluster.leftovers(node) for node in cluster.nodes}


@pytest.mark.whole
def test_plain_torchrun_trains_behind_it(script: Script) -> None:
    """Two nodes of two ranks meet where the gate said, and train."""
    program = ROOT / "examples/digits/train.py"

    code, output = script.run(TRAIN.format(program=program), "--nodes=2", "--mem=3000")

    assert "ExitCode=0:0" == code, output
    assert "accuracy" in output, output


@pytest.mark.whole
def test_one_node_needs_no_other(script: Script) -> None:
    """A job of a single node has its gate, too."""
    code, output = script.run(SHOW, "--nodes=1")

    assert ("ExitCode=0:0", ["MASTER_ADDR", "MASTER_PORT"]) == (code, list(settled(output))[:2]), output


def test_more_tasks_per_node_are_no_more_nodes(script: Script) -> None:
    """The script's own wishes for its steps are not the gate's."""
    options = [
        "--nodes=2",
        "--ntasks-per-node=2",
        "--distribution=cyclic",
        "--gpus-per-node=2",
        "--export=NIL",
    ]

    code, output = script.run(SHOW, *options, before=f"export PATH={os.environ['PATH']}")

    assert ("ExitCode=0:0", True) == (code, output.endswith("after\n")), output


def test_a_job_at_fault_ends_with_the_verdict(cluster: Cluster, script: Script) -> None:
    """The script does not go on; it ends with the code of a misconfigured job and says why."""
    cluster.hosts("n1").write_text("127.0.0.1 localhost\n127.0.1.1 n1\n10.99.0.12 n2\n10.99.0.13 n3\n")

    code, output = script.run(SHOW)

    assert ("ExitCode=30:0", False) == (code, "after" in output), output
    assert "[ddplaunch] master-is-loopback: node 0 (n1)'s own name n1 resolves to 127.0.1.1" in output
    assert {node: [] for node in cluster.nodes} == {node: cluster.leftovers(node) for node in cluster.nodes}


@pytest.mark.whole
def test_a_network_at_fault_ends_with_the_verdict(cluster: Cluster, script: Script) -> None:
    """A node that nobody hears of is waited for, for as long as the script says, and named."""
    cluster.nft("n3", "tcp dport 1-65535 drop")

    code, output = script.run(SHOW, before="export DDPLAUNCH_GATE_TIMEOUT=20")

    assert ("ExitCode=20:0", False) == (code, "after" in output), output
    assert re.search(r"^\[ddplaunch\] waiting for node 2 \(n3\) \(\d+ s\)$", output, re.MULTILINE), output
    assert "node 2 (n3)" in output[output.index("ddplaunch verdict") :], output


def test_a_full_disk_is_a_nodes_fault(cluster: Cluster, script: Script) -> None:
    """Where not even the agent can be written, the script ends soon, with Slurm's own word for which node."""
    cluster.fill("n2", "/tmp")

    code, output = script.run(SHOW)

    assert ("ExitCode=20:0", False) == (code, "after" in output), output
    assert "sbcast could not bring the agent to all nodes: is /tmp full" in output
    assert "n2" in output
    assert {node: [] for node in cluster.nodes} == {node: cluster.leftovers(node) for node in cluster.nodes}


def test_an_agent_that_is_missing_is_named(script: Script) -> None:
    """Nothing is guessed: the script ends, with a sentence."""
    code, output = script.run(SHOW, before="export DDPLAUNCH_AGENT=/no/agent.pyz")

    assert ("ExitCode=79:0", True) == (code, "there is no agent /no/agent.pyz on n1" in output), output


@pytest.mark.whole
@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        ("export DDPLAUNCH_GATE_TIMEOUT=soon", 30, "DDPLAUNCH_GATE_TIMEOUT is 'soon'"),
        ("export PATH=/no/bin", 79, "no Python 3.9 or newer on PATH on n1"),
    ],
)
def test_what_else_it_cannot_work_with_is_named(script: Script, before: str, code: int, said: str) -> None:
    found, output = script.run(SHOW, before=before)

    assert (f"ExitCode={code}:0", True) == (found, said in output), output


@pytest.mark.parametrize(
    ("shell", "said", "code"),
    [
        (["bash", "-c", "source {file}; echo after"], "not inside a job of Slurm", 30),
        (["sh", "-c", ". {file}; echo after"], "must be run by bash", 30),
    ],
)
def test_elsewhere_it_refuses(cluster: Cluster, opt: Path, shell: list[str], said: str, code: int) -> None:
    """Outside of a job, and in another shell than bash, it says so and ends the script."""
    words = [word.replace("{file}", f"{opt}/prologue.sh") for word in shell]

    done = cluster.login(words, check=False)

    assert (code, True, "") == (done.returncode, said in done.stderr, done.stdout), done.stderr


def test_an_interactive_shell_stays_open(cluster: Cluster, opt: Path) -> None:
    """Who sources it by hand reads why not, and keeps the shell with the code in it."""
    words = ["bash", "--norc", "-ic", f"source {opt}/prologue.sh; echo code $?"]

    assert "code 30\n" == cluster.login(words).stdout
