"""How soon a job of two pods is past the gate, or told what is wrong, on a real Kubernetes of three nodes.

Times are those of the scheduler's events and of the containers' logs, on one machine and so by one clock.
Images are on the nodes already. A fault stands before the job comes; what counts is the time from the last
check-in of a node that is well to the verdict.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
GATE, MASTER = 29400, 29500
AIM = 5.0
_PLAIN: dict[str, Any] = {
    "python": "python3",
    "rendezvous": {"port": MASTER},
    "gate": {"timeout": "90s", "port": GATE, "skip": ["interpreter", "versions"]},
}
"""Rules of a firewall name ports; nobody trains, so nobody needs torch."""

_BETWEEN_PODS = "ip saddr 10.244.0.0/16 ip daddr 10.244.0.0/16"
"""Not to the API server: CoreDNS is of pods, too, and would never hear of the job's names."""


def run(folder: Path, runs: int) -> list[Line]:
    """Needs root, and what tests/cluster/kubernetes needs."""
    sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]
    from tests.cluster.kubernetes import cluster as clusters
    from tests.cluster.kubernetes import docker, images

    reason = docker.missing() or images.missing()
    if reason:
        raise SystemExit(f"no cluster here: {reason}")
    name = clusters.hold_free()
    if clusters.Cluster.attach(name) is None:
        clusters.start_keeper(name)
    cluster = clusters.Cluster.up(name)
    try:
        return [_healthy(cluster, folder, runs), *_faults(cluster, folder, runs)]
    finally:
        clusters.let_go()
        clusters.await_keepers()


def _healthy(cluster: Any, folder: Path, runs: int) -> Line:
    """With this machine's torch, whose import is most of what the gate's checks take."""
    from tests.cluster.kubernetes.jobs import STEPS, when

    taken = []
    for _ in range(runs + 1):
        with cluster.namespace() as namespace:
            job = _submit(cluster, namespace, folder, STEPS, command=["program.py", "1"])
            for node in (0, 1):
                job.said(node, "gate", "gate passed", seconds=120)
            passed = max(at for node in (0, 1) for at in job.heard_at(job.pod(node), "gate", "gate passed"))
            events = cluster.get("events", "--namespace", namespace)
            scheduled = [when(each["eventTime"]) for each in events if each["reason"] == "Scheduled"]
            taken.append(passed - max(scheduled))
    value = statistics.median(taken[1:])
    return Line("all pods scheduled, to the gate's pass, with torch", value, 15.0, " s")


def _faults(cluster: Any, folder: Path, runs: int) -> list[Line]:
    from tests.cluster.kubernetes.faults import Faults

    faults = Faults(cluster)
    # (fault, rule of the machines' firewalls, the job's own keys, verdict, limit)
    rows: list[tuple[str, str, dict[str, Any], str, float]] = [
        ("no torch in the image", "", {"gate": {"port": GATE}}, "image-lacks", AIM),
        ("the master's port dropped", f"tcp dport {MASTER} drop", {}, "port-filtered", AIM),
        ("large packets dropped", f"{_BETWEEN_PODS} meta length gt 1000 drop", {}, "mtu-black-hole", AIM),
        ("the hub's port dropped", f"tcp dport {GATE} drop", {}, "port-filtered", 12.0),
        # A pod's network may be late: so long nobody can tell a drop from that.
        ("no TCP passes between pods", f"{_BETWEEN_PODS} meta l4proto tcp drop", {}, "port-filtered", 40.0),
        # A name server may deny a name for 30 s after it is there, and a record may be late.
        ("no Service", "", {"change": _without_service}, "dns-not-found", 65.0),
    ]
    lines = []
    for name, rule, keys, code, limit in rows:
        taken = []
        for _ in range(runs):
            for machine in cluster.workers if rule else []:
                faults.nft(machine, rule)
            try:
                with cluster.namespace() as namespace:
                    job = _submit(cluster, namespace, folder, "", **{**_PLAIN, **keys})
                    taken.append(_told(job, code))
            finally:
                faults.clear()
        lines.append(Line(f"fault to verdict: {name}", statistics.median(taken), limit, " s", code))
    return lines


def _without_service(documents: list[dict[str, Any]]) -> None:
    documents[:] = [each for each in documents if each["kind"] != "Service"]


def _submit(cluster: Any, namespace: str, folder: Path, program: str, **keys: Any) -> Any:
    from tests.cluster.kubernetes.jobs import Job

    return Job.submit(cluster, namespace, folder, program, **keys)


def _told(job: Any, code: str) -> float:
    """Seconds from the last check-in that there was, else from the hub's start, to the first verdict."""
    job.cluster.until(lambda: len(job.pods()) == 2, "both pods are there", 60)
    pods = {node: job.pod(node) for node in (0, 1)}
    came: list[float] = []
    verdict_at: list[float] = []

    def has_verdict() -> (
        bool
    ):  # soon: when a job has failed, pods that still run are deleted, with their logs
        verdict_at[:] = [at for pod in pods.values() for at in job.heard_at(pod, "gate", f"{code}: ")]
        found = job.heard_at(pods[0], "hub", r"node \d+ .*checked in")
        came[:] = found or came or job.heard_at(pods[0], "hub", "listens on")
        return bool(verdict_at)

    job.cluster.until(has_verdict, f"a verdict {code}", 180, job.logs)
    return min(verdict_at) - max(came)
