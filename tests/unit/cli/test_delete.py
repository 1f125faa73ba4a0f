"""What `delete` shows, asks and removes, of jobs of this machine; those of clusters have their own tests."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.cli.ended_jobs import ended

from ddplaunch import api
from ddplaunch.agent.contract import Exit, codec
from ddplaunch.backends import outputs
from ddplaunch.backends.folder import state_folder
from ddplaunch.backends.local import backend, host
from ddplaunch.errors import ClusterError


def job(name: str, number: int, days: float = 0.0) -> Path:
    """A job that ended so many days ago, with a checkpoint of 3,000 bytes."""
    folder = state_folder() / "jobs" / name / str(number)
    ended(folder, Exit.OK)
    (folder / "work").mkdir()
    (folder / "work" / "last.pt").write_bytes(b"x" * 3000)
    then = time.time() - 86400 * days
    codec.write(str(folder / backend.HOST), host.Host(pid=2**22 + 1, started=1, boot="gone", at=then - 5))
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))
    return folder


@pytest.fixture(name="state", autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_what_would_go_is_shown_and_without_a_terminal_nothing_goes(call: Call) -> None:
    """The folder, all files, and those among them that may be checkpoints."""
    folder = job("toy", 1)
    answer = call("delete", "local://toy/1")

    assert (2, "") == (answer.code, answer.out)
    first, second, third, fourth, *rest = answer.err.splitlines()
    assert first.startswith("local://toy/1  succeeded")
    assert f"    {folder}" == second
    assert third.startswith("    5 files, 3.")
    assert "    of these the ranks wrote 1 file, 2.9 KiB" == fourth
    assert ["error: nothing was deleted", "", "hint: there is no terminal to ask on; use --yes"] == rest
    assert folder.is_dir()


def test_yes_deletes_and_prints_the_handles(call: Call) -> None:
    """The other submission of its name stays; with the last, nothing of the name is left."""
    first, second = job("toy", 1), job("toy", 2)

    assert (0, "local://toy/2\n") == call("delete", "toy", "--yes")[:2]
    assert (True, False) == (first.exists(), second.exists())
    assert (0, "local://toy/1\n") == call("delete", "toy", "--yes")[:2]
    assert not first.parent.exists()
    assert 102 == call("delete", "toy", "--yes").code


@pytest.mark.parametrize(
    ("answered", "stays"), [("y\n", False), ("\n", True), ("n\n", True), ("yes\n", False)]
)
def test_a_terminal_is_asked(answered: str, stays: bool) -> None:
    """Whatever is no yes is a no."""
    folder = job("toy", 1)
    master, slave = pty.openpty()
    os.write(master, answered.encode())
    words = [str(Path(sys.executable).with_name("ddplaunch")), "delete", "local://toy/1"]
    done = subprocess.run(words, stdin=slave, stdout=subprocess.PIPE, stderr=slave, check=False, timeout=60)
    said = os.read(master, 65536).decode()
    os.close(master)
    os.close(slave)

    assert (103 if stays else 0, stays) == (done.returncode, folder.exists()), said
    assert "delete 1 job, with 5 files, 3." in said
    assert ("nothing was deleted" in said) is stays


def test_old_jobs_are_chosen(call: Call) -> None:
    """By when they ended; a named one that is younger is said to stay."""
    old, young = job("toy", 1, days=9), job("toy", 2, days=2)

    assert (0, "") == call("delete", "toy", "--older", "7d", "--yes")[:2]
    assert (0, "local://toy/1\n") == call("delete", "--older", "7d", "--to", "local", "--yes")[:2]
    assert (False, True) == (old.exists(), young.exists())
    assert "nothing to delete\n" == call("delete", "--older", "7d", "--yes").err
    assert (0, "local://toy/2\n") == call("delete", "--ended", "--yes")[:2]


def test_a_job_that_runs_is_stopped_only_when_told_so(call: Call, state: Path) -> None:
    """By a real host, in both ways of choosing it."""
    keys = {"name": "sleep", "launch": "none", "command": ["sleep", "300"], "gate": {"skip": ["interpreter"]}}
    (state / "job.yaml").write_text(json.dumps({"apiVersion": "ddplaunch/v1", **keys}))
    handle = api.submit(api.load(state / "job.yaml"))
    folder = state_folder() / "jobs/sleep/1"

    assert "nothing to delete\n" == call("delete", "--ended", "--yes").err
    refused = call("delete", str(handle), "--yes")
    assert (2, True) == (refused.code, "use --cancel to stop it first" in refused.err)
    assert folder.is_dir()
    assert (0, f"{handle}\n") == call("delete", str(handle), "--cancel", "--yes")[:2]
    assert not folder.exists()


def test_nobody_deletes_by_accident(call: Call) -> None:
    """No job is the last one, as for other commands."""
    folder = job("toy", 1)
    answer = call("delete", "--yes")

    assert (2, True) == (answer.code, "name the jobs to delete" in answer.err)
    assert folder.is_dir()


def test_a_link_is_removed_and_what_it_leads_to_stays(call: Call, state: Path) -> None:
    """As a data set that the job's folder refers to."""
    folder = job("toy", 1)
    (state / "data").mkdir()
    (state / "data" / "set.bin").write_text("precious")
    (folder / "work" / "data").symlink_to(state / "data")
    assert 0 == call("delete", "toy", "--yes").code

    assert (False, True) == (folder.exists(), (state / "data" / "set.bin").exists())


def test_a_folder_that_is_a_link_is_refused(state: Path) -> None:
    """It may have taken the place of a job's."""
    (state / "data").mkdir()
    (state / "link").symlink_to(state / "data")
    for act in (outputs.counted, outputs.remove):
        with pytest.raises(ClusterError, match="is a link"):
            act(state / "link")
    assert (state / "data").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away and to mount")
def test_what_is_not_ours_is_refused(state: Path) -> None:
    """A folder of another user; and one in which another file system is mounted."""
    theirs, ours = state / "theirs", state / "ours"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ClusterError, match="another user's"):
        outputs.remove(theirs)

    (ours / "work").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", ours / "work"], check=True)
    try:
        (ours / "work" / "set.bin").write_text("precious")
        with pytest.raises(ClusterError, match="another file system is mounted"):
            outputs.remove(ours)
        assert (ours / "work" / "set.bin").exists()
    finally:
        subprocess.run(["umount", ours / "work"], check=True)
