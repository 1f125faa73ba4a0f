"""Containers that cannot be started: the Job ends, and says why, though nobody in its pods could."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.cluster import Cluster


def test_an_image_without_python_ends_the_job(
    cluster: Cluster, cli: Cli, write: Write, namespace: str
) -> None:
    """Within seconds, and not when somebody looks: what could not be started stands in Job and pods."""
    path = write("digits", python="python9")
    code, out, said = cli("submit", path, "--to", "kubernetes", "--wait")
    assert 104 == code, said
    assert "not started: the image has no python9" in said
    assert "name it as `python` in the job file" in said

    job = cluster.get("jobs", "digits", namespace=namespace)
    (failed,) = [each for each in job["status"]["conditions"] if each["type"] == "Failed"]
    assert "PodFailurePolicy" == failed["reason"]
    assert "Container python for pod" in failed["message"]
    ends = [_end(pod) for pod in cluster.get("pods", namespace=namespace)]
    assert [True] == list({'exec: "python9": executable file not found' in end["message"] for end in ends})

    status = json.loads(cli("status", out.strip(), "--json")[1])
    verdicts = [each["code"] for each in status["verdicts"]]
    assert ("failed", 79, ["image-lacks"]) == (status["state"], status["exit_code"], verdicts)
    assert 60 > status["ended"] - status["submitted"]


@pytest.mark.whole
@pytest.mark.fault("launch-failed")
def test_a_trainer_that_its_machine_cannot_start(cli: Cli, write: Write, namespace: str) -> None:
    """Below a file nothing can be mounted; the gate has no such mount, and passes."""
    shm = {"name": "shm", "mountPath": "/etc/passwd/shm"}
    template = {"spec": {"containers": [{"name": "trainer", "volumeMounts": [shm]}]}}
    program = "print('training', flush=True)"
    path = write("digits", program, kubernetes={"pod_template": template})
    code, out, said = cli("submit", path, "--to", "kubernetes", "--wait")
    assert 100 == code, said

    found = json.loads(cli("diagnose", out.strip(), "--json")[1])
    (verdict,) = found["verdicts"]
    assert ("failed", 40, "launch-failed") == (found["state"], found["exit_code"], verdict["code"])
    assert 0 in verdict["nodes"]
    why = "its container trainer was not started: shm cannot be mounted at /etc/passwd/shm: not a directory"
    assert verdict["sentence"].endswith(why)
    assert "`kubernetes.pod_template`" in verdict["hint"]

    shm["mountPath"] = "/dev/shm"
    path = write("mended", program, kubernetes={"pod_template": template})
    code, _, said = cli("submit", path, "--to", "kubernetes", "--wait")
    assert 0 == code, said


def _end(pod: dict[str, Any]) -> dict[str, Any]:
    """Of the container that tries the image's Python."""
    (told,) = [each for each in pod["status"]["initContainerStatuses"] if each["name"] == "python"]
    found: dict[str, Any] = told["state"]["terminated"]
    return found
