"""A real Kubernetes of three nodes on this machine, or whatever cluster KUBECONFIG names.

By hand, as root, from the repository's root:

    python -m tests.cluster.kubernetes up        # stays up until `down`; tests use it meanwhile
    eval "$(python -m tests.cluster.kubernetes env)"
    kubectl get nodes
    python -m tests.cluster.kubernetes down

Nodes are containers of docker with their own systemd, containerd and kubelet. They see this project's Python,
torch included, under the same paths as this machine. Each checkout has its own cluster, all have one docker.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.cache import CACHE
from tests.cluster.kubernetes import cache, docker, images, settings
from tests.cluster.kubernetes.api import Api
from tests.cluster.kubernetes.cache import ClusterError, locked, say

ROOT = docker.ROOT
_WORKERS = 2
_MOST = 4
"""Clusters of one checkout that tests start."""
_UP_SECONDS = 600.0
_BUILD_SECONDS = 3600.0


def default_name() -> str:
    """This checkout's cluster of this release."""
    place = hashlib.sha256(f"{ROOT}\n{sys.prefix}{images.RELEASE}".encode()).hexdigest()
    return os.environ.get("DDPLAUNCH_CLUSTER") or f"ddplaunch-{place[:6]}"


class Cluster:
    """One that is up, and how to speak with it."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self.kubeconfig = kubeconfig

    # --------------------------------------------------------------- commands

    @property
    def env(self) -> dict[str, str]:
        """An environment in which kubectl, helm and ddplaunch reach the cluster, and docker its nodes."""
        found = docker.environment()
        places = [str(images.BIN), str(Path(sys.executable).parent), found["PATH"]]
        return {**found, "KUBECONFIG": str(self.kubeconfig), "PATH": ":".join(places)}

    def run(
        self,
        command: Sequence[str | Path],
        stdin: str = "",
        check: bool = True,
        timeout: float = 120.0,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in that environment. With `check`, one that fails raises with what it said."""
        done = subprocess.run(
            [str(word) for word in command],
            env={**self.env, **(env or {})},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise ClusterError(f"{' '.join(map(str, command))}: exit {done.returncode}: {said}")
        return done

    def kubectl(self, *words: str | Path, stdin: str = "", check: bool = True, timeout: float = 120.0) -> str:
        """Run kubectl; returns what it says."""
        return self.run(["kubectl", *words], stdin, check, timeout).stdout

    @cached_property
    def api(self) -> Api:
        """What reads from it without kubectl."""
        return Api(self.kubeconfig)

    def get(self, kind: str, name: str = "", *, namespace: str = "", selector: str = "") -> Any:
        """Return the object of this name, or without a name the list of objects. `kind`: in the plural."""
        return self.api.get(kind, name, namespace, selector)

    def apply(self, *documents: Any, namespace: str = "default") -> None:
        """Create or change these objects."""
        text = "\n---\n".join(json.dumps(document) for document in documents)
        self.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=text)

    def until(
        self, happened: Callable[[], bool], what: str, seconds: float, found: Callable[[], str] = str
    ) -> None:
        """Wait for a condition; past the deadline raise with what was `found` instead."""
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {seconds:.0f} s: {what}. Found: {found()}")
            time.sleep(0.2)

    # --------------------------------------------------------------- nodes and namespaces

    @cached_property
    def nodes(self) -> list[str]:
        """All of them, the control plane's first."""
        found = self.get("nodes")
        label = "node-role.kubernetes.io/control-plane"
        names = [node["metadata"]["name"] for node in found]
        control = {node["metadata"]["name"] for node in found if label in node["metadata"]["labels"]}
        return sorted(names, key=lambda name: (name not in control, name))

    @cached_property
    def workers(self) -> list[str]:
        """Those on which pods may run."""
        found = {node["metadata"]["name"]: node["spec"].get("taints", []) for node in self.get("nodes")}
        return sorted(name for name, taints in found.items() if not taints)

    @property
    def ours(self) -> bool:
        """Whether its nodes are containers here, so that faults can be put into them."""
        return self.kubeconfig == kubeconfig(self.name)

    @property
    def broken(self) -> Path:
        """A file that is there while a test breaks something."""
        return _folder(self.name) / "broken"

    @contextmanager
    def namespace(self, prefix: str = "test", **labels: str) -> Iterator[str]:
        """A new one, with these labels. Afterwards it goes with all that is in it; nobody waits for that."""
        name = f"{prefix}-{os.urandom(3).hex()}"
        meta = {"name": name, "labels": {"ddplaunch-test": "true", **labels}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        try:
            yield name
        finally:
            # Pods would take their grace period, and the next test has a namespace of its own.
            self.kubectl(
                "delete",
                "pods",
                "--all",
                "--namespace",
                name,
                "--grace-period=1",
                "--wait=false",
                check=False,
            )
            self.kubectl("delete", "namespace", name, "--wait=false")

    def describe(self, namespace: str) -> str:
        """What a person would look at first when something went wrong there. Never fails."""
        selector = ("--selector", "app.kubernetes.io/managed-by=ddplaunch")
        looks = [
            ("get", "all,configmaps", "--output", "wide"),
            ("events",),
            ("logs", *selector, "--all-containers", "--prefix", "--tail=40", "--ignore-errors"),
        ]
        parts = []
        for words in looks:
            # A machine whose network was cut answers for none of its containers, each for half a minute.
            quick = ("--request-timeout=10s", "--namespace", namespace)
            try:
                parts.append(self.kubectl(*words, *quick, check=False))
            except subprocess.TimeoutExpired as slow:
                parts.append(str(slow))
        return "\n".join(part for part in parts if part)

    # --------------------------------------------------------------- up and down

    @classmethod
    def attach(cls, name: str) -> Cluster | None:
        """Ours of that name, when it is up."""
        cluster = cls(name, kubeconfig(name))
        # A node that somebody powered off is still one of it.
        ready = (_folder(name) / "ready").exists() and docker.runs()
        return cluster if ready and len(_containers(name)) == _WORKERS + 1 else None

    @classmethod
    def up(cls, name: str) -> Cluster:
        """Attach to it, or bring it up: from images that were built before in less than a minute."""
        with locked(f"cluster-{name}", "the cluster comes up", _UP_SECONDS):
            found = cls.attach(name)
            if found:
                return found
            build()
            docker.start()
            _remove(name)
            return cls._create(name)

    @classmethod
    def _create(cls, name: str) -> Cluster:
        folder = _folder(name)
        shared = folder / "shared"
        shared.mkdir(parents=True, exist_ok=True)
        cluster = cls(name, kubeconfig(name))
        (folder / "kind.json").write_text(settings.kind_config(_WORKERS, images.mounts(), shared))
        images.compile_torch()
        say("starts three nodes")
        words: list[str | Path] = [
            images.BIN / "kind",
            "create",
            "cluster",
            "--name",
            name,
            "--image",
            images.NODE,
        ]
        words += ["--config", folder / "kind.json", "--kubeconfig", cluster.kubeconfig]
        try:
            docker.run(words, timeout=_UP_SECONDS, held=_held)
            cluster.connect()
            for node in cluster.nodes:
                images.load(node)
            cluster._wait()
        except BaseException:
            _remove(name)
            raise
        (folder / "ready").touch()
        return cluster

    def keep(self) -> None:
        """Have it stay when its last user has ended."""
        (_folder(self.name) / "kept").touch()

    def connect(self) -> None:
        """Give each node its pod network, and routes to the others', which a restarted node has lost."""
        found = self.get("nodes")
        pods = {node["metadata"]["name"]: node["spec"]["podCIDR"] for node in found}
        addresses = {name: _address(name) for name in pods}
        for name, own in pods.items():
            routes = [
                f"ip route replace {pods[other]} via {addresses[other]}" for other in pods if other != name
            ]
            script = f"cat > /etc/cni/net.d/10-pods.conflist; {'; '.join(routes)}"
            docker.docker(
                "exec", "--interactive", name, "sh", "-c", script, stdin=settings.network(own).encode()
            )

    def _wait(self) -> None:
        say("waits for nodes and DNS")
        self.kubectl("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=120s", timeout=130)
        rollout = ["rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=120s"]
        self.kubectl(*rollout, timeout=130)
        self.until(
            lambda: self.kubectl("get", "serviceaccount", "default", check=False) != "",
            "there are accounts",
            60,
        )


def build() -> None:
    """See to it that all images and tools are there; the first time, Go compiles all of Kubernetes."""
    with locked("build", "images are built", _BUILD_SECONDS):
        docker.start()
        images.build()


def down(name: str) -> bool:
    """Remove the cluster, and our docker with the last one. Returns whether docker is gone, too."""
    with locked(f"cluster-{name}", "the cluster comes up", _UP_SECONDS):
        if docker.runs():
            _remove(name)
        return docker.stop()


def _remove(name: str) -> None:
    """As `kind delete cluster`, which takes a minute when nodes are stopped in order."""
    with suppress(FileNotFoundError):
        (_folder(name) / "ready").unlink()
    for container in _containers(name):
        docker.docker("rm", "--force", "--volumes", container)
    shutil.rmtree(_folder(name), ignore_errors=True)


def _containers(name: str) -> list[str]:
    return docker.docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={name}").split()


def _address(node: str) -> str:
    return docker.docker("inspect", "--format", "{{.NetworkSettings.Networks.kind.IPAddress}}", node).strip()


def kubeconfig(name: str) -> Path:
    """Where that of our own cluster is written."""
    return _folder(name) / "kubeconfig"


def _folder(name: str) -> Path:
    return CACHE / "clusters" / name


# ------------------------------------------------------------------- tests' use of it


_held: list[int] = []
"""Locks that last as long as this process, and as what it called to make the cluster."""


def hold(name: str) -> None:
    """Use the cluster: no keeper takes it down before this process ends, or lets it go."""
    _held.append(cache.hold(f"users-{name}"))


def hold_free() -> str:
    """Use this checkout's first cluster that no other test run has; returns its name."""
    for number in range(1, _MOST + 1):
        name = default_name() + (f"-{number}" if number > 1 else "")
        alone = cache.try_hold(f"tests-{name}")
        if alone is not None:
            _held.append(alone)
            hold(name)
            return name
    raise ClusterError(f"{_MOST} runs of this checkout's tests have a cluster each already")


def let_go() -> None:
    """Use no cluster any longer."""
    while _held:
        os.close(_held.pop())
    docker.let_go()


def keep(name: str) -> None:
    """Wait until nobody uses the cluster any more, however they ended, then take it down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with locked(f"keeper-{name}", "another keeper ends", 1.0):
        users = cache.hold(f"users-{name}", alone=True)
        try:
            if not (_folder(name) / "kept").exists():
                down(name)
        finally:
            os.close(users)


def await_keepers() -> None:
    """Wait until this checkout's clusters are down that nobody uses any more; at most a minute for each."""
    for lock in (CACHE / "locks").glob(f"keeper-{default_name()}*"):
        name = lock.name.removeprefix("keeper-")
        if not cache.is_held(f"tests-{name}"):
            with suppress(ClusterError), locked(lock.name, "the cluster goes down", 60):
                pass


def is_ours(place: Path) -> bool:
    """Whether this is the kubeconfig of a cluster from here."""
    return place.is_relative_to(CACHE / "clusters")


def start_keeper(name: str) -> None:
    """Have the cluster taken down after its last user, this process among them."""
    words = ["setsid", "--fork", sys.executable, "-m", "tests.cluster.kubernetes", "--name", name, "keep"]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "keeper.log").open("ab") as log:
        subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
