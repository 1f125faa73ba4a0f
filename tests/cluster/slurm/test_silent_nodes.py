"""Nodes on which Slurm starts a step in vain, or a part of it: who never came, and why, told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog
from tests.cluster.slurm.jobs import STEPS, Job

from ddplaunch.agent.contract import Files, Verdict

ON_N2 = '[ "$SLURMD_NODENAME" = n2 ] || exit 0\n'
HERE = "tar=$(echo /tmp/ddplaunch-$SLURM_JOB_ID-*.tar)\n"
AT_THE_GATE = f"{ON_N2}{HERE}[ -e $tar ] || exit 0\n"
AFTER_IT = f"{ON_N2}{HERE}[ ! -e $tar ] || exit 0\n"
"""The gate's step takes this file away."""
Start = Callable[[], Job]


@pytest.fixture(name="start")
def _start(cluster: Cluster, work: Path) -> Start:
    """A function that submits a job of two nodes that trains for a moment."""
    return lambda: Job.submit(cluster, work, STEPS, command=["program.py", "3"])


def ended(job: Job) -> Verdict:
    """The verdict of a job that has ended soon, without any process left."""
    state = job.ended(40)
    print(job.output)
    assert "FAILED" == state
    job.cluster.until(
        lambda: not any(map(job.cluster.processes, job.cluster.nodes)),
        "no process is left",
        10,
        lambda: str({node: job.cluster.processes(node) for node in job.cluster.nodes}),
    )
    assert "n2\n" == (job.folder / Files.FAULTY).read_text()
    return job.verdict


def seconds(job: Job, since: str) -> float:
    """From the last event of this kind to the verdict; from the hub's start, when nobody came before."""
    events = job.bundle().events
    (verdict,) = (event.at for event in events if event.kind == "verdict")
    return verdict - max((event.at for event in events if event.kind == since), default=events[0].at)


def runs(job: Job) -> None:
    """To its good end."""
    assert "COMPLETED" == job.ended(40), job.output


@pytest.mark.fault("node-missing")
def test_a_prolog_that_fails_after_the_gate(start: Start, task_prolog: TaskProlog) -> None:
    """The other has started torchrun by then, and is ended. The hint shows where to look."""
    task_prolog(f"{AFTER_IT}exit 1")
    job = start()

    found = ended(job)
    assert ("node-missing", [1], "launch") == (found.code, found.nodes, found.where)
    assert found.sentence == (
        "node 1 (n2) passed the gate and never started its ranks: TaskProlog failed status=1 "
        "(srun: Exited with exit code 1)"
    )
    assert seconds(job, "release") < BUSY * 4
    shown = job.cluster.run("n2", ["sh", "-c", "scontrol show config | grep -i prolog"]).stdout
    assert "`scontrol show config | grep -i prolog`" in found.hint
    assert f"TaskProlog              = {job.folder.parent}/task-prolog" in shown
    task_prolog("true")
    runs(start())


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_daemon_that_dies_after_the_gate(cluster: Cluster, start: Start, task_prolog: TaskProlog) -> None:
    """srun ends the step on the other node as well, which is no node that was lost."""
    task_prolog(f"{AT_THE_GATE}kill -KILL $(pgrep -x slurmd)")
    job = start()
    job.said("ddplaunch verdict")

    assert ("node-missing", [1]) == (job.verdict.code, job.verdict.nodes)
    assert "never started its ranks: srun: Task launch failed: " in job.verdict.sentence
    assert "see whether slurmd runs on that node" in job.verdict.hint
    task_prolog("true")
    cluster.restore()
    runs(start())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("exit 3", "TaskProlog failed status=3 (srun: Exited with exit code 3)"),
        pytest.param(
            "truncate -s 20000 $tar",
            "is /tmp full? (srun: Exited with exit code 79)",
            marks=pytest.mark.whole,
        ),
        pytest.param(
            "mkdir ${tar%.tar}",
            "is /tmp full? (srun: Exited with exit code 79)",
            marks=pytest.mark.whole,
        ),
    ],
)
@pytest.mark.fault("node-missing")
def test_a_node_that_ends_before_it_comes_to_the_gate(
    start: Start, task_prolog: TaskProlog, spoil: str, said: str
) -> None:
    task_prolog(f"{AT_THE_GATE}{spoil}")
    job = start()

    found = ended(job)
    assert ("node-missing", [1], "gate") == (found.code, found.nodes, found.where)
    assert found.sentence.startswith("node 1 (n2) never came to the gate: ")
    assert found.sentence.endswith(said)
    assert seconds(job, "check-in") < BUSY * 5
