"""`ddplaunch run -- torchrun …`: in the foreground, the command's own exit code, gone with its caller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import TRAIN, Desk, eventually
from tests.ports import own_port

TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=2", str(TRAIN)]


def wait_for_training(desk: Desk) -> None:
    """Until the ranks have begun."""
    eventually(lambda: "step 1" in desk.call("logs", "local://run").stdout, "the training begins")


def variables(pid: int) -> list[bytes]:
    """What the process was started with; nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.whole
def test_a_command_succeeds(desk: Desk) -> None:
    """Its stdout is its own, its exit code is ours, and it has a handle, whose logs tell ranks apart."""
    result = desk.call("run", "--", *TORCHRUN)
    logs = desk.call("logs", "local://run", "--rank", "1").stdout

    assert 0 == result.returncode, result.stderr
    assert sorted(f"step {step}: 2 ranks" for step in (0, 1, 2, 3, 4) * 2) == sorted(
        result.stdout.splitlines()
    )
    assert [f"[0/1] step {step}: 2 ranks" for step in range(5)] == logs.splitlines()
    assert 0 == desk.call("status", "local://run").returncode


@pytest.mark.whole
def test_a_failing_command_gives_its_own_exit_code(desk: Desk) -> None:
    """torchrun's 1, and the verdict beside it."""
    result = desk.call("run", "--name", "mine", "--", *TORCHRUN, "--raise-at", "1")
    (verdict,) = json.loads(desk.call("diagnose", "local://mine", "--json").stdout)["verdicts"]

    assert 1 == result.returncode, result.stderr
    assert ("rank-failed", [1]) == (verdict["code"], verdict["ranks"])
    assert "ddplaunch diagnose local://mine/1" in result.stderr


@pytest.mark.whole
def test_any_command_may_be_run(desk: Desk) -> None:
    """What is no torchrun has its exit code passed on as well."""
    assert 7 == desk.call("run", "--", "sh", "-c", "echo hello; exit 7").returncode


@pytest.mark.whole
def test_a_state_folder_that_is_removed_changes_no_end(desk: Desk) -> None:
    """A success is 0; of a failure the command's own number is lost."""
    # A file that ddplaunch writes meanwhile makes rm fail, and the folder stays.
    shell = 'until rm -rf "$XDG_STATE_HOME"; do :; done; exit '
    assert 0 == desk.call("run", "--", "sh", "-c", f"{shell} 0").returncode
    assert 1 == desk.call("run", "--", "sh", "-c", f"{shell} 7").returncode


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        pytest.param("ro", "Read-only file system", marks=pytest.mark.whole),
        ("size=100k", "there is no room for a job in"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_without_a_state_folder_it_runs_all_the_same(
    desk: Desk, tmp_path: Path, mount: str, why: str
) -> None:
    """As it would without us; one line says so, and the evidence of a failure is in a private folder."""
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    (state / "ddplaunch").mkdir(parents=True)
    desk.env["TMPDIR"] = str(temporary)
    script = f"mkdir -p {state}; mount -t tmpfs -o {mount} none {state}; exec ddplaunch run -- sh -c "

    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "sh", "-c", f"{script} '{command}'"]
        return subprocess.run(words, env=desk.env, cwd=tmp_path, capture_output=True, text=True, check=False)

    well = run("echo trained")
    assert (0, "trained\n") == (well.returncode, well.stdout), well.stderr
    assert why in well.stderr
    assert [] == list(temporary.iterdir())

    failed = run("exit 7")
    (kept,) = temporary.iterdir()
    assert 7 == failed.returncode
    assert f"`XDG_STATE_HOME={kept} ddplaunch diagnose local://run/1` has the evidence" in failed.stderr
    desk.env["XDG_STATE_HOME"] = str(kept)
    assert "exit code 7" in desk.call("diagnose", "local://run/1").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts disks")
def test_where_nothing_can_be_written_the_command_runs_alone(desk: Desk, tmp_path: Path) -> None:
    """In place of ddplaunch, which says so."""
    places = "/tmp /var/tmp /dev/shm /mnt"
    script = f"for each in {places}; do mount -t tmpfs -o size=100k none $each; done; cd /; "
    desk.env |= {"TMPDIR": "/mnt", "XDG_STATE_HOME": "/mnt"}
    words = ["unshare", "--mount", "sh", "-c", f"{script} exec ddplaunch run -- sh -c 'echo alone; exit 5'"]

    done = subprocess.run(words, env=desk.env, capture_output=True, text=True, check=False)

    assert (5, "alone\n") == (done.returncode, done.stdout), done.stderr
    assert "the command runs without ddplaunch" in done.stderr


def test_a_command_that_is_not_there_is_said(desk: Desk) -> None:
    """A slip in the command's name ends at the gate, by name, with the exit code of a shell."""
    result = desk.call("run", "--", "torchrunn", "train.py")

    assert 127 == result.returncode, result.stdout + result.stderr
    assert "no program torchrunn on PATH" in result.stderr


@pytest.mark.parametrize(
    ("content", "mode", "code", "said"),
    [
        ("exit 7\n", 0o755, 7, ""),
        pytest.param("#!/bin/sh\nexit 7\n", 0o644, 126, "may not be executed", marks=pytest.mark.whole),
        pytest.param("#!/no/such\n", 0o755, 127, "names '/no/such', which is", marks=pytest.mark.whole),
        pytest.param("\0ELF", 0o755, 126, "cannot be started: Exec format error", marks=pytest.mark.whole),
    ],
)
def test_a_file_is_started_as_a_shell_does(
    desk: Desk, tmp_path: Path, content: str, mode: int, code: int, said: str
) -> None:
    """A script without a first line for the kernel runs; what cannot be started has a shell's exit code."""
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(mode)
    result = desk.call("run", "--", str(program))

    shell = subprocess.run(["bash", "-c", str(program)], check=False, stderr=subprocess.DEVNULL)
    assert code == shell.returncode == result.returncode, result.stderr
    assert said in " ".join(result.stderr.split())


@pytest.mark.whole
def test_a_hang_is_ended_with_its_verdict(desk: Desk) -> None:
    """Exit code 105, and the place where the rank stands."""
    result = desk.call(
        "run", "--notice-after", "4s", "--kill-after", "10s", "--", *TORCHRUN, "--hang-at", "0"
    )

    assert 105 == result.returncode, result.stderr
    assert "load_slowly" in result.stderr
    # The notice and the verdict, each once.
    assert 2 == result.stderr.count("rank-in-user-code: "), result.stderr


def test_a_hang_is_noticed_beside_another_torchrun_that_trains(desk: Desk) -> None:
    """Two in one script: the one that hangs is named at once, and none of the other's ranks."""
    torchrun = " ".join([TORCHRUN[0], "--standalone", *TORCHRUN[1:]])
    script = f"{torchrun} --steps 10000 & {torchrun} --hang-at 1 & wait"
    with desk.start("run", "--notice-after", "4s", "--", "bash", "-c", script) as process:
        eventually(lambda: "load_slowly" in desk.call("logs", "local://run").stdout, "the hang is named")
        found = json.loads(desk.call("diagnose", "local://run", "--json").stdout)["verdicts"]
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=BUSY * 60)

    assert [("rank-in-user-code", [1], [0])] == [(v["code"], v["ranks"], v["victims"]) for v in found]


@pytest.mark.whole
def test_half_of_a_job_is_called_half(desk: Desk) -> None:
    """Two of these commands, each with its half: who is seen is named, and nobody blames the network."""
    words = ["run", "--notice-after", "4s", "--kill-after", "8s", "--name"]
    torchrun = ["--nnodes=2", f"--master-port={own_port()}", "--master-addr=127.0.0.1"]

    def half(node: int) -> list[str]:
        return [*words, f"half-{node}", "--", TORCHRUN[0], f"--node-rank={node}", *torchrun, *TORCHRUN[1:]]

    with desk.start(*half(1), "--hang-at", "3") as other:
        waits = desk.call(*half(0), "--hang-at", "3").stderr
        _, holds = other.communicate(timeout=BUSY * 60)

    seen = "2 of 4 ranks seen; ranks 0 and 1 have not started, or run where ddplaunch does not look"
    assert seen in " ".join(holds.split())
    assert "rank 3 is in load_slowly" in holds
    assert "rank-in-user-code" not in waits
    assert "look at the network" not in " ".join(waits.split())


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.whole), signal.SIGTERM])
def test_a_signal_goes_to_the_command(desk: Desk, number: signal.Signals) -> None:
    """The ranks are stopped first, then we end as torchrun does without us; the job counts as cancelled.

    The traceback is torchrun's own, as without us.
    """
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=BUSY * 60)

    assert 1 == process.returncode, out + err
    assert 1 == err.count("told to stop"), err
    assert 103 == desk.call("status", "local://run").returncode
    assert "/ddplaunch/" not in err
    eventually(lambda: not desk.processes(), "all processes end", 10)


@pytest.mark.whole
def test_a_signal_to_a_rank_alone_is_a_stop_from_outside(desk: Desk) -> None:
    """torchrun ends the others because of it, and no rank is accused."""
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        (rank,) = [pid for pid in desk.processes() if b"RANK=1" in variables(pid)]
        os.kill(rank, signal.SIGTERM)
        out, err = process.communicate(timeout=BUSY * 60)
    (verdict,) = json.loads(desk.call("diagnose", "local://run", "--json").stdout)["verdicts"]

    assert 1 == process.returncode, out + err
    assert ("node-evicted", []) == (verdict["code"], verdict["ranks"])
    assert "ended by SIGTERM, and the sender is unknown" in verdict["sentence"]


def test_nothing_outlives_a_launcher_that_was_killed(desk: Desk) -> None:
    """After SIGKILL of `ddplaunch run` no process of it is left."""
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=BUSY * 60)

    eventually(lambda: not desk.processes(), "all processes end", 60)
    stated = desk.call("status", "local://run")
    assert 103 == stated.returncode
    assert "lost" in stated.stdout
