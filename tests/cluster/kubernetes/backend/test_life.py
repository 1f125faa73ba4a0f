"""Jobs from their submission to their end, with the real torchrun in real pods."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.busy import BUSY
from tests.cluster.kubernetes.backend.conftest import SLEEP, Cli, Make, Write, left, wait
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults

from ddplaunch.agent.contract import Exit
from ddplaunch.backends.job import Job, Selection, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend

COUNT = """\
import os, time
for step in range({steps}):
    print('step', step, flush=True)
    time.sleep({pause})
"""


def words(pod: dict[str, Any], container: str) -> dict[str, Any]:
    """What the agent in a container left in its pod's status."""
    statuses = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    (told,) = [each for each in statuses if each["name"] == container]
    found: dict[str, Any] = json.loads(told["state"]["terminated"]["message"])
    return found


def _trains(seen: Job) -> bool:
    """Whether its ranks run; that they move is another matter."""
    return seen.status is not None and seen.status.phase == "init_process_group"


def test_a_job_that_succeeds(cli: Cli, write: Write, namespace: str) -> None:
    """Handle on stdout, places and ranks on stderr; afterwards its logs are there, by rank and by node."""
    path = write("digits", COUNT.format(steps=3, pause=0.2), nproc_per_node=2)
    code, out, said = cli("submit", path, "--to", "kubernetes", "--wait")
    handle = f"kubernetes://{namespace}/digits"
    assert (0, f"{handle}\n") == (code, out), said
    steps = [f"[{rank // 2}/{rank}] step {step}" for rank in range(4) for step in range(3)]
    assert steps == sorted(line for line in said.splitlines() if "step" in line)
    assert "[hub] " in said
    assert "ddplaunch: pending for" in said

    _, shown, _ = cli("logs", handle)
    assert steps == sorted(line for line in shown.splitlines() if "step" in line)
    assert {"[0/gate]", "[1/gate]", "[hub]"} <= {line.split()[0] for line in shown.splitlines()}
    assert "BUNDLE" not in shown
    assert [f"[1/3] step {step}" for step in range(3)] == cli("logs", handle, "--rank", "3")[1].splitlines()
    last = cli("logs", handle, "--node", "0", "-n", "2")[1].splitlines()
    assert [True, True] == [bool(re.match(r"\[0/[01]\] step", line)) for line in last], last

    assert 0 == cli("status", handle)[0]
    assert "nothing is wrong: the job succeeded" in cli("diagnose", handle)[1]
    found = json.loads(cli("diagnose", handle, "--json")[1])
    assert ([], "succeeded") == (found["verdicts"], found["state"])


def test_a_gate_that_says_no(cluster: Cluster, cli: Cli, write: Write, namespace: str) -> None:
    """The Job fails within seconds, and the verdict stands in the Job's and the pods' status."""
    code, _, said = cli("submit", write("digits"), "--to", "kubernetes", "--wait")
    assert 104 == code, said
    assert "/usr/bin/python3 has no torch" in said

    job = cluster.get("jobs", "digits", namespace=namespace)
    (failed,) = [each for each in job["status"]["conditions"] if each["type"] == "Failed"]
    assert "PodFailurePolicy" == failed["reason"]
    assert "failed with exit code 30" in failed["message"]
    pods = cluster.get("pods", namespace=namespace)
    last = [words(pod, "gate") for pod in pods if pod["status"]["phase"] == "Failed"]
    assert {"image-lacks"} == {each["verdicts"][0]["code"] for each in last}
    assert {30} == {each["exit_code"] for each in last}

    status = json.loads(cli("status", f"kubernetes://{namespace}/digits", "--json")[1])
    assert ("failed", 30, "image-lacks") == (
        status["state"],
        status["exit_code"],
        status["verdicts"][0]["code"],
    )
    assert 120 > status["ended"] - status["submitted"]


@pytest.mark.whole
def test_two_jobs_at_once(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str, tmp_path: Path
) -> None:
    """Neither meets the other; cancelled, each keeps its evidence here and leaves nothing there."""
    handles = [backend.submit(job(name, SLEEP)) for name in ("one", "two")]
    for handle in handles:
        wait(backend, handle, lambda seen: _trains(seen), 300)
    for handle in handles:
        lines = list(backend.logs(handle, Selection(ranks=frozenset({0, 1})), follow=False))
        assert ["[0/0] training", "[1/1] training"] == sorted(lines)
        bundle = backend.collect(handle)
        assert bundle is not None
        assert bundle.evidence is not None
        assert [0, 1] == sorted(rank.rank for node in bundle.evidence.evidence for rank in node.ranks)

    for handle in handles:
        seen = backend.cancel(handle)
        assert (State.CANCELLED, 60) == (seen.state, seen.exit_code)
        assert State.CANCELLED is backend.cancel(handle).state
        later = KubernetesBackend(tmp_path / "state" / "ddplaunch")
        assert State.CANCELLED is later.job(handle).state
        later.close()
        kept = backend.collect(handle)
        assert kept is not None
        assert 60 == kept.exit_code
    assert [] == left(cluster, namespace)


@pytest.mark.whole
def test_a_check_up_of_a_port_that_is_closed(faults: Faults, cli: Cli, write: Write, tmp_path: Path) -> None:
    """For people as a page with a map of who reaches whom, for scripts as letters; nobody trains."""
    for machine in faults.cluster.workers:
        faults.nft(machine, "tcp dport 29500 drop")
    gate = {"skip": ["interpreter", "versions"]}
    path, page = write("digits", rendezvous={"port": 29500}, gate=gate), tmp_path / "doctor.html"
    code, out, said = cli("doctor", path, "--to", "kubernetes", "--json", "--html", page)

    print(said)
    found = json.loads(out)
    assert (104, ["port-filtered"]) == (code, [each["code"] for each in found["verdicts"]])
    sentence = found["verdicts"][0]["sentence"]
    assert re.search(r"node 0 \(doctor-\w+-0 on [\w-]+-worker2?[,)]", sentence), sentence
    assert ["oo", "t."] == found["reachability"]["rows"]
    assert {0, 1} == {each["node"] for each in found["checks"]}
    cell = re.search(r"<title>node 1 \([^)]+\) to node 0 \([^)]+\): ([^<]*)</title>", page.read_text())
    assert cell is not None
    assert " port 29500 (master): timeout, " in cell[1]
    assert ": ok in " in cell[1]


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_the_api_server_is_away(faults: Faults, cli: Cli, write: Write) -> None:
    """While somebody waits: he is told, and no line is lost or doubled."""
    path = write("digits", COUNT.format(steps=32, pause=1), nodes=1)
    with cli.start("submit", path, "--to", "kubernetes", "--wait") as doing:
        said = _up_to("step 2", doing)
        faults.pause_api()
        bound = threading.Timer(BUSY * 30, faults.resume_api)
        bound.start()
        said += _up_to("the API server has not answered for", doing)
        bound.cancel()
        faults.resume_api()
        said += _up_to(None, doing)

    _has_seen_all(doing, said)
    assert any("the API server has not answered for" in line for line in said), "".join(said)


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_the_api_server_begins_anew(faults: Faults, cli: Cli, write: Write) -> None:
    """It is away, and then knows nobody for a moment; whoever waits sees all lines, and how the job ends."""
    path = write("digits", COUNT.format(steps=32, pause=1), nodes=1)
    with cli.start("submit", path, "--to", "kubernetes", "--wait") as doing:
        said = _up_to("step 2", doing)
        faults.restart_api()
        said += _up_to(None, doing)

    _has_seen_all(doing, said)


def _up_to(text: str | None, doing: subprocess.Popen[str]) -> list[str]:
    """What it says until a line has `text`; None: until it ends."""
    assert doing.stderr is not None
    said = []
    for line in doing.stderr:
        said.append(line)
        if text is not None and text in line:
            break
    return said


def _has_seen_all(doing: subprocess.Popen[str], said: list[str]) -> None:
    assert 0 == doing.returncode, "".join(said)
    assert [f"[0/0] step {step}" for step in range(32)] == [line.rstrip() for line in said if "step" in line]


STEPS = """\
import time
for step in range(600):
    print('step', step, flush=True)
    time.sleep(1)
"""


@pytest.mark.whole
def test_a_deadline_ends_the_job_and_every_command_names_the_key(
    cli: Cli, write: Write, namespace: str
) -> None:
    """It is no failure of the program: the ranks were told to stop, like those of a job that is cancelled."""
    deadline = {"active_deadline": "40s"}
    path = write("late", STEPS, nodes=1, kubernetes=deadline, watchdog={"kill_after": "20s"})
    code, _, said = cli("submit", path, "--to", "kubernetes", "--wait")
    handle = f"kubernetes://{namespace}/late"
    status = json.loads(cli("status", handle, "--json")[1])
    shown = cli("diagnose", handle)[1]

    words = "Kubernetes ended it at its deadline of 40 s (`kubernetes.active_deadline`)"
    assert 103 == code, said
    assert words in said
    assert ("lost", Exit.STOPPED) == (status["state"], status["exit_code"])
    assert words in status["detail"]
    assert words in shown
    assert "raise `kubernetes.active_deadline`" in shown
