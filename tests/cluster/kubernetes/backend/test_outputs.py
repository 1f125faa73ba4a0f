"""What ranks write on the volume of `outputs` is there afterwards, whatever became of the pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.cluster import Cluster

WRITES = """\
import os, pathlib, time
node = int(os.environ["NODE_RANK"])
pathlib.Path("out").mkdir(exist_ok=True)
for path in (f"out/x{node}", f"x{node}"):
    with open(path, "wb") as file:
        file.write(bytes(range(256)) * 4000 * (node + 1))
        file.flush()
        os.fsync(file.fileno())
print("has written", flush=True)
time.sleep(600 * int("goes-on" in os.environ["DDPLAUNCH_JOB"]))
"""
PLAIN: dict[str, Any] = {"launch": "none", "python": "python3", "command": ["python3", "train.py"]}
"""A job that needs no torch."""


def wanted(node: int) -> bytes:
    """What that node has written into each of its files."""
    return bytes(range(256)) * 4000 * (node + 1)


def has_written(cluster: Cluster, namespace: str, name: str) -> None:
    """Wait until both nodes have."""
    selector = f"app.kubernetes.io/instance={name}"

    def logs() -> str:
        words = ("logs", "--namespace", namespace, "--selector", selector, "--container", "trainer")
        return cluster.kubectl(*words, "--tail=-1", check=False)

    cluster.until(lambda: logs().count("has written") == 2, "both nodes have written", 240, logs)


def test_files_on_a_claim_outlive_the_pods(
    cluster: Cluster, cli: Cli, write: Write, namespace: str, claim: str, tmp_path: Path
) -> None:
    """Listed by the pods of the job, and, when they have been deleted, copied by one that goes again."""
    volumes = [{"name": "runs", "mount_path": "/runs", "claim": claim}]
    asks = {"volumes": volumes, "outputs": {"volume": "runs", "path": "team"}}
    code, out, said = cli("submit", write("goes-on", WRITES, **PLAIN, **asks), "--to", "kubernetes")
    assert (0, f"kubernetes://{namespace}/goes-on\n") == (code, out), said
    assert "lost with their pods" not in said
    handle = out.strip()
    has_written(cluster, namespace, "goes-on")
    uid = cluster.get("jobs", "goes-on", namespace=namespace)["metadata"]["uid"]

    code, out, said = cli("outputs", handle)
    assert code == 0, said
    assert f"/runs/team/goes-on-{uid[:8]}/work, on the claim runs" in out
    assert ["out/x0", "out/x1", "x0", "x1"] == sorted(line.split()[2] for line in out.splitlines()[1:])

    pods = cluster.get("pods", namespace=namespace)
    names = [each["metadata"]["name"] for each in pods]
    cluster.kubectl("delete", "pod", *names, "--namespace", namespace, "--wait=false")
    cluster.until(
        lambda: cli("status", handle)[1].split()[1:2] not in (["running"], ["pending"]), "the job ends", 240
    )
    code, _, said = cli("outputs", handle, "--copy", tmp_path / "here")

    assert code == 0, said
    for node in (0, 1):
        for path in (f"out/x{node}", f"x{node}"):
            assert wanted(node) == (tmp_path / "here" / path).read_bytes(), path
    assert ["out", "out/x0", "out/x1", "x0", "x1"] == sorted(
        str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*")
    )
    jobs = [each["metadata"]["name"] for each in cluster.get("jobs", namespace=namespace)]
    assert ["goes-on"] == jobs

    code, _, said = cli("outputs", handle, "--copy", tmp_path / "here")
    assert (2, True) == (code, "exists already" in said), said
    assert f"what its ranks wrote stays in /runs/team/goes-on-{uid[:8]}/work" in cli("delete", handle)[2]


@pytest.mark.whole
def test_files_on_folders_of_the_machines_are_found_on_each(
    cluster: Cluster, cli: Cli, write: Write, namespace: str, tmp_path: Path
) -> None:
    """Each machine has its own; they are told apart by the node. The end of the job says where they are."""
    if not cluster.ours:
        pytest.skip("leaves files on machines, which only our own let us; unset KUBECONFIG")
    volumes = [{"name": "runs", "mount_path": "/runs", "host_path": f"/var/tmp/{namespace}"}]
    keys = {"volumes": volumes, "outputs": {"volume": "runs"}, "kubernetes": {"one_per_machine": True}}
    code, out, said = cli("submit", write("ends", WRITES, **PLAIN, **keys), "--to", "kubernetes", "--wait")
    assert code == 0, said
    assert "ddplaunch: outputs: `ddplaunch outputs kubernetes://" in said
    assert "will be gone" not in said
    code, _, said = cli("outputs", out.strip(), "--copy", tmp_path / "here")

    assert code == 0, said
    for node in (0, 1):
        for path in (f"out/x{node}", f"x{node}"):
            assert wanted(node) == (tmp_path / "here" / f"node-{node}" / path).read_bytes(), path
    assert 4 == sum(path.is_file() for path in (tmp_path / "here").rglob("*"))


def test_a_job_without_the_key_says_that_its_files_go_with_its_pods(cli: Cli, write: Write) -> None:
    """By each node, at its end; afterwards nothing is there to be listed."""
    code, out, said = cli("submit", write("plain", WRITES, **PLAIN), "--to", "kubernetes", "--wait")
    assert code == 0, said
    assert "written in /ddplaunch/work, will be gone" in said
    code, _, said = cli("outputs", out.strip())

    assert (102, True) == (code, "names no volume under `outputs`" in said), said
