"""The rules on GPUs. No GPU is here: the words are those that real jobs with NCCL have shown.

NCCL's are of issues 161 of verl-project/verl (2.20.5), 39 of csguoh/MambaIR (2.18.6) and 1716 of NVIDIA/nccl
(2.31.2); the kernel's of issues 1150 of NVIDIA/open-gpu-kernel-modules and 155 of NVIDIA/NVSentinel. Entries
of the flight recorder are in torch's format, made by hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, call, dead, in_evaluate, job, only, raised, rank, stack

from ddplaunch.agent.contract import Frame, Group, JobEvidence, NodeEvidence, RankEvidence, Xid
from ddplaunch.agent.diagnosis.run.decide import computing_for, nothing_moves

ERROR = """NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid usage (run with \
NCCL_DEBUG=WARN for details), NCCL version 2.20.5
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
"""
TWICE = "Duplicate GPU detected : rank {} and rank {} both on CUDA device {}"
ANYWHERE = "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this."
LOST = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"
FOLLOWS = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1002, name=python3, Ch 00000001 caused by previous Xid 149"
ROOT = "NVRM: Xid (PCI:0000:ba:00): 149, pid=1003, name=python3, NETIR_LINK_EVT Fatal"


def refused(number: int, words: str, **more: Any) -> RankEvidence:
    """A rank that NCCL has refused."""
    error = raised("torch.distributed.DistBackendError", ERROR + words, 1.0)
    return dead(number, 1.1, code=1, raised=[error], **more)


def test_ranks_that_nccl_finds_on_one_gpu() -> None:
    """Each of them says so of itself; the others only waited for them."""
    other = dead(2, 2.0, signal=15, by_us=True)
    evidence = job(
        refused(0, TWICE.format(0, 1, "1000")), refused(1, TWICE.format(1, 0, "1000")), other, why="death"
    )
    verdict = only(evidence)

    assert ("device-shared", [0, 1], [0], [2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert verdict.sentence.endswith(" share one GPU, and NCCL refuses that (train.py:61)")
    assert "rank 0: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000" in verdict.facts


def test_ranks_of_two_nodes() -> None:
    """On each node two ranks share one; GPUs of two nodes may have the same address."""
    words = [TWICE.format(n, n ^ 1, "1000") for n in range(4)]
    verdict = only(job(*(refused(n, text) for n, text in enumerate(words)), why="death"))

    assert ([0, 1, 2, 3], [0, 1]) == (verdict.ranks, verdict.nodes)
    assert " share GPUs with one another, and NCCL refuses that" in verdict.sentence


def test_words_that_only_the_log_has() -> None:
    """Without the exception's text, the last lines of the rank tell."""
    lines = ["init.cc:497 NCCL WARN " + TWICE.format(2, 0, "1000")]
    ranks = [dead(n, 1.0, code=1, last_lines=lines) for n in (0, 1)]
    verdict = only(job(*ranks, why="death"))

    assert ("device-shared", [0, 1]) == (verdict.code, verdict.ranks)


def test_nccl_names_nobody_any_more() -> None:
    """Later versions fail on all ranks: who is bound to the same GPU is named, and else no rank."""
    verdict = only(job(*(refused(n, ANYWHERE) for n in range(4)), why="death"))
    assert ("device-shared", [], [], [0, 1, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )

    bound = [refused(n, ANYWHERE, device=device) for n, device in enumerate(["0", "1", "0", "0"])]
    verdict = only(job(*bound, why="death"))
    assert ([2, 3], [1]) == (verdict.ranks, verdict.nodes)


@pytest.mark.parametrize(
    "words",
    ["NCCL WARN Cuda failure 'out of memory'", "Mismatched NCCL version detected : rank 0 version 22005"],
)
def test_another_refusal_is_a_plain_failure(words: str) -> None:
    """NCCL has other reasons for the same exception."""
    assert "rank-failed" == only(job(*(refused(n, words) for n in (0, 1)), why="death")).code


def test_a_cause_that_came_first_stays_the_cause() -> None:
    """A rank that failed earlier is not excused by what others say later."""
    first = dead(2, 0.5, code=1, raised=[raised("ValueError", "no such file", 0.4)])
    later = [refused(n, TWICE.format(n, 1 - n, "1000")) for n in (0, 1)]
    verdict = only(job(*later, first, why="death"))

    assert ("rank-failed", [2]) == (verdict.code, verdict.ranks)


# --- a collective that all began


def begun(number: int, state: str = "started", seq: int = 17, **more: Any) -> RankEvidence:
    """A rank that waits for its GPU, with a collective of NCCL begun."""
    synchronize = Frame("synchronize", "/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py", 1083)
    values: dict[str, Any] = {
        "stacks": stack(synchronize),
        "groups": [Group("0", [0, 1, 2, 3], seq, seq - 1)],
        "collectives": [replace(call(seq, "nccl:all_reduce"), state=state)],
        "backend": "nccl",
        **more,
    }
    return rank(number, **values)


def with_events(evidence: JobEvidence, *events: Xid) -> JobEvidence:
    """Return the evidence with events in the kernel's log of node 1."""

    def changed(node: NodeEvidence) -> NodeEvidence:
        return replace(node, xids=list(events)) if node.node == 1 else node

    return replace(evidence, evidence=[changed(node) for node in evidence.evidence])


def test_all_ranks_started_and_none_finished() -> None:
    """Without an event of a GPU nobody is blamed, and what could not be read is told."""
    verdict = only(job(*(begun(n) for n in range(4)), missing=["kernel log: operation not permitted"]))

    assert ("gpu-stuck", [], [], []) == (verdict.code, verdict.ranks, verdict.nodes, verdict.victims)
    assert verdict.sentence == (
        "all 4 ranks have started all_reduce 17 and none has finished, so look at the GPUs and at the fabric "
        "between them"
    )
    assert any("kernel log: operation not permitted" in fact for fact in verdict.facts)


@pytest.mark.parametrize("state", ["started", "scheduled"])
def test_a_gpu_that_is_lost(state: str) -> None:
    """The kernel names the GPU: its node is at fault, also where torch does not know what has started."""
    evidence = with_events(job(*(begun(n, state) for n in range(4))), Xid(79, "0000:44:00", NOW - 15, LOST))
    verdict = only(evidence)

    assert ("gpu-stuck", [], [1], [0, 1, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "; Xid 79 on GPU 0000:44:00 of " in verdict.sentence


def test_the_event_that_others_follow_from() -> None:
    """What only follows from an earlier event is not the cause; a line with a pid names the rank."""
    events = [
        Xid(45, "0000:dc:00", NOW - 12, FOLLOWS, 1002),
        Xid(149, "0000:ba:00", NOW - 11, ROOT, 1003),
    ]
    verdict = only(with_events(job(*(begun(n) for n in range(4))), *events))

    assert ([3], [1], [0, 1, 2]) == (verdict.ranks, verdict.nodes, verdict.victims)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [Xid(79, "0000:44:00", NOW - 3600, LOST)],
        [Xid(154, "0000:44:00", NOW - 11, LOST.replace("79", "154"))],
    ],
)
def test_called_by_all_is_not_enough(events: list[Xid]) -> None:
    """A long computation before the collective looks the same; old events and mere notes prove nothing."""
    assert "unknown" == only(with_events(job(*(begun(n, "scheduled") for n in range(4))), *events)).code


def test_silent_where_not_all_began_the_same() -> None:
    """One that is elsewhere, one ahead, two groups at once, a peer, Gloo, or a rank that was not seen."""
    three = [begun(n) for n in range(3)]
    groups = [Group("0", [0, 1, 2, 3], 17, 16), Group("1", [2, 3], 4, 3)]
    send = replace(call(1, "nccl:send"), p2p=True, peer=0)
    others = [
        begun(3, stacks=in_evaluate(), groups=[Group("0", [0, 1, 2, 3], 16, 16)], collectives=[]),
        begun(3, seq=18),
        begun(3, groups=groups),
        begun(3, collectives=[replace(call(17, "nccl:all_reduce"), state="started"), send]),
        begun(3, backend="gloo"),
        dead(3, 1.0, by_us=True),
    ]
    jobs = [job(*three, other) for other in others] + [job(*three)]

    assert ["gpu-stuck" == only(evidence).code for evidence in jobs] == [False] * len(jobs)


def test_silent_where_a_member_of_a_group_is_in_another() -> None:
    """Groups that wait for one another's members are no fault of a GPU."""
    groups = {0: ("1", [0, 1, 2]), 1: ("1", [0, 1, 2]), 2: ("2", [2, 3]), 3: ("2", [2, 3])}
    ranks = [
        begun(
            number,
            groups=[Group(name, members, 5, 4)],
            collectives=[replace(call(5, "nccl:all_reduce"), group=name, state="started")],
        )
        for number, (name, members) in groups.items()
    ]

    assert "gpu-stuck" != only(job(*ranks)).code


def test_a_failure_of_cuda_comes_with_the_kernels_words() -> None:
    """They are facts, and blame nobody else."""
    error = raised("RuntimeError", "CUDA error: uncorrectable ECC error encountered", 1.0)
    failed = dead(2, 1.1, code=1, raised=[error])
    evidence = with_events(
        job(rank(0), rank(1), failed, rank(3), why="death"),
        Xid(48, "0000:44:00", NOW - 10, LOST.replace("79", "48")),
    )
    verdict = only(evidence)

    assert ("rank-failed", [2]) == (verdict.code, verdict.ranks)
    assert any("Xid (PCI:0000:44:00): 48" in fact for fact in verdict.facts)


def test_a_gpu_that_has_not_come_to_what_the_others_have_started() -> None:
    """With TORCH_NCCL_ENABLE_TIMING: a kernel before it does not end."""
    ranks = [begun(n, "scheduled" if n == 1 else "started") for n in range(4)]
    verdict = only(job(*ranks))

    assert ("gpu-stuck", [1], [0], [0, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert (
        "rank 1 has called all_reduce 17, but it has not started on the GPU, while that of the others has: "
        "what was queued before it does not end"
    ) == verdict.sentence


@pytest.mark.parametrize(
    ("state", "stuck", "why", "moves"),
    [
        ("scheduled", 11.0, "still", True),
        ("scheduled", 29.0, "still", False),
        ("scheduled", 11.0, "deadline", False),
        ("started", 11.0, "still", False),
    ],
)
def test_gpus_that_may_still_compute_get_more_time(state: str, stuck: float, why: str, moves: bool) -> None:
    """All ranks wait for their GPUs in the same collective: that is a long step as well."""
    evidence = job(*(begun(n, state, stuck_for=stuck) for n in range(4)), why=why)

    assert moves != nothing_moves(evidence)
    assert (pytest.approx(17.0) if moves else 0.0) == computing_for(evidence)


def test_a_rank_elsewhere_gets_no_more_time() -> None:
    """The others wait for it."""
    busy = rank(3, in_evaluate(), called=16, backend="nccl")

    assert nothing_moves(job(*(begun(n, "scheduled") for n in range(3)), busy))
