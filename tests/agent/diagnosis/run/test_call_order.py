"""Ranks whose calls are those of the others, but for some left out or made twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import C10D, in_collective, in_evaluate, job, only, rank
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import Collective, Frame, JobEvidence, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.evidence.ring import sequences

LINES = {
    "a": ("all_reduce", 12),
    "b": ("all_reduce", 14),
    "c": ("broadcast", 16),
    "d": ("reduce", 18),
    "e": ("broadcast", 17),
    "z": ("barrier", 20),
}


def caller(number: int, calls: str, first: int = 1) -> RankEvidence:
    """A rank that has made these calls, a letter for each, and stands in the last."""
    its = [
        call(
            LINES[each][0],
            first + place,
            LINES[each][1],
            "entered" if place == len(calls) - 1 else "returned",
        )
        for place, each in enumerate(calls)
    ]
    op, line = LINES[calls[-1]]
    entry = Collective("0", its[-1].seq, op, [[8]])
    return replace(
        rank(number, in_collective(op, line), len(calls) + first - 1), calls=its, collectives=[entry]
    )


def hung(*calls: str, first: int = 1) -> JobEvidence:
    """Ranks 0, 1, … with their calls."""
    ranks = [caller(number, its, first) for number, its in enumerate(calls)]
    return job(*ranks, per_node=len(calls))


def test_a_collective_that_is_left_out_in_a_round() -> None:
    """The others are stuck in it, and have come from it to the next in each round before."""
    verdict = only(hung("abcabcab", "abcabcab", "abcabcac"))

    assert ("collective-skipped", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 2 has left out all_reduce (train.py:14): at that place it called broadcast (train.py:16), and "
        "is 1 call ahead of the others since"
    ) == verdict.sentence
    assert "all_reduce (train.py:14)" in verdict.hint


def test_a_call_from_a_line_that_the_others_do_not_come_to() -> None:
    """All go on for many rounds; the rank that made the call is behind, and the others wait at the end."""
    verdict = only(hung("aaaadaaaaaa", "aaaaaaaaaaz", "aaaaaaaaaaz"))

    assert ("collective-skipped", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 has called reduce (train.py:18) once more than the others, and is 1 call behind them since"
    ) == verdict.sentence


def long_ago(evidence: JobEvidence) -> JobEvidence:
    """The same job: of all but the last two calls of a rank only their lines are known."""
    (node,) = evidence.evidence
    ranks = [replace(each, calls=each.calls[-2:], sequences=sequences(each.calls)) for each in node.ranks]
    return replace(evidence, evidence=[replace(node, ranks=ranks)])


def test_where_ranks_have_parted_may_lie_hundreds_of_calls_back() -> None:
    verdict = only(long_ago(hung("aaaad" + 200 * "a", 204 * "a" + "z", 204 * "a" + "z")))

    assert ("collective-skipped", [0]) == (verdict.code, verdict.ranks)
    assert "rank 0 has called reduce (train.py:18) once more" in verdict.sentence


def test_a_root_with_a_line_of_its_own_hides_no_later_call() -> None:
    """The ranks come together again after it; rank 2 has left out line 14 much later."""
    rounds = 5 * "dab"
    verdict = only(hung("c" + rounds + "dab", "e" + rounds + "dab", "e" + rounds + "dad"))

    assert ("collective-skipped", [2]) == (verdict.code, verdict.ranks)


def test_a_root_with_a_line_of_its_own_has_made_no_call_more() -> None:
    """It is in a loop that the others have left: who had more rounds is open, and no call is accused."""
    found = judge(hung("aacaaaaaaaa", "aaeaaaaaaaz", "aaeaaaaaaaz"))

    assert all("once more" not in verdict.sentence for verdict in found)


def test_each_node_has_a_copy_of_the_program() -> None:
    """Lines are compared as lines of one program, wherever a node has unpacked it."""
    here = hung("abcabcab", "abcabcab", "abcabcac")
    apart = [
        replace(
            each,
            calls=[
                replace(
                    call,
                    frames=[replace(frame, file=f"/tmp/ddplaunch-7-0123456789a{each.rank}/work/train.py")],
                )
                for call in each.calls
                for frame in call.frames[:1]
            ],
        )
        for node in here.evidence
        for each in node.ranks
    ]

    assert only(here).sentence == only(job(*apart, per_node=1)).sentence


def test_another_rank_may_have_gone_on_already() -> None:
    """A broadcast is over for who has received it."""
    verdict = only(hung("adc", "adcb", "adb"))

    assert ("collective-skipped", [2]) == (verdict.code, verdict.ranks)


def test_two_that_are_left_out() -> None:
    """They are counted."""
    verdict = only(hung("abcdabcdab", "abcdabcdab", "abcdabcdad"))

    assert "left out all_reduce (train.py:14) and 1 more: " in verdict.sentence


def test_the_others_went_on_with_the_wrong_partner() -> None:
    """Equal operations met, until at the end one lacks."""
    verdict = only(hung("ababab", "aababz", "ababab"))

    assert ("collective-skipped", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_call_that_is_made_twice() -> None:
    """Then the rank is behind."""
    verdict = only(hung("abcabca", "abbcabc", "abcabca"))

    assert ("collective-skipped", [1]) == (verdict.code, verdict.ranks)
    assert (
        "rank 1 has called all_reduce (train.py:14) once more than the others, and is 1 call "
        "behind them since" == verdict.sentence
    )


def test_a_rank_that_is_out_of_step_for_long() -> None:
    """When it began is not known any more; that it is so shows in what is."""
    verdict = only(hung("abcabca", "bcabcaz"[:6] + "b", "abcabca", first=90))

    assert ("collective-skipped", [1], 0.85) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "1 call out of step with the others since an earlier round" in verdict.sentence


@pytest.mark.parametrize(
    "calls",
    [
        ("abcabca", "abcabca", "abcabz"),  # which of its calls `z` is, nobody knows
        ("abcab", "abcac", "abcab"),  # one round is no habit
        ("aaaa", "aaaa", "bbbb"),  # it has a line of its own
        ("abababab", "babababa"),  # two opinions
        ("cabb", "cabb", "cbb"),  # one line of its own, and it is a call behind
        ("abc", "abc", "ab"),  # it has not come yet
        ("aaab", "aaab", "aaac"),  # another call at the same place
        ("abaabaab", "abaabaab", "abaabaaa"),  # the same operation from another line
        ("abcc", "abcc", "abac"),  # one line of its own
        ("cab", "cab", "cb"),  # one call, which may be meant for the others'
    ],
)
def test_calls_that_prove_no_shift(calls: Sequence[str]) -> None:
    """There may be a mismatch, but not one that was left out."""
    assert "collective-skipped" not in {verdict.code for verdict in judge(hung(*calls))}


def test_a_rank_without_lines_proves_nothing() -> None:
    """Nor does one that was not seen: it may be with the odd one."""
    whole = hung("abcabcab", "abcabcab", "abcabcac")
    node = whole.evidence[0]
    bare = replace(node.ranks[1], calls=[replace(each, frames=[]) for each in node.ranks[1].calls])
    for ranks in ([node.ranks[0], bare, node.ranks[2]], [node.ranks[0], node.ranks[2]]):
        found = judge(replace(whole, evidence=[replace(node, ranks=ranks)]))
        assert "collective-skipped" not in {verdict.code for verdict in found}


def test_a_busy_rank_has_skipped_nothing() -> None:
    """It is behind, and its calls are those of the others."""
    busy = replace(rank(2, in_evaluate(), 7), calls=caller(2, "abcabca").calls)
    ranks = [caller(0, "abcabcab"), caller(1, "abcabcab"), busy]

    assert "rank-in-user-code" == only(job(*ranks, per_node=3)).code


# --- a loop that was left


def in_loop(number: int, op: str, *lines: int, file: str = "/job/train.py") -> RankEvidence:
    """A rank in collective 9, called by functions f0, f1, … of these lines, outermost first."""
    frames = [Frame(f"f{depth}", file, line) for depth, line in enumerate(lines)]
    stacks = [Stack("MainThread", True, [Frame(op, C10D, 1), *reversed(frames)])]
    return replace(rank(number, stacks, 9), collectives=[Collective("0", 9, op, [[8]])])


def uneven(*ranks: RankEvidence, **loops: Any) -> JobEvidence:
    """The ranks of one node, on which train.py has these loops: by default one in lines 13-14."""
    return job(*ranks, per_node=len(ranks), loops={"/job/train.py": [[13, 14]], **loops})


def test_a_rank_that_has_left_the_loop() -> None:
    """It had fewer batches: it waits behind the loop for those who are in it."""
    ranks = [
        in_loop(0, "all_reduce", 40, 14),
        in_loop(1, "all_reduce", 40, 14),
        in_loop(2, "barrier", 40, 16),
    ]
    verdict = only(uneven(*ranks))

    assert ("collective-skipped", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 2 has left the loop (train.py:13-14) and is in barrier 9 (train.py:16), while ranks 0 and 1 "
        "are still in it, in all_reduce 9 (train.py:14)"
    ) == verdict.sentence
    assert "Join" in verdict.hint


def test_calls_that_parted_in_an_earlier_round_accuse_nobody_of_leaving_the_loop() -> None:
    """Rank 0 made a call more, long ago: it is still in the loop, and rank 1 waits behind it."""
    more, less = caller(0, "aaaadaaaaaa"), caller(1, "aaaaaaaaaaz")
    ranks = [
        replace(in_loop(0, "all_reduce", 40, 14), calls=more.calls, collectives=more.collectives),
        replace(in_loop(1, "barrier", 40, 16), calls=less.calls, collectives=less.collectives),
    ]
    verdict = only(uneven(*ranks))

    assert ("collective-mismatch", [0, 1]) == (verdict.code, verdict.ranks)
    assert 0.7 >= verdict.confidence


def test_of_two_the_one_behind_the_loop_is_named() -> None:
    """Whatever the majority is."""
    assert [1] == only(uneven(in_loop(0, "all_reduce", 40, 14, 70), in_loop(1, "barrier", 40, 16))).ranks


@pytest.mark.parametrize(
    ("loops", "lines"),
    [
        ([[13, 17]], (40, 16)),  # both are in it: an extra call in the branch of one rank
        ([[13, 14], [38, 42]], (40, 16)),  # a loop around both: who is a round ahead is open
        ([[13, 14]], (40, 11)),  # before the loop
        ([[13, 14]], (41, 16)),  # another way
        ([], (40, 16)),  # no loop
    ],
)
def test_what_proves_no_end_of_a_loop(loops: list[list[int]], lines: tuple[int, ...]) -> None:
    """It stays a mismatch."""
    ranks = [
        in_loop(0, "all_reduce", 40, 14),
        in_loop(1, "all_reduce", 40, 14),
        in_loop(2, "barrier", *lines),
    ]

    assert "collective-mismatch" == only(uneven(*ranks, **{"/job/train.py": loops})).code


def test_a_file_that_could_not_be_read_may_have_a_loop() -> None:
    """Then nothing is concluded, though another file's loop was left."""
    way = [in_loop(0, "all_reduce", 40, 14), in_loop(1, "all_reduce", 40, 14), in_loop(2, "barrier", 40, 16)]
    outer = Frame("f0", "/job/main.py", 40)
    called = [
        replace(each, stacks=[replace(each.stacks[0], frames=[*each.stacks[0].frames[:-1], outer])])
        for each in way
    ]
    assert "collective-mismatch" == only(uneven(*called)).code
    assert "collective-skipped" == only(uneven(*called, **{"/job/main.py": []})).code

    ranks = [in_loop(n, "all_reduce", 40, 14, file="/job/other.py") for n in (0, 1)]

    assert (
        "collective-mismatch"
        == only(uneven(*ranks, in_loop(2, "barrier", 40, 16, file="/job/other.py"))).code
    )
