"""examples/digits comes back on Kubernetes: its pods are taken away, and it goes on from its checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.settings import SHARED

pytestmark = pytest.mark.usefixtures("jobset")

DIGITS = (Path(__file__).parents[4] / "examples" / "digits" / "train.py").read_text()
EPOCHS = 40
ON_TERM = """
import os, pathlib, signal, sys, time
def last_words(*_):
    (pathlib.Path(os.environ["DDPLAUNCH_RESUME_DIR"]) / "last.pt").write_text("weights")
    sys.exit(1)
signal.signal(signal.SIGTERM, last_words)
print("training", flush=True)
time.sleep(600)
"""


def digits(jobs: Jobs, name: str) -> str:
    """The training on two nodes, whose checkpoint is on a folder that all machines see; its handle."""
    words = ["train.py", "--epochs", str(EPOCHS), "--batch-size", "16", "--require", "0.9"]
    return comes_back(jobs, name, DIGITS, command=words, resume_args=["--resume"])


def comes_back(jobs: Jobs, name: str, program: str, resume_args: list[str], **keys: Any) -> str:
    """Submit a job that may come back once, and has a folder for checkpoints; its handle."""
    folder = {"name": "kept", "host_path": f"{SHARED}/{jobs.namespace}", "mount_path": "/kept"}
    options = {"jobset": True, "run_as_user": 0, **keys.pop("kubernetes", {})}
    resume = {"args": resume_args, "dir": "/kept"}
    gate = {"skip": ["interpreter", "versions"]}
    given = {"retries": 1, "resume": resume, "gate": gate, "kubernetes": options, **keys}
    return jobs.submit(name, program, volumes=[folder], **given)


def prints(jobs: Jobs, name: str, text: str) -> None:
    """Wait until its ranks have printed that."""
    jobs.cluster.until(lambda: text in jobs.log(name), f"{name} prints {text!r}", 240, lambda: jobs.log(name))


def pod(jobs: Jobs, name: str, node: int) -> str:
    """The name of that node's pod."""
    label = f"app.kubernetes.io/instance={name},batch.kubernetes.io/job-completion-index={node}"
    (found,) = jobs.cluster.get("pods", namespace=jobs.namespace, selector=label)
    return str(found["metadata"]["name"])


@contextmanager
def followed(jobs: Jobs, handle: str) -> Iterator[list[str]]:
    """The lines of `logs -f`, whole after the block, which ends with the job."""
    said: list[str] = []
    following = jobs.start("logs", "-f", handle)
    try:
        yield said
        out, _ = following.communicate(timeout=300)
        said += out.splitlines()
    finally:
        following.kill()


def epochs(lines: list[str]) -> list[int]:
    """Those that rank 0 has finished, in the order in which it printed them."""
    return [int(found[1]) for line in lines if (found := re.match(r"\[0/0\] epoch +(\d+) ", line))]


@pytest.mark.parametrize("node", [0, 1])
def test_an_evicted_training_loses_what_it_did_since_its_checkpoint(jobs: Jobs, node: int) -> None:
    """Whichever pod is evicted; who follows the job keeps the first attempt's evidence."""
    handle = digits(jobs, "digits")
    with followed(jobs, handle) as lines:
        prints(jobs, "digits", "] epoch  3 ")
        jobs.evict(pod(jobs, "digits", node))
    found = jobs.becomes(handle, "succeeded")

    (at,) = [number for number, line in enumerate(lines) if "resumed after epoch" in line]
    done = int(lines[at].rpartition(" ")[2])
    first, last = epochs(lines[:at]), epochs(lines[at:])
    assert list(range(1, first[-1] + 1)) == first
    assert list(range(done + 1, EPOCHS + 1)) == last
    assert done in (first[-1] - 1, first[-1])
    assert (1, [(0, 60)]) == (
        found["attempt"],
        [(each["attempt"], each["exit_code"]) for each in found["earlier"]],
    )
    shown = jobs.call("status", handle).stdout
    assert "attempt 1: succeeded" in shown
    # Rank 0 is sent a signal where its own pod is evicted; else it may fail first, when its peer has left.
    assert re.search(r"attempt 0: node \d .*was told to stop", shown), shown
    assert node or re.search(r"attempt 0: .*after the signal", shown), shown
    assert "attempt 1" in jobs.call("list", "--to", "kubernetes").stdout
    before = json.loads(jobs.call("diagnose", handle, "--attempt", "0", "--json", check=False).stdout)
    assert "node-evicted" in [each["code"] for each in before["verdicts"]]
    assert "nothing is wrong: the job succeeded" in jobs.call("diagnose", handle).stdout


def test_an_attempt_that_nobody_followed_is_named_as_that(jobs: Jobs) -> None:
    """Its pods took all with them: `status` and `--attempt` say so, and what would have kept it."""
    handle = digits(jobs, "alone")
    prints(jobs, "alone", "] epoch  2 ")
    jobs.evict(pod(jobs, "alone", 1))
    prints(jobs, "alone", "resumed after epoch")

    unseen = (
        "no ddplaunch command followed the job to its end, and its output and evidence were deleted with "
        "its pods"
    )
    assert f"attempt 0: {unseen}" in jobs.call("status", handle, check=False).stdout
    asked = jobs.call("diagnose", handle, "--attempt", "0", check=False)
    assert 2 == asked.returncode
    assert f"has kept nothing of an attempt 0 ({unseen}): found 1" in asked.stderr


def test_an_eviction_says_whether_a_checkpoint_was_written(jobs: Jobs) -> None:
    """The ranks have their grace to write one, and `status` says that they did, also of the last attempt."""
    handle = comes_back(jobs, "last", ON_TERM, resume_args=[], retries=0)
    prints(jobs, "last", "training")
    with followed(jobs, handle) as lines:
        jobs.evict(pod(jobs, "last", 0))
    jobs.becomes(handle, "lost")

    print("\n".join(lines))
    shown = jobs.call("status", handle, check=False).stdout
    assert re.search(r"last\.pt was written \d\.\d s after the signal", shown), shown


def test_a_cancelled_job_does_not_come_back(jobs: Jobs) -> None:
    """It has a retry left; it is gone, and its evidence is here."""
    handle = comes_back(jobs, "ends", ON_TERM, resume_args=[])
    prints(jobs, "ends", "training")
    jobs.call("cancel", handle)

    found = jobs.status(handle)
    assert ("cancelled", 60, 0) == (found["state"], found["exit_code"], found["attempt"])
    assert "last.pt was written" in jobs.call("diagnose", handle, check=False).stdout
    assert "No resources found" in jobs.cluster.run(["kubectl", "get", "pods", "-n", jobs.namespace]).stderr


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
