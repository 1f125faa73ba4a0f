"""The chart on a real cluster: a job that trains, its test, and what cannot be changed."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import with_torch

from ddplaunch.render.archive import agent_archive

CHART = images.ROOT / "charts" / "ddplaunch"


def job_file(cluster: Cluster, command: list[str]) -> dict[str, Any]:
    """Two nodes with this machine's torch, and one rank on each: more would take the CPUs from each other."""
    return {
        "apiVersion": "ddplaunch/v1",
        "name": "digits",
        "nodes": 2,
        "nproc_per_node": 1,
        "image": images.TRAINER,
        "source": "train.py",
        "command": command,
        **with_torch(cluster),
        "kubernetes": {"image_pull_policy": "IfNotPresent"},
    }


@pytest.fixture(name="packaged")
def _packaged(tmp_path: Path) -> Path:
    """The chart with its agent, and beside it the digits example as its source."""
    for path in CHART.rglob("*"):
        if path.is_file():
            place = tmp_path / "ddplaunch" / path.relative_to(CHART)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    (tmp_path / "ddplaunch" / "files" / "agent.pyz").write_bytes(agent_archive())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(images.ROOT / "examples" / "digits" / "train.py", "train.py")
    (tmp_path / "source.b64").write_bytes(base64.encodebytes(buffer.getvalue()))
    return tmp_path / "ddplaunch"


@pytest.mark.whole
@pytest.mark.timeout(900)  # three times torch, on a machine that has other things to do
def test_the_digits_are_learnt_and_the_test_passes(cluster: Cluster, namespace: str, packaged: Path) -> None:
    """`helm install` of a job file trains; `helm test` crosses two nodes; `helm uninstall` leaves nothing."""
    folder = packaged.parent
    values = folder / "job.yaml"
    values.write_text(json.dumps(job_file(cluster, ["train.py", "--epochs", "2"])))
    words: list[str | Path] = ["digits-1", packaged, "--namespace", namespace, "--values", values]
    words += ["--set-file", f"sourceArchive={folder / 'source.b64'}"]

    def condition(kind: str) -> bool:
        found = cluster.get("jobs", "digits", namespace=namespace)["status"].get("conditions", [])
        return any(each["type"] == kind and each["status"] == "True" for each in found)

    said = cluster.run(["helm", "install", *words]).stdout
    assert f"ddplaunch status kubernetes://{namespace}/digits" in said

    cluster.until(
        lambda: condition("Complete") or condition("Failed"),
        "the job ends",
        400,
        lambda: cluster.describe(namespace),
    )
    assert condition("Complete"), cluster.describe(namespace)

    # The same once more is no change, another command is.
    cluster.run(["helm", "upgrade", *words])
    values.write_text(json.dumps(job_file(cluster, ["train.py", "--epochs", "3"])))
    refused = cluster.run(["helm", "upgrade", *words], check=False)
    assert (
        "a job that has been started cannot be changed\n  hint: give the new job another name"
        in refused.stderr
    )

    tested = cluster.run(
        ["helm", "test", "digits-1", "--namespace", namespace, "--timeout", "6m"], timeout=400
    )
    assert "Succeeded" in tested.stdout

    cluster.run(["helm", "uninstall", "digits-1", "--namespace", namespace, "--wait"], timeout=300)
    kinds = ("jobs", "services", "configmaps", "networkpolicies")
    left = [each for kind in kinds for each in cluster.get(kind, namespace=namespace)]
    assert ["kube-root-ca.crt"] == [each["metadata"]["name"] for each in left]
