"""One cluster for all tests of a run; each test finds it as new, whatever the test before did to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster, missing
from tests.cluster.slurm.gate_jobs import FIXED, Start
from tests.cluster.slurm.jobs import Job
from tests.cluster.slurm.machines import ROOT, ClusterError

TaskProlog = Callable[[str], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for two minutes begins first: behind the others it would keep one cluster for itself."""
    items.sort(key=lambda item: item.path.name != "test_signal.py")


@pytest.fixture(name="session_clusters", scope="session")
def _session_clusters() -> Iterator[list[Cluster]]:
    """The last one is in use; one that cannot be restored is replaced."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    clusters = [Cluster.up()]
    yield clusters
    clusters[-1].down()


@pytest.fixture(name="cluster")
def _cluster(session_clusters: list[Cluster]) -> Iterator[Cluster]:
    """Three idle nodes. A test that leaves a process on one of them fails."""
    cluster = session_clusters[-1]
    yield cluster
    print(cluster.logs())  # shown when the test failed
    try:
        cluster.restore()
        cluster.until(lambda: not _strays(cluster), "no process is left", 5, lambda: str(_strays(cluster)))
    except ClusterError:
        cluster.down()
        session_clusters.append(Cluster.up())
        raise
    _empty(cluster)


@pytest.fixture(name="apart")
def _apart(cluster: Cluster, work: Path) -> Iterator[Path]:
    """A folder of the first node's that the second has, too: another, under the same name."""
    cluster.run("n2", ["mount", "-t", "tmpfs", "-o", "mode=1777,size=64m", "tmpfs", work])
    yield work
    cluster.run("n2", ["umount", "--lazy", work])


def _strays(cluster: Cluster) -> dict[str, list[str]]:
    found = {node: list(cluster.processes(node).values()) for node in cluster.nodes}
    return {node: words for node, words in found.items() if words}


def _empty(cluster: Cluster) -> None:
    for node in cluster.nodes:
        while left := cluster.leftovers(node):  # a folder is one when it is empty
            for file in left:
                path = cluster.path(node, file)
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
    for entry in cluster.shared.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@pytest.fixture(name="work")
def _work(cluster: Cluster) -> Path:
    """An empty folder that all machines see, to submit from."""
    folder = cluster.shared / "work"
    folder.mkdir()
    return folder


@pytest.fixture(name="opt")
def _opt(cluster: Cluster) -> Path:
    """Where slurm/ is installed, as an administrator would do it."""
    folder = cluster.folder / "opt"
    if not folder.exists():
        subprocess.run(
            [ROOT / "slurm/install", folder], env={**cluster.env, "PYTHON": sys.executable}, check=True
        )
    return folder


@pytest.fixture(name="task_prolog")
def _task_prolog(cluster: Cluster, work: Path) -> TaskProlog:
    """A function that has Slurm run these lines before every task."""

    def install(lines: str) -> None:
        script = work / "task-prolog"
        script.write_text(f"#!/bin/bash\n{lines}\n")
        script.chmod(0o755)
        cluster.configure(f"TaskProlog={script}")

    return install


@pytest.fixture(name="start")
def _start(cluster: Cluster, work: Path) -> Start:
    """A function that submits a job of three nodes with the ports of FIXED; none of them comes to train."""
    return lambda *options, **keys: Job.submit(cluster, work, "", *options, **{"nodes": 3, **FIXED, **keys})
