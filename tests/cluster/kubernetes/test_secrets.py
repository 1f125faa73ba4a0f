"""A job's secret on a real Kubernetes: no message of a container, no log and no bundle of ours has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import Job
from tests.local.secret_forms import FORMS, SECRET, unpacked

PROGRAM = """
import os, time
token = os.environ["TOKEN"]
print("token", token, flush=True)
if os.environ["RANK"] == "1":
    raise ValueError(f"password={token}")
time.sleep(60)  # rank 0 lives until torchrun ends it over rank 1
"""
pytestmark = [pytest.mark.slow, pytest.mark.whole]


def test_a_secret_that_a_rank_raises(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Its name stands where its value was; a rank's own lines are its own."""
    words = ["create", "secret", "generic", "hub", "--namespace", namespace]
    cluster.kubectl(*words, f"--from-literal=token={SECRET}")
    secrets = {"TOKEN": {"secret": {"name": "hub", "key": "token"}}}
    job = Job.submit(cluster, namespace, tmp_path, PROGRAM, secrets=secrets)
    job.said(0, "hub", "checked in")
    job.listen()

    assert "PodFailurePolicy" == job.ended(240), job.logs()
    (verdict,) = job.bundle().verdicts
    pods = json.dumps(list(job.pods().values()))
    ours = "\n".join(
        line
        for node in (0, 1)
        for line in job.log(node, "trainer").splitlines()
        if not line.startswith(("[0/0]", "[1/1]"))
    )
    hub = unpacked((tmp_path / "hub.log").read_text())

    assert "rank-failed: rank 1 raised ValueError: password=[secret TOKEN]" in hub
    assert "password=[secret TOKEN]" in verdict.sentence
    assert "[secret TOKEN]" in json.dumps(job.last_words(0, "trainer"))
    for text in (pods, ours, hub, str(job.bundle())):
        assert [] == [form for form in FORMS if form in text]
