"""Hints for nodes that are pods, in Kubernetes' own terms and commands."""

from __future__ import annotations

DENIAL = 30
"""Seconds for which CoreDNS, as older clusters set it up, denies a name that was asked for too early."""
SERVICE = (
    "the job's headless Service must exist and publish pods that are not ready: `kubectl get service,"
    "endpointslices` in the job's namespace, and look for `publishNotReadyAddresses: true`"
)
HINTS = {
    "not-found": f"{SERVICE}; {DENIAL} s or so without more are CoreDNS' cache of denials",
    "unanswered": (
        "`kubectl --namespace kube-system get pods --selector k8s-app=kube-dns`: is CoreDNS up? If it"
        " is, a NetworkPolicy may keep the pods from it: egress to port 53, UDP and TCP"
    ),
    "absent": "`kubectl describe pod` of node 0's pod: is it pending, pulling its image, or evicted?",
    "refused": (
        "`kubectl logs` of node 0's pod, container hub: did it start? If it is up, something on the "
        "way rejects the port"
    ),
    "timeout": (
        "a NetworkPolicy of the namespace, or the cloud's firewall between machines, drops the "
        "packets: `kubernetes.network_policy: pods` allows all traffic among the job's pods; else ask"
        " for the CNI plugin's logs"
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
        "pod` why; no pod at all: `kubectl get events`. `gate.timeout` says how long the others wait"
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
}
HINTS["port-filtered"] = HINTS["filtered"] = HINTS["timeout"]
HINTS["host-unreachable"] = HINTS["unreachable"]


def denied(seconds: float) -> str:
    """Return the text on a name that resolves only after `seconds`."""
    return (
        f"node 0's name was not known for {seconds:.0f} s; {DENIAL} s or so are CoreDNS' cache of denials "
        "(`denial` in its Corefile), for the name was asked for before it was there"
    )
