"""Ranks whose recorders died with them, by what the hook's ring has kept of their calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    TORCH,
    call,
    dead,
    in_evaluate,
    job,
    only,
    rank,
    stack,
    victim,
)

from ddplaunch.agent.contract import (
    Collective,
    Frame,
    RankEvidence,
    Stack,
)
from ddplaunch.agent.diagnosis.run.decide import judge

WORDS = (
    "  what():  Received data size doesn't match. Is there a distributed collective mismatch in your code?"
)


def called(seq: int, op: str = "all_reduce", size: int = 16, line: int = 92) -> Collective:
    """A call that has not returned."""
    frames = [Frame("step", "/job/train.py", line)]
    return Collective("0", seq, op, [[size]], ["float32"], frames=frames, state="entered")


def aborted(number: int, *calls: Collective, **more: Any) -> RankEvidence:
    """A rank that Gloo has ended."""
    return dead(number, 0, signal=6, last_output=WORDS, calls=list(calls), **more)


def test_a_mismatch_is_found_in_what_the_dead_have_called() -> None:
    """Gloo aborts a rank, the others die with it, and no recorder answered: the odd one is named."""
    odd = called(17, size=64, line=88)
    ranks = [victim(0), aborted(1, called(17)), victim(2), victim(3)]
    kept = {0: called(17), 2: odd, 3: called(17)}
    evidence = [
        RankEvidence(**{**vars(each), "calls": [kept[each.rank]]}) if each.rank in kept else each
        for each in ranks
    ]
    verdict = only(job(*evidence, why="death"))

    assert ("collective-mismatch", [2], [0, 1, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at collective 17 rank 2 called all_reduce [64] (train.py:88), "
        "the others all_reduce [16] (train.py:92)"
    )


def test_a_collective_called_past_torchs_python_is_waited_in() -> None:
    """As Lightning Fabric's barrier: the stack ends at the user's line, at which the ring has a call."""
    barrier = called(1, "monitored_barrier", line=35)
    here, elsewhere = (stack(Frame("step", "/job/train.py", line)) for line in (35, 40))
    evaluates = rank(0, in_evaluate(), called=0)
    one, two, gone = [
        rank(number, stacks, called=0, calls=[barrier])
        for number, stacks in ((1, here), (2, here), (2, elsewhere))
    ]
    verdict, both = only(job(evaluates, one, two)), only(job(evaluates, one, gone))

    assert ("rank-in-user-code", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert [0, 2] == both.ranks


def test_calls_and_records_are_never_compared() -> None:
    """DistributedDataParallel's own reductions are counted by torch's recorder, and by no ring."""
    recorded = rank(0, collectives=[call(17, "all_reduce", [1000])])
    verdicts = judge(job(recorded, aborted(1, called(17, "broadcast", 4)), why="death"))

    assert [(verdict.code, verdict.ranks, verdict.confidence) for verdict in verdicts] == [
        ("collective-mismatch", [], 0.5)
    ]


def in_backward(number: int, seq: int = 16, line: int = 80) -> RankEvidence:
    """A rank whose DDP sums up gradients; the last call of the program's own, `seq`, has returned."""
    engine = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113)
    backward = Frame("backward", f"{TORCH}/_tensor.py", 623)
    calls = [replace(called(seq), state="returned")]
    return rank(number, stack(engine, backward, Frame("train", "/job/train.py", line)), calls=calls)


def test_a_call_beside_the_others_backward_is_named() -> None:
    """DDP's collectives have no line: that the others have not made the call shows who is alone."""
    ranks = [aborted(0, called(17)), *map(in_backward, (1, 2, 3))]
    verdict = only(job(*ranks, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 17 of the program rank 0 called all_reduce [16] (train.py:92), the others backward "
        "(train.py:80)"
    )
    assert only(job(*ranks[:2], why="death")).ranks == [0, 1]  # of two, either may be wrong


@pytest.mark.parametrize(
    "third",
    [
        in_backward(2, seq=17),
        in_backward(2, line=81),
        rank(2, in_evaluate(), calls=[replace(called(16), state="returned")]),
        victim(2),
    ],
    ids=["has made it", "in another backward", "in no collective", "unknown"],
)
def test_a_call_beside_a_backward_proves_nothing_of_other_ranks(third: RankEvidence) -> None:
    """Where one is elsewhere, the calls of the others do not show which is wrong."""
    verdicts = judge(job(aborted(0, called(17)), in_backward(1), third, in_backward(3), why="death"))

    assert "collective-mismatch" not in [verdict.code for verdict in verdicts if verdict.ranks]


def without_calls(number: int, **more: Any) -> RankEvidence:
    """A rank whose program calls no collective itself, in DDP's backward."""
    return replace(in_backward(number), calls=[], **more)


def test_a_first_call_beside_the_others_backward_is_named() -> None:
    """DDP alone, and `if rank == 0: dist.all_reduce(…)`: the others have called nothing."""
    ranks = [aborted(0, called(1, size=1)), *map(without_calls, (1, 2, 3))]
    second = [aborted(0, called(2, size=1)), *map(without_calls, (1, 2, 3))]
    unseen = [*ranks[:3], without_calls(3, stack_source="py-spy")]
    verdict = only(job(*ranks, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 1 of the program rank 0 called all_reduce [1] (train.py:92), the others backward "
        "(train.py:80)"
    )
    assert [] == only(job(*second, why="death")).ranks
    assert [] == only(job(*unseen, why="death")).ranks  # without a hook nobody knows what it has called


def in_torchs_own(name: str, line: int) -> list[Stack]:
    """The main thread in a collective of a function of torch, past the functions that the program calls."""
    return stack(
        Frame("wait_tensor", f"{TORCH}/distributed/_functional_collectives.py", 149),
        Frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
        Frame(name, f"{TORCH}/distributed/checkpoint/state_dict.py", 1000),
        Frame("inner", f"{TORCH}/utils/_contextlib.py", 120),
        Frame("train", "/job/train.py", line),
    )


def crashed(number: int, stacks: list[Stack], **more: Any) -> RankEvidence:
    """A rank that Gloo has ended, with where its main thread was."""
    return replace(aborted(number, **more), stacks=stacks, stack_source="crash")


def test_a_function_of_torch_beside_the_others_call_is_named() -> None:
    """FSDP: rank 0 alone gathers the state, the others go on to their next call."""
    gathers = crashed(0, in_torchs_own("get_model_state_dict", 24))
    failed = replace(called(1, "all_gather_into_tensor", line=20), state="raised")
    others = [replace(victim(number), calls=[failed]) for number in (1, 2, 3)]
    verdict = only(job(gathers, *others, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 1 of the program rank 0 called get_model_state_dict (train.py:24), "
        "the others all_gather_into_tensor [16] (train.py:20)"
    )


def test_two_functions_of_torch_are_told_apart_by_their_lines() -> None:
    """Neither is in the ring. Ranks that have not made as many calls are out of step somewhere else."""
    gathers = crashed(0, in_torchs_own("get_model_state_dict", 24))
    others = [rank(number, in_torchs_own("unshard", 20)) for number in (1, 2, 3)]
    verdict = only(job(gathers, *others, why="death"))
    ahead = replace(others[2], calls=[replace(called(1), state="returned")])

    assert ("collective-mismatch", [0], 0.8) == (verdict.code, verdict.ranks, verdict.confidence)
    assert verdict.sentence == (
        "rank 0 called get_model_state_dict (train.py:24), the others unshard (train.py:20)"
    )
    for silent in (
        [gathers, *others[:2], ahead],
        [gathers, *others[:2], rank(3, in_torchs_own("unshard", 21))],
        [gathers, *(rank(number, in_torchs_own("get_model_state_dict", 24)) for number in (1, 2, 3))],
        [gathers, *others[:2], rank(3, in_evaluate())],
    ):
        assert [] == only(job(*silent, why="death")).ranks


def test_where_a_rank_that_names_nobody_was_is_told() -> None:
    verdict = only(job(crashed(0, in_torchs_own("get_model_state_dict", 24)), victim(1), why="death"))

    assert verdict.sentence.startswith("rank 0 ended (train.py:24) because the ranks called different")
    assert "rank 0 was in train (train.py:24)" in verdict.facts


def test_where_a_rank_crashed_is_told() -> None:
    """The thread that crashed is the user's, or none of Python's."""
    frames = stack(Frame("load", "/job/data.py", 12))
    python, native = (
        replace(dead(1, 0, signal=11), stacks=[replace(frames[0], crashed=each)], stack_source="crash")
        for each in (True, False)
    )
    stale = replace(python, stack_source="hook", stacks=frames)
    bare = replace(native, stacks=[replace(frames[0], frames=[])])
    told, native_told, unknown, bare_told = (
        only(job(victim(0), each, why="death")) for each in (python, native, stale, bare)
    )

    assert "rank 1 was killed by SIGSEGV (data.py:12)" == told.sentence
    assert "rank 1 crashed in <module> (train.py:50) > main (train.py:40) > load (data.py:12)" in told.facts
    assert "rank 1 was killed by SIGSEGV" == native_told.sentence == unknown.sentence
    own = "rank 1 crashed in native code's own thread; its main thread"
    assert (
        f"{own} was in <module> (train.py:50) > main (train.py:40) > load (data.py:12)" in native_told.facts
    )
    assert f"{own} ran no Python" in bare_told.facts
    assert not any("data.py" in fact for fact in unknown.facts)


def test_equal_calls_blame_nobody() -> None:
    """The ranks' own calls agree: the mismatch was in what no ring shows."""
    evidence = job(
        aborted(0, called(17)), aborted(1, called(17)), victim(2), rank(3, calls=[called(17)]), why="death"
    )
    verdict = only(evidence)

    assert ("collective-mismatch", [], 0.5) == (verdict.code, verdict.ranks, verdict.confidence)


def test_a_recorder_that_agrees_is_believed() -> None:
    """While ranks wait and answer, torch's own numbers decide, and the ring is not asked."""
    waits = [
        rank(number, collectives=[call(17, "all_reduce")], calls=[called(9, size=4 + number)])
        for number in range(2)
    ]

    assert [verdict.code for verdict in judge(job(*waits))] == ["unknown"]


def test_the_line_is_that_of_the_call() -> None:
    """A rank that has gone on since is not shown where it stands now."""
    waits = [
        rank(number, calls=[called(17, "broadcast" if number == 2 else "all_reduce", line=60 + number // 2)])
        for number in range(3)
    ]

    assert only(job(*waits, per_node=3)).sentence == (
        "at collective 17 rank 2 called broadcast [16] (train.py:61), "
        "the others all_reduce [16] (train.py:60)"
    )


def test_a_killed_rank_shows_where_it_was() -> None:
    """What it called last and where, whether it stood in there or had come back."""
    recv = Collective("0", 1, "recv", p2p=True, peer=0, frames=[Frame("step", "/job/train.py", 13)])
    for state, fact in (
        ("entered", "rank 1 was in recv from rank 0 (train.py:13)"),
        ("returned", "rank 1 had come back from recv from rank 0 (train.py:13)"),
    ):
        killed = dead(1, 0, signal=9, calls=[replace(recv, state=state)])

        assert fact in only(job(victim(0), killed, why="death")).facts
