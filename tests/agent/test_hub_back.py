"""A hub that is killed: it is started again with what it knew, or the nodes watch and judge alone."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from tests.agent.local.jobs import PRINTS, Job, wait_for, waits_for
from tests.agent.local.jobs import _job as _job  # the fixture `job`
from tests.agent.supervisor.conftest import LAUNCHER

from ddplaunch.agent.contract import Bundle, Exit, Files, GatePlan, Phase, WatchdogPlan, bundle_file

pytestmark = pytest.mark.processes

HANGS = f"import os, signal\n{PRINTS}\nos.kill(os.getpid(), signal.SIGSTOP)"
"""A rank that is stopped, as by a debugger, as soon as it runs."""
WATCHDOG = WatchdogPlan(2.0, 8.0)


def hub_of(job: Job) -> int:
    """The hub's own process, the child of the one that starts it again."""
    return int(json.loads((job.folder / Files.HUB).read_text())["pid"])


def start_ranks(job: Job) -> int:
    """Start a job of two ranks that wait. Returns the process id of rank 1."""
    pid = job.folder / "pid-{}"
    program = "import os, time\nopen({!r}.format(os.environ['RANK']), 'w').write(str(os.getpid()))\n"
    script = job.folder / "rank.py"
    script.write_text(program.format(str(pid)) + PRINTS + "\ntime.sleep(60)\n")
    launch = [sys.executable, "-c", LAUNCHER, str(script)]
    job.start("", launch=launch, nproc_per_node=2, env={"RANKS": "2"})
    path = job.folder / "pid-1"
    wait_for(lambda: path.exists() and path.read_text())
    wait_for(lambda: job.status().phase == Phase.INIT)
    return int(path.read_text())


def kill_hub(job: Job) -> None:
    """Kill the hub, and wait for the one in its place."""
    hub = hub_of(job)
    os.kill(hub, signal.SIGKILL)
    wait_for(lambda: hub_of(job) != hub)


def kill_for_good(job: Job) -> None:
    """The hub, and what would start it again."""
    for pid in job.processes("hub"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: job.processes("hub") == [])


def bundle(job: Job) -> Bundle:
    """What is left of the job."""
    return bundle_file.read(str(job.folder / Files.BUNDLE))


def log(job: Job) -> str:
    """All that the hubs have said."""
    return (job.folder / Files.HUB_LOG).read_text()


def test_a_healthy_job_does_not_notice_that_its_hub_dies(job: Job) -> None:
    release = job.folder / "release"
    job.start(waits_for(release))
    wait_for(job.runs)

    kill_hub(job)
    wait_for(lambda: "the hub answers again" in (job.folder / Files.OUTPUT).read_text())
    release.touch()

    assert job.end() == Exit.OK
    status = job.status()
    assert (status.phase, status.exit_code, status.verdicts) == (Phase.ENDED, Exit.OK, [])
    assert "the hub was killed by signal 9; it is started again" in log(job)
    left = bundle(job)
    assert (left.exit_code, len(left.check_ins)) == (Exit.OK, 1)
    assert {"check-in", "release"} <= {event.kind for event in left.events}
    assert job.processes() == []


def test_the_last_word_of_a_job_waits_for_the_hub_that_comes(job: Job) -> None:
    release, done = job.folder / "release", job.folder / "done"
    job.start(f"{waits_for(release)}\nopen({str(done)!r}, 'w')")
    wait_for(job.runs)
    os.kill(hub_of(job), signal.SIGSTOP)
    release.touch()
    wait_for(done.exists)
    kill_hub(job)

    assert job.end() == Exit.OK
    assert "all ranks have finished" in log(job)


def test_a_hang_is_ended_by_the_hub_in_the_place_of_the_first(job: Job) -> None:
    job.start(HANGS, watchdog=WATCHDOG)
    wait_for(job.runs)

    kill_hub(job)

    assert job.end() == Exit.HANG
    assert [("rank-stopped", [0])] == [(each.code, each.ranks) for each in bundle(job).verdicts]


@pytest.mark.whole
def test_a_hang_without_any_hub_is_ended_by_the_node(job: Job) -> None:
    job.start(HANGS, watchdog=WATCHDOG)
    wait_for(job.runs)

    kill_for_good(job)

    assert job.end() == Exit.HANG
    left = bundle(job)
    assert (Exit.HANG, 1) == (left.exit_code, len(left.check_ins))
    assert [("rank-stopped", [0])] == [(each.code, each.ranks) for each in left.verdicts]
    assert job.status().verdicts == left.verdicts
    assert job.processes() == []


@pytest.mark.whole
def test_a_hang_under_a_hub_that_is_stopped_is_ended_by_the_node(job: Job) -> None:
    """A hub that is silent keeps no watch, though its connections stand."""
    job.start(HANGS, watchdog=WatchdogPlan(2.0, 14.0))
    wait_for(job.runs)

    for pid in job.processes("hub"):
        os.kill(pid, signal.SIGSTOP)

    assert job.end() == Exit.HANG
    assert [("rank-stopped", [0])] == [(each.code, each.ranks) for each in bundle(job).verdicts]


@pytest.mark.whole
def test_a_healthy_job_needs_no_hub_at_all(job: Job) -> None:
    release = job.folder / "release"
    job.start(waits_for(release))
    wait_for(job.runs)
    kill_for_good(job)
    release.touch()

    assert job.end() == Exit.OK
    assert (job.status().exit_code, job.status().verdicts) == (Exit.OK, [])


@pytest.mark.whole
def test_a_rank_that_is_killed_with_the_hub_is_in_the_next_hubs_bundle(job: Job) -> None:
    rank = start_ranks(job)
    os.kill(hub_of(job), signal.SIGKILL)
    os.kill(rank, signal.SIGKILL)

    assert job.end() == Exit.WORKER_FAILED
    left = bundle(job)
    assert [("rank-killed", [1])] == [(each.code, each.ranks) for each in left.verdicts]
    assert left.check_ins


@pytest.mark.whole
def test_what_the_node_saw_is_the_bundle_where_no_hub_comes_back(job: Job) -> None:
    rank = start_ranks(job)
    kill_for_good(job)
    os.kill(rank, signal.SIGKILL)

    assert job.end() == Exit.WORKER_FAILED
    left = bundle(job)
    assert [("rank-killed", [1])] == [(each.code, each.ranks) for each in left.verdicts]
    assert left.check_ins


def test_a_gate_whose_hub_dies_comes_and_begins_again(job: Job) -> None:
    job.start(PRINTS, nodes=2, names=["127.0.0.1", "127.0.0.1"])
    wait_for(lambda: (job.folder / Files.HUB).exists())
    kill_hub(job)

    assert job.end() == Exit.OK
    assert (job.status().exit_code, job.status().verdicts) == (Exit.OK, [])


@pytest.mark.whole
def test_a_hub_is_given_up_after_its_fifth_death_and_the_training_goes_on(job: Job) -> None:
    release = job.folder / "release"
    job.start(waits_for(release))
    wait_for(job.runs)
    for _ in range(5):
        kill_hub(job)
    os.kill(hub_of(job), signal.SIGKILL)
    wait_for(lambda: job.processes("hub") == [])
    release.touch()

    assert job.end() == Exit.OK
    assert "the hub was killed by signal 9, for the 6th time: it is not started again" in log(job)


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.whole)],
    ids=["killed", "stopped"],
)
def test_a_hub_that_dies_whole_at_the_gate_is_started_again_by_its_host(job: Job, number: int) -> None:
    job.start(PRINTS, nodes=2, names=["127.0.0.1", "127.0.0.1"])
    wait_for(lambda: (job.folder / Files.HUB).exists())
    first = hub_of(job)
    wait_for(lambda: len(job.processes("gate")) == 2)
    for pid in job.processes("hub"):
        os.kill(pid, number)

    assert job.end() == Exit.OK
    assert hub_of(job) != first
    assert (job.status().exit_code, job.status().verdicts) == (Exit.OK, [])


def test_a_hub_that_is_stopped_at_the_gate_is_started_again_in_time(job: Job) -> None:
    job.start(PRINTS, nodes=2, names=["127.0.0.1", "127.0.0.1"])
    wait_for(lambda: (job.folder / Files.HUB).exists())
    os.kill(hub_of(job), signal.SIGSTOP)

    assert job.end() == Exit.OK
    assert (job.status().exit_code, job.status().verdicts) == (Exit.OK, [])


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.whole
def test_a_gate_that_is_stopped_for_good_is_judged_and_ended(job: Job, nodes: int) -> None:
    job.start(PRINTS, nodes=nodes, names=["127.0.0.1"] * nodes, gate=GatePlan(timeout=3.0))
    wait_for(lambda: job.processes("gate"))
    os.kill(job.processes("gate")[0], signal.SIGSTOP)

    assert job.end() == Exit.NODE_AT_FAULT
    assert {"node-missing"} == {each.code for each in bundle(job).verdicts}
    assert job.processes() == []


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.whole), 2])
def test_a_gate_that_is_killed_is_the_verdict_at_once(job: Job, nodes: int) -> None:
    job.start(PRINTS, nodes=nodes, names=["127.0.0.1"] * nodes)
    wait_for(lambda: job.processes("gate"))
    os.kill(job.processes("gate")[0], signal.SIGKILL)

    assert job.end() == Exit.NODE_AT_FAULT
    (verdict,) = bundle(job).verdicts
    (node,) = verdict.nodes
    assert verdict.sentence == f"the gate of node {node} was killed by signal 9"
    assert verdict.sentence in (job.folder / Files.NODE.format(node=node) / Files.GATE_LOG).read_text()
