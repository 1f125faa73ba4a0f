"""Slurm's prolog on real nodes: it takes away from jobs what no job could work with, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster

JOB = "#!/bin/bash\nsrun hostname\n"


def drained(cluster: Cluster) -> dict[str, str]:
    """Nodes out of service, and why."""
    shown = cluster.login(["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]).stdout.splitlines()
    rows = [line.split("|") for line in shown]
    return {node: reason for node, state, reason in rows if state.startswith("drain")}


@pytest.fixture(name="node")
def _node(cluster: Cluster, opt: Path) -> str:
    """One whose prolog is ours, as the others'."""
    cluster.configure(f"Prolog={opt}/prolog.d/ddplaunch")
    return "n2"


def full_shm(cluster: Cluster, node: str) -> None:
    """No byte can be shared."""
    cluster.fill(node, "/dev/shm")


def full_tmp(cluster: Cluster, node: str) -> None:
    """No file can be written."""
    cluster.fill(node, "/tmp")


def plain_null(cluster: Cluster, node: str) -> None:
    """A file where the device was."""
    plain = cluster.folder / "plain"
    plain.touch()
    cluster.run(node, ["mount", "--bind", plain, "/dev/null"])


def lo_down(cluster: Cluster, node: str) -> None:
    """Nobody finds himself."""
    cluster.run(node, ["ip", "link", "set", "lo", "down"])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (full_shm, "ddplaunch: cannot write to /dev/shm: No space left on device"),
        pytest.param(
            full_tmp, "ddplaunch: cannot write to /tmp: No space left on device", marks=pytest.mark.whole
        ),
        pytest.param(plain_null, "ddplaunch: /dev/null is not the null device", marks=pytest.mark.whole),
        pytest.param(lo_down, "ddplaunch: the interface lo is down", marks=pytest.mark.whole),
    ],
)
def test_a_node_on_which_no_job_could_run_is_drained(
    cluster: Cluster, node: str, spoil: Callable[[Cluster, str], None], reason: str
) -> None:
    """The administrator reads why; the job waits instead of dying there."""
    spoil(cluster, node)

    job = cluster.submit(JOB, "--nodes=3")
    cluster.until(lambda: bool(drained(cluster)), "a node is drained", 20)

    assert {node: reason} == drained(cluster)
    cluster.until(lambda: cluster.state(job) == "PENDING", "the job waits", 20)
    if spoil is plain_null:
        cluster.run(node, ["umount", "/dev/null"])


def no_python(cluster: Cluster, node: str) -> None:
    """What is called python3 runs nothing."""
    cluster.run(node, ["mount", "--bind", "/bin/false", "/usr/bin/python3"])


def no_agent(cluster: Cluster, node: str) -> None:
    """Somebody moved the folder away."""
    empty = cluster.folder / "empty"
    empty.touch()
    cluster.run(node, ["mount", "--bind", empty, cluster.folder / "opt/agent.pyz"])


@pytest.mark.parametrize("spoil", [no_python, pytest.param(no_agent, marks=pytest.mark.whole)])
def test_what_cannot_be_told_drains_nothing(
    cluster: Cluster, node: str, spoil: Callable[[Cluster, str], None]
) -> None:
    """A prolog that cannot work lets the job pass, on a node that is not even sound."""
    spoil(cluster, node)
    cluster.fill(node, "/dev/shm")

    job = cluster.submit(JOB, "--nodes=3")

    assert "COMPLETED" == cluster.ended(job)
    assert {} == drained(cluster)
    for place in ("/usr/bin/python3", cluster.folder / "opt/agent.pyz"):
        cluster.run(node, ["umount", place], check=False)


def test_a_neighbour_who_fills_shared_memory_drains_nothing(cluster: Cluster, node: str, work: Path) -> None:
    """While another job runs there it may be that job's doing, and pass with it."""
    cluster.submit("#!/bin/bash\nsleep 60\n", f"--nodelist={node}")
    cluster.until(lambda: "sleep 60" in cluster.processes(node).values(), "its prolog is over", 20)
    cluster.fill(node, "/dev/shm")

    job = cluster.submit(JOB, f"--nodelist={node}", cwd=work)

    assert "COMPLETED" == cluster.ended(job)
    assert {} == drained(cluster)


def test_the_task_prolog_has_torch_remember(cluster: Cluster, opt: Path, work: Path) -> None:
    """Every task gets the recorder's size, and who has set one keeps it."""
    cluster.configure(f"TaskProlog={opt}/task_prolog")
    script = "#!/bin/bash\nexport TORCH_FR_BUFFER_SIZE=7\nsrun sh -c 'env | grep ^TORCH_ | sort'\n"

    job = cluster.submit(script, "--nodes=2", cwd=work)

    assert "COMPLETED" == cluster.ended(job)
    said = sorted((work / f"slurm-{job}.out").read_text().split())
    assert ["TORCH_FR_BUFFER_SIZE=7"] * 2 + ["TORCH_NCCL_TRACE_BUFFER_SIZE=2000"] * 2 == said


@pytest.mark.whole
def test_both_may_stand_in_a_folder_by_a_link(cluster: Cluster, opt: Path) -> None:
    """As documented: linked into a folder of prologs they find the agent, on every node of an allocation."""
    site = cluster.folder / "site"
    for kind in ("prolog", "epilog"):
        (site / f"{kind}.d").mkdir(parents=True, exist_ok=True)
        link = site / f"{kind}.d/ddplaunch"
        link.unlink(missing_ok=True)
        link.symlink_to(opt / f"{kind}.d/ddplaunch")
    cluster.configure(f"Prolog={site}/prolog.d/*", f"Epilog={site}/epilog.d/*", "PrologFlags=Alloc")
    cluster.restart_controller()
    cluster.idle()
    leave = "#!/bin/bash\nsrun sh -c 'mkdir /tmp/ddplaunch-$SLURM_JOB_ID'\n"

    assert "COMPLETED" == cluster.ended(cluster.submit(leave, "--nodes=3"))
    assert {node: [] for node in cluster.nodes} == {node: cluster.leftovers(node) for node in cluster.nodes}
    lo_down(cluster, "n3")
    cluster.submit("#!/bin/bash\nhostname\n", "--nodes=3")  # no step ever reaches n3
    cluster.until(lambda: "n3" in drained(cluster), "n3 is drained", 20)
    cluster.configure()
    cluster.restart_controller()  # which learns of PrologFlags only at its start
