"""Anybody's own job in pods, which hangs: one command tells why, and leaves nothing in them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import As, Cli
from tests.cluster.kubernetes.backend.jobs_of_others import BEFORE, SLEEPS, Training, documented
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.backends.kubernetes import foreign_evidence


def _diagnosed(cli: Cli, target: str) -> dict[str, Any]:
    code, out, said = cli("diagnose", target, "--json")
    assert 0 == code, said
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_rank_that_sleeps(as_user: As, training: Training, tmp_path: Path) -> None:
    """Rank and pod are named, for one who may do what the page says; the job goes on as it was."""
    training.start(SLEEPS)
    time.sleep(BEFORE)
    ann, pods, before = as_user(documented()), training.pods(), training.leftovers()

    code, text, said = ann(
        "diagnose", f"kubernetes://{training.namespace}?selector=app=llm", "--bundle", tmp_path / "bundle.zip"
    )

    assert 0 == code, said
    assert f"culprit     rank 1 on node 1 ({pods[1]})" in text
    found = _diagnosed(ann, str(tmp_path / "bundle.zip"))
    verdict = found["verdicts"][0]
    assert ("rank-in-user-code", [1], [0], [1]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
        verdict["nodes"],
    ), found
    assert "rank 1 is in main (train.py:" in verdict["sentence"]
    assert [{"node": 0, "host": pods[0]}, {"node": 1, "host": pods[1]}] == found["nodes"]
    assert before == training.leftovers()
    print(text)


@pytest.mark.whole
def test_a_job_that_trains(cli: Cli, training: Training) -> None:
    """Nobody is accused; a plain Job may be named as those of ddplaunch are."""
    training.start("pass")

    found = _diagnosed(cli, f"kubernetes://{training.namespace}/job/llm")
    again = _diagnosed(cli, f"kubernetes://{training.namespace}/llm")

    assert ([], "2 ranks seen; nothing shows that they hang") == (found["verdicts"], found["detail"])
    assert ([], 2) == (again["verdicts"], again["evidence"]["ranks"])


@pytest.mark.whole
def test_a_pod_without_python(cluster: Cluster, as_user: As, namespace: str) -> None:
    """It is told at once; so is a right that is missing, and a job that is not there."""
    container = {
        "name": "main",
        "image": images.TRAINER,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/python3", "-c", "import time; time.sleep(3600)"],
        "env": [{"name": "PATH", "value": "/nowhere"}],
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}, namespace=namespace
    )
    words = ["wait", "pod/bare", "--namespace", namespace, "--for=condition=Ready", "--timeout=100s"]
    cluster.kubectl(*words)
    ann = as_user(documented())
    began = time.monotonic()

    code, _, said = ann("diagnose", f"kubernetes://{namespace}/pod/bare")

    assert (106, True) == (code, "could be looked at: bare: no answer: its image has no python3" in said), (
        said
    )
    assert time.monotonic() - began < foreign_evidence._LIMIT / 2  # it is not waited for
    code, _, said = ann("diagnose", f"kubernetes://{namespace}/job/nothing")
    assert (102, True) == (code, f"of Job nothing in namespace {namespace}" in said), said
    cluster.kubectl("delete", "rolebinding", "ann", "--namespace", namespace)
    role = documented()
    role["metadata"]["name"] = "too-little"
    role["rules"] = [rule for rule in role["rules"] if "pods/exec" not in rule["resources"]]
    code, _, said = as_user(role)("diagnose", f"kubernetes://{namespace}/pod/bare")
    assert (106, True) == (code, "resources: [pods/exec], verbs: [get, create]" in said), said
