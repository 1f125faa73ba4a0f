"""A JobSet that comes back finds on the volume of `outputs` what its earlier attempt wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.extras.test_resume import pod, prints
from tests.cluster.kubernetes.settings import SHARED

pytestmark = pytest.mark.usefixtures("jobset")

CHECKPOINTS = """
import os, pathlib, time
mine = pathlib.Path("ckpt", os.environ["NODE_RANK"])
if mine.exists():
    print("goes on from", mine.read_text(), flush=True)
else:
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("attempt " + os.environ["DDPLAUNCH_ATTEMPT"])
    print("has written", flush=True)
    time.sleep(600)
"""


def test_a_retry_finds_what_was_written_before(jobs: Jobs, tmp_path: Path) -> None:
    """All attempts have one folder, by the uid of the JobSet; its Jobs have each another."""
    volume = {"name": "runs", "mount_path": "/runs", "host_path": f"{SHARED}/{jobs.namespace}"}
    keys = {"volumes": [volume], "outputs": {"volume": "runs"}, "retries": 1}
    plain = {"launch": "none", "python": "python3", "command": ["python3", "train.py"]}
    options = {"jobset": True, "run_as_user": 0}
    handle = jobs.submit("back", CHECKPOINTS, **keys, **plain, kubernetes=options)
    jobs.cluster.until(lambda: jobs.log("back").count("has written") == 2, "both have written", 240)
    jobs.evict(pod(jobs, "back", 1))
    prints(jobs, "back", "goes on from attempt 0")
    jobs.becomes(handle, "succeeded")
    uid = jobs.cluster.get("jobsets", "back", namespace=jobs.namespace)["metadata"]["uid"]

    listed = jobs.call("outputs", handle).stdout
    assert f"/runs/back-{uid[:8]}/work, on the machines' folder {SHARED}/{jobs.namespace}" in listed
    jobs.call("outputs", handle, "--copy", tmp_path / "here")
    found = {path.name: path.read_text() for path in (tmp_path / "here" / "ckpt").iterdir()}
    assert {"0": "attempt 0", "1": "attempt 0"} == found
