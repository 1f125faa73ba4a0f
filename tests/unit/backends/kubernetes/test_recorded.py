"""What is said of jobs in every kind of problem: their objects, recorded from a real cluster (1.34), trimmed.

tests/cluster/kubernetes/backend asks a cluster anew.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch.backends.job import Job, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.kubernetes.queries import ApiState
from ddplaunch.backends.kubernetes.snapshot import Snapshot

RECORDED = Path(__file__).parent / "recorded"
WAITING: dict[str, dict[str, str]] = yaml.safe_load((RECORDED / "told.yaml").read_text("utf-8"))


def seen(name: str) -> ApiState:
    """The look that was recorded under that name."""
    data = json.loads((RECORDED / f"{name}.json").read_text())
    owner = data["owner"]
    return ApiState(
        owner["metadata"]["namespace"],
        owner["metadata"]["name"],
        owner,
        data["job"] or owner,
        tuple(data["pods"]),
        tuple(data["events"]),
        data["workload"],
    )


def told(name: str, tmp_path: Path) -> Job:
    """The job as the backend sees it."""
    return KubernetesBackend(tmp_path)._job(Snapshot(seen(name)), None)


@pytest.mark.parametrize("name", WAITING)
def test_a_job_that_does_not_start_says_why(name: str, tmp_path: Path) -> None:
    """One sentence that names nodes, pods and machines, a hint, and a verdict of the same words."""
    text, hint, code = (WAITING[name][key] for key in ("text", "hint", "code"))
    job = told(name, tmp_path)

    assert (State.PENDING, text, hint) == (job.state, job.detail, job.hint)
    assert [(code, text, hint, [0, 1])] == [
        (each.code, each.sentence, each.hint, each.nodes) for each in job.verdicts
    ]


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        (
            "secret2",
            "waiting for secret nosuch, which does not exist",
            "`kubectl get secrets` lists them; create it, and the pod starts",
        ),
        (
            "secretkey",
            "waiting for the key token of Secret kb/has, which has no key of that name",
            "correct `secrets` in the job file, or add the key, and the pod starts",
        ),
    ],
)
def test_each_node_says_what_holds_its_trainer_up(name: str, text: str, hint: str, tmp_path: Path) -> None:
    """The gate has passed, so the job runs; each node says what its trainer waits for."""
    job = told(name, tmp_path)

    assert (State.RUNNING, hint) == (job.state, job.hint)
    assert job.detail.endswith(text)
    assert job.status is not None
    assert [text, text] == [node.detail for node in job.status.nodes]


@pytest.mark.parametrize(
    ("name", "state", "exit_code", "detail", "codes"),
    [
        ("fails", State.FAILED, 40, "", ["rank-failed"]),
        ("oom", State.FAILED, 40, "", ["rank-killed-memory", "launch-failed"]),
        (
            "deadline",
            State.LOST,
            60,
            "Kubernetes ended it at its deadline of 30 s (`kubernetes.active_deadline`)",
            ["node-evicted"],
        ),
        (
            "preempted",
            State.LOST,
            60,
            (
                "node 0 (pod low-0-nb87m): stopped from outside, not by `ddplaunch cancel`: drained, "
                "preempted, evicted or deleted"
            ),
            ["node-evicted"],
        ),
        (
            "evicted",
            State.LOST,
            60,
            (
                "node 1 (pod evict-1-49kxf on worker1): evicted by its machine: Usage of "
                'EmptyDir volume "scratch" exceeds the limit "1Mi".'
            ),
            ["node-evicted"],
        ),
        ("half", State.FAILED, 30, "", ["image-lacks", "gpu-missing"]),
    ],
)
def test_an_end_is_told_by_the_last_words_in_the_pods(
    name: str, state: State, exit_code: int | None, detail: str, codes: list[str], tmp_path: Path
) -> None:
    """By the agents' last words in the pods' status; where they had none, by what Kubernetes did."""
    job = told(name, tmp_path)

    assert (state, exit_code, detail) == (job.state, job.exit_code, job.detail)
    assert codes == [verdict.code for verdict in job.verdicts]
    assert job.status is not None
    assert "ended" == job.status.phase


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (
            {
                "reason": "StartError",
                "exitCode": 128,
                "message": 'unable to start container process: exec: "python9": executable file not found in '
                "$PATH: unknown",
            },
            "the image has no python9 (executable file not found in $PATH)",
        ),
        (
            {
                "reason": "Error",
                "exitCode": 79,
                "message": "error: ddplaunch's agent cannot run on /usr/bin/python3: it is Python 3.8, "
                "wanted 3.9 or newer\n\nhint: use an image with another python3",
            },
            "ddplaunch's agent cannot run on /usr/bin/python3: it is Python 3.8, wanted 3.9 or newer",
        ),
    ],
)
def test_an_image_in_which_no_agent_runs_has_ended_the_job(
    ended: dict[str, Any], text: str, tmp_path: Path
) -> None:
    """Nobody in its pods could say why; the status of the container that was to try it does."""
    base = seen("fails")
    assert base.owner is not None
    said = f"Container python for pod kb/fails-0-x failed with exit code {ended['exitCode']} matching …"
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": said}
    owner = {**base.owner, "status": {"conditions": [failed]}}
    python = {"name": "python", "state": {"terminated": ended}, "lastState": {}}
    status = {"phase": "Failed", "initContainerStatuses": [python]}
    pods = tuple({**pod, "status": status} for pod in base.pods)
    look = Snapshot(dataclasses.replace(base, owner=owner, job=owner, pods=pods))
    job = KubernetesBackend(tmp_path)._job(look, None)

    job = KubernetesBackend(tmp_path)._job(look, None)

    assert (State.FAILED, 79) == (job.state, job.exit_code)
    (verdict,) = job.verdicts
    assert ("image-lacks", True) == (verdict.code, verdict.sentence.endswith(f"): not started: {text}"))


def test_a_suspended_job_is_not_failed(tmp_path: Path) -> None:
    """Nothing is wrong with it, so there is no verdict."""
    job = told("suspended", tmp_path)

    assert (State.PENDING, "it is suspended", ()) == (job.state, job.detail, job.verdicts)
    assert "kubectl patch job susp" in job.hint
