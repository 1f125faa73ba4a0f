"""The rule on a broadcast of parameters that takes long; figures as three real ranks with Gloo gave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import MAIN, NOW, TORCH, call, in_collective, in_loader, job, rank, stack

from ddplaunch.agent.contract import Frame, Group, JobEvidence, Process, RankEvidence
from ddplaunch.agent.diagnosis.run.decide import judge, nothing_moves

UTILS = f"{TORCH}/distributed/utils.py"
MODEL = 48 << 20


def broadcasting(number: int, rate: float, moved: int, **more: Any) -> RankEvidence:
    """A rank in DDP's construction, whose sockets move bytes."""
    stacks = stack(
        Frame("_sync_params_and_buffers", UTILS, 339),
        Frame("_sync_module_states", UTILS, 328),
        Frame("__init__", f"{TORCH}/nn/parallel/distributed.py", 1078),
    )
    values: dict[str, Any] = {
        "stacks": stacks,
        "stuck_for": 1.0,
        "still_for": 0.0,
        "backend": "gloo",
        "broadcasting": MODEL,
        "collectives": [replace(call(17, "gloo:broadcast", [MODEL // 4]), at=NOW - 10)],
        "process": Process(1000 + number, "S", net_rate=rate, net_bytes=moved),
        "groups": [Group("0", [], 17, 16)],
        "world_size": 3,
        **more,
    }
    return rank(number, **values)


def three(**more: Any) -> list[RankEvidence]:
    """Return three ranks 10 s after the begin, when each of ranks 1 and 2 has 12 MiB of 48."""
    per_second = 1.2 * (1 << 20)
    counts = [(2 * per_second, 24 << 20), (per_second, 12 << 20), (per_second, 12 << 20)]
    return [broadcasting(number, *count, **more) for number, count in enumerate(counts)]


def asked(*ranks: RankEvidence) -> JobEvidence:
    """Return the evidence for somebody who asks about a job that runs."""
    return job(*ranks, why="asked", per_node=3)


def test_progress_and_remaining_time() -> None:
    """With Gloo the rate, the share that is done and the time that is left follow from all ranks' sockets."""
    (verdict,) = judge(asked(*three()))

    assert ("slow-broadcast", [], [], []) == (verdict.code, verdict.ranks, verdict.nodes, verdict.victims)
    assert (
        "not hung: DDP broadcasts parameters (48 MiB) at 1 MiB/s, about 25 % done, 30 s left at this rate"
        == verdict.sentence
    )
    assert "ranks 0-2 are in DDP's first broadcast of parameters 17 (train.py:40)" in verdict.facts


def test_fsdp_is_called_by_its_name() -> None:
    """FSDP sends its state by the same function."""
    frames = [
        Frame("_sync_params_and_buffers", UTILS, 339),
        Frame("_sync_module_params_and_buffers", f"{TORCH}/distributed/fsdp/_init_utils.py", 1131),
        MAIN,
    ]
    (verdict,) = judge(asked(*three(stacks=stack(*frames))))

    assert verdict.sentence.startswith("not hung: FSDP broadcasts parameters (48 MiB) at")


def test_only_the_rate_where_the_size_is_not_known() -> None:
    """Without the model's size there is no share."""
    (verdict,) = judge(asked(*three(broadcasting=0)))

    assert "not hung: DDP broadcasts parameters at 1 MiB/s" == verdict.sentence


def test_only_the_rate_where_other_traffic_went_through_the_sockets() -> None:
    """Bytes that do not fit rate and time say nothing of the share."""
    many = [
        replace(each, process=replace(each.process, net_bytes=40 << 20)) for each in three() if each.process
    ]
    (verdict,) = judge(asked(*many))

    assert "not hung: DDP broadcasts parameters (48 MiB) at 1 MiB/s" == verdict.sentence


def test_only_the_rate_of_the_sockets_with_nccl() -> None:
    """NCCL's bytes take other ways, too."""
    (verdict,) = judge(asked(*three(backend="nccl")))

    assert "not hung: DDP broadcasts parameters (48 MiB) at 2 MiB/s" == verdict.sentence


def test_no_word_unless_bytes_move() -> None:
    """A broadcast in which nothing moves may be hung."""
    still = [replace(each, process=Process(each.pid, "S")) for each in three()]

    assert [] == judge(asked(*still))


def test_no_word_unless_all_broadcast() -> None:
    """Ranks that wait for one that loads data, or for one that was not seen, do not wait for the link."""
    _, *two = three()

    for first in ([rank(0, in_loader(), 16)], [rank(0, in_collective(), stuck_for=1.0)], []):
        assert "slow-broadcast" not in [verdict.code for verdict in judge(asked(*first, *two))]


def test_no_word_unless_somebody_asks() -> None:
    """A broadcast that moves is no reason for an alarm."""
    assert not nothing_moves(job(*three(), why="still", per_node=3))
    assert [] == judge(job(*three(), why="apart", per_node=3))
