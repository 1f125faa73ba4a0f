"""A rendered job on the cluster, applied with plain kubectl, and what it leaves to be looked at."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.agent.contract import Bundle, Files, Verdict, bundle_file
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.scheduler_log import SETTLES
from ddplaunch.agent.text.saying import spelled
from ddplaunch.plan import plan
from ddplaunch.render.kubernetes import render
from ddplaunch.spec.load import load

STEPS = """
import os, sys, time
print("up", flush=True)
for step in range(int(sys.argv[1])):
    time.sleep(0.2)
    print("step", step, flush=True)
"""
"""A rank that needs no torch of its own: so many steps of 0.2 s."""
_BEGIN, _END = "-----BEGIN DDPLAUNCH BUNDLE-----\n", "\n-----END DDPLAUNCH BUNDLE-----"
Documents = list[dict[str, Any]]


def with_torch(cluster: Cluster) -> dict[str, Any]:
    """Keys of a job file: this machine's own Python, torch included, where it lies here. Skips without."""
    if not cluster.ours:
        pytest.skip("trains with this machine's torch, which only our own nodes show; unset KUBECONFIG")
    volumes = [
        {"name": f"python-{number}", "host_path": str(path), "mount_path": str(path), "read_only": True}
        for number, path in enumerate(images.mounts())
    ]
    return {"python": sys.executable, "volumes": volumes}


def torch_in_pods(cluster: Cluster) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same for a manifest: `volumeMounts` of a container, and `volumes` of its pod."""
    found = with_torch(cluster)["volumes"]
    mounts = [{"name": each["name"], "mountPath": each["mount_path"]} for each in found]
    return mounts, [{"name": each["name"], "hostPath": {"path": each["host_path"]}} for each in found]


class Job:
    """One submission: two nodes, on two machines."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, work: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self._heard = work / "hub.log"
        self._hub_said: list[tuple[float, str]] = []
        self.record: Callable[[str, object], None] = lambda name, value: None
        """Takes properties of the test."""

    @classmethod
    def submit(
        cls,
        cluster: Cluster,
        namespace: str,
        work: Path,
        program: str,
        change: Callable[[Documents], None] = lambda documents: None,
        apply: Sequence[str] = ("apply", "--server-side"),
        gate_only: bool = False,
        **keys: Any,
    ) -> Job:
        """Render a job that runs `program`, `change` what was rendered, and apply it.

        It has torch, unless `python` among the keys is another than this machine's. With `gate_only` nobody
        trains once the gate is passed.
        """
        (work / "program.py").write_text(program)
        torch = {} if "python" in keys else with_torch(cluster)
        values = {
            "apiVersion": "ddplaunch/v1",
            "name": "job",
            "nodes": 2,
            "nproc_per_node": 1,
            "source": ["program.py"],
            "image": images.TRAINER,
            "command": ["program.py"],
            **torch,
            **keys,
        }
        (work / "job.yaml").write_text(json.dumps(values))
        rendered = render(plan.make(load(work / "job.yaml"), "kubernetes", work), gate_only=gate_only)
        ((_, file),) = rendered.files.items()
        documents: Documents = list(yaml.safe_load_all(file.content))
        change(documents)
        text = "\n---\n".join(json.dumps(document) for document in documents)
        cluster.kubectl(*apply, "--namespace", namespace, "--filename", "-", stdin=text)
        return cls(cluster, namespace, rendered.job, work)

    # --------------------------------------------------------------- what there is

    def pods(self) -> dict[int, dict[str, Any]]:
        """Node to its pod; of several the youngest."""
        label = "batch.kubernetes.io/job-completion-index"
        found = sorted(self.all_pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return {int(pod["metadata"]["labels"][label]): pod for pod in found}

    def all_pods(self) -> Documents:
        """Those of an earlier job of this name as well."""
        found: Documents = self.cluster.get(
            "pods", namespace=self.namespace, selector=f"app.kubernetes.io/instance={self.name}"
        )
        return found

    def pod(self, node: int) -> str:
        """Its name."""
        return str(self.pods()[node]["metadata"]["name"])

    def machine(self, node: int) -> str:
        """Where its pod runs; waits until it is there."""
        return self._awaited(node, "spec", "nodeName")

    def address(self, node: int) -> str:
        """Of its pod; waits for it."""
        return self._awaited(node, "status", "podIP")

    def _awaited(self, node: int, part: str, key: str) -> str:
        """What stands there once it does, by one look: at the next another pod may be in its place."""
        found = ""

        def stands() -> bool:
            nonlocal found
            found = self.pods().get(node, {}).get(part, {}).get(key, "")
            return bool(found)

        self.cluster.until(stands, f"{key} of node {node}", 120)
        return found

    def log(self, node: int, container: str) -> str:
        """What it has said so far; empty when it has not begun."""
        pods = self.pods()
        if node not in pods:
            return ""
        return self.cluster.api.log(pods[node]["metadata"]["name"], container, self.namespace)

    def said_at(self, pod: str, container: str) -> list[tuple[float, str]]:
        """Its lines, with the times since the epoch at which it said them; none when it is gone."""
        text = self.cluster.api.log(pod, container, self.namespace, timestamps=True)
        lines = [line.partition(" ") for line in text.splitlines()]
        return [(when(stamp), said) for stamp, _, said in lines if re.match(r"\d{4}-\d\d-\d\dT", stamp)]

    def watch(self) -> None:
        """Keep the hub's log in mind: it goes with its pod."""
        zero = self.pods().get(0)  # asked for once: a job that has failed deletes those that still run
        if zero is not None:
            self._hub_said = self.said_at(zero["metadata"]["name"], "hub") or self._hub_said

    def told_after(self, code: str) -> float | None:
        """Seconds from the last check-in, else from the hub's start, to the first word of a gate's verdict.

        That is the hub's, a gate's own, or its cry, as far as the launcher minds it. None: not known.
        """
        begun = [at for at, said in self._hub_said if "listens on" in said]
        came = begun + [at for at, said in self._hub_said if re.search(r"node \d+ .*checked in", said)]
        told = [at for at, said in self._hub_said if re.match(rf"[\d:]+ {code}: ", said)]
        for pod in self.all_pods():
            for at, said in self.said_at(pod["metadata"]["name"], "gate"):
                cry = scheduler_log.read_report(said.encode())
                heard = cry is not None and begun and at >= begun[0] + SETTLES and cry.verdict.code == code
                if heard or said.startswith(f"{code}: "):
                    told.append(at)
        return max(min(told) - max(came), 0.0) if told and came else None

    def logs(self) -> str:
        """Everybody's."""
        parts = [
            f"--- node {node} {container}\n{self.log(node, container).partition(_BEGIN)[0]}"
            for node in self.pods()
            for container in ("hub", "gate", "trainer")
        ]
        return "\n".join(parts)

    def said(self, node: int, container: str, text: str, times: int = 1, seconds: float = 120.0) -> None:
        """Wait until its log has this."""
        self.cluster.until(
            lambda: self.log(node, container).count(text) >= times,
            f"node {node}, {container}: {times} x {text!r}",
            seconds,
            self.logs,
        )

    # --------------------------------------------------------------- how it ended

    def condition(self) -> dict[str, str]:
        """Why the Job is over; empty while it is not."""
        job = self.cluster.get("jobs", self.name, namespace=self.namespace)
        over = ("Failed", "Complete")
        found = [each for each in job.get("status", {}).get("conditions", []) if each["type"] in over]
        return {str(key): str(value) for key, value in found[0].items()} if found else {}

    def ended(self, seconds: float = 180.0) -> str:
        """Wait for its end; returns `Complete` or the reason of the failure."""
        self.cluster.until(lambda: bool(self.condition()), f"{self.name} ends", seconds, self.logs)
        found = self.condition()
        return found["type"] if found["type"] == "Complete" else found["reason"]

    def last_words(self, node: int, container: str) -> dict[str, Any]:
        """What the container left for the kubelet, and its exit code as `exit`: None before it has one."""
        status = self.pods().get(node, {}).get("status", {})
        both = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        ends = [each["state"].get("terminated", {}) for each in both if each["name"] == container]
        end = ends[0] if ends else {}
        found: dict[str, Any] = json.loads(end.get("message") or "{}")
        return {**found, "exit": end.get("exitCode"), "reason": end.get("reason")}

    def listen(self) -> None:
        """Read the hub's log from now on: its pod, and the log with it, may be deleted when the job fails."""
        words = ["kubectl", "logs", "--namespace", self.namespace, self.pod(0), "--container=hub", "--follow"]

        def read() -> None:
            with self._heard.open("w") as file:
                subprocess.run(words, env=self.cluster.env, stdout=file, check=False)

        threading.Thread(target=read, daemon=True).start()

    def _hub(self) -> str:
        return self._heard.read_text() if self._heard.exists() else self.log(0, "hub")

    def bundle(self) -> Bundle:
        """As it stands in the hub's log."""
        self.cluster.until(lambda: _END in self._hub(), "the hub's last words", 120, self.logs)
        text = self._hub().rpartition(_BEGIN)[2].partition(_END)[0]
        place = Path(tempfile.mkdtemp(dir=self._heard.parent)) / Path(Files.BUNDLE).name
        place.write_bytes(b64decode(text))  # where `make faults` looks for it
        return bundle_file.read(str(place))

    @property
    def verdict(self) -> Verdict:
        """The only one."""
        (only,) = self.bundle().verdicts
        return only


def unplaced(verdict: Verdict) -> str:
    """The sentence without the machines, which differ from cluster to cluster."""
    return spelled(verdict.text)


def when(text: str) -> float:
    """An RFC 3339 time, whose nanoseconds Python does not read, since the epoch."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text)).timestamp()
