"""`ddplaunch inject`: an Indexed Job that its user has written, with our gate in it, on a real Kubernetes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import torch_in_pods
from tests.cluster.training import SIX_STEPS, TORCHRUN

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

PROGRAM = Path(sys.executable).with_name("ddplaunch")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: train}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {batch.kubernetes.io/job-name: train}
"""
MANIFEST = f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  backoffLimitPerIndex: 0
  template:
    spec:
      subdomain: train  # the Service
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{batch.kubernetes.io/job-name: train}}}}
      containers:
      - name: train
        image: {images.TRAINER}
        command: [{TORCHRUN}, --nproc-per-node=1, /opt/train/train.py]
        volumeMounts: MOUNTS
      volumes: VOLUMES
"""


class Injected:
    """The Job in one namespace, through the command line and kubectl, as its user would do it."""

    def __init__(self, cluster: Cluster, namespace: str, agent: str, work: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._agent = agent
        self._file = work / "train.yaml"
        mounts, volumes = torch_in_pods(cluster)
        mounts.append({"name": "files", "mountPath": "/opt/train"})
        volumes.append({"name": "files", "configMap": {"name": "train"}})
        text = MANIFEST.replace("MOUNTS", _flow(mounts)).replace("VOLUMES", _flow(volumes))
        self._file.write_text(text)
        (work / "train.py").write_text(SIX_STEPS)
        self._kubectl("create", "configmap", "train", f"--from-file={work / 'train.py'}")

    def make_key(self) -> None:
        """Create the Secret, as the command's note has it."""
        key = "--from-literal=key=a secret of thirty-two characters"
        self._kubectl("create", "secret", "generic", "ddplaunch", key)

    def start(self) -> None:
        """`ddplaunch inject … | kubectl apply -f -`, with as little patience of the gate as the test has."""
        words = [str(PROGRAM), "inject", str(self._file), "--agent-image", str(self._agent)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        text = done.stdout.replace("--join, ", "--join, --gate-timeout=30, ")
        self._kubectl("apply", "--filename", "-", stdin=text)

    def ends(self) -> list[tuple[int, str]]:
        """Exit code and log of both pods, by their index."""
        self._cluster.until(
            lambda: len(codes := self._codes()) == 2 and None not in codes.values(),
            "both pods end",
            240,
            lambda: self._cluster.describe(self._namespace),
        )
        return [(code or 0, self._kubectl("logs", name)) for name, code in sorted(self._codes().items())]

    def delete(self) -> None:
        """Take the Job away, with its pods."""
        self._kubectl("delete", "job", "train", "--cascade=foreground", "--timeout=60s")

    def add_service(self) -> None:
        """Give the pods their names."""
        self._kubectl("apply", "--filename", "-", stdin=SERVICE)

    def _codes(self) -> dict[str, int | None]:
        pods = self._cluster.get("pods", namespace=self._namespace)
        return {
            pod["metadata"]["name"]: each["state"].get("terminated", {}).get("exitCode")
            for pod in pods
            for each in pod["status"].get("containerStatuses", [])
        }

    def _kubectl(self, *words: str, stdin: str = "") -> str:
        return self._cluster.kubectl(*words, "--namespace", self._namespace, stdin=stdin)


def _flow(value: object) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=1 << 20)).strip()


@pytest.fixture(name="job")
def _job(cluster: Cluster, namespace: str, agent: str, tmp_path: Path) -> Injected:
    return Injected(cluster, namespace, agent, tmp_path)


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
def test_the_gate_refuses_what_cannot_meet_and_lets_the_rest_train(job: Injected) -> None:
    """Without its Service the pods have no names: no rank starts. With it the same manifest trains."""
    job.make_key()
    job.start()

    (first, early), (second, late) = job.ends()
    assert 0 == (early + late).count("trained with")
    assert (True, CATALOGUE["dns-not-found"].exit_code) == (first != Exit.OK, second)
    assert "dns-not-found: node 1 cannot resolve train-0.train." in " ".join(late.split()), late

    job.delete()
    job.add_service()
    job.start()

    assert [(Exit.OK, 1)] * 2 == [(code, log.count("trained with 2")) for code, log in job.ends()]
