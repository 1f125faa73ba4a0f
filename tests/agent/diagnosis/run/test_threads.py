"""Ranks with several threads: which of them trains, and two that use one process group at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import C10D, MAIN, NOW, TOP, TORCH, in_collective, job, only, rank
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import Collective, Frame, Group, JobEvidence, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run.decide import judge

LIB = "/opt/env/lib/python3.11"
JOIN = [
    Frame("_wait_for_tstate_lock", f"{LIB}/threading.py", 1139),
    Frame("join", f"{LIB}/threading.py", 1119),
]
BOOTSTRAP = [Frame("run", f"{LIB}/threading.py", 982), Frame("_bootstrap_inner", f"{LIB}/threading.py", 1045)]
TRAIN = Frame("train", "/job/train.py", 61)


def thread(name: str, *frames: Frame) -> Stack:
    return Stack(name, False, [*frames, *BOOTSTRAP])


# --- the thread that trains


def trained(number: int, *frames: Frame, called: int = 16, main: list[Frame] | None = None) -> RankEvidence:
    """A rank whose main thread joins the one that is here and has called all_reduce in train()."""
    stacks = [
        Stack("MainThread", True, [*(JOIN if main is None else main), MAIN, TOP]),
        thread("trainer", *frames),
    ]
    calls = [replace(call("all_reduce", called, 61), frames=[TRAIN])]
    done = called - ("distributed_c10d" in frames[0].file)
    return rank(number, stacks, calls=calls, groups=[Group("0", [0, 1], called, done)])


IN_CALL = [*in_collective(line=61)[0].frames[:3]]
EVALUATE = Frame("evaluate", "/job/eval.py", 140)


def test_a_rank_that_trains_in_a_thread_is_where_that_thread_is() -> None:
    verdict = only(job(trained(0, *IN_CALL, called=17), trained(1, EVALUATE, TRAIN)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 has been in evaluate (eval.py:140) for 11 s, the other waits in all_reduce 17 (train.py:61)"
        == verdict.sentence
    )


@pytest.mark.parametrize(
    "waits",
    [
        trained(1, Frame("flush", "/job/log.py", 7)),
        trained(1, EVALUATE, TRAIN, main=[Frame("save", "/job/save.py", 9)]),
        trained(1, EVALUATE, TRAIN, main=[*JOIN, TRAIN]),
    ],
    ids=["a thread that calls nothing", "main works", "main calls as well"],
)
def test_a_main_thread_that_trains_or_works_is_where_the_rank_is(waits: RankEvidence) -> None:
    verdict = only(job(trained(0, *IN_CALL, called=17), waits))

    assert "eval.py" not in verdict.sentence


# --- two threads in one group


def crossing(number: int, *calls: Collective, saver: str = "saver_0", **more: Any) -> RankEvidence:
    """A rank that stands in all_reduce in main() and in all_gather_object in a thread."""
    stacks = [*in_collective(line=61), thread(saver, *in_collective("all_gather_object", 8)[0].frames[:3])]
    return rank(number, stacks, calls=list(calls), groups=[Group("0", [0, 1, 2], 36, 34)], **more)


def reduces(seq: int, **more: Any) -> Collective:
    return call("all_reduce", seq, 61, **{"state": "entered", **more})


def gathers(seq: int, **more: Any) -> Collective:
    return call("all_gather_object", seq, 8, **{"state": "entered", **more})


def test_threads_whose_calls_cross_are_told_with_both_lines() -> None:
    evidence = job(
        crossing(0, reduces(34), gathers(35)),
        crossing(1, gathers(34), reduces(35)),
        crossing(2, reduces(34), gathers(35)),
        per_node=3,
    )
    verdict = only(evidence)

    assert ("group-in-two-threads", [0, 1, 2], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "two threads of a rank call collectives of the default group at once: all_reduce (train.py:61) in "
        'MainThread and all_gather_object (train.py:8) in thread "saver_0"; on rank 1 they came in another '
        "order than on ranks 0 and 2" == verdict.sentence
    )
    assert (
        "rank 1 called all_gather_object 34 (train.py:8), then all_reduce 35 (train.py:61)" in verdict.facts
    )


def test_a_call_that_came_back_while_another_was_open_crosses_as_well() -> None:
    """Sizes alone may not differ: one of the two has returned, with the numbers of the other."""
    evidence = job(
        crossing(0, reduces(34, state="returned", took=3.0), gathers(35)),
        crossing(1, gathers(34), reduces(35)),
        per_node=2,
    )

    assert "group-in-two-threads" == only(evidence).code


def recorded(op: str, line: int) -> Collective:
    """The first call that is not done, as torch has recorded it."""
    return Collective("0", 35, op, [[1]], ["Long"], frames=[Frame("main", "/job/train.py", line)])


def test_calls_that_cross_inside_of_torch_are_told_by_its_recorder() -> None:
    """all_gather_object gathers twice: the program's calls have one order, and torch's have not."""
    evidence = job(
        crossing(0, reduces(34), gathers(35), collectives=[recorded("all_gather", 8)]),
        crossing(1, reduces(34), gathers(35), collectives=[recorded("all_reduce", 61)]),
        crossing(2, reduces(34), gathers(35), collectives=[recorded("all_reduce", 61)]),
        per_node=3,
    )
    alone = job(
        replace(crossing(0, gathers(34)), collectives=[recorded("all_gather", 8)]),
        crossing(1, reduces(34), gathers(35), collectives=[recorded("all_reduce", 61)]),
        crossing(2, reduces(34), gathers(35), collectives=[recorded("all_reduce", 61)]),
        per_node=3,
    )
    verdict = only(evidence)

    assert ("group-in-two-threads", [0, 1, 2]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith("; on rank 0 they came in another order than on ranks 1 and 2")
    assert "rank 0: collective 35 is all_gather [1] (train.py:8)" in verdict.facts
    assert "collective-mismatch" == only(alone).code


@pytest.mark.parametrize(
    "evidence",
    [
        job(crossing(0, reduces(34), gathers(35)), crossing(1, reduces(34), gathers(35))),
        job(
            crossing(0, reduces(34), gathers(1, group="saver")),
            crossing(1, gathers(1, group="saver"), reduces(34)),
        ),
        job(
            crossing(0, reduces(34, state="returned", took=0.5), gathers(35)),
            crossing(1, gathers(34, state="returned", took=0.5), reduces(35)),
        ),
        job(
            crossing(0, reduces(34, state="issued"), gathers(35)),
            crossing(1, gathers(34, state="returned", took=0.5), reduces(35, state="issued")),
        ),
        job(
            crossing(0, reduces(34, state="returned", took=3.0), gathers(35, state="returned", took=3.0)),
            crossing(1, gathers(34, state="returned", took=3.0), reduces(35, state="returned", took=3.0)),
        ),
        job(crossing(0, reduces(34), gathers(35)), crossing(1, reduces(34))),
    ],
    ids=[
        "one order",
        "each its group",
        "one after another",
        "asynchronous",
        "all over",
        "not both on the other",
    ],
)
def test_two_threads_that_do_not_cross_are_no_fault(evidence: JobEvidence) -> None:
    assert "group-in-two-threads" not in [verdict.code for verdict in judge(evidence)]


# --- calls that torch makes by itself, in a thread or in backward

WRAPPER = Frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83)
SAVES = [
    Frame("gather", C10D, 5713),
    WRAPPER,
    Frame("gather_object", C10D, 4611),
    WRAPPER,
    Frame("reduce_scatter", f"{TORCH}/distributed/checkpoint/utils.py", 198),
    Frame("save_wrapper", f"{TORCH}/distributed/checkpoint/_async_thread_executor.py", 30),
]
TORCHS = Collective("0", 34, "gather_object", at=NOW - 26, state="entered")
"""As the ring has it: no line of the program has made it."""


def saving(number: int, first: str, *frames: Frame) -> RankEvidence:
    """A rank in all_reduce while a thread of torch saves; `first`: what torch's recorder has before."""
    ops = [first, *({"gather", "all_reduce"} - {first})]
    entries = [Collective("0", 35 + place, op, [[1]], ["Long"]) for place, op in enumerate(ops)]
    stacks = [*in_collective(line=61), thread("AsyncCheckpointExecutor_0", *(frames or SAVES))]
    return rank(
        number,
        stacks,
        calls=[TORCHS, reduces(35)],
        collectives=[entries[0], entries[1]],
        groups=[Group("0", [0, 1], 36, 34)],
    )


def test_a_checkpoint_that_torch_saves_in_a_thread_is_told_with_the_thread() -> None:
    verdict = only(job(saving(0, "all_reduce"), saving(1, "gather")))

    assert ("group-in-two-threads", [0, 1]) == (verdict.code, verdict.ranks)
    assert (
        "two threads of a rank call collectives of the default group at once: gather_object in thread "
        '"AsyncCheckpointExecutor_0" and all_reduce (train.py:61) in MainThread; on rank 0 they came in '
        "another order than on rank 1" == verdict.sentence
    )
    assert "rank 1: collective 35 is gather [1] in a thread of torch's own" in verdict.facts
    assert "rank 1 is in all_reduce 36 (train.py:61)" in verdict.facts
    assert "`async_save` takes the group as `process_group=group`" in verdict.hint


def test_a_rank_that_waits_for_its_checkpoints_thread_is_in_the_threads_collective() -> None:
    """Its main thread has called collectives as well, and does nothing of its own now."""
    entries = [Collective("0", 35, "gather", [[1]], ["Long"])]
    waits = rank(
        0,
        [Stack("MainThread", True, [*JOIN, TRAIN]), thread("AsyncCheckpointExecutor_0", *SAVES)],
        calls=[replace(reduces(33, state="returned"), frames=[TRAIN]), TORCHS],
        collectives=entries,
        groups=[Group("0", [0, 1], 35, 34)],
    )
    verdict = only(job(waits, rank(1, [Stack("MainThread", True, [EVALUATE, TRAIN])], called=34)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_call_without_a_line_in_no_thread_that_is_seen_is_no_second_thread() -> None:
    evidence = job(*(saving(each, op, EVALUATE) for each, op in enumerate(["all_reduce", "gather"])))

    assert "group-in-two-threads" not in [verdict.code for verdict in judge(evidence)]


def reporting(
    number: int, first: str, backward: bool = True, waiting: int = 2, own: bool = False
) -> RankEvidence:
    """A rank in DDP's backward while a thread gathers; `waiting`: calls that torch's recorder has open.

    `own`: the thread is not Python's, but autograd's.
    """
    ops = [first, *({"all_gather", "all_reduce"} - {first})]
    lines = {"all_gather": [Frame("main", "/job/train.py", 8)], "all_reduce": []}
    entries = [Collective("0", 35 + n, op, [[1]], frames=lines[op]) for n, op in enumerate(ops)]
    inner = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113) if backward else EVALUATE
    gathering = Frame("main", "/job/train.py", 8)
    stacks = [
        Stack("MainThread", True, [inner, TRAIN]),
        thread("stats", Frame("all_gather_single", C10D, 1), Frame("all_gather_object", C10D, 2), gathering),
    ]
    if own:
        stacks[1] = replace(stacks[1], thread="pt_autograd_0", frames=stacks[1].frames[:3])
    return rank(
        number,
        stacks,
        calls=[replace(gathers(34), frames=[gathering])],
        collectives=entries[:waiting],
        groups=[Group("0", [0, 1], 34 + waiting, 34)],
    )


def test_a_thread_beside_ddps_backward_is_told_with_both() -> None:
    verdict = only(job(reporting(0, "all_gather"), reporting(1, "all_reduce")))

    assert (
        "two threads of a rank call collectives of the default group at once: all_gather_object "
        '(train.py:8) in thread "stats" and backward (train.py:61) in MainThread; on rank 0 they came in '
        "another order than on rank 1" == verdict.sentence
    )
    assert "rank 0 is in all_reduce 36 (train.py:61)" in verdict.facts


@pytest.mark.parametrize(
    "more",
    [{"backward": False}, {"waiting": 1}, {"own": True}],
    ids=["own code", "one is open", "autograd's thread"],
)
def test_a_thread_that_gathers_alone_crosses_nothing(more: dict[str, Any]) -> None:
    evidence = job(reporting(0, "all_gather", **more), reporting(1, "all_reduce", **more))

    assert "group-in-two-threads" not in [verdict.code for verdict in judge(evidence)]


FORWARD = [Frame(name, f"{TORCH}/nn/parallel/distributed.py", 1522) for name in ("_pre_forward", "forward")]


def before_torch_records(number: int, *inner: Frame, more: tuple[Group, ...] = ()) -> RankEvidence:
    """A rank of torch 2.7 in DDP's forward, or where `inner` says, beside a thread that gathers."""
    whole = reporting(number, "all_gather", waiting=0)
    stacks = [Stack("MainThread", True, [*(inner or FORWARD), TRAIN]), *whole.stacks[1:]]
    groups = [Group("0", [0, 1], 35, 34), *more]
    return replace(whole, stacks=stacks, groups=groups, unrecorded="2.7.1", backend="gloo")


def test_threads_that_all_ranks_have_in_the_same_two_calls_have_crossed_though_torch_records_none() -> None:
    verdict = only(job(*map(before_torch_records, range(2))))

    assert ("group-in-two-threads", [0, 1], 0.8) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "two threads of a rank call collectives of the default group at once: all_gather_object "
        '(train.py:8) in thread "stats" and DDP\'s forward (train.py:61) in MainThread; all ranks are in '
        "both, so they have not come in one order everywhere" == verdict.sentence
    )


@pytest.mark.parametrize(
    "other",
    [
        before_torch_records(1, EVALUATE),
        before_torch_records(1, more=(Group("1", [0, 1], 3, 2),)),
        replace(before_torch_records(1), unrecorded=""),
    ],
    ids=["one is elsewhere", "DDP's group may be another", "torch records them"],
)
def test_threads_in_two_calls_are_not_said_to_have_crossed_where_that_is_not_known(
    other: RankEvidence,
) -> None:
    evidence = job(before_torch_records(0), other)

    assert "group-in-two-threads" not in [verdict.code for verdict in judge(evidence)]


def test_backward_is_in_the_call_of_autograds_thread() -> None:
    """As in a function of the user's whose gradient needs an exchange."""
    inside = reporting(0, "all_gather", own=True, waiting=1)
    verdict = only(job(inside, rank(1, [Stack("MainThread", True, [EVALUATE])], called=34)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_collective_in_a_thread_that_one_rank_alone_has_is_said_to_be_one() -> None:
    monitor = Frame("run", "/job/stats.py", 42)
    inside = [
        Stack("MainThread", True, [MAIN, TOP]),
        thread("monitor", Frame("all_reduce", C10D, 4181), monitor),
    ]
    alone = rank(0, inside, collectives=[Collective("0", 17, "all_reduce", [[2]], frames=[monitor])])
    others = [
        rank(n, in_collective(), collectives=[Collective("0", 17, "all_reduce", [[9]], frames=[TRAIN])])
        for n in (1, 2)
    ]
    verdict = only(job(alone, *others))

    assert ("collective-mismatch", [0]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith("; rank 0 called it in a thread of its own, beside main (train.py:40)")
    assert "start the thread on all of them" in verdict.hint
    in_main = [Stack("MainThread", True, [Frame("all_reduce", C10D, 4181), monitor])]
    assert "thread" not in only(job(replace(alone, stacks=in_main), *others)).sentence
