"""Diagnoses of eight kinds, small and large, for pages that are compared whole and looked at."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from tests.unit.report import conftest as given
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import (
    CheckIn,
    CheckResult,
    Exited,
    Frame,
    MeshResult,
    Raised,
    RankEvidence,
    Stack,
)
from ddplaunch.agent.diagnosis.gate import failed_paths, paths
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.agent.hub import mesh_plan
from ddplaunch.backends.job import State
from ddplaunch.report import Diagnosis, pictures
from ddplaunch.report.pictures import Scene, svg

GATE_NODES = 64
DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "pictures"


PICTURES = {"ranks-over-time": "mismatch", "who-waits-for-whom": "circle"}
"""Pictures of the documentation, and the cases that they show."""


@functools.cache
def case(name: str) -> Diagnosis:
    """One of CASES. The verdicts are those of the rules."""
    return CASES[name]()


def docs_picture(name: str) -> str:
    """One of PICTURES, as a file of its own."""
    drawn = pictures.make_pictures(Scene(case(PICTURES[name])))
    return svg.alone(next(each for each in drawn if each.name == name).svg)


def _judged(ranks: list[RankEvidence], per_node: int = 2) -> Diagnosis:
    timed = [
        dataclasses.replace(each, step_times=[0.05 + (each.rank * 7 + step) % 5 * 0.001 for step in range(8)])
        for each in ranks
    ]
    bundle = stuck.bundle(timed, per_node=per_node)
    assert bundle.evidence is not None
    verdicts = decide.judge(bundle.evidence)
    return Diagnosis(given.job(), dataclasses.replace(bundle, verdicts=verdicts), verdicts)


def _busy(world: int, late: int) -> list[RankEvidence]:
    """One rank is in its own code, the others in their second collective."""
    found = []
    for number in range(world):
        before = stuck.call(1, "all_reduce", 9, stuck.END - 40, "returned")
        calls = [before] if number == late else [before, stuck.call(2, "all_reduce", 9, stuck.END - 30)]
        rank = stuck.rank(number, *calls, world=world, collectives=calls)
        if number == late:
            frames = [Frame("evaluate", stuck.FILE, 140), Frame("<module>", stuck.FILE, 99)]
            rank = dataclasses.replace(rank, stacks=[Stack("MainThread", True, frames)], stuck_for=30.0)
        found.append(rank)
    return found


def _killed() -> list[RankEvidence]:
    ranks = stuck.mismatch(odd=-1)
    ranks[2] = dataclasses.replace(ranks[2], alive=False, stacks=[], exit=Exited(stuck.END - 10, signal=9))
    return ranks


def _failed() -> list[RankEvidence]:
    ranks = stuck.mismatch(odd=-1)
    raised = Raised(
        "ValueError", "the loss is <nan> & gone", stuck.END - 10, [Frame("train", stuck.FILE, 14)]
    )
    ranks[1] = dataclasses.replace(
        ranks[1], alive=False, stacks=[], raised=[raised], exit=Exited(stuck.END - 9, code=1)
    )
    return ranks


def _cut() -> Diagnosis:
    """A gate whose upper half of nodes does not reach the lower one."""
    half = GATE_NODES // 2
    check_ins = [
        CheckIn(
            node,
            f"n{node}",
            GATE_NODES,
            8,
            f"10.0.0.{node}",
            {"responder": 40000 + node, "master": 29500},
            given.AT,
            checks=[CheckResult("port", "pass", "free"), CheckResult("clock", "unknown", "no peer")],
        )
        for node in range(GATE_NODES)
    ]
    passed: dict[str, dict[str, int]] = {}
    mesh = []
    for node, peers in enumerate(mesh_plan.partners(GATE_NODES)):
        for peer in peers:
            if (node < half) == (peer < half):
                passed.setdefault(str(node), {})[str(peer)] = 2
            else:
                mesh.append(
                    MeshResult(node, peer, f"10.0.0.{peer}", 40000 + peer, "responder", "timeout", "", 5.0)
                )
    names = [each.host for each in check_ins]
    verdicts = failed_paths.judge(
        [*mesh, *paths.whole(passed, {each.node: each for each in check_ins})], names, GATE_NODES
    )
    bundle = given.bundle(
        nodes=GATE_NODES,
        check_ins=check_ins,
        mesh=mesh,
        passed=passed,
        evidence=None,
        agreed=None,
        verdicts=verdicts,
        exit_code=20,
    )
    return Diagnosis(given.job(), bundle, verdicts)


CASES: dict[str, Callable[[], Diagnosis]] = {
    "mismatch": lambda: _judged(stuck.mismatch()),
    "circle": lambda: _judged(stuck.circle(4)),
    "busy": lambda: _judged(_busy(4, 3)),
    "thousand": lambda: _judged(_busy(1024, 700), per_node=8),
    "killed": lambda: _judged(_killed()),
    "failed": lambda: _judged(_failed()),
    "cut": _cut,
    "lost": lambda: Diagnosis(given.job(State.LOST, detail="its process 7 is gone"), None, []),
}
