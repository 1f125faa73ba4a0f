"""Pods of a job from their start to their end, without a cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gate.jobs import COME, wait_for
from tests.agent.pods import Pod, Pods
from tests.agent.pods import _pods as _pods  # the fixture `pods`

from ddplaunch.agent.contract import Env, Exit, Files


@pytest.mark.parametrize("verb", ["hub", "gate", "run"])
def test_a_pod_that_is_deleted_at_once_ends_at_once(pods: Pods, verb: str) -> None:
    """The kernel keeps from PID 1 signals that it does not wait for: the agent waits from its first line."""
    pod = pods.make()[0]
    plan = pod.folder / Files.PLAN
    plan.unlink()
    os.mkfifo(plan, 0o666)
    plan.chmod(0o666)
    container = pod.start(verb)
    held: list[int] = []
    wait_for(lambda: _open(plan, held))  # the agent waits for its plan, and has done nothing yet

    pod.signal(verb, signal.SIGTERM)
    # A signal that comes right before its read() is handled after that, and nothing else would end the read.
    os.close(held[0])

    assert Exit.STOPPED == container.wait(5)


def _open(pipe: Path, held: list[int]) -> bool:
    """Whether somebody reads from `pipe`; then `held` has its other end."""
    try:
        held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.whole
def test_the_hub_stays_after_the_last_node_until_it_is_told_to_end(pods: Pods) -> None:
    zero, one = pods.running(
        "import os, time; print('up', flush=True); time.sleep(3 * int(os.environ['DDPLAUNCH_NODE']))"
    )
    assert zero.containers["run"].wait() == one.containers["run"].wait() == Exit.OK
    for pod in (zero, one):
        assert {"verdicts": [], "exit_code": 0} == pod.last_words("gate") == pod.last_words("run")
    zero.containers["hub"].says("END DDPLAUNCH BUNDLE")

    for pod in (zero, one):
        assert pod.containers["hub"].process.poll() is None
        pod.signal("hub", signal.SIGTERM)
        assert Exit.OK == pod.containers["hub"].wait(5)
    assert (Exit.OK, []) == (zero.bundle().exit_code, zero.bundle().verdicts)
    assert "on node 1 it has nothing to do" in one.containers["hub"].output


def test_a_failing_gate_is_told_in_every_pods_termination_log(pods: Pods) -> None:
    zero, _ = pods.make(gate={"timeout": COME})
    hub, gate = zero.start("hub"), zero.start("gate")
    assert Exit.NODE_AT_FAULT == gate.wait()
    hub.says("END DDPLAUNCH BUNDLE")

    for verb in ("gate", "hub"):
        said = zero.last_words(verb)
        assert (20, ["node-missing"]) == (said["exit_code"], [each["code"] for each in said["verdicts"]])
    assert hub.process.poll() is None
    zero.signal("hub", signal.SIGTERM)
    assert Exit.OK == hub.wait(5)


@pytest.mark.whole
def test_a_gate_hears_that_another_job_has_its_hubs_port(pods: Pods) -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        zero, _ = pods.make(gate={"port": port, "timeout": 60.0})
        for verb in ("hub", "gate"):
            zero.start(verb, **{Env.HUB: f"localhost:{port}"})
        assert Exit.NODE_AT_FAULT == zero.containers["gate"].wait()

    for verb in ("gate", "hub"):
        assert ["port-in-use"] == [each["code"] for each in zero.last_words(verb)["verdicts"]]


@pytest.mark.whole
def test_a_hub_that_is_ended_before_anybody_came_says_only_that(pods: Pods) -> None:
    zero, one = pods.make()
    zero.start("hub").says("listens on")
    one.start("hub").says("nothing to do")
    for pod in (zero, one):
        pod.signal("hub", signal.SIGTERM)
        assert Exit.OK == pod.containers["hub"].wait(5)

    assert Exit.STOPPED == zero.bundle().exit_code


def test_the_hub_has_its_say_when_its_pod_is_deleted_at_the_gate(pods: Pods) -> None:
    zero, _ = pods.make()
    zero.start("hub")
    zero.start("gate").says("waiting for node 1")
    for _ in range(2):
        zero.signal("gate", signal.SIGTERM)
    assert Exit.STOPPED == zero.containers["gate"].wait(5)
    for _ in range(2):
        zero.signal("hub", signal.SIGTERM)

    assert Exit.OK == zero.containers["hub"].wait(10)
    assert Exit.STOPPED == zero.bundle().exit_code
    assert 60 == zero.last_words("gate")["exit_code"]


@pytest.mark.fault("node-evicted")
def test_a_pod_that_is_deleted_in_mid_run_takes_evidence_and_is_named_evicted(pods: Pods) -> None:
    zero, one = pods.running()
    zero.signal("run", signal.SIGTERM)
    assert Exit.STOPPED == zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.STOPPED == one.containers["run"].wait()
    assert Exit.OK == zero.containers["hub"].wait()
    (found,) = zero.bundle().verdicts
    assert ("node-evicted", [0]) == (found.code, found.nodes)
    assert ["node-evicted"] == [each["code"] for each in one.last_words("run")["verdicts"]]


@pytest.mark.whole
def test_signals_that_come_again_do_not_cut_the_evidence_short(pods: Pods) -> None:
    zero, one = pods.running()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        for verb in ("hub", "run"):
            zero.signal(verb, number)

    assert [Exit.STOPPED] * 2 == [pod.containers["run"].wait() for pod in (zero, one)]
    assert Exit.OK == zero.containers["hub"].wait(60)
    found = zero.bundle()
    assert found.evidence is not None
    assert Exit.STOPPED == found.exit_code
    assert [1, 1] == [len(node.ranks) for node in found.evidence.evidence]


@pytest.mark.whole
def test_the_hub_still_tells_when_its_whole_trainer_is_killed(pods: Pods) -> None:
    """As for memory: no word from its supervisor, and the kubelet ends the hub over it. It still tells."""
    zero, one = pods.running()
    zero.signal("run", signal.SIGKILL)
    zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.NODE_AT_FAULT == one.containers["run"].wait()
    assert Exit.OK == zero.containers["hub"].wait()
    (found,) = zero.bundle().verdicts
    assert ("network-lost", [0]) == (found.code, found.nodes)
    assert "went away: its agent ended without a word" in found.sentence


@pytest.mark.whole
def test_a_hub_that_is_started_again_takes_up_the_nodes_that_run(pods: Pods) -> None:
    wait = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('/GO'): time.sleep(0.1)"
    zero, one = pods.running(wait.replace("/GO", str(pods.go)), gate={"timeout": COME})
    zero.signal("hub", signal.SIGKILL)
    zero.containers["hub"].wait()
    zero.start("hub")
    for pod in (zero, one):
        pod.containers["run"].says("the hub answers again", 30)
    time.sleep(COME + 1)  # beyond the gate's timeout
    pods.go.touch()

    assert [0, 0] == [pod.containers["run"].wait() for pod in (one, zero)]
    zero.containers["hub"].says("END DDPLAUNCH BUNDLE")
    left = zero.bundle()
    assert (Exit.OK, [], [0, 1]) == (left.exit_code, left.verdicts, [each.node for each in left.check_ins])


@pytest.mark.whole
def test_a_node_that_hangs_does_not_keep_the_hub_from_its_last_words(pods: Pods) -> None:
    zero, one = pods.running()
    (child,) = Path("/proc").glob(f"{one.containers['run'].process.pid}/task/*/children")
    os.kill(int(child.read_text().split()[0]), signal.SIGSTOP)
    zero.signal("run", signal.SIGTERM)
    zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.OK == zero.containers["hub"].wait(60)
    assert ["node-evicted"] == [found.code for found in zero.bundle().verdicts]


@pytest.mark.whole
def test_orphans_do_not_stay_in_the_hubs_container(pods: Pods) -> None:
    """What `kubectl exec` leaves behind becomes PID 1's; nobody else would bury it."""
    zero, _ = pods.make()
    hub = zero.start("hub")
    hub.says("listens on")
    children = Path(f"/proc/{hub.process.pid}/task/{hub.process.pid}/children")
    first = children.read_text().split()[0]
    orphan = "sleep 0.2 & echo done"
    done = subprocess.run(
        ["nsenter", f"--target={first}", "--pid", "--mount", "sh", "-c", orphan],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "done\n" == done.stdout

    def processes() -> list[str]:
        listed = subprocess.run(
            ["nsenter", f"--target={first}", "--pid", "--mount", "sh", "-c", "cat /proc/[0-9]*/stat"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        return [line for line in listed.splitlines() if "(sleep)" in line]

    wait_for(lambda: not processes())


@pytest.mark.whole
def test_status_is_answered_in_the_hubs_container(pods: Pods, agent: list[str]) -> None:
    zero, _ = pods.running()
    env = {
        "PATH": os.environ["PATH"],
        Env.KEY: pods.key,
        Env.ATTEMPT: "0",
        Env.HUB: "x.{domain}:0",
    }
    done = subprocess.run(
        [*agent, "ask", "status", "--folder", str(zero.folder)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )

    assert "" == done.stderr
    assert [0, 1] == [node["node"] for node in json.loads(done.stdout)["nodes"]]


THREE = {Env.NAMES: "localhost,localhost,localhost"}


def codes(pod: Pod, verb: str) -> tuple[int, list[str]]:
    """Exit code and verdicts in the container's termination log."""
    words = pod.last_words(verb)
    return words["exit_code"], [each["code"] for each in words["verdicts"]]


@pytest.mark.whole
def test_where_too_few_have_come_node_zero_fails_the_job(pods: Pods) -> None:
    zero, _ = pods.make(min_nodes=2, nodes=3, gate={"timeout": COME})
    zero.start("hub", **THREE)

    assert Exit.NODE_AT_FAULT == zero.start("gate", **THREE).wait()
    assert (Exit.NODE_AT_FAULT, ["node-missing"]) == codes(zero, "gate")


COUNTS = """\
import os, signal, sys, time
def last(*_):
    print("checkpoint", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
print("attempt", os.environ["DDPLAUNCH_ATTEMPT"], "of", sys.argv[1:], flush=True)
while not os.path.exists("GO"):
    sum(range(400_000))  # it trains: who only waits for a file does nothing, and newcomers wait for calm
    time.sleep(0.02)
"""
GATE = {"timeout": COME}


def alone(pods: Pods, **plan: Any) -> tuple[Pod, Pod]:
    """Node 0 runs without node 1, which has not come by the deadline."""
    zero, one = pods.make(
        COUNTS.replace("GO", str(pods.go)), min_nodes=1, newcomers=True, gate=GATE, resume_args=["-r"], **plan
    )
    zero.start("hub")
    assert Exit.OK == zero.start("gate").wait()
    zero.start("run").says("attempt 0 of []")
    return zero, one


def ended_well(pods: Pods, *which: Pod) -> None:
    """The job is told to end, and does, with code 0 of all containers."""
    pods.go.touch()
    assert [Exit.OK] * len(which) == [pod.containers["run"].wait(60) for pod in which]


@pytest.mark.whole
def test_a_pod_that_comes_late_is_let_in_as_the_next_attempt(pods: Pods) -> None:
    zero, one = alone(pods)
    gate = one.start("gate")
    gate.says("the job runs, and stops for newcomers when it can")

    assert Exit.OK == gate.wait(60), gate.output
    run = zero.containers["run"]
    run.says("checkpoint")
    run.says("attempt 1 of ['-r']")
    one.start("run").says("attempt 1 of ['-r']")
    ended_well(pods, zero, one)
    hub = zero.containers["hub"]
    hub.says("all ranks have finished")
    assert "the job stops, with time for a checkpoint, and goes on with node 1" in hub.output
    assert 1 == run.output.count("attempt 0 of")  # what the first attempt printed is not printed again
