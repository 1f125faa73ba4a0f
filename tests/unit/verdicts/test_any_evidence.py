"""What holds for the verdict on any evidence, however strange: evidence comes from broken machines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ddplaunch.agent.contract import (
    Collective,
    Exited,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Phase,
    Process,
    Raised,
    RankEvidence,
    Stack,
    Stand,
    Xid,
    codec,
)
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.run.decide import judge, nothing_moves

TORCH = "/opt/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
FRAMES = st.sampled_from(
    [
        Frame("train", "/job/train.py", 92),
        Frame("evaluate", "/job/eval.py", 140),
        Frame("<module>", "/job/train.py", 50),
        Frame("all_reduce", C10D, 4181),
        Frame("broadcast", C10D, 4055),
        Frame("init_process_group", C10D, 2721),
        Frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 375),
        Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54),
        Frame("__next__", f"{TORCH}/utils/data/dataloader.py", 725),
        Frame("wait", "/opt/lib/python3.11/threading.py", 327),
        Frame("", "", 0),
    ]
)
WORDS = st.sampled_from(
    [
        "",
        "Connection closed by peer [127.0.0.1]:28590",
        "DataLoader worker (pid 812) is killed by signal: Killed.",
        "DataLoader worker (pid(s) 812, 813) exited unexpectedly",
        "Is there a distributed collective mismatch in your code?",
        "Memory cgroup out of memory: Killed process 1001",
        "bad batch 7",
    ]
)
TIMES = st.floats(0, 2e9)
SPANS = st.floats(0, 1e5)
FEW = st.integers(0, 3)

frames = st.lists(FRAMES, max_size=4)
stacks = st.lists(st.builds(Stack, st.just("MainThread"), st.booleans(), frames), max_size=2)
raised = st.builds(
    Raised,
    st.sampled_from(["RuntimeError", "ValueError", "a.b.DistBackendError", "KeyboardInterrupt", ""]),
    WORDS,
    TIMES,
    frames,
    st.booleans(),
)
exits = st.builds(
    Exited,
    TIMES,
    st.none() | st.sampled_from([0, 1, 3]),
    st.none() | st.sampled_from([6, 7, 9, 11, 15, 34]),
    st.booleans(),
)
groups = st.builds(Group, st.sampled_from(["0", "1"]), st.lists(FEW, unique=True), FEW, FEW)
collectives = st.builds(
    Collective,
    st.sampled_from(["0", "1"]),
    FEW,
    st.sampled_from(["all_reduce", "gloo:broadcast", "barrier", "gather", ""]),
    st.lists(st.lists(FEW, max_size=2), max_size=2),
    st.lists(st.sampled_from(["Float", "Half"]), max_size=1),
    st.booleans(),
    st.booleans(),
)
processes = st.builds(
    Process,
    st.integers(1, 2000),
    st.sampled_from("RSDTtZX?"),
    wchan=st.sampled_from(["", "0", "pipe_read"]),
    cpu_share=st.floats(0, 4),
    role=st.sampled_from(["", "loader", "other"]),
    stacks=stacks,
)


stands = st.builds(
    Stand,
    kind=st.sampled_from(["", "loader", "collective"]),
    seconds=st.integers(0, 60),
    frame=st.none() | FRAMES,
)
xids = st.builds(
    Xid, number=st.integers(1, 200), gpu=WORDS, at=TIMES, text=WORDS, pid=st.none() | st.integers(1000, 1003)
)


def ranks(number: int) -> st.SearchStrategy[RankEvidence]:
    """Any evidence of this rank."""
    return st.builds(
        RankEvidence,
        rank=st.just(number),
        local_rank=st.just(number % 2),
        pid=st.just(1000 + number),
        alive=st.booleans(),
        phase=st.sampled_from(Phase.ORDER),
        exit=st.none() | exits,
        raised=st.lists(raised, max_size=2),
        stacks=stacks,
        still_for=SPANS,
        stuck_for=SPANS,
        groups=st.lists(groups, max_size=2),
        collectives=st.lists(collectives, max_size=3),
        process=st.none() | processes,
        children=st.lists(processes, max_size=2),
        step_times=st.lists(SPANS, max_size=3),
        initialized=st.none() | st.booleans(),
        last_output=WORDS,
        stands=st.lists(stands, max_size=3),
        device=st.sampled_from(["", "0", "GPU-1"]),
        broadcasting=st.integers(0, 1 << 40),
        backend=st.sampled_from(["gloo", "nccl"]),
    )


def some(first: st.SearchStrategy[Any], second: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Both, or the first alone, or nothing."""
    return st.tuples(first, second).map(list) | first.map(lambda one: [one]) | st.just([])


def nodes(number: int) -> st.SearchStrategy[NodeEvidence]:
    """Any evidence of this node, with all, some or none of its two ranks."""
    return st.builds(
        NodeEvidence,
        node=st.just(number),
        host=st.just(f"n{number}"),
        at=TIMES,
        phase=st.sampled_from(Phase.ORDER),
        ranks=some(ranks(2 * number), ranks(2 * number + 1)),
        memory_limit=st.none() | st.integers(0, 1 << 40),
        memory_used=st.none() | st.integers(0, 1 << 40),
        oom_kills=FEW,
        kernel=st.lists(WORDS, max_size=2),
        shm_size=st.none() | st.integers(0, 1 << 30),
        shm_used=st.none() | st.integers(0, 1 << 30),
        launch_exit=st.none() | exits,
        launch_output=st.lists(WORDS, max_size=2),
        missing=st.lists(WORDS, max_size=1),
        xids=st.lists(xids, max_size=2),
        gpus=st.lists(WORDS, max_size=2),
    )


evidences = st.builds(
    JobEvidence,
    job=st.just("digits"),
    nodes=st.just(2),
    world_size=st.none() | st.just(4),
    why=st.sampled_from(["still", "death", "asked", "deadline", "stop", "end"]),
    at=TIMES,
    evidence=some(nodes(0), nodes(1)),
    silent=st.lists(st.integers(0, 1), unique=True),
    notice_after=st.floats(0.1, 100),
)


@settings(max_examples=100)
@given(evidences)
def test_a_verdict_is_well_formed(evidence: JobEvidence) -> None:
    """No evidence makes a rule fail; culprits and victims are known ranks, never the same, in order."""
    known = {rank.rank for node in evidence.evidence for rank in node.ranks} | set(
        range(evidence.world_size or 0)
    )

    for verdict in judge(evidence):
        assert verdict.code in CATALOGUE
        assert verdict.sentence
        assert set(verdict.ranks) <= known
        assert set(verdict.victims) <= known
        assert not set(verdict.ranks) & set(verdict.victims)
        assert verdict.ranks == sorted(set(verdict.ranks))
        assert verdict.victims == sorted(set(verdict.victims))
        assert verdict.nodes == sorted(set(verdict.nodes))
        assert 0 <= verdict.confidence <= 1
    nothing_moves(evidence)


@settings(max_examples=60)
@given(evidences)
def test_the_order_of_nodes_and_ranks_does_not_matter(evidence: JobEvidence) -> None:
    """Which node answered first is chance."""
    turned = [replace(node, ranks=node.ranks[::-1]) for node in evidence.evidence[::-1]]

    assert judge(evidence) == judge(replace(evidence, evidence=turned))


@settings(max_examples=60)
@given(evidences)
def test_nothing_moving_always_has_a_verdict(evidence: JobEvidence) -> None:
    """Asked why nothing moves, the answer may be unknown, never nothing; no two verdicts share a culprit."""
    verdicts = judge(replace(evidence, why="still"))
    culprits = [rank for verdict in verdicts for rank in verdict.ranks]

    assert verdicts
    assert len(culprits) == len(set(culprits))


@settings(max_examples=30)
@given(evidences)
def test_the_bundle_gives_the_same_verdict(evidence: JobEvidence) -> None:
    """What was written and read again is judged alike."""
    again = codec.load(JobEvidence, json.loads(json.dumps(codec.dump(evidence))))

    assert judge(evidence) == judge(again)
