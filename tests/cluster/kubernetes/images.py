"""What the cluster is made of and what its pods run: built here, since nothing need be reachable to pull from."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.kubernetes import docker
from tests.cluster.kubernetes.cache import CACHE, ClusterError

ROOT = docker.ROOT
BIN = CACHE / "kind-node/bin"
"""kind, kubectl and helm."""
NODE = "ddplaunch-test/kind-node:local"
BASE = "ddplaunch-test/python:bookworm"
"""A minimal Debian with its python3; what the images of docker/ are made on in the tests."""
TRAINER = "ddplaunch-test/trainer:local"
"""docker/trainer without torch, which pods take from the node: see `mounts`."""


def missing() -> str:
    """Why the images cannot be built here; empty when they can."""
    tools = ("go", "debootstrap", "jq", "docker")
    absent = [tool for tool in tools if docker.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else ""


def mounts() -> list[Path]:
    """Folders of this machine with its Python and torch, which nodes show under the same paths."""
    return sorted({Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})


def build() -> None:
    """Build what is not there yet. It dies with this process, however that ends."""
    script = ROOT / "docker/kind-node/build"
    doing = subprocess.Popen(
        [script, NODE], env={**docker.environment(), "DDPLAUNCH_CACHE": str(CACHE)}, start_new_session=True
    )
    try:
        if doing.wait() != 0:
            raise ClusterError(f"{script.relative_to(ROOT)} failed, see above")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(doing.pid, signal.SIGTERM)
    build_trainer()


def build_trainer() -> None:
    """docker/trainer on our own base, without torch."""
    arguments = ["--build-arg", f"BASE={BASE}", "--build-arg", "REQUIREMENTS="]
    image("trainer", TRAINER, *arguments)


def image(folder: str, tag: str, *arguments: str) -> None:
    """Build docker/FOLDER; what did not change is not built again."""
    words = ["docker", "build", "--quiet", "--tag", tag, *arguments]
    docker.run(
        [*words, "--file", ROOT / f"docker/{folder}/Dockerfile", ROOT],
        timeout=600,
        extra={"DOCKER_BUILDKIT": "0"},
    )


def load(node: str, tag: str = TRAINER) -> None:
    """Put an image into a node."""
    environment = docker.environment()
    with subprocess.Popen(["docker", "save", tag], env=environment, stdout=subprocess.PIPE) as saved:
        words = [
            "docker",
            "exec",
            "--interactive",
            node,
            "ctr",
            "--namespace=k8s.io",
            "images",
            "import",
            "-",
        ]
        done = subprocess.run(
            words, env=environment, stdin=saved.stdout, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise ClusterError(f"{node} does not take {tag}: {done.stderr}")


def unload(node: str, tag: str = TRAINER) -> None:
    """Take it out again."""
    docker.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "rm", "--sync", f"docker.io/{tag}")
