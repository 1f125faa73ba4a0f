"""The images of docker/ as strict clusters run them: any user, only /tmp to write to, no shell."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cache import CACHE
from tests.cluster.kubernetes import docker, images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.gates import PLAIN
from tests.cluster.kubernetes.pods import ended, pod

USER = 12345
"""Nobody whom an image knows."""
STRICT = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--user", f"{USER}:0"]
DIGITS = images.ROOT / "examples/digits"
READ_ONLY = {"readOnlyRootFilesystem": True}
TEMPLATE = {
    "spec": {
        "initContainers": [{"name": "gate", "securityContext": READ_ONLY}],
        "containers": [{"name": "trainer", "securityContext": READ_ONLY}],
    }
}
ROOM = 25 << 30
"""Bytes: the image here, packed and unpacked in a node, and what pip keeps meanwhile."""


@pytest.fixture(name="launcher", scope="module")
def _launcher(cluster: Cluster) -> str:
    """Its image without a shell, here and in the first worker."""
    return _without_shell(cluster, images.python_image("launcher"))


def _without_shell(cluster: Cluster, tag: str) -> str:
    if not cluster.ours:
        pytest.skip("puts an image into a node, which only our own take; unset KUBECONFIG")
    found = images.without_shell(tag)
    images.load(cluster.workers[0], found)
    return found


@pytest.fixture(name="strict")
def _strict(cluster: Cluster) -> Iterator[str]:
    """A namespace in which Pod Security `restricted` is enforced."""
    with cluster.namespace(**{"pod-security.kubernetes.io/enforce": "restricted"}) as name:
        yield name
        print(cluster.describe(name))  # shown when the test failed


def _said(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [*STRICT, *words], env=docker.environment(), capture_output=True, text=True, timeout=300, check=False
    )
    said = done.stdout + done.stderr
    assert code == done.returncode, said
    return said


@pytest.mark.whole
def test_the_launchers_image_starts_as_anybody(launcher: str) -> None:
    """It renders, keeps a list of jobs in /tmp, and says why it starts none on a machine without a shell."""
    here = ("--volume", f"{images.ROOT / 'examples/hello'}:/work:ro", launcher)

    assert "#SBATCH --nodes=2" in _said(*here, "render", "job.yaml", "--to", "slurm")
    assert "no jobs yet" in _said(*here, "list")
    assert "are started by sh, which is not on PATH" in _said(*here, "submit", "job.yaml", code=106)


@pytest.mark.whole
def test_the_agents_image_starts_as_anybody(cluster: Cluster) -> None:
    """So does py-spy in it."""
    agent = _without_shell(cluster, images.python_image("agent"))

    assert "ddplaunch's agent" in _said(agent, "--help")
    assert "py-spy 0" in _said("--entrypoint", "py-spy", agent, "--version")


@pytest.mark.whole
def test_a_pod_without_a_shell_sends_a_job_without_one(cluster: Cluster, launcher: str, strict: str) -> None:
    """Both under `restricted`, as anybody: the launcher in a pod follows the job, whose gate passes."""
    trainer = _without_shell(cluster, images.TRAINER)
    job = {
        "apiVersion": "ddplaunch/v1",
        "name": "job",
        "nodes": 2,
        "image": trainer,
        "source": ["train.py"],
        "command": ["train.py"],
        **PLAIN,
        "kubernetes": _options(cluster.workers[0], strict),
    }
    files = {"job.yaml": json.dumps(job), "train.py": ""}
    work = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "work"}, "data": files}
    bind = ["create", "rolebinding", "edit", "--clusterrole=edit", f"--serviceaccount={strict}:default"]
    cluster.kubectl(*bind, "-n", strict)
    sends = _strict_pod(cluster.workers[0], launcher, ["doctor", "job.yaml", "--to", "kubernetes"])
    cluster.apply(work, sends, namespace=strict)

    (state,) = ended(cluster, strict, "sends")["containerStatuses"]

    said = cluster.kubectl("logs", "-n", strict, "sends")
    assert 0 == state["state"]["terminated"]["exitCode"], said


def _options(machine: str, namespace: str) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "image_pull_policy": "Never",
        "node_selector": {"kubernetes.io/hostname": machine},
        "restricted": True,
        "run_as_user": USER,
        "pod_template": TEMPLATE,
    }


def _strict_pod(machine: str, image: str, words: list[str]) -> dict[str, Any]:
    """One that runs these words of the launcher beside the ConfigMap `work`."""
    found = pod("sends", machine, image=image)
    closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **READ_ONLY}
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "work", "mountPath": "/work"}]
    (container,) = found["spec"]["containers"]
    container |= {"command": ["ddplaunch", *words], "securityContext": closed, "volumeMounts": mounts}
    found["spec"] |= {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "work", "configMap": {"name": "work"}}],
    }
    return found


@pytest.mark.whole
@pytest.mark.timeout(2400)
def test_the_trainers_image_trains_as_anybody(cluster: Cluster, strict: str, tmp_path: Path) -> None:
    """The digits: in docker by its own command, and under `restricted` by the job file of the example."""
    if not cluster.ours:
        pytest.skip("puts an image into a node, which only our own take; unset KUBECONFIG")
    if shutil.disk_usage(CACHE).free < ROOM:
        pytest.skip(f"needs {ROOM >> 30} GiB of free disk for an image with torch")
    machine = cluster.workers[0]
    with images.trainer_with_torch() as whole:
        trainer = images.without_shell(whole)
        try:
            assert "epoch 20" in _said(trainer)
            images.load(machine, trainer, seconds=900)
            said = _digits(cluster, trainer, _options(machine, strict), tmp_path)
        finally:
            images.unload(machine, trainer)
            images.remove(trainer)
    assert "[0/0] epoch 20" in said


def _digits(cluster: Cluster, image: str, options: dict[str, Any], work: Path) -> str:
    """What is said of the example's own job file with these options."""
    job = yaml.safe_load((DIGITS / "job.yaml").read_text())
    (work / "job.yaml").write_text(json.dumps(job | {"image": image, "kubernetes": options}))
    shutil.copy(DIGITS / "train.py", work)
    words: list[str | Path] = ["ddplaunch", "submit", work / "job.yaml", "--to", "kubernetes", "--wait"]
    done = cluster.run(words, timeout=400, env={"XDG_STATE_HOME": str(work / "state")})
    return done.stdout + done.stderr
