"""What the cluster is made of and what its pods run: built here, for there may be nowhere to pull from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cache import CACHE
from tests.cluster.kubernetes import docker
from tests.cluster.kubernetes.cache import ClusterError, locked, say

ROOT = docker.ROOT
_GO = (1, 24)
BIN = CACHE / "kind-node/bin"
"""kind, kubectl and helm."""
RELEASE = os.environ.get("DDPLAUNCH_TEST_KUBERNETES", "")
"""Of a Kubernetes that is not the usual one, "1.35": docker/kind-node has a folder for it."""
NODE = f"ddplaunch-test/kind-node:{RELEASE or 'local'}"
BASE = "ddplaunch-test/python:bookworm"
"""A minimal Debian with its python3; what the images of docker/ are made on in the tests."""
DEBIAN = "ddplaunch-test/debian:bookworm"
"""What the nodes are made on, with the programs of a firewall."""
PIP = "ddplaunch-test/python-pip:bookworm"
"""The same with pip, for the stage in which images are built."""
WHEELS = ROOT / "build/wheels"
_LOCKS = [ROOT / f"requirements/{name}.txt" for name in ("build", "launcher", "agent")]
TRAINER = os.environ.get("DDPLAUNCH_TEST_IMAGE") or "ddplaunch-test/trainer:local"
"""docker/trainer without torch, which pods take from the node: see `mounts`."""


def missing() -> str:
    """Why the images cannot be built here; empty when they can."""
    tools = ("go", "debootstrap", "jq", "docker")
    absent = [tool for tool in tools if docker.which(tool) is None]
    if absent:
        return f"needs {', '.join(absent)} (scripts/system-packages and scripts/go-toolchain install them)"
    if os.geteuid() != 0:
        return "needs root, to install a Debian into a folder"
    said = docker.run(["go", "env", "GOVERSION"])
    major, minor = (int(part) for part in re.findall(r"\d+", said)[:2])
    return "" if (major, minor) >= _GO else f"needs go >= {'.'.join(map(str, _GO))}, found {said.strip()}"


def mounts() -> list[Path]:
    """Folders of this machine with its Python and torch, which nodes show under the same paths."""
    return sorted({Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})


def compile_torch() -> None:
    """Have Python keep what it compiles of torch: pods cannot write there, so each rank would do it."""
    modules = "torch.distributed.run, torch.nn.parallel, torch.optim"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", f"import {modules}"], env=env, check=False)


def build() -> None:
    """Build what is not there yet. It dies with this process, however that ends."""
    script = ROOT / "docker/kind-node/build"
    doing = subprocess.Popen(
        ["setpriv", "--pdeathsig=TERM", script, NODE],
        env={**docker.environment(), "DDPLAUNCH_CACHE": str(CACHE)},
        start_new_session=True,
    )
    try:
        if doing.wait() != 0:
            raise ClusterError(f"{script.relative_to(ROOT)} failed, see above")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(doing.pid, signal.SIGTERM)
        doing.wait()  # it takes back what it has begun
    image("trainer", REQUIREMENTS="")


def image(name: str, tag: str = "local", target: str = "", **arguments: str) -> str:
    """Build docker/NAME on our own base; returns its tag. What did not change is not built again.

    Bases go by the hash of their content: where one is missing, nothing of its name is pulled.
    """
    tag = f"ddplaunch-test/{name}:{tag}"
    words = ["docker", "build", "--quiet", "--force-rm", "--network", "host", "--tag", tag]
    bases = {"BASE": BASE, "BUILD": BASE, **arguments}
    inspect = ["docker", "image", "inspect", "--format", "{{.Id}}"]
    bases |= {key: docker.run([*inspect, bases[key]]).strip() for key in ("BASE", "BUILD")}
    for key, value in bases.items():
        words += ["--build-arg", f"{key}={value}"]
    words += ["--target", target] if target else []
    docker.run(
        [*words, "--file", ROOT / f"docker/{name}/Dockerfile", ROOT],
        timeout=1500,  # torch is large
        extra={"DOCKER_BUILDKIT": "0"},
    )
    return tag


def derived(base: str, tag: str, lines: str) -> str:
    """Build an image of another and these lines of a Dockerfile; returns its tag."""
    with tempfile.TemporaryDirectory() as empty:
        return _derived(base, tag, lines, Path(empty))


def _derived(base: str, tag: str, lines: str, folder: Path) -> str:
    docker.run(
        ["docker", "build", "--quiet", "--force-rm", "--tag", tag, "--file", "-", folder],
        stdin=f"FROM {base}\n{lines}".encode(),
        extra={"DOCKER_BUILDKIT": "0"},
    )
    return tag


def debian(tag: str, *packages: str) -> str:
    """Build an image of a minimal Debian with these packages, unless it is there; returns its tag."""
    docker.run([ROOT / "docker/kind-node/debian", tag, *packages], timeout=900)
    return tag


def without_shell(tag: str) -> str:
    """Build the same image less its shells, as many a hardened image is; returns its tag."""
    shells = "rm -f /usr/bin/bash /usr/bin/rbash /usr/bin/dash /usr/bin/sh"
    return derived(tag, f"{tag}-no-shell", f"USER 0\nRUN {shells}\nUSER 1000:1000\n")


@contextlib.contextmanager
def trainer_with_torch() -> Iterator[str]:
    """Build docker/trainer whole, which takes minutes, and yield its tag; its 6 GB go afterwards.

    Its packages come from where pip finds them by default, past this machine's own certificates.
    """
    pip = PIP
    certificates = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
    if certificates:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(certificates, Path(folder) / "certificates")
            lines = "COPY certificates /etc/ssl/certs/ca-certificates.crt\n"
            pip = _derived(PIP, "ddplaunch-test/python-pip:here", lines, Path(folder))
    index = os.environ.get("PIP_INDEX_URL")
    found = {"BUILD": pip, "PIP_ARGS": f"--index-url {index}" if index else ""}
    tags = []
    try:
        tags.append(image("trainer", "packages", target="packages", **found))
        tags.append(image("trainer", "torch", **found))
        remove(tags.pop(0))  # the same 6 GB again
        yield tags[-1]
    finally:
        remove(*tags)


def remove(*tags: str) -> None:
    """Remove these images, and what nothing else is made of."""
    if tags:
        docker.docker("rmi", *tags)


def python_image(name: str) -> str:
    """As `image`, for those that install Python packages: from WHEELS, as containers may reach no index."""
    with locked("wheels", "wheels are fetched", 600):
        _fetch_wheels()
    found = f"--no-index --find-links /src/{WHEELS.relative_to(ROOT)}"
    return image(name, BUILD=PIP, PIP_ARGS=found)


def _fetch_wheels() -> None:
    """What the launcher and the agent's image are made of: the files of the locks."""
    lock = hashlib.sha256(b"".join(each.read_bytes() for each in _LOCKS)).hexdigest()
    stamp = WHEELS / "lock"
    if stamp.exists() and stamp.read_text() == lock:
        return
    say("fetches wheels for the images")
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    words: list[str | Path] = [sys.executable, "-m", "pip", "download", "--require-hashes", "--quiet"]
    for each in _LOCKS:
        docker.run([*words, "--only-binary=:all:", "--dest", WHEELS, "-r", each], timeout=600)
    stamp.write_text(lock)


def load(node: str, tag: str = TRAINER, seconds: float = 300.0) -> None:
    """Put an image into a node."""
    into = f"docker save {tag} | docker exec --interactive {node} ctr --namespace=k8s.io images import -"
    docker.run(["bash", "-o", "pipefail", "-c", into], timeout=seconds)


def unload(node: str, tag: str) -> None:
    """Take it away again, by both the names that it has there; docker still has it here."""
    names = [f"docker.io/{tag}", docker.docker("image", "inspect", "--format", "{{.Id}}", tag).strip()]
    docker.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "rm", "--sync", *names, check=False)
