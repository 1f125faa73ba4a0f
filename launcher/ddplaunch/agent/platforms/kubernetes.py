"""Kubernetes: nodes are pods, and a headless Service names them.

Besides the record of the differences, this has the Event by which the hub shows a message, and the files that
ranks wrote inside a pod and that go when the pod does.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from ddplaunch.agent.contract import Env, Exit, Occasion
from ddplaunch.agent.plan import work_folder
from ddplaunch.agent.platforms.platform import Platform
from ddplaunch.agent.system import files, phrases
from ddplaunch.agent.system.delivery import UndeliveredError, post, reason
from ddplaunch.agent.text import quantities
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport.endpoints import Endpoint

# --- files that go with a pod

_MOST = 50_000
"""Entries to look at: the end of a job does not wait for more."""
_EMPTY_DIR = "kubernetes.io~empty-dir"
"""Part of the path of such a volume on its node: pkg/volume/emptydir in Kubernetes."""


def files_gone(folder: str, since: float, table: str = "/proc/self/mountinfo") -> str:
    """Return a sentence about what was written below `folder` since then and goes with the pod; "": nothing.

    Files on volumes that stay do not count, and neither do those of the job's source.
    """
    if folder == "/" or not _goes(folder, table):
        return ""
    mark = work_folder.read_source_mark(folder)
    device = _device(folder)
    count, size, newest, newest_at = 0, 0, "", 0.0
    below = work_folder.entries(folder, lambda path: _device(path) != device)
    for entries, (path, status) in enumerate(below):
        if entries >= _MOST:
            break
        if max(status.st_mtime, status.st_ctime) < since or not work_folder.is_written(status, mark):
            continue
        count += 1
        size += status.st_size
        if status.st_mtime > newest_at:
            newest, newest_at = os.path.relpath(path, folder), status.st_mtime
    if not count:
        return ""
    return (
        f"{quantities.count(count, 'file')}, {phrases.size(size)}, newest {newest}, written in {folder}, "
        "will be gone with this pod: to keep what ranks write, name a volume under `outputs`"
    )


def _goes(folder: str, table: str) -> bool:
    """Whether the folder is in the container's own file system, or in an emptyDir."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            mount = files.mount_of(file.read(), folder)
    except OSError:
        return False
    return mount.point == "/" or _EMPTY_DIR in mount.root


def _device(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return -1


# --- Events of the job's Kubernetes Job

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder in which the hub's pod has a token."""
_NOTE = 1000
"""Bytes; the API server takes 1024."""
_REASONS = {Occasion.NOTICE: "Notice", Occasion.WITHDRAWN: "NoticeWithdrawn", Occasion.END: "Ended"}
_WELL = (None, Exit.OK, Exit.STOPPED)


def event(message: dict[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    """Return the Event, made from the environment of the hub's container."""
    namespace = own[Env.NAMESPACE]
    job = own[Env.NAMES].partition("-{")[0]  # a JobSet's Job has a name of its own
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": namespace, "name": job}
    is_well = message["occasion"] != Occasion.NOTICE and message["exit_code"] in _WELL
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{job}-", "namespace": namespace},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(message["at"])),
        "reportingController": "ddplaunch",
        "reportingInstance": socket.gethostname(),
        "action": "Watch",
        "reason": _REASONS[message["occasion"]],
        "regarding": {**about, "uid": own[Env.UID]},
        "note": printable(message["text"]).encode()[:_NOTE].decode(errors="ignore"),
        "type": "Normal" if is_well else "Warning",
    }


def post_event(message: dict[str, Any]) -> None:
    """Make the message an Event of the Job. Raises UndeliveredError."""
    import ssl  # most jobs do without it

    made = event(message, os.environ)

    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    try:
        with open(f"{ACCOUNT}/token", encoding="ascii") as file:
            token = file.read()
        tls = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    except OSError as error:
        raise UndeliveredError(f"its service account: {reason(error)}", lasts=True) from error
    path = f"apis/events.k8s.io/v1/namespaces/{made['metadata']['namespace']}/events"
    try:
        url = f"https://{Endpoint(host, int(port))}/{path}"
        post(url, json.dumps(made).encode(), "the API server", token, tls)
    except UndeliveredError as error:
        raise UndeliveredError(f"{error}{_answer_words(error.answer)}", error.lasts) from None


def _answer_words(answer: bytes) -> str:
    """Return the API server's sentence, which names the permission that is missing."""
    try:
        return f": {json.loads(answer)['message']}"[:_NOTE]
    except (ValueError, TypeError, KeyError):
        return ""


# --- the record

_DENIAL = 30
"""Seconds for which CoreDNS, in the setup of older clusters, denies a name that was asked for too early."""
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
        "`dmesg`; if the difference is intended, `gate: {skip: [gpus]}`"
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


KUBERNETES = Platform(
    "kubernetes",
    hints=_HINTS,
    stops_single_nodes=True,
    # The kubelet starts a hub again. The hub's name may lead to a pod of an earlier job while that pod ends
    # and name servers remember it. And a new pod's network takes a moment.
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
    show=post_event,
    lost_files=files_gone,
)
