"""Jobs of other people's controllers in one namespace: their pods, and what ddplaunch says of them."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import torch_in_pods

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
PYTHON = sys.executable
HANGING = 12.0
"""Seconds for which a rank sleeps before somebody asks."""


class Workloads:
    """Objects whose pods run one program with this machine's torch, each pod on a machine of its own."""

    def __init__(self, cluster: Cluster, namespace: str, work: Path) -> None:
        self.cluster, self.namespace, self._work = cluster, namespace, work

    def program(self, text: str) -> None:
        """Have pods find it as /code/t.py."""
        data = {"t.py": text}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": data})

    def apply(self, *documents: dict[str, Any]) -> None:
        """Create these objects."""
        self.cluster.apply(*documents, namespace=self.namespace)

    def pod(self, name: str, command: list[str], apart: dict[str, str], **container: Any) -> dict[str, Any]:
        """The template of a pod with one container. `apart`: labels of the pods that share no machine."""
        mounts, volumes = torch_in_pods(self.cluster)
        each = {"labelSelector": {"matchLabels": apart}, "topologyKey": "kubernetes.io/hostname"}
        spec = {
            "terminationGracePeriodSeconds": 1,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [each]}},
            "volumes": [{"name": "code", "configMap": {"name": "code"}}, *volumes],
            "containers": [
                {
                    "name": name,
                    "image": images.TRAINER,
                    "imagePullPolicy": "Never",
                    "command": command,
                    "volumeMounts": [{"name": "code", "mountPath": "/code"}, *mounts],
                    "securityContext": {"runAsUser": 0},
                    **container,
                }
            ],
        }
        return {"spec": spec}

    def inject(self, document: dict[str, Any], agent: str, *options: str) -> None:
        """`ddplaunch inject … | kubectl apply -f -`, with the key. `options`: of `run`, for short tests."""
        key = "--from-literal=key=a secret of thirty-two characters"
        self.kubectl("create", "secret", "generic", "ddplaunch", key)
        file = self._work / "job.yaml"
        file.write_text(yaml.safe_dump(json.loads(json.dumps(document))))  # without aliases
        text = self.cluster.run(["ddplaunch", "inject", file, "--agent-image", agent]).stdout
        for each in options:
            text = re.sub(r"^( *- )--join$", rf"\g<0>\n\g<1>{each}", text, flags=re.MULTILINE)
        self.kubectl("apply", "--filename", "-", stdin=text)

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """Run it in the namespace."""
        return self.cluster.kubectl(*words, "--namespace", self.namespace, stdin=stdin, check=check)

    def logs(self, selector: str, container: str) -> str:
        """Of all pods with these labels that there are."""
        pods = self.cluster.get("pods", namespace=self.namespace, selector=selector)
        names = [each["metadata"]["name"] for each in pods]
        return "".join(self.cluster.api.log(name, container, self.namespace) for name in names)

    def hangs(self, selector: str, container: str, ranks: int) -> None:
        """Wait until all ranks have trained, and one of them has slept for a while."""
        up = f"{ranks} ranks train"
        self.cluster.until(
            lambda: self.logs(selector, container).count("up") == ranks, up, 300, self.described
        )
        time.sleep(HANGING)

    def described(self) -> str:
        """What is in the namespace."""
        return self.cluster.describe(self.namespace)

    def ends(self, name: str) -> tuple[int, str]:
        """Exit code and log of a pod's first container, once that has ended."""
        code: int | None = None

        def ended() -> bool:
            nonlocal code
            pods = self.cluster.get("pods", namespace=self.namespace)
            mine = [each["status"] for each in pods if each["metadata"]["name"] == name]
            states = [each["state"] for status in mine for each in status.get("containerStatuses", [])]
            code = states[0].get("terminated", {}).get("exitCode") if states else None
            return code is not None

        self.cluster.until(ended, f"{name} ends", 300, self.described)
        return code or 0, self.kubectl("logs", name)

    def diagnosed(self, kind: str, name: str) -> dict[str, Any]:
        """The first verdict, for whoever asks while it hangs."""
        return first_verdict(self.cluster, f"kubernetes://{self.namespace}/{kind}/{name}")


def first_verdict(cluster: Cluster, handle: str) -> dict[str, Any]:
    """What is told first of the pods that this handle names; there is a verdict."""
    done = cluster.run(["ddplaunch", "diagnose", handle, "--json"], timeout=240)
    verdicts = json.loads(done.stdout)["verdicts"]
    assert verdicts, f"{done.stdout}{done.stderr}"
    first: dict[str, Any] = verdicts[0]
    return first
