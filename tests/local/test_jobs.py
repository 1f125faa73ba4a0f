"""Jobs on this machine, with real torchrun, from the job file to the exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.busy import BUSY
from tests.layouts.table import EVERY_DAY, LAYOUTS, Layout, read, wrong
from tests.local.conftest import Desk, eventually
from tests.ports import own_port
from tests.webhook import SECRET, webhook


def status(desk: Desk, handle: str) -> dict[str, Any]:
    """`status --json`."""
    data: dict[str, Any] = json.loads(desk.call("status", handle, "--json").stdout)
    return data


def host(desk: Desk, handle: str) -> int:
    """The process that carries the job."""
    folder = desk.folder / "state" / "ddplaunch" / "jobs" / handle.removeprefix("local://")
    pid: int = json.loads((folder / "host.json").read_text())["pid"]
    return pid


def steps_seen(desk: Desk, handle: str) -> bool:
    """Whether the training has begun."""
    return "step 1" in desk.call("logs", handle).stdout


@pytest.mark.whole
def test_all_verbs_agree_on_a_job_of_two_nodes_that_succeeded(desk: Desk) -> None:
    waited = desk.call("submit", desk.job(nodes=2), "--wait")

    assert (0, "local://tiny/1\n") == (waited.returncode, waited.stdout), waited.stderr
    assert {f"[{rank // 2}/{rank}] step 4: 4 ranks" for rank in range(4)} <= set(waited.stderr.splitlines())
    assert "ddplaunch: succeeded after " in waited.stderr
    stated = desk.call("status", "local://tiny")
    assert (0, True) == (stated.returncode, stated.stdout.startswith("local://tiny/1  succeeded after "))
    assert "local://tiny/1  succeeded" in desk.call("list").stdout
    ranks = desk.call("logs", "local://tiny", "--rank", "0,3", "--tail", "2").stdout.splitlines()
    assert {"[0/0]", "[1/3]"} >= {line.split()[0] for line in ranks}
    assert 2 == len(ranks)
    assert [] == json.loads(desk.call("diagnose", "local://tiny", "--json").stdout)["verdicts"]
    desk.gone()


@pytest.mark.whole
def test_a_sweep_is_as_many_jobs_told_apart_by_their_values(desk: Desk) -> None:
    job = desk.job("--steps", "2", nproc=1, more="sweep: {'command[0]': [train.py, /none.py], env.N: [01]}\n")
    waited = desk.call("submit", job, "--wait", seconds=120)
    listed = [line.split()[:5] for line in desk.call("list").stdout.splitlines()]
    stated = desk.call("status", "local://tiny-1/1").stdout.splitlines()

    assert (104, "local://tiny-0/1\nlocal://tiny-1/1\n") == (waited.returncode, waited.stdout), waited.stderr
    assert "ddplaunch: 1 of 2 jobs succeeded\n" in waited.stderr
    assert ["HANDLE", "SWEEP", "STATE", "SUBMITTED", "TOOK"] == listed[0]
    assert [
        ["local://tiny-0/1", "command[0]=train.py", "env.N=01", "succeeded"],
        ["local://tiny-1/1", "command[0]=/none.py", "env.N=01", "failed"],
    ] == sorted(line[:4] for line in listed[1:])
    assert "  of a sweep, with command[0]=/none.py env.N=01" in stated
    desk.gone()


def test_a_submitted_job_is_followed_and_cancelled(desk: Desk) -> None:
    handle = desk.call("submit", desk.job("--steps", "10000")).stdout.strip()
    with desk.start("logs", "-f", handle) as follower:
        assert follower.stdout is not None
        first = next(line for line in follower.stdout if "step 1" in line)
        running = status(desk, handle)
        again = desk.call("status", handle)
        healthy = json.loads(desk.call("diagnose", handle, "--json").stdout)
        cancelled = desk.call("cancel", handle)
        follower.communicate(timeout=BUSY * 30)

    assert first.startswith("[0/")
    assert ("running", None) == (running["state"], running["exit_code"])
    assert 101 == again.returncode
    assert ([], "asked", 2) == (healthy["verdicts"], healthy["evidence"]["why"], healthy["evidence"]["ranks"])
    assert (0, 0) == (cancelled.returncode, follower.returncode), cancelled.stderr
    assert ("cancelled", 60) == (status(desk, handle)["state"], status(desk, handle)["exit_code"])
    assert 103 == desk.call("status", handle).returncode
    assert 0 == desk.call("cancel", handle).returncode
    desk.gone()


@pytest.mark.whole
def test_any_number_of_ctrl_c_detaches_once(desk: Desk) -> None:
    """Every 10 ms until its last moment: the first detaches, and no other one becomes the exit code."""
    with desk.start("submit", desk.job("--steps", "100"), "--wait") as waiting:
        assert waiting.stdout is not None
        handle = waiting.stdout.readline().strip()
        while waiting.poll() is None:
            waiting.send_signal(signal.SIGINT)
            time.sleep(0.01)
        _, err = waiting.communicate(timeout=BUSY * 30)

    assert 101 == waiting.returncode, err
    assert f"detached; {handle} goes on" in err
    assert f"ddplaunch logs -f {handle}" in err
    assert f"ddplaunch cancel {handle}" in err
    assert 0 == desk.call("cancel", handle).returncode
    desk.gone()


def test_ctrl_c_before_the_handle_does_not_hide_it_nor_how_to_end_the_job(desk: Desk) -> None:
    (desk.folder / "python3").write_text(
        f'#!/bin/sh\nwhile [ ! -e {desk.folder}/go ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n'
    )
    (desk.folder / "python3").chmod(0o755)
    desk.env["PATH"] = f"{desk.folder}:{desk.env['PATH']}"
    with desk.start("submit", desk.job("--steps", "100"), "--wait") as waiting:
        eventually((desk.folder / "state/ddplaunch/jobs/tiny/1").exists, "the job is there")
        for _ in range(2):
            waiting.send_signal(signal.SIGINT)
            time.sleep(0.05)
        (desk.folder / "go").touch()
        out, err = waiting.communicate(timeout=BUSY * 30)

    assert (101, "local://tiny/1\n") == (waiting.returncode, out), err
    assert "detached; local://tiny/1 goes on" in err
    assert 0 == desk.call("cancel", "local://tiny/1").returncode
    desk.gone()


def test_a_hang_is_explained_while_it_lasts_and_after(desk: Desk) -> None:
    path = desk.job("--hang-at", "1", more="watchdog: {notice_after: 4s, kill_after: 25s}\n")
    with desk.start("submit", path, "--wait") as waiting:
        assert waiting.stdout is not None
        handle = waiting.stdout.readline().strip()
        eventually(lambda: steps_seen(desk, handle), "the training begins")
        eventually(lambda: status(desk, handle)["verdicts"], "the notice", 30)
        live = json.loads(desk.call("diagnose", handle, "--json").stdout)
        _, err = waiting.communicate(timeout=BUSY * 90)
    ended = desk.call("diagnose", handle, "--html", "report.html")

    assert ("running", [1]) == (live["state"], live["verdicts"][0]["ranks"])
    assert "load_slowly" in live["verdicts"][0]["sentence"]
    assert 105 == waiting.returncode, err
    assert "load_slowly" in ended.stdout.splitlines()[0]
    assert "load_slowly" in (desk.folder / "report.html").read_text()
    desk.gone()


def test_a_taken_port_ends_a_job_at_the_gate_with_its_holder(desk: Desk) -> None:
    port = own_port()
    with socket.create_server(("127.0.0.1", port)):
        started = time.monotonic()
        waited = desk.call("submit", desk.job(more=f"rendezvous: {{port: {port}}}\n"), "--wait")
        took = time.monotonic() - started
    (verdict,) = json.loads(desk.call("diagnose", "local://tiny", "--json").stdout)["verdicts"]

    assert 104 == waited.returncode, waited.stderr
    assert ("port-in-use", "gate", [0]) == (verdict["code"], verdict["where"], verdict["nodes"])
    assert str(os.getpid()) in " ".join([verdict["sentence"], *verdict["facts"]])
    assert took < BUSY * 30
    desk.gone()


def test_a_job_whose_host_is_killed_leaves_no_orphan_and_is_lost(desk: Desk) -> None:
    handle = desk.call("submit", desk.job("--steps", "10000")).stdout.strip()
    eventually(lambda: steps_seen(desk, handle), "the training begins")
    os.kill(host(desk, handle), signal.SIGKILL)
    desk.gone()

    found = status(desk, handle)
    assert "lost" == found["state"]
    assert "stopped from outside, not by `ddplaunch cancel`" in found["detail"]
    assert 103 == desk.call("status", handle).returncode


@pytest.mark.whole
def test_cancelling_a_job_leaves_the_one_beside_it_alone(desk: Desk) -> None:
    first = desk.call("submit", desk.job("--steps", "10000", name="one", nproc=1)).stdout.strip()
    second = desk.call("submit", desk.job("--steps", "150", name="two", nproc=1), "--json").stdout
    handle = json.loads(second)["handle"]
    eventually(lambda: steps_seen(desk, handle), "the second job trains")
    assert 0 == desk.call("cancel", first).returncode

    assert 0 == desk.call("status", handle, "--watch").returncode
    states = {job["handle"]: job["state"] for job in json.loads(desk.call("list", "--json").stdout)}
    assert {first: "cancelled", handle: "succeeded"} == states
    desk.gone()


@pytest.mark.whole
def test_the_doctor_lets_ranks_add_up_and_says_how_fast(desk: Desk) -> None:
    seen = desk.call("doctor", desk.job(nodes=2, nproc=1), "--smoke")

    assert 0 == seen.returncode, seen.stdout + seen.stderr
    assert "smoke test: gloo all_reduce of 2 ranks: 4 B to 16 MiB in " in seen.stdout
    desk.gone()


def test_the_doctor_says_when_the_way_is_clear(desk: Desk) -> None:
    seen = desk.call("doctor", "--nodes", "2")

    assert 0 == seen.returncode, seen.stdout + seen.stderr
    assert seen.stdout.endswith("all checks passed: a job can start here\n")
    assert "nodes 0-1" in seen.stdout
    desk.gone()


@pytest.mark.whole
def test_the_doctor_without_a_job_file_checks_what_the_profile_says(desk: Desk) -> None:
    config = desk.folder / "ddplaunch" / "config.yaml"
    config.parent.mkdir()
    config.write_text("default: lab\nprofiles:\n  lab: {job: {python: /nowhere/python3}}\n")
    desk.env |= {"XDG_CONFIG_HOME": str(desk.folder), "DDPLAUNCH_PROFILE": ""}
    seen = desk.call("doctor")
    without = desk.call("doctor", "--profile", "none")

    assert 104 == seen.returncode, seen.stdout + seen.stderr
    assert "/nowhere/python3" in seen.stdout
    assert seen.stderr.startswith(f"profile lab of {config}\n")
    assert 0 == without.returncode, without.stdout + without.stderr
    desk.gone()


@pytest.mark.whole
@pytest.mark.slow
def test_the_job_of_init_example_trains_and_its_hang_is_explained_once(desk: Desk) -> None:
    begun = desk.call("init", "--example")
    hang = next(shlex.split(line) for line in begun.stderr.splitlines() if "--hang" in line)

    healthy = desk.call("submit", "job.yaml", "--wait", "--set", "command[1]=--epochs=2")
    hung = desk.call(*hang[1:])

    assert 0 == healthy.returncode, healthy.stderr
    assert 105 == hung.returncode, hung.stderr
    end = hung.stderr.rpartition("it hung, and was ended\n\n")[2]
    assert "rank 0 called barrier (train.py:41)" in end.splitlines()[0]
    assert 1 == hung.stderr.count("ddplaunch explain collective-mismatch")
    assert 1 == hung.stderr.count("must call the same collectives in the same order")
    assert "ddplaunch: nothing moves; the job goes on: collective-mismatch: " in hung.stderr
    assert hung.stderr.count("[0/ddplaunch] ----") == 0
    assert desk.call("diagnose").stdout.startswith(end.splitlines()[0])
    desk.gone()


NOTIFY = "watchdog: {notice_after: 4s, kill_after: 25s}\nnotify: [{webhook: {env: THE_URL}}]\n"


@pytest.mark.whole
def test_a_hang_is_told_when_it_is_seen_and_when_it_ends_the_job(desk: Desk) -> None:
    """With the rank and the handle; no file of the job and no line of ours has the URL."""
    with webhook() as server:
        desk.env["THE_URL"] = server.url
        done = desk.call("submit", desk.job("--hang-at", "1", more=NOTIFY), "--wait", seconds=90)

    handle = done.stdout.strip()
    *_, notice, end = server.got  # a slow start may have had its own notice
    assert ["notice", "end"] == [notice["occasion"], end["occasion"]]
    for told in (notice, end):
        assert [[1]] == [verdict["ranks"] for verdict in told["verdicts"]]
        assert told["text"].endswith(f"({handle})")
    assert server.texts()[-2].startswith("tiny goes on, with a notice: ")
    assert server.texts()[-1].startswith("tiny hung and was ended: ")
    folder = desk.folder / "state/ddplaunch/jobs" / handle.removeprefix("local://")
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.whole
def test_a_pause_that_ends_is_withdrawn(desk: Desk) -> None:
    """The notice, its withdrawal, and the good end."""
    with webhook() as server:
        desk.env["THE_URL"] = server.url
        more = NOTIFY.replace("notice_after: 4s, kill_after: 25s", "notice_after: 2s, kill_after: 60s")
        job = desk.job("--pause-at", "2", "--steps", "80", "--pause", "0.1", more=more)
        desk.call("submit", job, "--wait", seconds=90)

    assert ["notice", "withdrawn", "end"] == [each["occasion"] for each in server.got][-3:]
    assert server.texts()[-1].startswith("tiny has finished (local://tiny/")


HERE = [
    pytest.param(each, id=each.name, marks=[] if each.name in EVERY_DAY else [pytest.mark.whole])
    for each in LAYOUTS
    if "local" in each.on
]


@pytest.mark.parametrize("layout", HERE)
@pytest.mark.parametrize("end", ["by itself", "kill -9 of the agent"])
def test_what_a_layout_writes_is_found(desk: Desk, layout: Layout, end: str) -> None:
    """Also when the node's supervisor is killed while the ranks stand."""
    folder = desk.folder / "code"
    stands = {"env": {**layout.keys.get("env", {}), "STANDS": "1"}} if end != "by itself" else {}
    job = layout.lay(folder, nproc_per_node=2, python=sys.executable, **stands)
    done = desk.call("submit", str(job), *(["--wait"] if end == "by itself" else []))
    if end == "by itself":
        assert done.returncode == 0, done.stderr
    else:
        eventually(lambda: desk.call("logs", "--tail", "3").stdout.count("] up") == 2, "two ranks")
        os.kill(supervisor(desk), signal.SIGKILL)
        desk.call("watch")
    copied = desk.call("outputs", "--copy", str(desk.folder / "copied"))

    assert copied.returncode == 0, copied.stderr
    assert [] == wrong(layout, read(desk.folder / "copied"))


def supervisor(desk: Desk) -> int:
    """Return the process of the node's supervisor."""
    for pid in desk.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"run" in words and any(word.endswith(b"agent.pyz") for word in words):
            return pid
    pytest.fail("no supervisor runs")
