"""The Kubernetes backend of this process on the cluster of the tests, and jobs that need little training."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.jobs_of_others import Training
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import with_torch
from tests.cluster.kubernetes.settings import SHARED

from ddplaunch.backends.job import Handle, Job
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.plan.plan import make
from ddplaunch.render import Rendered, render
from ddplaunch.spec.load import load

Write = Callable[..., Path]
Make = Callable[..., Rendered]

As = Callable[[dict[str, Any]], "Cli"]

SLEEP = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"
"""A program whose ranks go on until somebody ends them."""
NEVER = {"gpus": 64}
"""Resources that no machine has: such a job stands, and does nothing."""


@pytest.fixture(name="claim")
def _claim(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A claim on storage that all machines see."""
    if not cluster.ours:
        pytest.skip("needs a folder that all machines see, which only our own have; unset KUBECONFIG")
    name = f"runs-{namespace}"
    common = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    path = {"path": f"{SHARED}/{namespace}", "type": "DirectoryOrCreate"}
    spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": path}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    asks = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "runs"}, "spec": asks}
    cluster.apply(volume, claim, namespace=namespace)
    yield "runs"
    cluster.kubectl("delete", "persistentvolume", name, "--wait=false")


@pytest.fixture(name="write")
def _write(cluster: Cluster, namespace: str, tmp_path: Path) -> Write:
    """Writes a job file. With a `program` it runs that with the real torchrun, else nothing would train."""

    def write(name: str = "digits", program: str | None = None, **keys: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        options = {"namespace": namespace, "image_pull_policy": "IfNotPresent", **keys.pop("kubernetes", {})}
        spec: dict[str, Any] = {"apiVersion": "ddplaunch/v1", "name": name, "nodes": 2}
        spec |= {"image": images.TRAINER, "command": ["train.py"]}
        if program is not None:
            (folder / "train.py").write_text(program)
            spec |= {**with_torch(cluster), "source": ["train.py"]}
            # That torch is all right, the gate says in other tests; importing it takes both CPUs for seconds.
            spec["gate"] = {"skip": ["interpreter", "versions"]}
            options.setdefault("run_as_user", 0)  # the interpreter may lie below a home that is closed
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump({**spec, **keys, "kubernetes": options}))
        return path

    return write


@pytest.fixture(name="job")
def _job(write: Write) -> Make:
    """Renders it."""

    def rendered(name: str = "digits", program: str | None = None, **keys: Any) -> Rendered:
        path = write(name, program, **keys)
        return render(make(load(str(path)), "kubernetes", path.parent))

    return rendered


@pytest.fixture(name="environment")
def _environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """For commands: the cluster's, and a state folder of the test's own."""
    return {**cluster.env, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}


@pytest.fixture(name="backend")
def _backend(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesBackend]:
    """In this process."""
    monkeypatch.setenv("KUBECONFIG", environment["KUBECONFIG"])
    backend = KubernetesBackend(tmp_path / "state" / "ddplaunch")
    yield backend
    backend.close()


class Cli:
    """`ddplaunch` as a person calls it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Its output in two pipes."""
        return subprocess.Popen(
            ["ddplaunch", *map(str, words)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str | Path, seconds: float = 240) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        doing = self.start(*words)
        try:
            out, err = doing.communicate(timeout=seconds)
        finally:
            doing.kill()
        return doing.returncode, out, err


@pytest.fixture(name="cli")
def _cli(environment: dict[str, str]) -> Cli:
    return Cli(environment)


@pytest.fixture(name="as_user")
def _as_user(cluster: Cluster, namespace: str, environment: dict[str, str], tmp_path: Path) -> As:
    """`ddplaunch` as a service account that has just this Role."""

    def cli(role: dict[str, Any]) -> Cli:
        account = {"kind": "ServiceAccount", "name": "ann", "namespace": namespace}
        group, name = "rbac.authorization.k8s.io", role["metadata"]["name"]
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ann"},
            "subjects": [account],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        }
        made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ann"}}
        cluster.apply(made, role, binding, namespace=namespace)
        token = cluster.kubectl("create", "token", "ann", "--namespace", namespace).strip()
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
        path = tmp_path / "ann"
        path.write_text(yaml.safe_dump(config))
        return Cli({**environment, "KUBECONFIG": str(path)})

    return cli


@pytest.fixture(name="training")
def _training(cluster: Cluster, namespace: str) -> Training:
    """A job of anybody's."""
    return Training(cluster, namespace)


def wait(
    backend: KubernetesBackend, handle: Handle, happened: Callable[[Job], object], seconds: float = 180
) -> Job:
    """The job, once that has happened."""
    deadline = time.monotonic() + seconds
    while True:
        job = backend.job(handle)
        if happened(job):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.2)


def left(cluster: Cluster, namespace: str) -> list[str]:
    """What stands in the namespace, but for what every namespace has, and what Helm keeps for itself."""
    kinds = "jobs,pods,configmaps,services,networkpolicies,secrets"
    listed = cluster.kubectl("get", kinds, "--namespace", namespace, "--output", "name").split()
    return [name for name in listed if not name.startswith(("configmap/kube-root-ca", "secret/sh.helm."))]
