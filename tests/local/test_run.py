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
def test_a_failing_command_gives_its_own_exit_code_beside_the_verdict(desk: Desk) -> None:
    result = desk.call("run", "--name", "mine", "--", *TORCHRUN, "--raise-at", "1")
    (verdict,) = json.loads(desk.call("diagnose", "local://mine", "--json").stdout)["verdicts"]

    assert 1 == result.returncode, result.stderr
    assert ("rank-failed", [1]) == (verdict["code"], verdict["ranks"])
    assert "ddplaunch diagnose local://mine/1" in result.stderr


@pytest.mark.whole
def test_a_removed_state_folder_makes_no_failure_of_a_success(desk: Desk) -> None:
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
def test_a_command_runs_without_a_state_folder_and_is_told_so(
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
    assert f"`XDG_STATE_HOME={kept} ddplaunch diagnose local://run/1` shows the evidence" in failed.stderr
    desk.env["XDG_STATE_HOME"] = str(kept)
    assert "exit code 7" in desk.call("diagnose", "local://run/1").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts disks")
def test_where_nothing_can_be_written_the_command_runs_without_ddplaunch(desk: Desk, tmp_path: Path) -> None:
    places = "/tmp /var/tmp /dev/shm /mnt"
    script = f"for each in {places}; do mount -t tmpfs -o size=100k none $each; done; cd /; "
    desk.env |= {"TMPDIR": "/mnt", "XDG_STATE_HOME": "/mnt"}
    words = ["unshare", "--mount", "sh", "-c", f"{script} exec ddplaunch run -- sh -c 'echo alone; exit 5'"]

    done = subprocess.run(words, env=desk.env, capture_output=True, text=True, check=False)

    assert (5, "alone\n") == (done.returncode, done.stdout), done.stderr
    assert "the command runs without ddplaunch" in done.stderr


def test_a_command_that_is_not_there_is_named_at_the_gate_with_a_shells_exit_code(desk: Desk) -> None:
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
def test_a_file_is_started_or_refused_as_a_shell_does(
    desk: Desk, tmp_path: Path, content: str, mode: int, code: int, said: str
) -> None:
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(mode)
    result = desk.call("run", "--", str(program))

    shell = subprocess.run(["bash", "-c", str(program)], check=False, stderr=subprocess.DEVNULL)
    assert code == shell.returncode == result.returncode, result.stderr
    assert said in " ".join(result.stderr.split())


@pytest.mark.whole
def test_a_hang_is_noticed_beside_another_torchrun_that_trains(desk: Desk) -> None:
    torchrun = " ".join([TORCHRUN[0], "--standalone", *TORCHRUN[1:]])
    script = f"{torchrun} --steps 10000 & {torchrun} --hang-at 1 & wait"
    with desk.start("run", "--notice-after", "4s", "--", "bash", "-c", script) as process:
        eventually(lambda: "load_slowly" in desk.call("logs", "local://run").stdout, "the hang is named")
        found = json.loads(desk.call("diagnose", "local://run", "--json").stdout)["verdicts"]
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=BUSY * 60)

    assert [("rank-in-user-code", [1], [0])] == [(v["code"], v["ranks"], v["victims"]) for v in found]


@pytest.mark.whole
def test_half_of_a_job_is_called_half_and_nobody_blames_the_network(desk: Desk) -> None:
    words = ["run", "--notice-after", "4s", "--kill-after", "8s", "--name"]
    torchrun = ["--nnodes=2", f"--master-port={own_port()}", "--master-addr=127.0.0.1"]

    def half(node: int) -> list[str]:
        return [*words, f"half-{node}", "--", TORCHRUN[0], f"--node-rank={node}", *torchrun, *TORCHRUN[1:]]

    with desk.start(*half(1), "--hang-at", "3") as other:
        waits = desk.call(*half(0), "--hang-at", "3").stderr
        _, holds = other.communicate(timeout=BUSY * 60)

    seen = "2 of 4 ranks seen; ranks 0 and 1 have not started, or run where ddplaunch does not look"
    assert seen in " ".join(holds.replace("[0/ddplaunch]", "").split())
    assert "rank 3 has been in load_slowly" in holds
    assert "rank-in-user-code" not in waits
    assert "look at the network" not in " ".join(waits.replace("[0/ddplaunch]", "").split())


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.whole), signal.SIGTERM])
def test_a_signal_ends_the_command_as_it_would_without_us(desk: Desk, number: signal.Signals) -> None:
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
    desk.gone()


@pytest.mark.whole
def test_a_signal_that_our_shell_ignores_cancels_a_command_that_handles_it(desk: Desk) -> None:
    """A shell without job control ignores SIGINT for what it starts with `&`; torchrun handles it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = desk.start("run", "--", *TORCHRUN, "--steps", "10000")
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        wait_for_training(desk)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=BUSY * 60)
    stated = desk.call("status", "local://run")

    assert (1, 103) == (process.returncode, stated.returncode), out + err + stated.stdout
    assert "by SIGINT from process" in stated.stdout


@pytest.mark.whole
def test_a_signal_to_a_rank_alone_accuses_no_rank(desk: Desk) -> None:
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
    with desk.start("run", "--", *TORCHRUN, "--steps", "10000") as process:
        wait_for_training(desk)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=BUSY * 60)

    desk.gone()
    stated = desk.call("status", "local://run")
    assert 103 == stated.returncode
    assert "lost" in stated.stdout


PROGRAM = """
import multiprocessing, time
import torch
import torch.distributed as dist

def burn():
    total = 0
    while True:
        total = (total + 1) % 7

dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    open("stopped", "w").write(str(time.time()))
    {doing}
dist.all_reduce(torch.ones(1))
"""
JOINS = "child = multiprocessing.get_context('fork').Process(target=burn); child.start(); child.join()"
KILL_AFTER = 12.0


@pytest.mark.parametrize(
    "doing", [pytest.param(JOINS, id="joins", marks=pytest.mark.whole), pytest.param("burn()", id="computes")]
)
def test_a_rank_that_others_wait_for_is_ended_in_time(desk: Desk, doing: str) -> None:
    """It joins a process that burns CPU, or burns CPU itself: at kill_after the evidence is taken."""
    (desk.folder / "program.py").write_text(PROGRAM.format(doing=doing))
    torchrun = str(Path(sys.executable).parent / "torchrun")
    watchdog = ("--notice-after", "4s", "--kill-after", f"{KILL_AFTER:.0f}s")
    result = desk.call("run", *watchdog, "--", torchrun, "--nproc-per-node=2", "program.py")
    found = json.loads(desk.call("diagnose", "local://run", "--json").stdout)
    took = found["evidence"]["at"] - float((desk.folder / "stopped").read_text())

    assert 105 == result.returncode, result.stderr
    assert ("rank-in-user-code", [0]) == (found["verdicts"][0]["code"], found["verdicts"][0]["ranks"])
    assert KILL_AFTER - 1 < took < 2 * KILL_AFTER + BUSY
    *_, again, where = result.stderr.splitlines()  # behind all that torchrun says about its end
    assert again == f"ddplaunch: rank-in-user-code: {found['verdicts'][0]['sentence']}"
    assert "`ddplaunch diagnose local://run/1` shows the evidence" in where
