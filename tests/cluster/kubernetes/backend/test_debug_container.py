"""Pods of anybody's that show nothing to a command in them: a container beside the ranks shows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import As, Cli
from tests.cluster.kubernetes.backend.jobs_of_others import BEFORE, SLEEPS, Training, documented
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch import api

_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "llm-0.llm",
    "MASTER_PORT": "29500",
}
_SLEEPS = """
import time
def waits_here():
    time.sleep(3600)
waits_here()
"""


def hide_a_rank(cluster: Cluster, namespace: str) -> None:
    """Start the pod `bare`: it finds no python3 on its PATH, and another user than its container's trains."""
    container = {
        "name": "main",
        "image": images.TRAINER,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"],
        "args": ["/usr/bin/python3", "-c", _SLEEPS],
        "env": [{"name": name, "value": value} for name, value in {**_RANK, "PATH": "/nowhere"}.items()],
        "securityContext": {"runAsUser": 0},
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}, namespace=namespace
    )
    words = ["wait", "pod/bare", "--namespace", namespace, "--for=condition=Ready", "--timeout=100s"]
    cluster.kubectl(*words)


def added(cluster: Cluster, namespace: str, pod: str) -> dict[str, Any]:
    """By name, the states of the containers that were added to a pod."""
    found = cluster.get("pods", pod, namespace=namespace)["status"].get("ephemeralContainerStatuses", [])
    return {each["name"]: each["state"] for each in found}


@pytest.mark.whole
def test_a_rank_of_another_user_without_python(
    cluster: Cluster, as_user: As, namespace: str, tmp_path: Path
) -> None:
    """Who may do what the page says sees its stack. The container ends, and the rank goes on."""
    hide_a_rank(cluster, namespace)
    pod, bundle = f"kubernetes://{namespace}/pod/bare", tmp_path / "bundle.zip"
    look, too_little = ("diagnose", pod, "--debug-image", images.TRAINER), documented()
    too_little["rules"] = [each for each in too_little["rules"] if each["verbs"] != ["patch"]]

    code, _, said = as_user(too_little)(*look)
    assert (106, True) == (code, "resources: [pods/ephemeralcontainers], verbs: [patch]" in said), said
    ann = as_user(documented())
    enforce = ["label", "namespace", namespace, "pod-security.kubernetes.io/enforce"]
    cluster.kubectl(*enforce[:-1], f"{enforce[-1]}=baseline")
    code, _, said = ann(*look)
    assert (106, True) == (code, "does not let a container trace" in said), said
    cluster.kubectl(*enforce[:-1], f"{enforce[-1]}-")
    code, _, said = ann(*look, "--bundle", bundle)

    assert 0 == code, said
    evidence = api.diagnose(bundle).evidence
    assert evidence is not None
    (rank,) = evidence.evidence[0].ranks
    assert "waits_here" in [frame.name for stack in rank.stacks for frame in stack.frames]
    cluster.until(
        lambda: "terminated" in added(cluster, namespace, "bare")["ddplaunch-debug-1"], "it ends", 60
    )
    status = cluster.get("pods", "bare", namespace=namespace)["status"]
    assert ["running"] == [key for each in status["containerStatuses"] for key in each["state"]]


@pytest.mark.whole
def test_a_hang_of_ranks_that_may_not_be_traced(cli: Cli, training: Training) -> None:
    """Root of their container sees none of them, as they are an ordinary user's; it is said what would."""
    training.start(SLEEPS, user=1000)
    time.sleep(BEFORE)
    job = f"kubernetes://{training.namespace}/job/llm"

    _, plain, _ = cli("diagnose", job)
    code, text, said = cli("diagnose", job, "--debug-image", images.TRAINER)

    assert "processes may not be looked into (ptrace)" in plain
    assert "`--debug-image IMAGE`" in plain
    assert 0 == code, said
    assert "rank 1 has been in main (train.py:" in text
    assert f"culprit     rank 1 on node 1 ({training.pods()[1]})" in text
    # Of the file that the ranks have, with the loop around it.
    assert "`for step in range(10000): if rank == 1 and step == 5: time.sleep(3600)`" in text
