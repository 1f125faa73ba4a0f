"""Containers that a machine did not start: the words are those of containerd 1.6 and runc 1.1."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import Exit
from ddplaunch.backends.job import State
from ddplaunch.backends.kubernetes import node_status, outcomes, pods
from ddplaunch.backends.kubernetes.queries import ApiState

SHIM = "failed to create containerd task: failed to create shim task: "
TASK = f"{SHIM}OCI runtime create failed: runc create failed: "
PROCESS = f"{TASK}unable to start container process: "
INIT = f"{PROCESS}error during container init: "
MOUNT = (
    f'{INIT}error mounting "/var/lib/kubelet/pods/9132/volumes/kubernetes.io~empty-dir/shm" to rootfs at '
    '"/etc/passwd/x": open o_path procfd: open /run/containerd/k8s.io/ba17/rootfs/etc/passwd/x: '
    "not a directory: unknown"
)
INSTEAD = "its container trainer was not started: "


def pod(**state: Any) -> dict[str, Any]:
    """Whose trainer is in this state."""
    meta = {"name": "d-0-x", "labels": {"batch.kubernetes.io/job-completion-index": "0"}}
    told = [{"name": "trainer", "state": state}]
    return {"metadata": meta, "spec": {"nodeName": "w1"}, "status": {"containerStatuses": told}}


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (
            f"{INIT}mkdir /etc/passwd: not a directory: unknown",
            "launch-failed",
            "mkdir /etc/passwd: not a directory",
        ),
        (MOUNT, "launch-failed", "shm cannot be mounted at /etc/passwd/x: not a directory"),
        (f"{TASK}no cgroup: unknown", "launch-failed", "no cgroup"),
        ("", "launch-failed", "the container runtime does not say why"),
        (
            f'{PROCESS}exec: "nope": executable file not found in $PATH: unknown',
            "image-lacks",
            "not started: the image has no nope (executable file not found in $PATH)",
        ),
    ],
)
def test_why_a_container_was_not_started(message: str, code: str, text: str) -> None:
    """Whether it is tried again, or was the end of its pod; only a missing program is the image's fault."""
    for state in (
        {"terminated": {"reason": "StartError", "exitCode": 128, "message": message}},
        {"waiting": {"reason": "RunContainerError", "message": message}},
    ):
        found = pods.problem(pod(**state))
        assert found is not None
        assert (code, text if code == "image-lacks" else INSTEAD + text) == (found.code, found.text)


def gate_ended(exit_code: int, **meta: Any) -> dict[str, Any]:
    """A pod whose gate has ended so, by containerd's own words."""
    found = pod(waiting={"reason": "PodInitializing"})
    state = {"terminated": {"reason": "Error", "exitCode": exit_code}}
    found["status"]["initContainerStatuses"] = [{"name": "gate", "state": state}]
    found["metadata"] |= meta
    return found


KILLED = {"terminated": {"reason": "Error", "exitCode": 137}}


@pytest.mark.parametrize(
    ("dead", "code", "who"),
    [(gate_ended(137), "node-missing", "gate"), (pod(**KILLED), "network-lost", "supervisor")],
    ids=["gate", "supervisor"],
)
def test_what_was_killed_is_named(dead: dict[str, Any], code: str, who: str) -> None:
    """It could tell nobody."""
    found = pods.problem(dead)

    assert found is not None
    assert (code, f"its {who} was killed by SIGKILL") == (found.code, found.text)


@pytest.mark.parametrize(
    "ended",
    [gate_ended(Exit.NODE_AT_FAULT), gate_ended(137, deletionTimestamp="2026-11-23T23:17:42Z")],
    ids=["it spoke for itself", "its pod is deleted"],
)
def test_an_end_of_another_kind_explains_nothing(ended: dict[str, Any]) -> None:
    """Kubernetes kills what does not stop in time; the reason is elsewhere."""
    assert pods.problem(ended) is None


def test_a_job_whose_trainer_was_not_started_has_failed() -> None:
    """It is not lost: nobody took it away, and sent again it would end the same."""
    ended = pod(terminated={"reason": "StartError", "exitCode": 128, "message": MOUNT})
    said = "Container trainer for pod lab/d-0-x failed with exit code 128 matching FailJob rule at index 3"
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": said}
    owner = {"metadata": {"name": "d"}, "spec": {"completions": 1}, "status": {"conditions": [failed]}}
    seen = ApiState("lab", "d", owner, owner, (ended,))
    groups = node_status.troubled(node_status.nodes(owner, [ended], []))

    outcome = outcomes.outcome(seen, 0.0, groups)
    assert outcome is not None
    assert (State.FAILED, Exit.WORKER_FAILED) == (outcome.state, outcome.exit_code)
    (verdict,) = outcomes.verdicts(seen, groups, {})
    assert ("launch-failed", "launch", [0]) == (verdict.code, verdict.where, verdict.nodes)
    assert verdict.sentence.startswith("node 0 (pod d-0-x on w1): its container trainer was not started: ")
