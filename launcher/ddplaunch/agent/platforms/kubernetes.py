"""Kubernetes: nodes are pods, which a headless Service names."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.platforms import pod_files
from ddplaunch.agent.platforms.platform import Platform

_DENIAL = 30
"""Seconds for which CoreDNS, as older clusters set it up, denies a name that was asked for too early."""
_SERVICE = (
    "the job's headless Service must exist and publish pods that are not ready: `kubectl get service,"
    "endpointslices` in the job's namespace, and look for `publishNotReadyAddresses: true`"
)
_ALLOW = (
    "`kubernetes.network_policy: pods` allows all traffic among the job's pods; else ask for the CNI "
    "plugin's logs"
)
_HINTS = {
    "shm": (
        "Make /dev/shm larger: `resources.shm` in the job file, or an emptyDir with `medium: Memory` there. "
        "Or need less of it: fewer DataLoader workers, a smaller prefetch_factor."
    ),
    "not-found": f"{_SERVICE}; {_DENIAL} s or so without more are CoreDNS' cache of denials",
    "unanswered": (
        "`kubectl --namespace kube-system get pods --selector k8s-app=kube-dns`: is CoreDNS up? If it"
        " is, a NetworkPolicy may keep the pods from it: egress to port 53, UDP and TCP, which "
        "`kubernetes.network_policy: pods` allows"
    ),
    "absent": "`kubectl describe pod` of node 0's pod: is it pending, pulling its image, or evicted?",
    "refused": (
        "`kubectl logs` of node 0's pod, container hub: did it start? If it is up, a NetworkPolicy or "
        "something else on the way rejects the port"
    ),
    "timeout": (
        "a NetworkPolicy of the namespace, or the cloud's firewall between machines, drops the "
        f"packets: {_ALLOW}"
    ),
    "rejected": (
        f"look for a REJECT rule on the way, which a NetworkPolicy of the namespace may have made: {_ALLOW}"
    ),
    "unreachable": (
        "the pods' network has no way between these two machines: look at the CNI plugin's pods on both"
    ),
    "reset": (
        "something accepts connections there and closes them: a service mesh? "
        '`sidecar.istio.io/inject: "false"` must be on the pod'
    ),
    "stranger": (
        "a service mesh's proxy, or another container of the pod, has the port: keep it away, or "
        "choose another, `gate.port`"
    ),
    "stale": (
        "an earlier job of this name still ends: `kubectl get pods --selector "
        "batch.kubernetes.io/job-name`; wait until its pods are gone, or choose another name"
    ),
    "gone": (
        "`kubectl describe pod` of node 0's pod says whether it was evicted or its hub was killed for memory"
    ),
    "missing": (
        "`kubectl get pods` shows who is pending, pulling an image or crashing, `kubectl describe "
        "pod` why; no pod at all: `kubectl get events`."
    ),
    "unstarted": (
        "`kubectl describe pod` says why the container of its ranks has not started: its image, its command, "
        "a volume"
    ),
    "lost": (
        "`kubectl describe pod` tells what became of it: OOMKilled (the limit is the whole "
        "container's), evicted, its machine not ready"
    ),
    "network-one-way": (
        "a NetworkPolicy, or the firewall of that pod's machine, lets connections out and not in; all"
        " TCP ports must be open among the job's pods, `kubernetes.network_policy: pods` allows them"
    ),
    "mtu-black-hole": (
        "the MTU of the pods' network is larger than what the network below carries: compare `ip "
        "link` in both pods and on their machines; a tunnel (VXLAN 50 bytes, WireGuard 80) needs its "
        "share"
    ),
    "memlock": (
        "`LimitMEMLOCK=infinity` in containerd.service on the machines; the capability IPC_LOCK, which "
        "`resources.rdma` gives to the pods, counts only where the image runs as root"
    ),
    "pids.max": "raise the kubelet's `podPidsLimit`, or `pids_limit` of that machine's container runtime",
    "open-files": "raise the limit of open files on that machine: `LimitNOFILE=` of its container runtime",
    "hardware": (
        "ask for one kind of machine: `kubernetes.node_selector`; a machine that has lost a GPU says so in "
        "`dmesg`; if the difference is meant, `gate: {skip: [gpus]}`"
    ),
    "evicted": (
        "`kubectl get events` says who takes the pod: a drain, preemption by a higher priority, an eviction "
        "for memory or disk, a `kubectl delete`. Have the job write checkpoints; `retries` with "
        "`kubernetes.jobset` starts all of it again."
    ),
    "name-denied": (
        f"{_DENIAL} s or so are CoreDNS' cache of denials (`denial` in its Corefile), for the name was asked "
        "for before it was there"
    ),
}
_HINTS["port-filtered"] = _HINTS["filtered"] = _HINTS["timeout"]
_HINTS["port-rejected"] = _HINTS["rejected"]
_HINTS["host-unreachable"] = _HINTS["unreachable"]


def _post_event(message: dict[str, Any]) -> None:
    from ddplaunch.agent.platforms import kubernetes_events  # which pods alone have

    kubernetes_events.post_event(message)


KUBERNETES = Platform(
    "kubernetes",
    hints=_HINTS,
    stops_single_nodes=True,
    # The kubelet starts a hub again; its name may lead to a pod of an earlier job for as long as that ends
    # and name servers remember it; and a new pod's network takes a moment.
    hub_patience={
        "stranger": 10.0,
        "shared": 10.0,
        "key": 3.0,
        "reset": 20.0,
        "silent": 20.0,
        "loopback": 4.0,
        "gone": 20.0,
        "stale": 60.0,
        "filtered": 8.0,
        "timeout": 35.0,
        "rejected": 35.0,
        "unreachable": 35.0,
        "unanswered": 90.0,
    },
    name_delay=2.0 * _DENIAL,
    has_device_plugins=True,
    place="the Job's Events",
    show=_post_event,
    lost_files=pod_files.gone,
)
