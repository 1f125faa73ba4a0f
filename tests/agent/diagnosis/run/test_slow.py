"""The pace of ranks that move: who comes last, and where it spends its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import (
    MAIN,
    NOW,
    TORCH,
    call,
    in_collective,
    in_evaluate,
    in_loader,
    job,
    only,
    rank,
    stack,
)

from ddplaunch.agent.contract import (
    TERMINAL,
    Frame,
    Group,
    JobEvidence,
    Process,
    RankEvidence,
    RankPace,
    Stand,
    Tie,
)
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.diagnosis.run.decide import judge, nothing_moves

ASKS = Frame("train", "/job/train.py", 40)
CALLS = Frame("train", "/job/train.py", 44)
WAITS = [Stand("collective", 36, CALLS), Stand("", 4, ASKS)]
LOADS = [Stand("loader", 31, ASKS), Stand("", 6, CALLS), Stand("collective", 3, CALLS)]


def moving(number: int, stands: list[Stand] = WAITS, **more: Any) -> RankEvidence:
    """A rank that waits, in a job whose steps take 14 s."""
    values: dict[str, Any] = {
        "stands": stands,
        "still_for": 0.0,
        "stuck_for": 6.0,
        "step_times": [13.0, 14.0, 14.0],
        **more,
    }
    return rank(number, **values)


def holding(stacks: Any, **more: Any) -> RankEvidence:
    """Rank 2, for which the others wait."""
    busy = Process(1, "R", cpu_share=1.0)
    return moving(
        more.pop("rank", 2), **{"stands": LOADS, "stacks": stacks, "called": 16, "process": busy, **more}
    )


def test_the_share_of_time_of_the_one_that_comes_last() -> None:
    """Where it is most, with the line, and what to do about it; the others are its victims."""
    verdict = only(job(moving(0, WAITS), moving(1, WAITS), holding(in_loader()), why="asked"))

    assert ("slow", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "not hung: a step takes 14 s; rank 2 spent 78% of the last 40 s in DataLoader.__next__ (train.py:40) "
        "while the others wait for it"
    )
    assert verdict.hint.startswith("The data comes too slowly")
    assert (
        "rank 0: in all_reduce 17 (train.py:92), 0.0 cores; a step takes 14 s; of the last 40 s 90% in "
        "collectives, 0% waiting for data" in verdict.facts
    )


def test_one_that_waits_for_the_user_is_no_slow_one() -> None:
    """In a debugger, as on rank 0 alone."""
    tie = Tie("data", TERMINAL, [], [], "/dev/pts/3")
    asks = stack(Frame("train", "/job/train.py", 7))
    verdict = only(job(moving(0), moving(1), holding(asks, process=Process(1002, "S", tie=tie)), why="asked"))

    wait = "rank 2 is waiting for input from the terminal /dev/pts/3"
    assert f"not hung: a step takes 14 s; {wait}" == verdict.sentence
    assert "It waits for you: type there what it asks for." == verdict.hint


def test_no_share_where_several_keep_the_others_waiting() -> None:
    """Where two ranks work most of the time, none of them sets the pace alone."""
    ranks = [moving(0, WAITS), moving(1, LOADS), holding(in_evaluate())]

    assert pace.last_to_come(ranks) is None
    assert "spent" not in only(job(*ranks, why="asked")).sentence


def test_no_share_of_a_rank_that_waits_at_the_moment() -> None:
    """The one that usually comes last may itself wait for another now: then that one is named."""
    ranks = [holding(in_evaluate(), rank=0, stands=WAITS), moving(1, WAITS), moving(2, LOADS)]
    verdict = only(job(*ranks, why="asked"))

    assert (2, [0]) == ((pace.last_to_come(ranks) or ranks[0]).rank, verdict.ranks)
    assert "spent" not in verdict.sentence


def test_no_share_of_a_rank_that_waits_while_the_others_have_gone_on() -> None:
    """Right after a collective the one that usually comes last may still stand in it."""
    ranks = [holding(in_evaluate(), rank=0, stands=WAITS, called=17), moving(1, WAITS), moving(2, LOADS)]

    assert [] == judge(job(*ranks, why="asked"))


def test_long_steps_that_no_rank_alone_makes_long_are_no_fault() -> None:
    """All compute, or all wait for their data: the job takes this long, and nothing is wrong."""
    for stacks, stands in (
        (in_evaluate(), [Stand("", 40, ASKS)]),
        (in_loader(), [Stand("loader", 40, ASKS)]),
    ):
        ranks = [holding(stacks, rank=number, stands=stands) for number in range(3)]
        assert [] == judge(job(*ranks, why="asked"))


def test_no_share_where_another_holds_the_others_up_as_well() -> None:
    """Both are named, as they stand at the moment."""
    ranks = [holding(in_evaluate(), rank=0, stands=WAITS), moving(1, WAITS), holding(in_loader())]
    verdict = only(job(*ranks, why="asked"))

    assert [0, 2] == verdict.ranks
    assert "spent" not in verdict.sentence


def test_no_share_of_a_rank_that_waits_as_well() -> None:
    """A rank that waits for nearly half of the time does not set the pace by itself."""
    half = [Stand("collective", 16, CALLS), Stand("loader", 24, ASKS)]

    assert pace.last_to_come([moving(0, WAITS), moving(1, WAITS), moving(2, half)]) is None


def test_no_share_of_few_looks() -> None:
    """After some seconds shares say nothing yet."""
    few = [Stand("collective", 9, CALLS)]

    assert pace.last_to_come([moving(0, few), holding(in_loader())]) is None
    assert "a step takes 14 s" == pace.text(moving(0, few))


def test_a_quota_that_is_used_up() -> None:
    """The share of periods that the node's quota cut is a fact about its ranks."""
    ranks = [moving(0, WAITS), moving(1, WAITS), holding(in_evaluate())]
    verdict = only(job(*ranks, why="asked", throttled=0.92))

    assert sum("its CPU quota has cut 92% of the periods" in fact for fact in verdict.facts) == 2


def test_a_job_that_is_quick_has_no_verdict() -> None:
    """A rank that comes last in short steps is no fault."""
    quick: dict[str, Any] = {"step_times": [0.2, 0.3, 0.2], "stuck_for": 0.1}
    ranks = [moving(0, WAITS, **quick), holding(in_loader(), **quick)]

    assert [] == judge(job(*ranks, why="asked"))
    assert pace.text(ranks[0]).startswith("a step takes 0.2 s; of the last 40 s 90% in collectives")
    assert pace.text(rank(0, step_times=[0.004] * 9)) == "a step takes 4 ms"


def test_slow_only_when_asked() -> None:
    """A long step that moves is no verdict by itself; asked, it says who sets the pace."""
    busy: dict[str, Any] = {
        "still_for": 0.0,
        "stuck_for": 6.0,
        "step_times": [14.0, 14.0],
        "process": Process(1, "R", cpu_share=1.0),
    }
    ranks = [rank(0, stuck_for=6.0, step_times=[14.0, 14.0]), rank(1, in_evaluate(), called=16, **busy)]

    (verdict,) = judge(job(*ranks, why="asked"))

    assert ("slow", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "not hung: a step takes 14 s; rank 1 is in evaluate (eval.py:140) while the others wait"
        == verdict.sentence
    )
    assert [] == judge(job(*ranks, why="end"))


def test_the_pace_of_a_large_job_is_short() -> None:
    """Medians, and the eight ranks that wait least; one of which nothing is known does not count as such."""
    ranks = [pace.brief(moving(number, LOADS if number == 700 else WAITS)) for number in range(1024)]
    ranks[3] = pace.brief(rank(3))
    found = pace.of_job(ranks)

    assert found is not None
    assert (1024, 14.0, 0.9, 0.0) == (found.ranks, found.step, found.in_collectives, found.for_data)
    assert [700, 0, 1, 2, 4, 5, 6, 7] == [each.rank for each in found.first]
    assert RankPace(700, 14.0, 0.075, 0.775) == found.first[0]
    assert RankPace(3) == ranks[3]
    assert pace.of_job([]) is None


def test_buckets_of_one_size_are_no_steps() -> None:
    """Four times in a step the same collective: near one another, then far. One long step is only one."""
    uneven = [0.05, 0.05, 0.05, 0.16] * 2

    assert [None, 0.2] == [pace.step(rank(0, step_times=times)) for times in (uneven, [*[0.2] * 7, 0.6])]


# --- The rule on a broadcast of parameters that takes long; figures as three real ranks with Gloo gave them.


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
