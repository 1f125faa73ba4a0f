"""The job file's signal, as the hub gives it: when, why, and what it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.diagnosis.build import dead, rank
from tests.agent.hub.sessions import Hub, Wire

from ddplaunch.agent.contract import Env, Exit, Files, SignalPlan
from ddplaunch.agent.contract.messages import Ending
from ddplaunch.agent.hub.launch_attempts import SETTLE

SIGNAL = SignalPlan("SIGUSR1", 60.0)


class Jobs:
    """Makes hubs of two nodes, which may have the signal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Hub] = []

    def hub(self, **plan: Any) -> Hub:
        self.made.append(Hub(self.folder, **plan))
        return self.made[-1]


@pytest.fixture(name="jobs")
def _jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    for hub in jobs.made:
        hub.record.close()


def ends_in(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The time limit is so far away, as a job on this machine knows it."""
    monkeypatch.setenv(Env.ENDS_AT, str(time.time() + seconds))


def asked(hub: Hub) -> list[int]:
    """How often each node was asked to signal its ranks."""
    return [len(wire.got("signal-ranks")) for wire in hub.wires]


def texts(hub: Hub) -> list[str]:
    """What was said of it."""
    return [event.text for event in hub.record.bundle().events if event.kind == "signal"]


def test_it_comes_so_long_before_the_time_limit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, and on all nodes, once; one line says to how many ranks."""
    ends_in(monkeypatch, 90)
    hub = jobs.hub(signal=SIGNAL, time_limit=90.0)
    hub.ticks(28)
    assert [0, 0] == asked(hub)
    assert not Path(hub.record.path(Files.SIGNALLED)).exists()

    ends_in(monkeypatch, 60)
    hub.ticks(3)
    assert [1, 1] == asked(hub)
    for node in (0, 1):
        hub.says(node, "signalled", {"sent": 2})
    hub.ticks(20)

    assert [1, 1] == asked(hub)
    assert ["sent USR1 to 4 ranks: 60 s before the time limit"] == texts(hub)
    assert texts(hub) == [hub.record.status().signal]
    assert "60 s before the time limit\n" == Path(hub.record.path(Files.SIGNALLED)).read_text()


def test_a_limit_that_was_extended_is_asked_for_again(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scontrol update TimeLimit=…` while the job runs."""
    ends_in(monkeypatch, 62)
    hub = jobs.hub(signal=SIGNAL)
    ends_in(monkeypatch, 300)
    hub.ticks(30)

    assert [0, 0] == asked(hub)


def test_ranks_without_a_handler_are_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer, once they have it."""
    ends_in(monkeypatch, 60)
    hub = jobs.hub(signal=SIGNAL)
    hub.ticks(1)
    hub.says(0, "signalled", {"sent": 1, "deaf": [1]})
    hub.says(1, "signalled", {"sent": 2})
    hub.ticks(1)
    assert ["sent USR1 to 3 ranks: 60 s before the time limit; rank 1 has no handler for it"] == texts(hub)

    hub.says(0, "signalled", {"sent": 2})
    hub.ticks(1)
    assert "sent USR1 to 4 ranks: 60 s before the time limit, to 1 of them later" == texts(hub)[-1]


def test_it_is_due_when_somebody_says_that_the_end_is_near(jobs: Jobs) -> None:
    """Where nobody knows the time, it comes at once."""
    hub = jobs.hub(signal=SIGNAL)
    hub.ticks(30)
    assert [0, 0] == asked(hub)

    asyncio.run(hub.handler.received(Wire(), Ending("preempted")))  # type: ignore[arg-type]
    hub.ticks(1)

    assert [1, 1] == asked(hub)


def test_a_job_without_it_gets_none(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at its limit, nor when it is about to end, nor when a pod is deleted."""
    ends_in(monkeypatch, 1)
    hub = jobs.hub(platform="kubernetes")
    asyncio.run(hub.handler.received(Wire(), Ending("preempted")))  # type: ignore[arg-type]
    hub.says(1, "stopping", {"why": "SIGTERM"})
    hub.ticks(3)

    assert ([0, 0], [], None) == (asked(hub), texts(hub), hub.record.status().signal)
    assert not Path(hub.record.path(Files.SIGNALLED)).exists()


@pytest.mark.parametrize(("platform", "times"), [("kubernetes", 1), ("slurm", 0)])
def test_all_ranks_get_it_when_one_pod_is_deleted(jobs: Jobs, platform: str, times: int) -> None:
    """The ranks of the others, too: a checkpoint is written together. Elsewhere SIGTERM is an end at once."""
    hub = jobs.hub(signal=SIGNAL, platform=platform)
    hub.says(1, "stopping", {"why": "SIGTERM"})
    hub.ticks(1)

    assert [times, times] == asked(hub)


def test_a_node_that_comes_later_gets_it(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost its connection, or begins late."""
    ends_in(monkeypatch, 60)
    hub = jobs.hub(signal=SIGNAL)
    hub.ticks(1)
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [1, 2] == asked(hub)


def failed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, *, signalled: bool) -> Hub:
    """Node 1 has ended with a failure, maybe after the signal; the evidence of it is there."""
    ends_in(monkeypatch, 60 if signalled else 600)
    hub = jobs.hub(signal=SIGNAL)
    hub.ticks(1)
    hub.death(1, dead(2, 9.5, 3))
    hub.answers(0, rank(0), rank(1))
    hub.answers(1, dead(2, 9.5, 3), rank(3))
    hub.fails(1)
    hub.ticks(SETTLE + 2.0)
    return hub


def test_other_ranks_have_time_for_their_handlers(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that ends, by whatever exit code, ends no other that writes a checkpoint."""
    hub = failed(jobs, monkeypatch, signalled=True)
    hub.ticks(30)
    assert [] == hub.wires[0].got("end")

    hub.ticks(20)
    if hub.wires[0].got("collect"):
        hub.answers(0, rank(0), rank(1))
    hub.ticks(5)
    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[0].got("end")]


@pytest.mark.parametrize(("signal", "code"), [(SIGNAL, Exit.STOPPED), (None, Exit.WORKER_FAILED)])
def test_a_handler_may_end_its_rank_by_any_code(jobs: Jobs, signal: SignalPlan | None, code: int) -> None:
    """Where a pod is deleted, ranks elsewhere that end so have not failed: the job is stopped."""
    hub = jobs.hub(signal=signal, platform="kubernetes")
    hub.says(1, "stopping", {"why": "SIGTERM"})
    for _ in range(3):
        for node in (0, 1):
            if hub.wires[node].got("collect"):
                hub.answers(node, dead(0, 9.5, 3), dead(1, 9.5, 3)) if node == 0 else hub.answers(
                    1, rank(2), rank(3)
                )
        hub.death(0, dead(0, 9.5, 3))
        hub.ticks(3)
    hub.finish(code, Exit.STOPPED)
    hub.ticks(20)
    assert code == hub.handler.closing.exit_code


def test_without_the_signal_a_failure_ends_them_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every job."""
    hub = failed(jobs, monkeypatch, signalled=False)
    hub.ticks(5)

    assert [Exit.WORKER_FAILED] == [end["exit_code"] for end in hub.wires[0].got("end")]
