"""Where nodes stand when nobody but their pods can say so."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import Phase
from ddplaunch.backends.kubernetes import node_status

AT = 1_767_225_600.0  # 2026-01-01T00:00:00Z
JOB = {"kind": "Job", "metadata": {"name": "digits"}, "spec": {"completions": 2}}


def pod(node: int, phase: str, **state: Any) -> dict[str, Any]:
    """One whose trainer is in this state."""
    meta = {
        "name": f"digits-{node}-x",
        "uid": f"uid-{node}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"batch.kubernetes.io/job-completion-index": f"{node}"},
    }
    return {
        "metadata": meta,
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [{"name": "trainer", "state": state}]},
    }


def test_a_trainer_that_nobody_can_ask_runs() -> None:
    """For hours, perhaps: it is not said to be in rendezvous. Who has ended holds nobody up."""
    ended = {"exitCode": 0, "finishedAt": "2026-01-01T00:01:50Z"}
    pods = [
        pod(0, "Succeeded", terminated=ended),
        pod(1, "Running", running={"startedAt": "2026-01-01T00:00:08Z"}),
    ]
    found = node_status.status("digits", 0, node_status.nodes(JOB, pods, []), None, AT + 120)

    assert (Phase.RUNNING, AT + 8, []) == (found.phase, found.since, found.waiting_for)
    assert [(Phase.ENDED, 0), (Phase.RUNNING, None)] == [(each.phase, each.exit_code) for each in found.nodes]


def test_a_gate_that_said_no_has_ended() -> None:
    """Also while its pod is not yet called failed; one that has passed waits for its trainer."""
    found = []
    for code in (30, 0):
        gate = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:09Z"}}
        waiting = pod(0, "Pending", waiting={"reason": "PodInitializing"})
        waiting["status"]["initContainerStatuses"] = [{"name": "gate", "state": gate}]
        (node,) = node_status.nodes({**JOB, "spec": {"completions": 1}}, [waiting], [])
        found.append((node.phase, node.since, node.does))

    assert [(Phase.ENDED, AT + 9, ""), (Phase.GATE, AT, "starting the trainer")] == found


def test_a_volume_that_the_kubelet_has_not_heard_of_yet_is_no_trouble() -> None:
    """It says so now and then of healthy pods, and mounts it a second later; one that is missing is."""
    waiting = pod(0, "Pending", waiting={"reason": "PodInitializing"})
    for said, code in (
        ("MountVolume.SetUp failed: failed to sync configmap cache: timed out waiting", None),
        ('MountVolume.SetUp failed for volume "agent" : object "lab"/"digits" not registered', None),
        ('MountVolume.SetUp failed for volume "data" : secret "data" not found', "node-missing"),
    ):
        event = {"reason": "FailedMount", "involvedObject": {"uid": "uid-0"}, "message": said}
        (node,) = node_status.nodes({**JOB, "spec": {"completions": 1}}, [waiting], [event])
        assert code == (node.problem and node.problem.code)
