"""The host of a local job: real hub, gates and supervisors, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.agent.local.jobs import PRINTS, Job, wait_for, waits_for
from tests.agent.local.jobs import _job as _job  # the fixture `job`
from tests.disks import fill, small_disk
from tests.webhook import SECRET, webhook

from ddplaunch.agent.contract import (
    Env,
    Exit,
    Files,
    GatePlan,
    JobStatus,
    NotifyPlan,
    Phase,
    bundle_file,
    codec,
)

WAITS = "import time; print('it runs', flush=True); time.sleep(60)"


def test_a_job_that_ends_well_leaves_its_output_and_status(job: Job) -> None:
    job.start(PRINTS)

    assert job.end() == Exit.OK
    status = job.status()
    assert (status.phase, status.exit_code, status.verdicts) == (Phase.ENDED, Exit.OK, [])
    assert "it runs" in (job.folder / Files.OUTPUT).read_text()
    assert job.processes() == []
    assert (job.folder / Files.KEY).stat().st_mode & 0o777 == 0o600, "nobody else may read it"


def test_many_signals_stop_a_job_as_one_does(job: Job) -> None:
    job.start(WAITS)
    wait_for(job.runs)
    assert job.process is not None

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGINT):
        job.process.send_signal(number)
        time.sleep(0.1)

    assert job.end() == Exit.STOPPED
    assert job.status().exit_code == Exit.STOPPED
    evidence = bundle_file.read(str(job.folder / Files.BUNDLE)).evidence
    assert evidence is not None
    assert [1] == [len(node.ranks) for node in evidence.evidence]
    assert job.processes() == []


def test_a_second_ctrl_c_does_not_wait_for_a_command_that_ignores_sigterm(job: Job) -> None:
    job.start(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}")
    wait_for(job.runs)
    assert job.process is not None

    begun = time.monotonic()
    for _ in range(2):
        job.process.send_signal(signal.SIGINT)
        time.sleep(0.1)

    assert job.end() == Exit.STOPPED
    assert time.monotonic() - begun < 30
    assert job.processes() == []


@pytest.mark.parametrize("seconds", [0.3, 0.9])
def test_a_job_that_is_stopped_at_its_start_never_runs_its_command(job: Job, seconds: float) -> None:
    job.start(WAITS)
    wait_for(lambda: (job.folder / Files.RUN).exists())
    assert job.process is not None
    time.sleep(seconds - 0.3)

    for number in (signal.SIGTERM, signal.SIGINT):
        job.process.send_signal(number)

    assert job.end() == Exit.STOPPED
    assert job.processes() == []


def test_a_disk_that_fills_up_ends_no_training(job: Job, tmp_path: Path) -> None:
    """It says what it cannot write, and ends as it would have; for its last status room was kept."""
    reading, writing = os.pipe()
    with small_disk(tmp_path / "disk", 32 << 20) as disk, open(reading, "rb") as output:
        job.folder = disk
        release = tmp_path / "release"
        job.start(waits_for(release, "print('x' * 999)"), stdout=writing)
        os.close(writing)
        wait_for(job.runs)
        assert job.process is not None

        fill(disk)
        complaints = [
            f"cannot write {disk}/{Files.OUTPUT}: No space left".encode(),
            f"cannot write {disk}/run/node-0/ranks: No space left on device; output is lost".encode(),
        ]
        lines: list[bytes] = []
        while not all(any(each in line for line in lines) for each in complaints):
            lines += [next(line for line in output if any(each in line for each in complaints))]
        release.touch()
        lines += output
        assert [1, 1] == [sum(each in line for line in lines) for each in complaints]

        assert job.end() == Exit.OK
        assert (job.status().phase, job.status().exit_code) == (Phase.ENDED, Exit.OK)
        assert job.processes() == []


def test_what_a_job_prints_to_a_full_disk_waits_for_room(job: Job, tmp_path: Path) -> None:
    release = tmp_path / "release"
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        with open(disk / "log", "ab") as log:
            filler = fill(disk)
            job.start(waits_for(release, "print('x' * 9999, flush=True)"), stdout=log.fileno())
        wait_for(lambda: (job.folder / Files.OUTPUT).exists())
        wait_for(lambda: (job.folder / Files.OUTPUT).stat().st_size > 1 << 16)
        assert not (disk / "log").read_bytes()
        filler.unlink()
        release.touch()

        assert job.end() == Exit.OK
        assert b"it runs" in (disk / "log").read_bytes()


def test_a_gate_alone_ends_without_starting_the_command(job: Job) -> None:
    job.start(PRINTS, "--gate-only")

    assert job.end() == Exit.OK
    assert not job.runs()
    assert job.status().exit_code == Exit.OK


def test_a_nodes_fault_is_tried_again_as_often_as_asked(job: Job) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        job.start(PRINTS, retries=1, gate=GatePlan(port=taken.getsockname()[1]))

        assert job.end() == Exit.NODE_AT_FAULT
    assert [verdict.code for verdict in job.status().verdicts] == ["port-in-use"]
    first = codec.read(JobStatus, str(job.folder / "run-0" / "status.json"))
    assert (first.attempt, job.status().attempt) == (0, 1)


def test_a_failure_of_the_program_is_never_tried_again(job: Job) -> None:
    job.start("raise SystemExit(7)", retries=3, retry_hangs=True)

    assert job.end() == Exit.WORKER_FAILED
    assert (job.status().attempt, (job.folder / "run-0").exists()) == (0, False)


def test_ranks_find_the_folder_that_the_job_file_names(job: Job, tmp_path: Path) -> None:
    program = "import os; open(os.path.join(os.environ['DDPLAUNCH_RESUME_DIR'], 'a.pt'), 'w').close()"
    job.start(program, resume_dir=str(tmp_path / "kept" / "digits"))

    assert job.end() == Exit.OK
    assert (tmp_path / "kept" / "digits" / "a.pt").exists()


WRITES = f"""
import os, signal, sys, time
def write(*_):
    open(os.path.join(os.environ["DDPLAUNCH_RESUME_DIR"], "last.pt"), "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, write)
{WAITS}
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (WRITES, r"last\.pt was written \d\.\d s after the signal"),
        (WAITS, r"nothing was written into \S+/resume after the signal"),
    ],
)
def test_a_stopped_job_says_whether_it_wrote_a_checkpoint(job: Job, program: str, said: str) -> None:
    job.start(program, resume_args=["--resume"])
    wait_for(job.runs)
    assert job.process is not None
    job.process.send_signal(signal.SIGTERM)

    assert job.end() == Exit.STOPPED
    (node,) = job.status().nodes
    assert re.fullmatch(said, node.detail)
    events = bundle_file.read(str(job.folder / Files.BUNDLE)).events
    assert [node.detail] == [event.text for event in events if event.kind == "checkpoint"]
    assert node.detail in (job.folder / Files.HUB_LOG).read_text()


def test_a_closed_terminal_ends_no_training(job: Job) -> None:
    release = job.folder / "release"
    program = f"{waits_for(release)}\nprint('end')"
    reading, writing = os.pipe()
    job.start(program, stdout=writing)
    os.close(writing)
    wait_for(job.runs)

    os.close(reading)
    release.touch()

    assert job.end() == Exit.OK
    assert "end" in (job.folder / Files.OUTPUT).read_text()


RECIPIENT = NotifyPlan(webhook={"env": "THE_URL"})


@pytest.mark.parametrize(
    ("program", "code", "end"),
    [(PRINTS, Exit.OK, "test has finished"), ("raise SystemExit(7)", Exit.WORKER_FAILED, "test has failed")],
)
def test_the_end_is_told_once_and_no_file_has_the_url(
    job: Job, program: str, code: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhook() as server:
        monkeypatch.setenv("THE_URL", server.url)
        job.start(program, notify=[RECIPIENT])
        assert code == job.end()

    assert [("end", code)] == [(each["occasion"], each["exit_code"]) for each in server.got]
    assert server.texts()[0].startswith(end)
    files = [path for path in job.folder.rglob("*") if path.is_file()]
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]


def kill_gate(job: Job, node: int) -> bool:
    """Kill the gate of this node, if it is there."""
    for pid in job.processes("gate"):
        if f"{Env.NODE}={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def test_a_node_that_is_lost_at_the_gate_is_left_out_where_the_rest_suffices(job: Job) -> None:
    job.start(PRINTS, nodes=3, min_nodes=2, names=["127.0.0.1"] * 3)
    wait_for(lambda: kill_gate(job, 2))

    assert Exit.OK == job.end()
    assert 2 == (job.folder / Files.OUTPUT).read_text().count("it runs")
    status, bundle = job.status(), bundle_file.read(str(job.folder / Files.BUNDLE))
    assert [(0, Exit.OK), (1, Exit.OK), (2, None)] == [(node.node, node.exit_code) for node in status.nodes]
    assert (Phase.ENDED, "the job goes on without it") == (status.nodes[2].phase, status.nodes[2].detail)
    assert "the job goes on without node 2" in "\n".join(event.text for event in bundle.events)
    assert [] == job.processes()
