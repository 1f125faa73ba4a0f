"""`ddplaunch run -- torchrun …`: in the foreground, the command's own exit code, gone with its caller."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import TRAIN, Desk, eventually

TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=2", str(TRAIN)]


def wait_for_training(desk: Desk) -> None:
    """Until the ranks have begun."""
    eventually(lambda: "step 1" in desk.call("logs", "local://run").stdout, "the training begins")


def test_a_command_succeeds(desk: Desk) -> None:
    """Its lines come with node and rank, its exit code is ours, and it has a handle afterwards."""
    result = desk.call("run", "--", *TORCHRUN)

    assert 0 == result.returncode, result.stderr
    assert {"[0/0] step 4: 2 ranks", "[0/1] step 4: 2 ranks"} <= set(result.stdout.splitlines())
    assert 0 == desk.call("status", "local://run").returncode


def test_a_failing_command_gives_its_own_exit_code(desk: Desk) -> None:
    """torchrun's 1, and the verdict beside it."""
    result = desk.call("run", "--name", "mine", "--", *TORCHRUN, "--raise-at", "1")
    (verdict,) = json.loads(desk.call("diagnose", "local://mine", "--json").stdout)["verdicts"]

    assert 1 == result.returncode, result.stderr
    assert ("rank-failed", [1]) == (verdict["code"], verdict["ranks"])
    assert "ddplaunch diagnose local://mine/1" in result.stderr


def test_any_command_may_be_run(desk: Desk) -> None:
    """What is no torchrun has its exit code passed on as well."""
    assert 7 == desk.call("run", "--", "sh", "-c", "echo hello; exit 7").returncode


def test_a_command_that_is_not_there_is_said(desk: Desk) -> None:
    """A slip in the command's name ends at the gate, by name."""
    result = desk.call("run", "--", "torchrunn", "train.py")

    assert 104 == result.returncode, result.stdout + result.stderr
    assert "torchrunn" in result.stdout + result.stderr


def test_a_hang_is_ended_with_its_verdict(desk: Desk) -> None:
    """Exit code 105, and the place where the rank stands."""
    result = desk.call(
        "run", "--notice-after", "4s", "--kill-after", "10s", "--", *TORCHRUN, "--hang-at", "0"
    )

    assert 105 == result.returncode, result.stderr
    assert "load_slowly" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_to_the_command(desk: Desk, number: signal.Signals) -> None:
    """Ctrl-C stops the ranks first, then us, with 103."""
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=BUSY * 60)

    assert 103 == process.returncode, out + err
    assert 103 == desk.call("status", "local://run").returncode
    assert "Traceback" not in err
    eventually(lambda: not desk.processes(), "all processes end", 10)


def test_nothing_outlives_a_launcher_that_was_killed(desk: Desk) -> None:
    """After SIGKILL of `ddplaunch run` no process of it is left."""
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=BUSY * 60)

    eventually(lambda: not desk.processes(), "all processes end", 60)
    stated = desk.call("status", "local://run")
    assert 100 == stated.returncode
    assert "lost" in stated.stdout
