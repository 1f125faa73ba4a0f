"""Who is told of a job in pods: somebody's webhook, the Job's Events, Prometheus; and what it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.webhook import SECRET

KEYS: dict[str, Any] = {
    "notify": [{"webhook": {"secret": {"name": "hook", "key": "url"}}}, {"events": True}],
    "metrics": {"port": 9400},
}
"""Keys of a job file that tells all of them."""
_RECEIVER = Path(__file__).parents[1] / "receiver.py"
_FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
_PORT = 8000
_LABELS = {"app": "receiver"}


class Receiver:
    """A server in a pod, which the webhook of a Secret leads to."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._in = cluster, ("--namespace", namespace)
        url = f"--from-literal=url=http://receiver:{_PORT}/{SECRET}"
        cluster.kubectl("create", "secret", "generic", "hook", url, *self._in)
        service = {"selector": _LABELS, "ports": [{"port": _PORT}]}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "receiver"}, "spec": service},
            namespace=namespace,
        )
        self._namespace = namespace

    def allow(self) -> None:
        """Let the pods of the namespace create Events, as docs/how-to/notify.md has it."""
        role = ["role", "events", "--verb=create", "--resource=events.events.k8s.io"]
        account = f"--serviceaccount={self._namespace}:default"
        for words in (role, ["rolebinding", "events", "--role=events", account]):
            self._cluster.kubectl("create", *words, *self._in)

    def start(self, machine: str) -> None:
        """Run it on that machine, and wait until it listens."""
        container = {
            "name": "receiver",
            "image": images.TRAINER,
            "command": ["python3", "-u", "-c", _RECEIVER.read_text(), str(_PORT)],
        }
        spec = {"nodeName": machine, "terminationGracePeriodSeconds": 0, "containers": [container]}
        metadata = {"name": "receiver", "labels": _LABELS}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._cluster.apply(pod, namespace=self._namespace)
        self._cluster.until(lambda: "ready\n" in self._log(), "the receiver listens", 120)

    def _log(self) -> str:
        return self._cluster.api.log("receiver", "receiver", self._namespace)

    def got(self) -> list[dict[str, Any]]:
        """Return the messages so far."""
        return [json.loads(line) for line in self._log().splitlines()[1:]]

    def figures(self, address: str) -> str:
        """Return what Prometheus would get from a pod at that address."""
        words = ["python3", "-c", _FETCH, f"http://{address}:9400/metrics"]
        return self._cluster.kubectl("exec", "receiver", *self._in, "--", *words)

    def events(self, job: str) -> list[tuple[str, str, str]]:
        """Return type, reason and sentence of each Event of ours on the Job, in their order."""
        found = [
            each
            for each in self._cluster.get("events", namespace=self._namespace)
            if each.get("reportingComponent") == "ddplaunch"
            and ("Job", job) == (each["involvedObject"]["kind"], each["involvedObject"]["name"])
        ]
        found.sort(key=lambda each: str(each["eventTime"]))
        return [(each["type"], each["reason"], each["message"]) for each in found]
