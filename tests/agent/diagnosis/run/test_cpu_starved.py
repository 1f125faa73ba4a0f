"""The rule on ranks that get no CPU, and what it leaves to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import LOADER, in_evaluate, in_loader, job, only, rank, stack

from ddplaunch.agent.contract import Frame, Process, Verdict
from ddplaunch.agent.diagnosis.run.decide import judge

THROTTLED = Process(
    1003, "R", threads=64, cpu_share=2.0, ran=0.03, delayed=0.92, throttled=0.95, cpu_limit=2.0
)
CROWDED = Process(1003, "R", threads=16, cpu_share=0.1, ran=0.1, delayed=0.84)
OTHER = Process(4711, command="./simulate --all", cpu_share=7.8)


def on(process: Process, step: float = 2.0, **more: Any) -> Verdict:
    """The verdict on rank 3 with this process, whose steps used to take `step` seconds."""
    starved = rank(
        3, in_evaluate(), 16, process=process, stuck_for=50.0, still_for=50.0, step_times=[step] * 9
    )
    return only(job(rank(0), rank(1), rank(2), starved, **more))


def test_a_quota_is_used_up() -> None:
    """Share, limit and threads are named, and the hint asks for more CPUs or fewer threads."""
    verdict = on(THROTTLED)

    assert ("cpu-starved", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert (
        "rank 3 is runnable and throttled 92 % of the time (limit 2 CPUs, 64 threads), in evaluate "
        "(eval.py:140), the others wait in all_reduce 17 (train.py:92)"
    ) == verdict.sentence
    assert "resources.cpus" in verdict.hint


def test_others_have_the_cpus() -> None:
    """They are named where they are seen; no quota is blamed."""
    verdict = on(CROWDED, busiest=[OTHER])

    assert "rank 3 is runnable and without a CPU for 84 % of the time (16 threads)" in verdict.sentence
    assert "node 1, not of this job: pid 4711 (./simulate --all) uses 7.8 CPUs" in verdict.facts
    assert "Other processes have the CPUs of node 1" in verdict.hint


@pytest.mark.parametrize(
    ("process", "step"),
    [
        (CROWDED, 0.005),
        (replace(CROWDED, ran=0.3, delayed=0.7), 20.0),
        (replace(CROWDED, delayed=0.4), 2.0),
        (replace(THROTTLED, state="S"), 2.0),
        (Process(1003, "R", cpu_share=1.0), 2.0),
    ],
)
def test_what_is_no_starvation(process: Process, step: float) -> None:
    """It has had CPU for many steps, or has enough, or sleeps, or was never measured: it may loop."""
    verdict = on(process, step)

    assert "rank-in-user-code" == verdict.code


def test_the_general_verdict_tells_of_missing_cpu() -> None:
    """Where the rule abstains, the share stands in the facts."""
    facts = on(CROWDED, 0.005).facts

    assert (
        "rank 3: burns 0.1 cores, without a CPU for 84 % of the time (16 threads), nothing new for 50 s"
        in facts
    )


@pytest.mark.parametrize(("starves", "code"), [(True, "cpu-starved"), (False, "rank-in-dataloader")])
def test_a_loader_worker_starves(starves: bool, code: str) -> None:
    """The rank itself sleeps until its batch is there."""
    frames = stack(
        Frame("decode", "/job/data.py", 20), Frame("fetch", LOADER, 52), Frame("_worker_loop", LOADER, 3)
    )
    at_work = replace(CROWDED if starves else Process(1, "R"), pid=812, role="loader", stacks=frames)
    verdict = only(job(rank(0), rank(1, in_loader(), 16, children=[at_work])))

    assert (code, [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert starves == ("rank 1's DataLoader worker 812 is runnable and without a CPU" in verdict.sentence)


def test_a_slow_job_says_that_it_is_throttled() -> None:
    """It moves, so nobody calls it hung; the reason stands beside the pace."""
    ranks = [
        rank(0, stuck_for=6.0, step_times=[14.0, 14.0]),
        rank(1, in_evaluate(), 16, still_for=0.0, stuck_for=6.0, step_times=[14.0], process=THROTTLED),
    ]
    (verdict,) = judge(job(*ranks, why="asked"))

    assert (
        "not hung: a step takes 14 s; rank 1 is in evaluate (eval.py:140) while the others wait; rank 1 is "
        "throttled 92 % of the time (limit 2 CPUs, 64 threads)"
    ) == verdict.sentence
    assert "resources.cpus" in verdict.hint
