"""What NCCL's RAS adds to a verdict. Its answers were recorded elsewhere: see `ras_replies`.

The ranks are made by hand, with the addresses and pids of those answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import TORCH, call, in_collective, in_evaluate, job, only, rank, stack
from tests.agent.ras_replies import recorded

from ddplaunch.agent.contract import Frame, Group, JobEvidence, Process, RankEvidence
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.evidence import ras

HOSTS = ["10.0.69.85", "10.0.109.86", "10.0.120.166", "10.0.92.51"]
PIDS = [6299, 6247, 6283, 6261]
IN_BACKWARD = stack(Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113))
COUNTS = "NCCL RAS: communicator f31e5874c3f25459: ranks 0, 2 and 3 at AllReduce 101, rank 1 at AllReduce 100"


def with_answer(name: str, evidence: JobEvidence) -> JobEvidence:
    """Return the evidence with NCCL's answer, which node 0 got."""
    first, *others = evidence.evidence
    return replace(evidence, evidence=[replace(first, ras=ras.read(recorded(name))), *others])


def four(*ranks: RankEvidence, name: str = "behind-2.28.9.json") -> JobEvidence:
    """Four ranks on a node each, those of the answer in which rank 1 is behind."""
    evidence = job(*(_as_there(each) for each in ranks), per_node=1)
    nodes = [replace(node, addresses=[HOSTS[node.node]]) for node in evidence.evidence]
    return with_answer(name, replace(evidence, evidence=nodes))


def _as_there(each: RankEvidence) -> RankEvidence:
    pid = PIDS[each.rank]
    return replace(each, pid=pid, process=Process(pid, "S"))


def begun(number: int) -> RankEvidence:
    """A rank that waits for its GPU, with a collective of NCCL begun."""
    synchronize = Frame("synchronize", f"{TORCH}/cuda/__init__.py", 1083)
    return rank(
        number,
        stack(synchronize),
        groups=[Group("0", [0, 1, 2, 3], 17, 16)],
        collectives=[replace(call(17, "nccl:all_reduce"), state="started")],
        backend="nccl",
    )


def waiting(*numbers: int) -> list[RankEvidence]:
    """Ranks that wait in their collective."""
    return [rank(number) for number in numbers]


def silent(number: int, **more: Any) -> RankEvidence:
    """A rank whose counters nobody knows, in backward, where only they show a collective."""
    return rank(number, **{"stacks": IN_BACKWARD, "groups": [], **more})


def test_a_rank_whose_counters_torch_does_not_show() -> None:
    """Without NCCL's word nobody knows whether it waits, too; with it, the others wait for it."""
    zero, *others = waiting(0, 2, 3)
    evidence = four(zero, silent(1), *others)
    mute = replace(evidence, evidence=[replace(node, ras=None) for node in evidence.evidence])

    assert [1] not in [verdict.ranks for verdict in judge(mute)]
    verdict = only(evidence)
    assert ("rank-in-user-code", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert COUNTS in verdict.facts


def test_a_rank_that_is_level_is_not_waited_for() -> None:
    """Of two without counters, NCCL tells which one is late."""
    evidence = four(rank(0), *(silent(n, stacks=in_evaluate()) for n in (1, 2)), rank(3))
    mute = replace(evidence, evidence=[replace(node, ras=None) for node in evidence.evidence])

    assert [1, 2] == only(mute).ranks
    assert [1] == only(evidence).ranks


def test_ranks_ahead_are_not_accused_although_nccl_lists_them() -> None:
    """RAS lists outliers: in nccl#1911 two ranks of 32 that are one operation ahead."""
    ranks = [
        rank(n, in_evaluate() if n in (12, 13) else in_collective(), groups=[], pid=323020 + n, process=None)
        for n in range(32)
    ]
    evidence = job(*ranks, per_node=8)
    nodes = [
        replace(node, addresses=["10.137.190.124" if node.node == 1 else f"10.137.190.{node.node}"])
        for node in evidence.evidence
    ]
    evidence = replace(evidence, evidence=nodes)
    heard = with_answer("ahead-2.26.2.txt", evidence)

    assert [12, 13] == only(evidence).ranks
    (verdict,) = judge(heard)
    assert not verdict.ranks
    assert (
        "NCCL RAS: communicator fa93daea854b060b: ranks 12 and 13 at AllGather 641, 30 ranks at AllGather 640"
        in verdict.facts
    )


def test_it_contradicts_the_flight_recorder() -> None:
    """Both are said, and the verdict loses its certainty."""
    evidence = four(*waiting(0, 1), rank(2, in_evaluate(), called=16), rank(3))
    verdict = only(evidence)

    assert ([2], 0.5) == (verdict.ranks, verdict.confidence)
    assert "NCCL RAS contradicts: no rank has launched more than rank 2" in verdict.facts
    assert COUNTS in verdict.facts


def test_it_agrees_with_the_flight_recorder() -> None:
    """Nothing is doubted, and nobody else is named."""
    evidence = four(rank(0), rank(1, in_evaluate(), called=16), *waiting(2, 3))
    verdict = only(evidence)

    assert ([1], 0.95) == (verdict.ranks, verdict.confidence)
    assert not any("contradicts" in fact for fact in verdict.facts)


def test_torchs_own_counters_are_enough() -> None:
    """Where they are known of all, NCCL's word changes no culprit."""
    evidence = four(rank(0), rank(1, in_evaluate(), called=17), *waiting(2, 3))
    mute = replace(evidence, evidence=[replace(node, ras=None) for node in evidence.evidence])

    assert [each.ranks for each in judge(evidence)] == [each.ranks for each in judge(mute)]


def test_a_collective_that_not_all_have_launched_is_no_fault_of_the_gpus() -> None:
    """Torch has noted it on all ranks; NCCL has not launched it on one."""
    ranks = [begun(n) for n in range(4)]
    (verdict,) = judge(four(*ranks))

    assert verdict.code != "gpu-stuck"
    assert COUNTS in verdict.facts


def test_equal_counts_accuse_nobody() -> None:
    """RAS says OK of every hang in which all have launched the same (nccl#1730)."""
    verdict = only(four(*(begun(n) for n in range(4)), name="ok-2.26.2.txt"))

    assert ("gpu-stuck", [], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "NCCL RAS: equal counts of launched operations in all its communicators (1)" in verdict.facts


def test_a_rank_that_does_not_answer_nccl_is_not_accused() -> None:
    """Its RAS thread may be cut off where its work is not. Its number is the communicator's."""
    name = "stopped-2.29.1.json"
    zero, *others = waiting(0, 2, 3)
    evidence = four(zero, silent(1), *others, name=name)
    mute = replace(evidence, evidence=[replace(node, ras=None) for node in evidence.evidence])
    verdicts = judge(evidence)

    assert [each.ranks for each in judge(mute)] == [each.ranks for each in verdicts]
    assert "NCCL RAS: communicator ae94423cfbb2ef4a: its rank 1 did not answer NCCL" in verdicts[0].facts


def test_a_process_that_nccl_counts_as_dead_is_a_fact() -> None:
    """It is named as NCCL names it, and accused of nothing."""
    verdict = only(four(*(begun(n) for n in range(4)), name="dead-2.30.7.txt"))
    assert "NCCL RAS counts as dead: process 3748990 on node1" in verdict.facts


def test_ranks_that_share_address_and_pid_are_not_told_apart() -> None:
    """Two pods of one host's network may have the same pids: no rank is taken for another."""
    evidence = four(rank(0), silent(1), *waiting(2, 3))
    nodes = [replace(node, addresses=HOSTS) for node in evidence.evidence]
    twins = [replace(node, ranks=[replace(node.ranks[0], pid=6247, process=None)]) for node in nodes]
    (verdict,) = judge(replace(evidence, evidence=twins))

    assert [1] != verdict.ranks
    assert any("its rank 1 at AllReduce 100" in fact for fact in verdict.facts)


@pytest.mark.parametrize("ahead", ["AllReduce", "Broadcast"])
def test_ahead_in_one_kind_and_behind_in_another(ahead: str) -> None:
    """Ranks that call in another order are out of step; that one waits for the other does not follow."""
    text = recorded("behind-2.28.9.json")
    if ahead == "Broadcast":
        one = text.index('"rank": 1')
        text = text[:one] + text[one:].replace('"Broadcast": 0', '"Broadcast": 1', 1)
    evidence = four(rank(0), silent(1), *waiting(2, 3))
    first, *others = evidence.evidence
    evidence = replace(evidence, evidence=[replace(first, ras=ras.read(text)), *others])

    assert ([1] in [each.ranks for each in judge(evidence)]) == (ahead == "AllReduce")


def test_nccl_was_not_asked() -> None:
    """Without its word no verdict speaks of it."""
    verdict = only(job(*waiting(0, 2), rank(1, in_evaluate(), called=16), rank(3)))
    assert not any("RAS" in fact for fact in verdict.facts)
