"""Jobs in order, and many of them from one file, by the commands of a person on the login machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.backend.commands import ddplaunch, start
from tests.cluster.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

JOB = """\
apiVersion: ddplaunch/v1
name: first
source: [work.py]
command: [work.py, "0"]
resources: {memory: 2Gi}
"""
WORK = """\
import os, pathlib, sys, time
print("value", os.environ.get("VALUE"), flush=True)
while not pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "/").exists():
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(name="files")
def _files(work: Path) -> Path:
    """A job that ends with its first argument, once the file of its second exists."""
    (work / "job.yaml").write_text(JOB)
    (work / "work.py").write_text(WORK)
    return work


def submit(cluster: Cluster, files: Path, *words: str) -> list[str]:
    """The handles of `ddplaunch submit job.yaml --to slurm` with these words."""
    return ddplaunch(cluster, files, "submit", "job.yaml", "--to", "slurm", *words).stdout.split()


def status(cluster: Cluster, files: Path, handle: str) -> dict[str, Any]:
    """What `status --json` says."""
    found: dict[str, Any] = json.loads(
        ddplaunch(cluster, files, "status", handle, "--json", check=False).stdout
    )
    return found


def until(cluster: Cluster, files: Path, handle: str, text: str) -> dict[str, Any]:
    """Wait until the state or the reason of the job is `text`."""
    cluster.until(
        lambda: text == (seen := status(cluster, files, handle))["state"] or text in seen["detail"],
        f"{handle} is {text!r}",
        60,
        lambda: str(status(cluster, files, handle)),
    )
    return status(cluster, files, handle)


@pytest.mark.whole
def test_a_job_starts_when_the_one_before_it_has_succeeded(cluster: Cluster, files: Path) -> None:
    """Until then it says for which one it waits; also after a job of plain sbatch, and one that has ended."""
    go = files / "go"
    (first,) = submit(cluster, files, "--set", f"command=[work.py, 0, {go}]")
    plain = cluster.login(["sbatch", "--parsable", "--wrap=true"], cwd=files).stdout.strip()
    (second,) = submit(
        cluster, files, "--set", "name=second", "--after", first, "--after", f"slurm://{plain}"
    )
    number = first.removeprefix("slurm://")
    until(cluster, files, f"slurm://{plain}", "succeeded")

    waiting = until(cluster, files, second, f"it waits until job {number} has succeeded")
    go.touch()

    assert ("pending", True) == (waiting["state"], "nothing is wrong" in waiting["hint"])
    cluster.until(lambda: "succeeded" == status(cluster, files, second)["state"], "the second has run", 60)
    script = ddplaunch(
        cluster, files, *["submit", "job.yaml", "--to", "slurm", "--dry-run", "--after"], first
    ).stdout
    assert "--dependency" not in script  # Slurm may have forgotten the first


def test_a_job_after_one_that_fails_never_starts_and_says_so(cluster: Cluster, files: Path) -> None:
    """Whether that fails later or has failed already."""
    go = files / "go"
    (first,) = submit(cluster, files, "--set", f"command=[work.py, 3, {go}]")
    (second,) = submit(cluster, files, "--set", "name=second", "--after", first)
    number = first.removeprefix("slurm://")
    go.touch()

    never = until(cluster, files, second, f"it will never start: job {number} has not succeeded")
    refused = ddplaunch(cluster, files, "submit", "job.yaml", "--to", "slurm", "--after", first, check=False)
    unknown = ddplaunch(
        cluster, files, "submit", "job.yaml", "--to", "slurm", "--after", "slurm://987", check=False
    )
    ddplaunch(cluster, files, "cancel", second)

    assert ("pending", True) == (never["state"], f"`ddplaunch cancel {second}`" in never["hint"])
    assert (2, "") == (refused.returncode, refused.stdout)
    assert f"--after: {first} did not succeed (failed)" in refused.stderr
    assert (102, True) == (unknown.returncode, "Slurm has no job 987" in unknown.stderr)
    assert "cancelled" == status(cluster, files, second)["state"]


@pytest.mark.whole
def test_a_wait_for_what_can_never_start_ends_and_leaves_the_job(cluster: Cluster, files: Path) -> None:
    """With the reason, what to do, and exit code 104; a job that is held is waited for."""
    go = files / "go"
    (first,) = submit(cluster, files, "--set", f"command=[work.py, 3, {go}]")
    after = ["submit", "job.yaml", "--to", "slurm", "--set", "name=second", "--after", first, "--wait"]
    with start(cluster, files, *after) as waiting, start(cluster, files, *after, "--json") as scripted:
        cluster.until(lambda: 3 == len(queued(cluster)), "all three are queued", 60)
        held = cluster.login(["sbatch", "--parsable", "--hold", "--wrap=true"], cwd=files).stdout.strip()
        with start(cluster, files, "status", "--watch", f"slurm://{held}") as watching:
            go.touch()
            out, err = waiting.communicate(timeout=90)
            printed, _ = scripted.communicate(timeout=90)
            never = f"it will never start: job {first.removeprefix('slurm://')} has not succeeded"

            assert (104, 104) == (waiting.returncode, scripted.returncode)
            handle = out.strip()
            assert f"error: stopped waiting for {handle}: {never}\n\nhint: " in err
            assert f"`ddplaunch cancel {handle}`" in err
            shown = json.loads(printed)
            assert ("pending", True, never) == (shown["state"], shown["never_starts"], shown["detail"])
            assert {handle, shown["handle"]} <= queued(cluster)
            assert None is watching.poll()  # it was at it for as long as those that gave up

            cluster.login(["scontrol", "release", held])
            watching.communicate(timeout=90)
            assert 0 == watching.returncode


@pytest.mark.whole
def test_a_sweep_that_can_never_start_is_given_up(cluster: Cluster, files: Path) -> None:
    """Each of its jobs with the reason; those that have run keep their result."""
    failed = cluster.login(["sbatch", "--parsable", "--wait", "--wrap=false"], cwd=files, check=False)
    after = f"afterok:{failed.stdout.strip()}"
    with (files / "job.yaml").open("a") as job:
        job.write(f"sweep: {{slurm.dependency: [null, '{after}']}}\n")

    done = ddplaunch(cluster, files, "submit", "job.yaml", "--to", "slurm", "--wait", check=False)

    good, never = done.stdout.split()
    assert 104 == done.returncode
    assert "ddplaunch: 1 of 2 jobs succeeded" in done.stderr
    assert f"{never} slurm.dependency={after}\nddplaunch: pending for " in done.stderr
    assert f"ddplaunch: hint: `ddplaunch cancel {never}`" in done.stderr
    assert {never} == queued(cluster)
    assert "succeeded" == status(cluster, files, good)["state"]


def queued(cluster: Cluster) -> set[str]:
    """The handles of the jobs in Slurm's queue."""
    return {
        f"slurm://{each}" for each in cluster.login(["squeue", "--noheader", "--format=%A"]).stdout.split()
    }
