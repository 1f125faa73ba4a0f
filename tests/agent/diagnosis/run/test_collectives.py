"""Ranks whose calls are those of the others, but for some left out or made twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    C10D,
    NOW,
    PEER_GONE,
    dead,
    in_collective,
    in_evaluate,
    job,
    only,
    raised,
    rank,
    stack,
)
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import (
    Collective,
    Frame,
    Group,
    JobEvidence,
    Process,
    RankEvidence,
    Signalled,
    Stack,
)
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.evidence.ring import sequences
from ddplaunch.agent.system import phrases

LINES = {
    "a": ("all_reduce", 12),
    "b": ("all_reduce", 14),
    "c": ("broadcast", 16),
    "d": ("reduce", 18),
    "e": ("broadcast", 17),
    "y": ("barrier", 21),
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
        "has been 1 call ahead of the others since"
    ) == verdict.sentence
    assert "all_reduce (train.py:14)" in verdict.hint


def test_a_call_that_comes_again_at_once_is_not_said_to_be_the_next_rounds() -> None:
    """Its rounds took ten seconds. By order alone, it may as well have left out the other call."""

    def at(evidence: JobEvidence, last: float) -> JobEvidence:
        (node,) = evidence.evidence
        times = [10.0 * (number // 2) + 4 * (number % 2) for number in range(7)] + [last]
        ranks = [
            replace(each, calls=[replace(call, at=time) for call, time in zip(each.calls, times)])
            for each in node.ranks
        ]
        return replace(evidence, evidence=[replace(node, ranks=ranks)])

    evidence = hung("acacacac", "acacacac", "acacacaa")
    again, later = only(at(evidence, 32.0)), only(at(evidence, 39.0))

    assert ("collective-skipped", [2], [0, 1]) == (again.code, again.ranks, again.victims)
    assert (
        "rank 2 called all_reduce (train.py:12) twice in a row, and the others called broadcast "
        "(train.py:16) after the first" == again.sentence
    )
    assert "rank 2 has left out broadcast (train.py:16)" in later.sentence


def test_a_call_from_a_line_that_the_others_do_not_come_to() -> None:
    """All go on for many rounds; the rank that made the call is behind, and the others wait at the end."""
    verdict = only(hung("aaaadaaaaaa", "aaaaaaaaaaz", "aaaaaaaaaaz"))

    assert ("collective-skipped", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 has called reduce (train.py:18) once more than the others, "
        "and has been 1 call behind them since"
    ) == verdict.sentence


def test_a_call_from_a_line_of_its_own_just_before_the_end() -> None:
    """As a barrier in the handler of one rank's exception: only one call came after it, and never ends."""
    verdict = only(hung("azaza", "azaza", "azayz"))

    assert ("collective-skipped", [2], [0, 1], 0.8) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert (
        "rank 2 has called barrier (train.py:21) once more than the others, and has been 1 call behind them "
        "since" == verdict.sentence
    )


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
        "rank 1 has called all_reduce (train.py:14) once more than the others, and has been 1 call "
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
        ("ayaza", "ayaza", "ayayz"),  # a line that the others come to as well
        ("azazb", "azazb", "azaya"),  # one line of its own, and then all in the same operation
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


def test_lines_are_compared_since_the_last_call_without_one() -> None:
    """Torch's own calls in backward have none."""
    whole = hung("abcabcabcab", "abcabcabcab", "abcabcabcac")
    ranks = [
        replace(
            each,
            calls=[replace(each.calls[0], frames=[]), *each.calls[1:]],
            sequences=sequences(each.calls[1:]),
        )
        for each in whole.evidence[0].ranks
    ]
    verdict = only(replace(whole, evidence=[replace(whole.evidence[0], ranks=ranks)]))

    assert ("collective-skipped", [2]) == (verdict.code, verdict.ranks)


# --- ranks whose output has one pipe


@pytest.mark.parametrize(("others", "code"), [((), "collective-mismatch"), ((3,), "rank-killed")])
def test_what_the_only_aborted_rank_has_printed_is_its_own(others: tuple[int, ...], code: str) -> None:
    """Of two that were aborted, either may have said it."""
    its: dict[str, Any] = {"calls": [call("broadcast_object_list", 9, 66, "entered")]}
    ranks = [
        dead(n, 0.0, signal=6, **its) if n in (2, *others) else dead(n, 1.0, signal=15) for n in range(4)
    ]
    said = [
        "round 3",
        "  what():  op.preamble.length <= op.nbytes. 32 vs 0. Received data size doesn't match",
    ]
    verdict = judge(job(*ranks, per_node=4, why="death", launch_output=said))[0]

    assert code == verdict.code


# --- the last calls of ranks that have ended, of which only the lines differ


WORDS = "[enforce fail at pair.cc:464] Is there a distributed collective mismatch in your code?"


def of_lines(*lines: int, op: str = "all_gather_single", sizes: list[int] | None = None) -> JobEvidence:
    """Ranks that have died in call 3, each from this line; the first one says that the calls do not fit."""
    ranks = []
    for number, line in enumerate(lines):
        its = [call("all_reduce", 1, 9), call("all_reduce", 2, 9), call(op, 3, line, "raised")]
        its = [*its[:2], replace(its[2], sizes=[sizes] if sizes else [])]
        words = WORDS if number == 0 else PEER_GONE
        ended = raised("RuntimeError", words, 0.1 * number, line=line)
        ranks.append(
            dead(
                number,
                0.1 * number,
                code=1,
                raised=[ended],
                calls=its,
                sequences=sequences(its),
                collectives=[],
            )
        )
    return job(*ranks, per_node=len(ranks), why="death")


def test_ranks_that_ended_in_one_operation_called_it_from_different_lines() -> None:
    """Torch's own words say that the calls did not fit; no shape says which."""
    verdict = only(of_lines(23, 23, 24, 23))

    assert ("collective-mismatch", [2], [0, 1, 3], 0.85) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert (
        "at call 3 of the program rank 2 called all_gather_single (train.py:24), the others "
        "all_gather_single (train.py:23)" == verdict.sentence
    )


@pytest.mark.parametrize(
    "evidence",
    [of_lines(23, 23, 24, op="broadcast"), of_lines(23, 23, 24, sizes=[4]), of_lines(23, 24, 25)],
    ids=["a root's own line", "shapes that are alike", "three lines"],
)
def test_lines_that_differ_accuse_nobody(evidence: JobEvidence) -> None:
    verdict = only(evidence)

    assert [] == verdict.ranks
    assert "which rank differs was not recorded" in verdict.sentence


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


def told(number: int, op: str, line: int, after: float, entered: float = 0.0) -> RankEvidence:
    """A rank in this call that entered it, and got SIGTERM, so many seconds after NOW - 10."""
    came = Signalled(15, NOW - 10 + after, Frame("stop", "/job/train.py", 5))
    its = in_loop(number, op, 40, line)
    frames = [Frame("f1", "/job/train.py", line)]
    call = replace(its.collectives[0], frames=frames, state="entered", at=NOW - 10 + entered)
    return replace(its, calls=[call], signals=[came])


def test_a_rank_that_has_left_the_loop_for_a_signal() -> None:
    """All got it; who sees it first leaves first."""
    others = [told(0, "all_reduce", 14, 0.1), told(1, "all_reduce", 14, 0.1)]
    left, before, long_ago = (told(2, "barrier", 16, after, 0.3) for after in (0.1, 0.4, -60.0))
    verdict = only(uneven(*others, left))

    assert [2] == verdict.ranks
    assert (
        f"SIGTERM came to all ranks at {phrases.clock(NOW - 9.9)} (stop, train.py:5); rank 2 left the loop "
        "(train.py:13-14) before all_reduce 9 (train.py:14), in which ranks 0 and 1 wait, and is in "
        "barrier 9 (train.py:16)"
    ) == verdict.sentence
    assert "ranks 0-2 got SIGTERM (stop, train.py:5) 9.9 s ago" in verdict.facts
    assert "all_reduce of the flag" in verdict.hint
    for other in (before, long_ago):  # it left first, or trained on for a minute
        assert "SIGTERM" not in only(uneven(*others, other)).sentence


@pytest.mark.parametrize(
    ("code", "told"),
    [({"exit_signal": 11}, True), ({"exit_signal": 15}, False), ({"exit_code": 1}, False), ({}, False)],
    ids=["it crashed", "it was told to end", "it has failed", "it lives"],
)
def test_a_rank_out_of_step_whose_child_has_crashed(code: dict[str, Any], told: bool) -> None:
    """The exception for a DataLoader's worker was caught, and the step was left out."""
    mine = in_loop(2, "barrier", 40, 16)
    child = Process(812, "X", name="Process-1", **code)
    others = [in_loop(n, "all_reduce", 40, 14) for n in (0, 1)]
    verdict = only(uneven(*others, replace(mine, children=[child])))

    text = "rank 2's child process 812 (Process-1) was killed by SIGSEGV"
    assert (told, told) == (verdict.sentence.endswith(f"; {text}"), text in verdict.facts)


def in_handler(came: float = 9.0, name: str = "save_now", number: int = 10) -> JobEvidence:
    """Rank 0 is in a barrier that save_now() calls; a signal came `came` seconds after NOW - 10."""
    signalled = Signalled(number, NOW - 10 + came, Frame("save_now", "/job/train.py", 5))
    frames = [*in_collective("barrier", 6)[0].frames[:2], Frame(name, "/job/train.py", 6)]
    barrier = replace(Collective("0", 40, "barrier"), frames=frames[2:], at=NOW - 0.9)
    before = replace(Collective("0", 39, "all_reduce", done=True), took=0.1, at=NOW - 1.5, state="returned")
    mine = rank(
        0,
        [Stack("MainThread", True, [*frames, Frame("train", "/job/train.py", 31)])],
        40,
        signals=[signalled],
        collectives=[barrier],
        calls=[before, replace(barrier, state="entered")],
    )
    others = [rank(n, in_collective(), 40, collectives=[Collective("0", 40, "all_reduce")]) for n in (1, 2)]
    return job(mine, *others, per_node=3)


@pytest.mark.parametrize(("number", "name"), [(10, "SIGUSR1"), (14, "SIGALRM")])
def test_a_collective_that_a_signals_handler_calls_is_told_with_the_signal(number: int, name: str) -> None:
    """Also if the program's own timer has sent it."""
    verdict = only(in_handler(number=number))

    assert ("collective-mismatch", [0]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith(
        f"; rank 0 is there in the handler of {name} and has interrupted train "
        f"(train.py:31); {name} came to rank 0 at {phrases.clock(NOW - 1)} (save_now, train.py:5)"
    )
    assert "set a flag alone" in verdict.hint


def torchs_own_calls(evidence: JobEvidence) -> JobEvidence:
    """The same, where the ring has no calls, as when only DDP makes any."""
    (node,) = evidence.evidence
    mine = replace(node.ranks[0], calls=[])
    done = replace(Collective("0", 39, "all_reduce", done=True), at=NOW - 1.5)
    mine = replace(mine, collectives=[done, *mine.collectives])
    return replace(evidence, evidence=[replace(node, ranks=[mine, *node.ranks[1:]])])


def test_torchs_own_record_tells_too_which_call_a_signal_came_after() -> None:
    assert "in the handler of SIGUSR1" in only(torchs_own_calls(in_handler())).sentence
    assert "handler" not in only(torchs_own_calls(in_handler(came=-30.0))).sentence


@pytest.mark.parametrize(
    "evidence", [in_handler(came=-30.0), in_handler(name="save")], ids=["it was over", "another function"]
)
def test_a_function_that_the_program_calls_itself_is_in_no_handler(evidence: JobEvidence) -> None:
    """The signal came before the last call that has returned, or something else is called."""
    assert "handler" not in only(evidence).sentence


@pytest.mark.parametrize(
    ("after", "number", "told"),
    [(0.1, 15, True), (-60.0, 15, False), (0.1, 14, False)],
    ids=["shortly before", "long ago", "of a timer"],
)
def test_a_signal_that_came_shortly_before_progress_stopped_is_a_fact_of_any_verdict(
    after: float, number: int, told: bool
) -> None:
    came = Signalled(number, NOW - 10 + after, Frame("stop", "/job/train.py", 5))
    verdict = only(job(rank(0, signals=[came]), rank(1, in_evaluate(), 16, signals=[came])))

    assert "rank-in-user-code" == verdict.code
    assert told == any("ranks 0 and 1 got SIG" in fact for fact in verdict.facts)
    assert told == ("ranks 0 and 1 got SIGTERM (stop, train.py:5) 9.9 s ago" in verdict.facts)


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


# --- Ranks whose calls of NCCL have returned long before their GPU has done them.
#
# The states are those that real jobs on an H100 have shown, with NCCL 2.28.9 and torch 2.11.


ALL = [0, 1, 2]
GONE = (
    "NCCL error in: ProcessGroupNCCL.cpp:3780, remote process exited or there was a network error, NCCL "
    "version 2.28.9"
)


def at_its_exit(number: int, called: int) -> RankEvidence:
    """A rank whose Python is over, after so many calls; its hook is gone, and its counters with it."""
    calls = [call("all_reduce", seq, 33) for seq in (called - 1, called)]
    more: dict[str, Any] = {"phase": "finalizing", "groups": [], "calls": calls}
    return rank(number, [], **more)


def asleep(number: int, called: int, wchan: str = "hrtimer_nanosleep", wakeups: float = 2.0) -> RankEvidence:
    """A rank in a line of its own, with collectives that its GPU has not done."""
    place = stack(Frame("wait_for_shard", "/job/train.py", 22))
    process = Process(1000 + number, "S", wchan=wchan, wakeups=wakeups)
    calls = [call("all_reduce", called, 33)]
    groups = [Group("0", ALL, called, 3)]
    return rank(number, place, groups=groups, process=process, calls=calls, backend="nccl")


def codes(evidence: JobEvidence) -> list[tuple[str, list[int]]]:
    """Of all verdicts, with their ranks."""
    return [(verdict.code, verdict.ranks) for verdict in judge(evidence)]


# --- programs that are over, while their GPUs wait


def test_ranks_at_their_exit_wait_for_the_one_that_has_called_less() -> None:
    """They have made all their calls; it sleeps in its own code."""
    verdict = only(job(at_its_exit(0, 1000), asleep(1, 10), at_its_exit(2, 1000), per_node=3))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "the others wait in the exit of Python" in verdict.sentence


def test_an_exception_that_no_peer_can_be_asked_about_explains_nothing() -> None:
    """An import that fails and is caught does so in every rank; of those at their exit nobody knows it."""
    caught = raised("AttributeError", "type object 'str' has no attribute '__set_name__'", -5, handled=True)
    late = replace(asleep(1, 10), raised=[caught])

    assert [("rank-in-user-code", [1])] == codes(job(at_its_exit(0, 1000), late, at_its_exit(2, 1000)))


def test_a_rank_at_its_exit_that_has_called_less_is_waited_for() -> None:
    """Its program ended early, and its interpreter does not end."""
    groups = [Group("0", ALL, 17, 9)]
    waiting = [
        rank(n, calls=[call("all_reduce", 17, 92, "entered")], groups=groups, backend="nccl") for n in (0, 2)
    ]
    found = judge(job(waiting[0], at_its_exit(1, 9), waiting[1], per_node=3))

    assert not {0, 2} & {rank for verdict in found for rank in verdict.ranks}


def test_all_at_their_exit() -> None:
    """Nobody is to blame."""
    assert codes(job(*(at_its_exit(n, 1000) for n in ALL), per_node=3)) == [("unknown", [])]


# --- a main thread that waits for no GPU


@pytest.mark.parametrize("wchan", ["hrtimer_nanosleep", "pipe_read", "wait_for_partner", "do_wait"])
def test_a_rank_that_sleeps_is_in_its_own_code_whatever_it_has_begun(wchan: str) -> None:
    """A thread that waits for its GPU sleeps elsewhere in the kernel, or spins."""
    found = codes(job(at_its_exit(0, 1000), asleep(1, 10, wchan), at_its_exit(2, 1000), per_node=3))

    assert [("rank-in-user-code", [1])] == found


@pytest.mark.parametrize(
    ("wchan", "wakeups"), [("futex_do_wait", 1.0), ("", 0.0), ("hrtimer_nanosleep", 900.0)]
)
def test_a_rank_that_may_wait_for_its_gpu_is_not_accused(wchan: str, wakeups: float) -> None:
    """`if loss > best:` waits for the GPU; with TORCH_NCCL_BLOCKING_WAIT it sleeps for a millisecond."""
    found = codes(job(at_its_exit(0, 1000), asleep(1, 10, wchan, wakeups), at_its_exit(2, 1000), per_node=3))

    assert [("unknown", [])] == found


def test_a_queue_of_pythons_own_is_no_gpu() -> None:
    """A stack that ends in Python's library, called by the user, waits there."""
    place = stack(
        Frame("wait", "/opt/python/lib/python3.12/threading.py", 355),
        Frame("get", "/opt/python/lib/python3.12/queue.py", 171),
        Frame("evaluate", "/job/train.py", 13),
    )
    odd = replace(asleep(1, 10, "futex_do_wait"), stacks=place)

    assert [("rank-in-user-code", [1])] == codes(
        job(at_its_exit(0, 1000), odd, at_its_exit(2, 1000), per_node=3)
    )


@pytest.mark.parametrize(
    ("text", "is_own"), [("with self.lock:", True), ("lock.acquire()", True), ("if bad:", False)]
)
def test_a_lock_of_pythons_is_no_gpu(text: str, is_own: bool) -> None:
    """A thread that waits for ever in native code, from a line that takes a lock."""
    (main,) = stack(Frame("update", "/job/train.py", 24))
    odd = replace(asleep(1, 10, "futex_do_wait", 0.0), stacks=[replace(main, on_lock=True)])
    evidence = job(
        at_its_exit(0, 1000), odd, at_its_exit(2, 1000), per_node=3, lines={"/job/train.py:24": text}
    )

    assert [1] * is_own == [number for _, ranks in codes(evidence) for number in ranks]


# --- a call that makes its communicator first


def entering(number: int, group: str, op: str, **groups: tuple[list[int], int]) -> RankEvidence:
    """A rank in the first collective of a group, of which the flight recorder has nothing yet."""
    its = [Group(name[1:], members, called, called) for name, (members, called) in groups.items()]
    seq = next(each.enqueued for each in its if each.name == group) + 1
    calls = [call(op, seq, 16, "entered", group=group)]
    return replace(rank(number, in_collective(op, 16)), groups=its, calls=calls, backend="nccl")


def test_groups_that_wait_for_one_another_before_they_have_communicators() -> None:
    """Each of three is in the group with its right neighbour."""
    ranks = [
        entering(0, "1", "all_reduce", _0=(ALL, 3), _1=([0, 1], 0), _3=([0, 2], 0)),
        entering(1, "2", "all_reduce", _0=(ALL, 3), _1=([0, 1], 0), _2=([1, 2], 0)),
        entering(2, "3", "all_reduce", _0=(ALL, 3), _2=([1, 2], 0), _3=([0, 2], 0)),
    ]
    verdict = only(job(*ranks, per_node=3))

    assert ("group-partial", ALL) == (verdict.code, verdict.ranks)


def test_all_in_the_first_collective_of_the_job() -> None:
    """Nobody is accused, and the hint is about the connections that NCCL makes first."""
    verdict = only(job(*(entering(n, "0", "all_reduce", _0=(ALL, 0)) for n in ALL), per_node=3))

    assert ("unknown", []) == (verdict.code, verdict.ranks)
    assert verdict.sentence.startswith("all ranks wait in all_reduce 1 (train.py:16) and nothing moves")
    assert "NCCL has not made its first communicator" in verdict.hint


def test_all_in_the_first_collective_of_one_group() -> None:
    """Nobody lacks there: nothing is concluded."""
    ranks = [entering(n, "1", "all_reduce", _0=(ALL, 3), _1=(ALL, 0)) for n in ALL]

    assert codes(job(*ranks, per_node=3)) == [("unknown", [])]


# --- messages that the GPU waits for


def recorded(op: str, seq: int, peer: int | None = None, done: bool = True, size: int = 8) -> Collective:
    """An entry of the flight recorder: a message where it has a peer."""
    state = "completed" if done else "scheduled"
    at = NOW - 60 + 2 * seq + (peer is None)
    p2p = peer is not None
    return Collective("0", seq, op, [[size]], ["Float"], done, p2p, at, peer=peer, state=state)


def in_barrier(number: int, *entries: Collective, rounds: int = 4, sends: int | None = None) -> RankEvidence:
    """A rank in the last barrier of all rounds; in each it sends to rank 0 or receives from rank 1."""
    calls = []
    for turn in range(1, rounds + 1):
        if number == 0:
            calls.append(call("recv", turn, 18, peer=1))
        if number == 1 and turn <= (rounds if sends is None else sends):
            calls.append(call("send", turn, 14, peer=0))
        calls.append(call("barrier", turn, 19, "entered" if turn == rounds else "returned"))
    barriers = [recorded("all_reduce_barrier", n, done=n < rounds) for n in range(1, rounds + 1)]
    more: dict[str, Any] = {"calls": calls, "collectives": sorted([*entries, *barriers], key=lambda e: e.at)}
    groups = [Group("0", ALL, rounds, rounds - 1)]
    return rank(number, in_collective("barrier", 19), groups=groups, backend="nccl", **more)


def test_a_send_that_was_left_out_and_a_barrier_that_all_have_called() -> None:
    """Rank 0's barrier waits on its GPU for the message that rank 1 has not sent."""
    receives = [recorded("recv", n, peer=1, done=n < 4) for n in range(1, 5)]
    sends = [recorded("send", n, peer=0) for n in range(1, 4)]
    verdict = only(job(in_barrier(0, *receives), in_barrier(1, *sends, sends=3), in_barrier(2), per_node=3))

    assert ("p2p-deadlock", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "ranks wait in a circle: 0 → 1 → 0: rank 0 is in recv from rank 1 on its GPU"
    )
    assert "rank 1 has left out its send to rank 0 (train.py:14)" in verdict.sentence


def test_a_message_that_was_sent_names_nobody() -> None:
    """It is on its way, or lost: neither rank has left out anything."""
    receives = [recorded("recv", n, peer=1, done=n < 4) for n in range(1, 5)]
    sends = [recorded("send", n, peer=0) for n in range(1, 5)]

    assert codes(job(in_barrier(0, *receives), in_barrier(1, *sends), in_barrier(2), per_node=3)) == [
        ("unknown", [])
    ]


def test_messages_of_which_the_first_are_not_known_any_more() -> None:
    """How many rank 1 has sent is not known."""
    receives = [recorded("recv", n, peer=1, done=n < 4) for n in range(3, 5)]
    sends = [recorded("send", n, peer=0) for n in range(2, 4)]

    found = job(in_barrier(0, *receives), in_barrier(1, *sends, sends=3), in_barrier(2), per_node=3)
    assert codes(found) == [("unknown", [])]


@pytest.mark.parametrize(("size", "word"), [(12, "larger"), (4, "smaller")])
def test_a_message_of_another_size_than_its_receive(size: int, word: str) -> None:
    """NCCL compares nothing, and waits: both are named, with what they have called."""
    receives = [recorded("recv", n, peer=1, done=n < 4) for n in range(1, 5)]
    sends = [recorded("send", n, peer=0, size=size if n == 4 else 8) for n in range(1, 5)]
    verdict = only(job(in_barrier(0, *receives), in_barrier(1, *sends), in_barrier(2), per_node=3))

    assert ("p2p-deadlock", [0, 1], [2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 1 sent [{size}] Float to rank 0" in verdict.sentence
    assert verdict.sentence.endswith(f"which receives [8] Float: the message is {word} than its receive")


# --- what becomes of the peers of a rank that died


def test_a_crash_after_the_loss_of_a_peer_is_no_cause() -> None:
    """Its peer was killed; NCCL said so, and torch's watchdog crashed while Python ended."""
    lost = [raised("torch.distributed.DistBackendError", GONE, 0.1)]
    crashed = [replace(dead(n, 0.4, signal=11), raised=lost) for n in (0, 1)]
    verdict = only(job(*crashed, dead(2, 0.0, signal=9), why="death", per_node=3))

    assert ("rank-killed", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_crash_without_a_word_of_a_peer_is_a_cause() -> None:
    """Native code crashed."""
    verdict = only(job(dead(0, 0.0, signal=11), dead(1, 1.0, signal=15, by_us=True), why="death"))

    assert ("rank-killed", [0]) == (verdict.code, verdict.ranks)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("CUDA error: device-side assert triggered", ("rank-failed", [0])),
        ("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)", ("rank-failed", [])),
    ],
)
def test_an_exception_that_ended_a_thread_of_torch(message: str, told: tuple[str, list[int]]) -> None:
    """One that speaks of a peer is no cause; any other is the rank's own."""
    thrown = [replace(raised("c10::DistBackendError", message, 0.0), frames=[], source="log")]
    ended = replace(dead(0, 0.1, signal=6), raised=thrown)
    found = codes(job(ended, dead(1, 1.0, signal=15, by_us=True), why="death"))

    assert [told] == found


def test_an_error_of_cuda_is_raised_late() -> None:
    """Its line only asked for a result, and torch's advice is the same for all of them."""
    message = (
        "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in the docs of CUDA.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call."
    )
    failed = replace(dead(1, 0.1, code=1), raised=[raised("torch.AcceleratorError", message, 0.0)])
    verdict = only(job(dead(0, 1.0, signal=15, by_us=True), failed, why="death"))

    said = "rank 1 raised AcceleratorError: CUDA error: device-side assert triggered (train.py:61)"
    assert said == verdict.sentence
    assert "CUDA_LAUNCH_BLOCKING=1" in verdict.hint
    assert "Fix" not in verdict.hint


def test_the_loss_of_a_peer_in_nccls_words() -> None:
    """Without the line of torch's source."""
    lost = [raised("torch.distributed.DistBackendError", GONE, 0.1)]
    verdict = only(job(dead(0, 0.0, signal=9), replace(dead(1, 0.4, code=1), raised=lost), why="death"))

    assert any("a victim: DistBackendError: remote process exited or" in fact for fact in verdict.facts)


def test_a_rank_in_evaluate_with_nothing_begun() -> None:
    """As with Gloo: it has called one less."""
    verdict = only(job(rank(0, backend="nccl"), rank(1, in_evaluate(), called=16, backend="nccl")))

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)


# --- what torch's recorder does not know


def _last(number: int, op: str, line: int = 92, **more: Any) -> RankEvidence:
    """A rank that stands in call 17, with a recorder that does not know that one."""
    frames = [Frame("train", "/job/train.py", line)]
    ring = [Collective("0", 17, op, [[8]], state="entered", frames=frames, **more)]
    return rank(number, in_collective(op, line), calls=ring, collectives=[Collective("0", 16, op, done=True)])


def test_ranks_that_name_another_root_made_another_call() -> None:
    """A root that is not known differs from none, nor do all of them if it is the same."""
    named = [_last(n, "broadcast", peer=1 if n == 2 else 0) for n in range(4)]
    verdict = only(job(*named, per_node=4))

    assert ("collective-mismatch", [2], [0, 1, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at collective 17 rank 2 called broadcast [8] from rank 1 (train.py:92), the others broadcast [8] "
        "from rank 0 (train.py:92)"
    )
    assert "must name the same root" in verdict.hint
    for roots in ((0, 0, 0, 0), (0, 0, None, 0)):
        alike = [_last(n, "broadcast", peer=root) for n, root in enumerate(roots)]
        assert "collective-mismatch" != only(job(*alike, per_node=4)).code


@pytest.mark.parametrize(("said", "told"), [("skipping a batch", True), ("step 31", False)])
def test_what_the_odd_rank_has_printed_last_is_a_fact_if_no_other_rank_printed_it(
    said: str, told: bool
) -> None:
    lines = ["step 30", "step 30", said, "step 30"]
    named = [_last(n, "broadcast", peer=1 if n == 2 else 0) for n in range(4)]
    verdict = only(job(*(replace(each, last_output=lines[n]) for n, each in enumerate(named)), per_node=4))

    assert told == any(fact.text == f"the last line of rank 2: {said}" for fact in verdict.because)


def test_a_monitored_barrier_is_another_call_than_the_others() -> None:
    """Not than the work of a rank that is in no collective."""
    barriers = [_last(n, "monitored_barrier", 35) for n in (1, 2)]
    verdict = only(job(_last(0, "all_reduce"), *barriers, per_node=3))
    busy = only(job(rank(0, in_evaluate(), called=16), *barriers, per_node=3))

    assert ("collective-mismatch", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert ("rank-in-user-code", [0]) == (busy.code, busy.ranks)
