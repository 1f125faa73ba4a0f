"""A job of two nodes that hangs, as a backend would bring it home."""

from __future__ import annotations

import io

import pytest

from ddplaunch.agent.contract import (
    Bundle,
    CheckIn,
    CheckResult,
    Collective,
    Event,
    Exited,
    Frame,
    JobEvidence,
    JobStatus,
    MeshResult,
    NodeEvidence,
    NodeStatus,
    Phase,
    Raised,
    RankEvidence,
    RendezvousSettings,
    Stack,
    Verdict,
)
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.report import Diagnosis

AT = 1_700_000_000.0
VERDICT = Verdict.of(
    code="rank-in-user-code",
    sentence="rank 0 has been in evaluate() (train.py:140) for 96 s, the others wait in barrier",
    where="run",
    nodes=[0],
    ranks=[0],
    victims=[1, 2, 3],
    confidence=0.9,
    facts=["rank 0 has burnt 96 s of CPU", "ranks 1-3 stand in barrier 17"],
    hint="call evaluate() on all ranks, or none",
)


def rank(number: int, **changes: object) -> RankEvidence:
    """A rank that stands in its training loop."""
    frames = [Frame("evaluate", "/src/train.py", 140), Frame("main", "/src/train.py", 12)]
    fields: dict[str, object] = {
        "rank": number,
        "local_rank": number % 2,
        "pid": 100 + number,
        "alive": True,
        "phase": Phase.RUNNING,
        "stacks": [Stack("MainThread", main=True, frames=frames)],
        "stack_source": "hook",
        "stuck_for": 96.0,
        "collectives": [Collective("0", 17, "all_reduce", [[4]], ["float"])],
        "last_output": "<b>epoch 3</b> & more",
    }
    return RankEvidence(**(fields | changes))  # type: ignore[arg-type]


def check_in(node: int, *checks: CheckResult) -> CheckIn:
    """A node that came to the gate with these results."""
    return CheckIn(node, f"host{node}", 2, 2, "127.0.0.1", {}, AT, checks=list(checks))


def bundle(**changes: object) -> Bundle:
    """All that is known of the job."""
    evidence = JobEvidence(
        job="digits",
        nodes=2,
        world_size=4,
        why="still",
        at=AT + 60,
        evidence=[
            NodeEvidence(
                0, "host0", AT + 60, Phase.RUNNING, [rank(0), rank(1)], memory_limit=2**30, memory_used=2**29
            ),
            NodeEvidence(
                1,
                "host1",
                AT + 60,
                Phase.RUNNING,
                [
                    rank(2, raised=[Raised("ValueError", "<script>alert(1)</script>", AT)]),
                    rank(3, alive=False, exit=Exited(AT, signal=9)),
                ],
                oom_kills=1,
                missing=["py-spy: not permitted (ptrace)"],
            ),
        ],
    )
    port = CheckResult("port", "fail", "held by pid 812", "a free port", "stop pid 812", "port-in-use")
    fields: dict[str, object] = {
        "job": "digits",
        "attempt": 0,
        "nodes": 2,
        "nproc_per_node": 2,
        "started": AT,
        "written": AT + 61,
        "check_ins": [
            check_in(0, CheckResult("names", "pass", "127.0.0.1"), port),
            check_in(
                1, CheckResult("names", "pass", "127.0.0.1"), CheckResult("clock", "unknown", "no peer")
            ),
        ],
        "mesh": [
            MeshResult(0, 1, "10.0.0.2", 4000, "responder", "ok"),
            MeshResult(1, 0, "10.0.0.1", 4000, "responder", "timeout", "5 s"),
        ],
        "agreed": RendezvousSettings(
            "10.0.0.1", 29500, {"MASTER_PORT": "29500"}, {"MASTER_PORT": "it was free"}
        ),
        "evidence": evidence,
        "verdicts": [VERDICT],
        "events": [Event(AT, "verdict", "the verdict & its event")],
        "exit_code": 50,
    }
    return Bundle(**(fields | changes))  # type: ignore[arg-type]


def status(**changes: object) -> JobStatus:
    """The job as its hub sees it, both nodes running."""
    nodes = [NodeStatus(number, f"host{number}", Phase.RUNNING, AT + 5) for number in range(2)]
    fields: dict[str, object] = {
        "job": "digits",
        "attempt": 0,
        "phase": Phase.RUNNING,
        "since": AT + 5,
        "nodes": nodes,
        "started": AT,
        "updated": AT + 9,
    }
    return JobStatus(**(fields | changes))  # type: ignore[arg-type]


def job(state: State = State.FAILED, **changes: object) -> Job:
    """The job as its backend sees it."""
    fields: dict[str, object] = {
        "handle": Handle("local", "digits/3"),
        "state": state,
        "submitted": AT,
        "name": "digits",
        "ended": AT + 70 if state.ended else None,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of day are those of one place."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture(name="diagnosis")
def _diagnosis() -> Diagnosis:
    return Diagnosis(job(), bundle(), [VERDICT])
