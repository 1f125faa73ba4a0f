"""Jobs whose gate is to say no, and then, when what it said was heeded, yes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import Documents, Job

from ddplaunch.agent.contract import Verdict, codec

GATE = 29400
MASTER = 29500
PLAIN: dict[str, Any] = {
    "python": "python3",
    "rendezvous": {"port": MASTER},
    "gate": {"timeout": "40s", "port": GATE, "skip": ["interpreter", "versions"]},
}
"""Rules of a firewall name ports. Nobody comes to train, so nobody needs torch."""
MENDED: dict[str, Any] = {"name": "mended", "command": ["program.py", "1"]}
"""A job beside the one that failed: by a hint that was followed it trains for a step, and ends."""
CLEAR: dict[str, Any] = {"name": "mended", "gate_only": True}
"""Likewise, where nobody has torch: ranks would only fail once the gate is passed."""
Start = Callable[..., Job]


def gate(**keys: Any) -> dict[str, Any]:
    """That of PLAIN, but for these."""
    return {**PLAIN["gate"], **keys}


def told(
    job: Job, node: int, container: str = "gate", seconds: float = 180.0
) -> tuple[str, list[int], Verdict]:
    """(code, culprits, all of it): the only verdict that this container left for the kubelet."""
    words: dict[str, Any] = {}

    def ended() -> bool:
        job.watch()
        words.update(job.last_words(node, container))
        return words["exit"] is not None

    job.cluster.until(ended, f"{container} of node {node} ends", seconds, job.logs)
    print(job.logs())
    assert words["exit"] == words["exit_code"]
    (found,) = words["verdicts"]
    verdict = codec.load(Verdict, found)
    job.record("seconds", job.told_after(verdict.code))
    return verdict.code, verdict.nodes, verdict


def faulty(found: Verdict) -> list[int]:
    """Nodes that a verdict accuses, and those that it says are not there yet, of a fault that all nodes have.

    The hub speaks two seconds after the last node came; a busy machine starts the next pod later.
    """
    unseen = [node for fact in found.facts for node in re.findall(r"^not checked until nodes? (\d+)", fact)]
    assert found.nodes
    return sorted([*found.nodes, *map(int, unseen)])


def first_told(job: Job) -> list[Verdict]:
    """By nodes that have to see for themselves: some give up first, the others are deleted over it."""

    def ended() -> bool:
        job.watch()
        return bool(job.condition())

    job.cluster.until(ended, "the job ends", 240, job.logs)
    assert "PodFailurePolicy" == job.condition()["reason"]
    print(job.logs())
    words = [job.last_words(node, "gate") for node in job.pods()]
    found = [codec.load(Verdict, each) for end in words for each in end.get("verdicts", [])]
    assert found, words
    job.record("seconds", job.told_after(found[0].code))
    return found


def passes(job: Job) -> None:
    """Its gate does, on both nodes."""
    for node in (0, 1):
        job.said(node, "gate", "gate passed")


def trained(job: Job) -> None:
    """It has, and ended well."""
    assert "Complete" == job.ended()


def document(documents: Documents, kind: str) -> dict[str, Any]:
    """The only one of this kind."""
    (found,) = [each for each in documents if each["kind"] == kind]
    return found


def pod(documents: Documents) -> dict[str, Any]:
    """What all pods of the job are to be."""
    found: dict[str, Any] = document(documents, "Job")["spec"]["template"]["spec"]
    return found


def containers(documents: Documents) -> dict[str, Any]:
    """Of the pod template, by name."""
    return {each["name"]: each for each in [*pod(documents)["initContainers"], *pod(documents)["containers"]]}


def one_pod(documents: Documents) -> None:
    """Node 0's, at first."""
    document(documents, "Job")["spec"]["parallelism"] = 1


def placed(faults: Faults, start: Start, **keys: Any) -> Job:
    """A job whose node 0 waits on the first machine for node 1, which `comes` to the second."""
    first, second = faults.cluster.workers
    faults.cordon(second)
    job = start(one_pod, **keys)
    job.said(0, "gate", "waiting for node 1")
    faults.cluster.kubectl("uncordon", second)
    faults.cordon(first)
    return job


def comes(job: Job) -> None:
    """Node 1."""
    words = ["--namespace", job.namespace, "--type=merge", "--patch", '{"spec": {"parallelism": 2}}']
    job.cluster.kubectl("patch", "job", job.name, *words)
