"""`validate --to kubernetes`: the server is asked, and gets no object."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.backend.test_submission import NEVER
from tests.cluster.kubernetes.cluster import Cluster


def test_the_server_is_asked_and_gets_nothing(
    cluster: Cluster, cli: Cli, write: Write, namespace: str, tmp_path: Path
) -> None:
    """Also about a name that a job has: the next one counts up."""
    job = write("tiny", "print('hello')\n")
    nowhere = tmp_path / "nowhere.yaml"
    nowhere.write_text(job.read_text().replace(namespace, "nosuchnamespace"))
    (tmp_path / "train.py").touch()
    queued = write("queued", "print('hello')\n", kubernetes={"queue": "team-a"})

    good = cli("validate", job, "--to", "kubernetes")
    refused = cli("validate", nowhere, "--to", "kubernetes")
    without_queue = cli("validate", queued, "--to", "kubernetes")

    assert 0 == good[0], good[2]
    assert f"{job}: good for kubernetes; " in good[2]
    assert " would create it\n" in good[2]
    assert 106 == refused[0], refused[2]
    assert "nosuchnamespace" in refused[2]
    assert (106, True) == (without_queue[0], "queue" in without_queue[2])
    assert [] == cluster.get("jobs", namespace=namespace)
    assert 0 == cli("submit", write("tiny", resources=NEVER), "--to", "kubernetes")[0]
    assert 0 == cli("validate", job, "--to", "kubernetes")[0]
