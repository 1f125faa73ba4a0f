"""Jobs that start with the pods that come, with the real torchrun: the Job is complete when node 0 is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.cluster.kubernetes.backend.conftest import Cli, Make, Write, wait
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.gates import GATE
from tests.cluster.kubernetes.pods import evict

from ddplaunch.agent.contract import REGROUP, Exit
from ddplaunch.backends.job import EVERYTHING, Handle, Job, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.saved import open_attempt
from ddplaunch.render import Rendered, RenderedFile

COUNT = """\
import os, time
for step in range({steps}):
    print("step", step, "of", os.environ["WORLD_SIZE"], flush=True)
    time.sleep(0.5)
"""
SLEEP = "import os, time\nprint('one of', os.environ['WORLD_SIZE'], flush=True)\ntime.sleep(600)\n"
GROWS = """\
import os, signal, sys, time
def last(*_):
    print("writes a checkpoint", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
attempt = os.environ["DDPLAUNCH_ATTEMPT"]
print(f"begins with {os.environ['WORLD_SIZE']} ranks, attempt {attempt}, {sys.argv[1:]}", flush=True)
for step in range(1200 if attempt == "0" else 10):
    print("step", step, flush=True)  # a rank that stands still is another matter, and nobody is let in
    time.sleep(0.5)
print("done", flush=True)
"""
RANGE: dict[str, Any] = {"rendezvous": {"backend": "c10d"}, "nodes": {"min": 2, "max": 3}}


def gate(seconds: int) -> dict[str, Any]:
    """The gate of such a job. That torch is all right, it says in other tests."""
    return {"timeout": f"{seconds}s", "port": GATE, "skip": ["interpreter", "versions"]}


def first(rendered: Rendered, pods: int) -> Rendered:
    """The same job, whose controller makes so many pods at first, those of the lowest numbers."""
    ((name, file),) = rendered.files.items()
    text = re.sub(r"^  parallelism: \d+$", f"  parallelism: {pods}", file.content.decode(), flags=re.M)
    files = {name: RenderedFile(text.encode())}
    return Rendered(rendered.target, rendered.job, files, rendered.command, rendered.by_hand)


def all_come(cluster: Cluster, namespace: str, name: str) -> None:
    """Let the controller make the other pods, too."""
    words = ["patch", "job", name, "--namespace", namespace, "--type=merge", "--patch"]
    cluster.kubectl(*words, json.dumps({"spec": {"parallelism": 3}}))


def pods(cluster: Cluster, namespace: str) -> dict[int, Any]:
    """By node."""
    label = "batch.kubernetes.io/job-completion-index"
    found = cluster.get("pods", namespace=namespace)
    return {int(each["metadata"]["labels"][label]): each for each in found}


def words(pod: Any, container: str) -> tuple[int, int, list[str]]:
    """Exit code of a container, and what it left: an exit code and the codes of verdicts."""
    both = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    (end,) = [each["state"]["terminated"] for each in both if each["name"] == container]
    left = json.loads(end["message"])
    return end["exitCode"], left["exit_code"], [each["code"] for each in left["verdicts"]]


def runs(backend: KubernetesBackend, handle: Handle) -> Job:
    """The job, once its ranks run."""
    return wait(backend, handle, lambda seen: seen.status and seen.status.phase == "init_process_group", 300)


@pytest.mark.whole
def test_pods_without_room_hold_up_nobody(cluster: Cluster, cli: Cli, write: Write, namespace: str) -> None:
    """Two machines, one pod on each, and four are asked for: two train to the end, which is the Job's."""
    path = write(
        "range",
        COUNT.format(steps=4),
        gate=gate(45),
        **{**RANGE, "nodes": {"min": 2, "max": 4}},
        kubernetes={"one_per_machine": True},
    )
    code, out, said = cli("submit", path, "--to", "kubernetes", "--wait")

    handle = out.strip()
    assert 0 == code, said
    two = r"nodes \d \(range-\d\) and \d \(range-\d\)"
    assert re.search(rf"node-missing: {two} never came", said), said
    assert re.search(rf"the job goes on without {two}", said), said
    steps = sorted(line.partition("] ")[2] for line in said.splitlines() if "] step" in line)
    assert [f"step {step} of 2" for step in range(4) for _ in range(2)] == steps
    done = cluster.get("jobs", "range", namespace=namespace)["status"]
    assert {"SuccessPolicy"} == {each["reason"] for each in done["conditions"] if each["status"] == "True"}
    assert 2 == done["succeeded"]
    assert "succeeded" in cli("status", handle)[1]
    assert "nothing is wrong: the job succeeded" in cli("diagnose", handle)[1]
    assert 8 == cli("logs", handle)[1].count("] step")


@pytest.mark.whole
def test_a_pod_that_comes_late_ends_well(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """It says why, and neither ends the job that goes on, nor is it called at fault."""
    handle = backend.submit(first(job("range", COUNT.format(steps=160), gate=gate(45), **RANGE), 2))
    seen = runs(backend, handle)
    assert ((), "") == (seen.verdicts, seen.detail)

    all_come(cluster, namespace, "range")
    cluster.until(
        lambda: pods(cluster, namespace).get(2, {}).get("status", {}).get("phase") == "Succeeded",
        "the late pod has ended",
        120,
        lambda: cluster.describe(namespace),
    )
    late = pods(cluster, namespace)[2]
    assert (0, 20, ["node-missing"]) == words(late, "gate")
    said = cluster.kubectl("logs", "--namespace", namespace, late["metadata"]["name"], "--all-containers")
    assert "came when the job had gone on without it" in said
    assert "node 2 has nothing to run" in said
    seen = backend.job(handle)
    assert (State.RUNNING, ()) == (seen.state, seen.verdicts)
    assert seen.status is not None
    assert ("ended", "the job goes on without it") == (
        seen.status.nodes[2].phase,
        seen.status.nodes[2].detail,
    )

    seen = wait(backend, handle, lambda each: each.state.ended)
    assert (State.SUCCEEDED, 0, ()) == (seen.state, seen.exit_code, seen.verdicts)
    assert seen.status is not None
    assert "it did not pass its gate" == seen.status.nodes[2].detail


@pytest.mark.whole
def test_too_few_pods_fail_the_job_at_the_gate(backend: KubernetesBackend, job: Make) -> None:
    """As one of a fixed size, by the verdict on those that never came."""
    handle = backend.submit(first(job("range", SLEEP, gate=gate(10), **RANGE), 1))
    seen = wait(backend, handle, lambda each: each.state.ended)

    assert (State.FAILED, 20) == (seen.state, seen.exit_code)
    assert [("node-missing", [1, 2])] == [(each.code, each.nodes) for each in seen.verdicts]
    assert not seen.gate_passed


@pytest.mark.whole
def test_a_member_that_is_evicted_ends_the_job(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """The others would wait for it: the verdict names it, and neither the rest nor who never came."""
    handle = backend.submit(first(job("range", SLEEP, gate=gate(45), **RANGE), 2))
    runs(backend, handle)
    evict(cluster, namespace, pods(cluster, namespace)[1]["metadata"]["name"])
    seen = wait(backend, handle, lambda each: each.state.ended)

    assert State.LOST is seen.state
    assert [("node-evicted", [1])] == [(each.code, each.nodes) for each in seen.verdicts]


@pytest.mark.whole
def test_a_pod_that_is_deleted_at_the_gate_is_replaced(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """It is nobody's fault: Kubernetes makes another one, which passes the gate with the others."""
    keys = {**RANGE, "nodes": {"min": 2, "max": 4}, "gate": gate(90)}
    handle = backend.submit(first(job("range", COUNT.format(steps=4), **keys), 3))
    wait(
        backend,
        handle,
        lambda seen: seen.status and [each.phase for each in seen.status.nodes[:3]] == ["gate"] * 3,
    )
    pod = pods(cluster, namespace)[2]["metadata"]["name"]
    cluster.kubectl("delete", "pod", pod, "--namespace", namespace, "--wait=false")
    cluster.until(
        lambda: pods(cluster, namespace).get(2, {"metadata": {"name": pod}})["metadata"]["name"] != pod,
        "another pod is node 2",
        60,
        lambda: cluster.describe(namespace),
    )
    seen = wait(backend, handle, lambda each: each.state.ended)

    assert (State.SUCCEEDED, ()) == (seen.state, seen.verdicts)
    lines = list(backend.logs(handle, EVERYTHING, follow=False))
    assert 12 == len([line for line in lines if re.search(r"step \d of 3$", line)]), lines


@pytest.mark.whole
def test_a_newcomer_is_let_in_while_the_job_runs(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """The others stop for it, with time for a checkpoint, and all pass the gate; they are the same pods."""
    keys = {**RANGE, "newcomers": "join", "gate": gate(30), "resume": {"args": ["--resume"]}}
    handle = backend.submit(first(job("range", GROWS, **keys), 2))
    runs(backend, handle)
    before = {node: pod["metadata"]["uid"] for node, pod in pods(cluster, namespace).items()}

    all_come(cluster, namespace, "range")
    seen = wait(backend, handle, lambda each: each.attempt == 1 and each.state.ended, 300)
    assert (State.SUCCEEDED, 0, ()) == (seen.state, seen.exit_code, seen.verdicts)
    there = pods(cluster, namespace)
    assert before == {node: there[node]["metadata"]["uid"] for node in before}
    assert {0: 0} == restarts(there[0])
    lines = [line.partition("] ")[2] for line in backend.logs(handle, EVERYTHING, follow=False)]
    assert 2 == lines.count("begins with 2 ranks, attempt 0, []")
    assert 2 == lines.count("writes a checkpoint")
    assert 3 == lines.count("begins with 3 ranks, attempt 1, ['--resume']")
    assert 3 == lines.count("done")
    assert [(0, REGROUP)] == [
        (each.number, each.status and each.status.exit_code) for each in backend.job(handle).earlier
    ]
    _, bundle = open_attempt(backend.job(handle), 0)
    assert "goes on with node 2 (range-2" in "\n".join(event.text for event in bundle.events)
    left = backend.collect(handle)
    assert left is not None
    assert (1, Exit.OK) == (left.attempt, left.exit_code)


def restarts(pod: Any) -> dict[int, int]:
    """Of all containers of the pod: none was started again."""
    both = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    return {0: sum(each["restartCount"] for each in both)}
