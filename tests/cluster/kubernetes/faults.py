"""What can go wrong with a cluster, done to it; `clear` undoes all of it. Nodes are those of our own."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.cluster.kubernetes import docker
from tests.cluster.kubernetes.cluster import Cluster

_SYSTEM = "kube-system"
_IN_SYSTEM = f"--namespace={_SYSTEM}"
_DNS_PODS = 2
_DNS_RULE = re.compile(r"kube-system/kube-dns:dns -> ([\d.]+:\d+)")
_CACHE = "cache 30 {\n       disable success cluster.local\n       disable denial cluster.local\n    }"


class Faults:
    """The cluster, as somebody who breaks it sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._nodes = list(cluster.nodes)
        self._undo: dict[str, Callable[[], object]] = {}

    # --------------------------------------------------------------- a node's network

    def nft(self, node: str, *rules: str, hook: str = "forward") -> None:
        """Rules of nft(8) on what passes from or to the node's pods (`hook` forward), or the node itself."""
        chain = f"inet faults {hook}"
        head = ["add table inet faults", f"add chain {chain} {{ type filter hook {hook} priority -10; }}"]
        lines = [*head, *(f"add rule {chain} {rule}" for rule in rules)]
        self.run(node, "nft", "--file", "-", stdin="\n".join(lines) + "\n")
        self._undo[f"nft {node}"] = partial(self.clear_nft, node)

    def clear_nft(self, node: str) -> None:
        """Take these rules away."""
        self.run(node, "sh", "-c", "nft delete table inet faults 2>/dev/null || true")

    def run(self, node: str, *words: str, stdin: str = "") -> str:
        """Run a command inside a node, as its root."""
        return docker.docker("exec", "--interactive", node, *words, stdin=stdin.encode())

    def in_pod(self, node: str, address: str, script: str) -> str:
        """Run a shell script of the node's in the network of its pod that has this address."""
        find = f'nsenter --net="$each" ip -oneline address | grep -qF " {address}/" || continue'
        enter = f'exec nsenter --net="$each" sh -ec {shlex.quote(script)}'
        loop = f"for each in /var/run/netns/*; do {find}; {enter}; done; exit 1"
        return self.run(node, "sh", "-c", loop)

    # --------------------------------------------------------------- a node's life

    def pause(self, node: str) -> None:
        """Freeze it, pods and kubelet; after about a minute the control plane misses it."""
        docker.docker("pause", node)
        self._undo[f"life {node}"] = partial(self.unpause, node)

    def unpause(self, node: str) -> None:
        """Let it go on, and wait until it is ready."""
        docker.docker("unpause", node)
        self._undo.pop(f"life {node}", None)
        self.ready(node)

    def ready(self, node: str, seconds: float = 120.0) -> None:
        """Wait until the control plane finds the node ready."""
        words = ["wait", "node", node, "--for=condition=Ready", f"--timeout={seconds:.0f}s"]
        self.cluster.kubectl(*words, timeout=seconds + 10)

    def cordon(self, node: str) -> None:
        """No pod is scheduled there any more."""
        self.cluster.kubectl("cordon", node)
        self._undo[f"cordon {node}"] = partial(self.uncordon, node)

    def uncordon(self, node: str) -> None:
        """Pods are scheduled there again."""
        self.cluster.kubectl("uncordon", node)

    def drain(self, node: str, seconds: float = 120.0) -> None:
        """Evict what runs there, and wait until it has gone."""
        self._undo[f"cordon {node}"] = partial(self.uncordon, node)
        words = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={seconds:.0f}s"]
        self.cluster.kubectl("drain", node, *words, timeout=seconds + 10)

    def add_resource(self, node: str, count: int, resource: str = "nvidia.com/gpu") -> None:
        """Devices that the scheduler counts and that do not exist."""
        self._patch_resource(node, resource, {"op": "add", "value": str(count)})
        self._undo[f"{resource} {node}"] = partial(self._patch_resource, node, resource, {"op": "remove"})

    def label(self, node: str, key: str, value: str) -> None:
        """As a discovery of hardware labels it."""
        self.cluster.kubectl("label", "node", node, f"{key}={value}")
        self._undo[f"{key} {node}"] = partial(self.cluster.kubectl, "label", "node", node, f"{key}-")

    def add_devices(self, count: int) -> list[dict[str, Any]]:
        """Files of that many GPUs on all workers, with no GPU behind them; volumes that show them to pods."""
        names = [f"nvidia{number}" for number in range(count)]
        for node in self.cluster.workers:
            made = [f"[ -e /dev/{name} ] || mknod /dev/{name} c 195 {n}" for n, name in enumerate(names)]
            self._undo[f"devices {node}"] = partial(self.run, node, "sh", "-c", "rm -f /dev/nvidia[0-9]*")
            self.run(node, "sh", "-ec", "; ".join(made))
        return [{"name": name, "host_path": f"/dev/{name}", "mount_path": f"/dev/{name}"} for name in names]

    def _patch_resource(self, node: str, resource: str, change: dict[str, Any]) -> None:
        name = resource.replace("/", "~1")
        patch = [{**change, "path": f"/status/{part}/{name}"} for part in ("capacity", "allocatable")]
        words = ["patch", "node", node, "--subresource=status", "--type=json", "--patch", json.dumps(patch)]
        self.cluster.kubectl(*words)

    # --------------------------------------------------------------- the control plane

    def pause_api(self) -> None:
        """The API server accepts connections and answers nothing."""
        self.run(self._nodes[0], "pkill", "-STOP", "kube-apiserver")
        self._undo["api"] = self.resume_api

    def resume_api(self) -> None:
        """It goes on where it was."""
        self.run(self._nodes[0], "pkill", "-CONT", "kube-apiserver")

    def restart_api(self) -> None:
        """The API server ends at once and the kubelet starts it anew, as when a control plane is upgraded."""
        self.run(self._nodes[0], "pkill", "-KILL", "kube-apiserver")
        self._undo["api"] = self.cluster.connect

    def scale_dns(self, replicas: int) -> None:
        """CoreDNS with that many pods; returns when so many answer. With none, names get no answer at all."""
        self.cluster.kubectl("scale", "deployment/coredns", _IN_SYSTEM, f"--replicas={replicas}")
        self._undo["dns"] = partial(self.scale_dns, _DNS_PODS)
        self._dns_answers(replicas)

    def move_dns(self, away_from: str) -> None:
        """CoreDNS with no pod on that node; returns when all of its pods answer."""
        selected = (_IN_SYSTEM, "--selector=k8s-app=kube-dns", f"--field-selector=spec.nodeName={away_from}")
        self.cordon(away_from)
        self.cluster.kubectl("delete", "pods", *selected)
        self._dns_answers(_DNS_PODS)
        self.uncordon(away_from)

    def _dns_answers(self, replicas: int) -> None:
        what = f"{replicas} pods of CoreDNS, known to all nodes"
        self.cluster.until(lambda: self._dns_pods() == replicas, what, 90, lambda: str(self._dns_pods()))

    def _dns_pods(self) -> int:
        """How many there are; -1 while one is not ready, or some node would send its questions elsewhere."""
        pods = self.cluster.get("pods", namespace=_SYSTEM, selector="k8s-app=kube-dns")
        addresses = {f"{pod['status'].get('podIP')}:53" for pod in pods}
        ready = [("Ready", "True") in _conditions(pod) for pod in pods]
        for node in self._nodes:
            rules = self.run(node, "iptables-save", "--table", "nat")
            ready.append(addresses == set(_DNS_RULE.findall(rules)))
        return len(pods) if all(ready) else -1

    def cache_denials(self) -> None:
        """CoreDNS as older clusters have it: a name asked for too early is missing for 30 s."""
        corefile = self._read_corefile()
        self._undo.setdefault("corefile", partial(self._write_corefile, corefile))
        head, _, rest = corefile.partition("cache 30 {")
        assert rest, f"no cache in {corefile}"
        self._write_corefile(f"{head}cache 30{rest.partition('}')[2]}")

    def _read_corefile(self) -> str:
        text: str = self.cluster.get("configmaps", "coredns", namespace=_SYSTEM)["data"]["Corefile"]
        return text

    def _write_corefile(self, text: str) -> None:
        patch = json.dumps({"data": {"Corefile": text}})
        self.cluster.kubectl("patch", "configmap", "coredns", _IN_SYSTEM, "--type=merge", "--patch", patch)
        self.cluster.kubectl("rollout", "restart", "deployment/coredns", _IN_SYSTEM)
        words = ["rollout", "status", "deployment/coredns", _IN_SYSTEM, "--timeout=90s"]
        self.cluster.kubectl(*words, timeout=100)
        # Until the old ones are gone they answer, too.
        self._dns_answers(self.cluster.get("deployments", "coredns", namespace=_SYSTEM)["spec"]["replicas"])

    # --------------------------------------------------------------- all of it, back

    def clear(self) -> None:
        """What was done here, undone in reverse."""
        done = list(self._undo.values())
        for undo in reversed(done):
            undo()
        self._undo.clear()  # with what undoing did

    def restore(self) -> None:
        """As `clear`, for whatever somebody else did who was killed before."""
        for node in self._nodes:
            state = docker.docker("inspect", "--format", "{{.State.Status}}", node).strip()
            if state != "running":
                docker.docker("unpause" if state == "paused" else "start", node)
        self.resume_api()
        self.cluster.connect()
        for node in self._nodes:
            self.clear_nft(node)
            self.ready(node)
            self.uncordon(node)
        corefile = self._read_corefile()
        if "cache 30 {" not in corefile:
            self._write_corefile(corefile.replace("cache 30", _CACHE))
        self.scale_dns(_DNS_PODS)
        self._undo.clear()


def _conditions(pod: Any) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in pod["status"].get("conditions", [])]
