"""Kueue, JobSet and other controllers, installed for the tests here; namespaces that they look at."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import controllers, images, pods
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import with_torch

_NSLOOKUP = r"""
USER 0
RUN printf '#!/bin/sh\nexec getent hosts "$1"\n' >/usr/bin/nslookup && chmod 755 /usr/bin/nslookup
"""


@pytest.fixture(name="kueue", scope="session")
def _kueue(cluster: Cluster) -> Iterator[None]:
    """Kueue, for plain Jobs."""
    yield from controllers.installed(cluster, controllers.KUEUE)


@pytest.fixture(name="trainer", scope="session")
def _trainer(cluster: Cluster, jobset: None) -> Iterator[None]:
    """Kubeflow Trainer, which makes JobSets."""
    yield from controllers.installed(cluster, controllers.TRAINER)


@pytest.fixture(name="training_operator", scope="session")
def _training_operator(cluster: Cluster) -> Iterator[None]:
    """training-operator v1, for PyTorchJobs, with what its workers' pods begin with."""
    if cluster.ours:
        tag = images.derived(images.TRAINER, controllers.LOOKUP, _NSLOOKUP)
        for node in cluster.workers:
            images.load(node, tag)
    yield from controllers.installed(cluster, controllers.TRAINING_OPERATOR)


@pytest.fixture(name="mpi_operator", scope="session")
def _mpi_operator(cluster: Cluster) -> Iterator[None]:
    """mpi-operator v2, for MPIJobs."""
    yield from controllers.installed(cluster, controllers.MPI_OPERATOR)


@pytest.fixture(name="lws", scope="session")
def _lws(cluster: Cluster) -> Iterator[None]:
    """LeaderWorkerSets."""
    yield from controllers.installed(cluster, controllers.LWS)


@pytest.fixture(name="namespace")
def _namespace(cluster: Cluster) -> Iterator[str]:
    """An empty one, for this test alone, which the controllers look at."""
    with cluster.namespace(**{controllers.LABEL: "true"}) as name:
        yield name
        print(cluster.describe(name))  # shown when the test failed


class Jobs:
    """`ddplaunch`, as a person calls it, for jobs of two nodes that need no torch of their own."""

    def __init__(self, cluster: Cluster, namespace: str, work: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._work = work
        self._env = {"XDG_STATE_HOME": str(work / "state")}

    def submit(self, name: str, program: str, **keys: Any) -> str:
        """Returns the handle."""
        (self._work / "train.py").write_text(program)
        torch = with_torch(self.cluster)
        values = {
            "apiVersion": "ddplaunch/v1",
            "name": name,
            "nodes": 2,
            "image": images.TRAINER,
            "source": ["train.py"],
            "command": ["train.py"],
            **torch,
            **keys,
            "volumes": [*torch["volumes"], *keys.get("volumes", [])],
            "kubernetes": {"namespace": self.namespace, **keys.get("kubernetes", {})},
        }
        self.file(name).write_text(json.dumps(values))
        return self.call("submit", self.file(name), "--to", "kubernetes").stdout.strip()

    def file(self, name: str) -> Path:
        """The job file of that job."""
        return self._work / f"{name}.yaml"

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Run it, its output in two pipes."""
        return subprocess.Popen(
            ["ddplaunch", *map(str, words)],
            env={**self.cluster.env, **self._env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it."""
        return self.cluster.run(["ddplaunch", *words], check=check, env=self._env, timeout=240)

    def status(self, handle: str) -> dict[str, Any]:
        """As scripts see it."""
        found: dict[str, Any] = json.loads(self.call("status", handle, "--json", check=False).stdout)
        return found

    def becomes(self, handle: str, state: str, detail: str = "", seconds: float = 240) -> dict[str, Any]:
        """Wait until it stands so, for a reason that has these words."""
        found: dict[str, Any] = {}

        def stands() -> bool:
            nonlocal found
            found = self.status(handle)
            return state == found["state"] and detail in found["detail"]

        self.cluster.until(stands, f"{handle} is {state} ({detail})", seconds, lambda: json.dumps(found))
        return found

    def evict(self, pod: str) -> None:
        """As a drain does it, or an administrator."""
        pods.evict(self.cluster, self.namespace, pod)

    def log(self, name: str, container: str = "trainer") -> str:
        """Of all pods that there are now."""
        selector = f"app.kubernetes.io/instance={name}"
        words = ["logs", "-n", self.namespace, "--selector", selector, "-c", container, "--tail=-1"]
        return self.cluster.kubectl(*words, "--ignore-errors", check=False)


@pytest.fixture(name="jobs")
def _jobs(cluster: Cluster, namespace: str, tmp_path: Path) -> Jobs:
    return Jobs(cluster, namespace, tmp_path)
