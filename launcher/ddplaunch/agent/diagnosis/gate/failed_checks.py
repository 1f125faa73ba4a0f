"""The rule about checks: what each node found out about itself, and no other node needs to know. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ddplaunch.agent.contract import CheckResult, Exit, Status, Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.diagnosis.gate.kinds import Kind
from ddplaunch.agent.diagnosis.rules import entries

ENTRIES = (
    *entries(
        Exit.MISCONFIGURED,
        {
            "port-ephemeral": "the chosen port lies where the kernel hands out ports to anybody",
            "shm-too-small": "/dev/shm is too small for what the job will put there",  # noqa: S108 - a name
            "memlock-too-small": "ranks may lock too little memory for RDMA",
            "memory-too-small": "a node has less memory than the job asks for",
            "image-lacks": "the interpreter, torch or the script is not there",
            "job-file-wrong": "the job file asks for what cannot be, or contradicts itself",
            "secret-missing": "a secret that the job names is not set, or its file is not there",
        },
    ),
    # A script that has chosen the port itself fails the same way wherever it is tried again.
    *entries(
        Exit.NODE_AT_FAULT,
        {"port-in-use": "the port is already held by another process"},
        in_run=Exit.MISCONFIGURED,
    ),
    *entries(
        Exit.NODE_AT_FAULT,
        {
            "cpu-busy": "the node's CPUs do not suffice for its ranks, or others take them",
            "gpu-missing": "a node has fewer GPUs, or RDMA devices, than the job asks for",
            "gpu-held": "a GPU that the job will use is held by somebody else",
            "rdma-unfit": "a node's RDMA devices are there, and cannot carry the job",
            "threads-too-few": "the ranks may not start as many processes and threads as they have",
            "disk-full": "there is no room where the job writes",
            "files-too-few": "the hub may not open as many files as the job has nodes",
        },
    ),
)
_WARNINGS = 8


def failed_checks(view: GateView) -> Iterator[Verdict]:
    """Yield the failures of the nodes' own checks, one verdict for each code."""
    failures: dict[str, list[tuple[int, CheckResult]]] = {}
    for node, check_in in sorted(view.check_ins.items()):
        for result in check_in.checks:
            # By node 0's name the others find it; when all have, it is no matter any more.
            needless = result.check == "service" and len(view.check_ins) == view.plan.nodes
            if result.status == Status.FAIL and not needless:
                failures.setdefault(result.code, []).append((node, result))
    for code, found in failures.items():
        _, first = found[0]
        same = [node for node, result in found if result.observed == first.observed]
        wanted = f"; wanted: {first.wanted}" if first.wanted else ""
        yield Verdict(
            code,
            f"{view.nodes(same)}: {first.observed}{wanted}",
            "gate",
            nodes=[node for node, _ in found],
            facts=_details(view, found, first),
            hint=first.hint,
        )


def _details(view: GateView, found: list[tuple[int, CheckResult]], first: CheckResult) -> list[str]:
    """Return what the sentence does not say: other nodes' observations, and where things were looked for."""
    details = [
        f"{view.node(node)}: {result.observed}" for node, result in found if result.observed != first.observed
    ]
    if "looked_in" in first.facts:
        details.append(f"looked for in {first.facts['looked_in']}")
    return details


def notes(view: GateView) -> list[str]:
    """Return notes on checks that found what has a code, and ends no job."""
    found = [
        f"{result.code}: {view.node(node)}: {result.observed}; {result.hint}"
        for node, check_in in sorted(view.check_ins.items())
        for result in check_in.checks
        if result.status == Status.UNKNOWN and result.code and view.checks(result.check)
    ]
    return [
        *found[:_WARNINGS],
        *([f"{len(found) - _WARNINGS} more of the kind"] if found[_WARNINGS:] else []),
    ]


RULES = ((Kind.NODE, failed_checks),)
