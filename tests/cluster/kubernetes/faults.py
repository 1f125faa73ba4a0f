"""What can go wrong with a cluster, done to it; `clear` undoes all of it. For our own, whose nodes are here."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.cluster.kubernetes import docker, images
from tests.cluster.kubernetes.cluster import Cluster

_SYSTEM = "--namespace=kube-system"
_GONE_SECONDS = 150.0


class Faults:
    """The cluster, as somebody who breaks it sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._nodes = list(cluster.nodes)
        self._corefile = ""
        self._resources: set[tuple[str, str]] = set()

    # --------------------------------------------------------------- a node's network

    def nft(self, node: str, *rules: str, hook: str = "forward") -> None:
        """Rules of nft(8) for what passes from or to the node's pods (`hook` forward), or for the node itself."""
        chain = f"inet faults {hook}"
        head = ["add table inet faults", f"add chain {chain} {{ type filter hook {hook} priority -10; }}"]
        lines = [*head, *(f"add rule {chain} {rule}" for rule in rules)]
        self.run(node, "nft", "--file", "-", stdin="\n".join(lines) + "\n")

    def clear_nft(self, node: str) -> None:
        """Take these rules away."""
        self.run(node, "sh", "-c", "nft delete table inet faults 2>/dev/null || true")

    def run(self, node: str, *words: str, stdin: str = "") -> str:
        """Run a command inside a node, as its root."""
        return docker.docker("exec", "--interactive", node, *words, stdin=stdin.encode())

    # --------------------------------------------------------------- a node's life

    def pause(self, node: str) -> None:
        """Freeze it, pods and kubelet; after about a minute the control plane misses it."""
        docker.docker("pause", node)

    def unpause(self, node: str) -> None:
        """Let it go on."""
        docker.docker("unpause", node)

    def power_off(self, node: str) -> None:
        """Everything on the node is gone at once."""
        docker.docker("kill", node)

    def power_on(self, node: str) -> None:
        """Boot a node that was powered off, and wait until it is ready."""
        docker.docker("start", node)
        self.cluster.connect()
        self.ready(node)

    def ready(self, node: str, seconds: float = 120.0) -> None:
        """Wait until the control plane finds the node ready."""
        self._becomes(node, "True", seconds)

    def missed(self, node: str, seconds: float = _GONE_SECONDS) -> None:
        """Wait until the control plane misses the node: it never says False of one that is silent."""
        self._becomes(node, "Unknown", seconds)

    def _becomes(self, node: str, status: str, seconds: float) -> None:
        words = ["wait", "node", node, f"--for=condition=Ready={status}", f"--timeout={seconds:.0f}s"]
        self.cluster.kubectl(*words, timeout=seconds + 10)

    def cordon(self, node: str) -> None:
        """No pod is scheduled there any more."""
        self.cluster.kubectl("cordon", node)

    def drain(self, node: str, seconds: float = 120.0) -> None:
        """Evict what runs there, and wait until it has gone."""
        words = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={seconds:.0f}s"]
        self.cluster.kubectl("drain", node, *words, timeout=seconds + 10)

    def add_resource(self, node: str, count: int, resource: str = "nvidia.com/gpu") -> None:
        """Devices that the scheduler counts and that do not exist."""
        self._patch_resource(node, resource, {"op": "add", "value": str(count)})
        self._resources.add((node, resource))

    def _patch_resource(self, node: str, resource: str, change: dict[str, Any]) -> None:
        name = resource.replace("/", "~1")
        patch = [{**change, "path": f"/status/{part}/{name}"} for part in ("capacity", "allocatable")]
        words = ["patch", "node", node, "--subresource=status", "--type=json", "--patch", json.dumps(patch)]
        self.cluster.kubectl(*words)

    def take_image(self, node: str, image: str = images.TRAINER) -> None:
        """The node has it no longer, and there is nowhere to pull it from."""
        images.unload(node, image)

    # --------------------------------------------------------------- the control plane

    def pause_api(self) -> None:
        """The API server accepts connections and answers nothing."""
        self.run(self._nodes[0], "pkill", "-STOP", "-x", "kube-apiserver")

    def resume_api(self) -> None:
        """It goes on where it was."""
        self.run(self._nodes[0], "sh", "-c", "pkill -CONT -x kube-apiserver || true")

    def scale_dns(self, replicas: int) -> None:
        """CoreDNS with that many pods; returns when so many answer. With none, names get no answer at all."""
        self.cluster.kubectl("scale", "deployment/coredns", _SYSTEM, f"--replicas={replicas}")
        found = partial(self._dns_pods)
        self.cluster.until(
            lambda: found() == replicas, f"{replicas} pods of CoreDNS", 90, lambda: str(found())
        )

    def _dns_pods(self) -> int:
        pods = self.cluster.get("pods", _SYSTEM, "--selector=k8s-app=kube-dns")
        ready = [
            pod
            for pod in pods
            if any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"]
            )
        ]
        return len(ready) if len(ready) == len(pods) else -1

    def cache_denials(self) -> None:
        """CoreDNS as older clusters have it: a name asked for too early is missing for 30 s."""
        corefile = self._read_corefile()
        self._corefile = self._corefile or corefile
        head, _, rest = corefile.partition("cache 30 {")
        assert rest, f"no cache in {corefile}"
        self._write_corefile(f"{head}cache 30{rest.partition('}')[2]}")

    def _read_corefile(self) -> str:
        text: str = self.cluster.get("configmap", "coredns", _SYSTEM)["data"]["Corefile"]
        return text

    def _write_corefile(self, text: str) -> None:
        patch = json.dumps({"data": {"Corefile": text}})
        self.cluster.kubectl("patch", "configmap", "coredns", _SYSTEM, "--type=merge", "--patch", patch)
        self.cluster.kubectl("rollout", "restart", "deployment/coredns", _SYSTEM)
        words = ["rollout", "status", "deployment/coredns", _SYSTEM, "--timeout=90s"]
        self.cluster.kubectl(*words, timeout=100)
        # Until the old ones are gone they answer, too.
        self.cluster.until(lambda: self._dns_pods() >= 1, "the old CoreDNS is gone", 60)

    # --------------------------------------------------------------- all of it, back

    def clear(self) -> None:
        """Power, firewalls, DNS, devices, images and the API server as they were at the start."""
        self.resume_api_if_paused()
        for node in self._nodes:
            self._revive(node)
            self.clear_nft(node)
        self.cluster.connect()
        for node in self._nodes:
            self.ready(node)
            self.cluster.kubectl("uncordon", node)
        for node, resource in self._resources:
            self._patch_resource(node, resource, {"op": "remove"})
        self._resources.clear()
        for node in self.cluster.workers:
            if not self.has_image(node):
                images.load(node)
        if self._corefile:
            self._write_corefile(self._corefile)
            self._corefile = ""
        if self.cluster.get("deployment", "coredns", _SYSTEM)["spec"]["replicas"] != 2:
            self.scale_dns(2)

    def resume_api_if_paused(self) -> None:
        """Only a control plane that lives can be asked."""
        if self._state(self._nodes[0]) == "running":
            self.resume_api()

    def _revive(self, node: str) -> None:
        state = self._state(node)
        if state == "paused":
            self.unpause(node)
        elif state != "running":
            docker.docker("start", node)

    def _state(self, node: str) -> str:
        return docker.docker("inspect", "--format", "{{.State.Status}}", node).strip()

    def has_image(self, node: str, image: str = images.TRAINER) -> bool:
        """Whether the node could run it without pulling."""
        return image in self.run(node, "ctr", "--namespace=k8s.io", "images", "ls", "--quiet")
