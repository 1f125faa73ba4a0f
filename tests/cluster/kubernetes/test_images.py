"""The images of docker/, built on a Debian of our own and used where they are meant to be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.kubernetes import docker, images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.pods import ended, pod

from ddplaunch.render.archive import agent_archive

HELLO = images.ROOT / "examples/hello"


def _built(cluster: Cluster, name: str) -> str:
    if not cluster.ours:
        pytest.skip("puts an image into a node, which only our own take; unset KUBECONFIG")
    tag = images.python_image(name)
    images.load(cluster.workers[0], tag)
    return tag


@pytest.fixture(name="launcher", scope="module")
def _launcher(cluster: Cluster) -> str:
    """The image, here and in the first worker."""
    return _built(cluster, "launcher")


@pytest.fixture(name="agent", scope="module")
def _agent(cluster: Cluster) -> str:
    """The image, here and in the first worker."""
    return _built(cluster, "agent")


@pytest.mark.whole
def test_the_launcher_image_renders_what_the_launcher_does(launcher: str, tmp_path: Path) -> None:
    """Byte for byte, as an ordinary user, from a job file on a volume."""
    program = Path(sys.executable).parent / "ddplaunch"
    words = ["render", "job.yaml", "--to", "slurm"]

    here = subprocess.run([program, *words], cwd=HELLO, capture_output=True, text=True, check=True).stdout
    there = docker.docker("run", "--rm", "--volume", f"{HELLO}:/work:ro", launcher, *words)

    assert here == there
    assert "1000" == docker.docker("run", "--rm", "--entrypoint", "id", launcher, "-u").strip()


@pytest.mark.whole
def test_the_launcher_image_speaks_with_its_own_cluster(
    cluster: Cluster, namespace: str, launcher: str
) -> None:
    """Inside a pod it finds the API server by its service account, and asks for a job that is not there."""
    bind = ["create", "rolebinding", "look", "--clusterrole=view", f"--serviceaccount={namespace}:default"]
    cluster.kubectl(*bind, "-n", namespace)
    asks = pod("ask", cluster.workers[0], image=launcher)
    asks["spec"]["containers"][0]["command"] = ["ddplaunch", "status", f"kubernetes://{namespace}/none"]
    cluster.apply(asks, namespace=namespace)

    (state,) = ended(cluster, namespace, "ask")["containerStatuses"]

    said = cluster.kubectl("logs", "-n", namespace, "ask")
    assert 102 == state["state"]["terminated"]["exitCode"], said


@pytest.mark.whole
def test_the_agent_image_holds_the_agent(agent: str) -> None:
    """The same file that every job carries."""
    words = ["docker", "run", "--rm", "--entrypoint", "cat", agent, "/opt/agent/agent.pyz"]

    held = subprocess.run(words, env=docker.environment(), capture_output=True, check=True).stdout

    assert agent_archive() == held


@pytest.mark.whole
def test_the_agent_image_looks_into_a_running_pod(cluster: Cluster, namespace: str, agent: str) -> None:
    """py-spy shows where a pod's Python is, which has no py-spy itself and need not be restarted."""
    program = "import time\ndef stuck():\n    time.sleep(600)\nstuck()"
    cluster.apply(pod("p", cluster.workers[0], program), namespace=namespace)
    cluster.kubectl("wait", "pod", "p", "-n", namespace, "--for=condition=Ready", "--timeout=60s", timeout=70)

    words = ["debug", "p", "-n", namespace, "--target=main", "--profile=general", "--container=look"]
    words += [f"--image={agent}", "--image-pull-policy=Never", "--quiet"]
    cluster.kubectl(*words, "--", "py-spy", "dump", "--pid", "1")

    def said() -> str:
        return cluster.kubectl("logs", "p", "-n", namespace, "--container=look", check=False)

    cluster.until(lambda: "stuck (<string>:3)" in said(), "py-spy has looked", 120, said)
