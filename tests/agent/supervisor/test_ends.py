"""How a node ends: held launchers, exit codes, what is left running, the last checkpoint."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.conftest import wait_for

from ddplaunch.agent.contract import Env, JobPlan
from ddplaunch.agent.supervisor import ends
from ddplaunch.agent.supervisor.ends import Launchers, unlaunched_verdict
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc

PARENT = """
import subprocess
with subprocess.Popen(["sleep", "60"]) as child:
    print(child.pid, flush=True)
"""


class Family:
    """A rank and the process that has started it."""

    def __init__(self, words: list[str]) -> None:
        self.parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.parent.stdout is not None
        self.rank = Rank(0, 0, int(self.parent.stdout.readline()))

    @property
    def state(self) -> str:
        stat = proc.stat(self.parent.pid)
        return stat.state if stat is not None else ""

    def close(self) -> None:
        for pid in (self.rank.pid, self.parent.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        self.parent.wait()
        assert self.parent.stdout is not None
        self.parent.stdout.close()


@pytest.fixture(name="python")
def _python() -> Iterator[Family]:
    family = Family([sys.executable, "-c", PARENT])
    yield family
    family.close()


@pytest.fixture(name="shell")
def _shell() -> Iterator[Family]:
    family = Family(["sh", "-c", "sleep 60 & echo $!; wait"])
    yield family
    family.close()


def test_a_launcher_is_held_until_the_evidence_is_there(python: Family) -> None:
    """torchrun, and the parent of mp.spawn, end the others over one: not before these have been looked at."""
    held = Launchers()
    held.hold(python.rank)
    wait_for(lambda: python.state == "T", what="a stopped launcher")
    held.let_go([])

    wait_for(lambda: python.state != "T", what="a launcher that goes on")


def test_a_launcher_is_held_for_a_second_at_most(python: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "HOLD", 0.2)
    held = Launchers()
    held.hold(python.rank)

    def goes_on() -> bool:
        held.let_go_late()
        return python.state != "T"

    wait_for(lambda: python.state == "T", what="a stopped launcher")
    wait_for(goes_on, what="a launcher that goes on")
    held.hold(python.rank)
    assert "T" != python.state


def test_a_shell_is_never_held(shell: Family) -> None:
    """It ends no rank over another."""
    Launchers().hold(shell.rank)

    assert "T" != shell.state


def test_who_is_stopped_by_somebody_else_stays_stopped(python: Family) -> None:
    """Ctrl-Z, or a debugger: it is not ours to let it go on."""
    held: Any = Launchers()
    subprocess.run(["kill", "-STOP", str(python.parent.pid)], check=True)
    wait_for(lambda: python.state == "T", what="a stopped launcher")
    held.hold(python.rank)
    held.let_go([])
    held.begin_attempt()

    assert "T" == python.state


PLAN = JobPlan("trial", 1, 1, [], ["train.py"], names=["n1"])


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk-full"), (errno.EDQUOT, "disk-full"), (errno.ENOENT, "image-lacks")],
)
def test_a_full_disk_is_no_fault_of_the_image(number: int, code: str) -> None:
    """Files of the job that cannot be written for want of room; what is not there is the image's affair."""
    verdict = unlaunched_verdict(PLAN, 0, OSError(number, os.strerror(number), "/var/job/source"))

    assert (code, [0]) == (verdict.code, verdict.nodes)
    assert os.strerror(number) in verdict.sentence


SAVING_PLAN = JobPlan("digits", 1, 1, [], ["train.py"])
SIGNAL = 1000.0


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the ranks' DDPLAUNCH_RESUME_DIR."""
    monkeypatch.setenv(Env.RESUME_DIR, str(tmp_path))
    return tmp_path


def write(path: Path, at: float) -> None:
    """A file that was written then."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, (at, at))


@pytest.mark.parametrize(
    ("name", "after", "said"),
    [
        ("step-7/model.pt", 3, "step-7/model.pt was written 3.0 s after the signal"),
        ("last.pt", -0.008, "last.pt was written 0.0 s after the signal"),
        ("old.pt", -0.1, "nothing was written into {folder} after the signal"),
    ],
)
def test_the_newest_file_after_the_signal_is_named(folder: Path, name: str, after: float, said: str) -> None:
    """Its time is that of the clock's last tick, which may have been before the signal."""
    write(folder / "older.pt", SIGNAL - 60)
    write(folder / name, SIGNAL + after)

    assert said.format(folder=folder) == ends.describe_checkpoint(SAVING_PLAN, SIGNAL)


def test_a_job_that_writes_no_checkpoints_hears_nothing(folder: Path) -> None:
    """Unless its job file says that a later attempt resumes."""
    resumes = JobPlan("digits", 1, 1, [], ["train.py"], resume_args=["--resume"])

    assert "" == ends.describe_checkpoint(SAVING_PLAN, SIGNAL)
    assert f"nothing was written into {folder} after the signal" == ends.describe_checkpoint(resumes, SIGNAL)


def test_a_folder_that_is_not_there_is_not_judged(folder: Path) -> None:
    """It may be on a file system that this node does not see."""
    plan = JobPlan("digits", 1, 1, [], ["train.py"], resume_dir=str(folder / "elsewhere"))

    assert "" == ends.describe_checkpoint(plan, SIGNAL)
