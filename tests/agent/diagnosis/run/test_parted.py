"""Why ranks went apart long ago, or died of it: the branch behind the first call that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import C10D, NOW, TORCH, dead, job, only, raised
from tests.agent.diagnosis.run.build_blocked import call
from tests.agent.diagnosis.run.build_branches import FILE, RESUME, all_of, history, source, stands

from ddplaunch.agent.contract import Collective, Exited, Frame, JobEvidence, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import branches
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.evidence.ring import sequences

HELPER = """\
def log(value):
    dist.all_reduce(value)

for step in range(99):
    dist.all_reduce(grad)
    if step == 4 and rank == 0:
        log(loss)
dist.barrier()
"""


ROUTER = """\
def route(tokens):
    chosen = tokens[tokens > 0]
    if chosen.numel():
        reduce(chosen)

def reduce(x):
    dist.all_reduce(x)

def main():
    for batch in loader:
        route(batch)
        dist.barrier()
"""


def test_a_call_within_a_line_that_the_odd_rank_has_passed_is_behind_a_branch_in_there() -> None:
    ranks = [stands(n, "all_reduce", ("main", 11), ("route", 4), ("reduce", 7)) for n in (0, 1, 2)]
    passed = stands(3, "barrier", ("main", 12))

    assert only(all_of(*ranks, passed, text=ROUTER)).sentence.endswith(
        "; ranks 0-2 are in the branch of train.py:3 (`if chosen.numel()`), rank 3 is not"
    )


TWO_WAYS = """\
def forward(images):
    if images.numel():
        encode(images)

def encode(x):
    dist.all_reduce(x)

def sync():
    for p in parameters:
        dist.all_reduce(p)

def main():
    for batch in loader:
        forward(batch)
        sync()
"""


def test_a_call_that_was_left_out_is_behind_a_branch_in_the_functions_that_led_to_it() -> None:
    """The rank without it has passed that line, though it is in a loop of its own now."""
    made = replace(call("all_reduce", 9, 6, "entered"), frames=[Frame("encode", FILE, 6)])
    instead = replace(call("all_reduce", 9, 10, "entered"), frames=[Frame("sync", FILE, 10)])
    view = JobView(
        all_of(
            stands(0, "all_reduce", ("main", 14), ("forward", 3), ("encode", 6), calls=[made]),
            stands(1, "all_reduce", ("main", 15), ("sync", 10), calls=[instead]),
            text=TWO_WAYS,
        )
    )

    choice = branches.find_of(view, {0: made}, {1: instead})
    assert choice is not None
    assert "the branch of train.py:2 (`if images.numel()`)" == choice.shown
    without_their_order = branches.find(view, {0: made}, {1: instead})
    assert without_their_order is None or without_their_order.is_loop


def test_a_call_made_once_more_may_come_of_a_handler_in_a_loop() -> None:
    """The rank is in the same function now, called by the loop."""
    text = (
        "def load():\n    dist.barrier()\n    read()\n    dist.barrier()\n\n"
        "def patient(fn):\n    for attempt in range(4):\n        try:\n            return fn()\n"
        "        except OSError:\n            {}\n"
    )
    first = replace(call("barrier", 8, 2, "returned"), frames=[Frame("load", FILE, 2)])

    def led_back(last: str) -> list[str]:
        rank = stands(0, "barrier", ("patient", 9), ("load", 4), calls=[first])
        return branches.brought_back(JobView(all_of(rank, text=text.format(last))), 0, first.frames[0])

    assert ["train.py:10 (`except OSError`)"] == led_back("log()")
    assert [] == led_back("raise")


INNER = """\
def log(x):
    if rank == 0:
        dist.all_reduce(x)
def main():
    for step in range(9):
        if step % 5 == 0:
            log(x)
        dist.barrier()
"""


def test_a_branch_in_a_function_that_all_ranks_may_have_called_comes_before_that_around_the_call() -> None:
    ranks = [stands(n, "barrier", ("main", 8)) for n in (1, 2, 3)]
    verdict = only(all_of(stands(0, "all_reduce", ("main", 7), ("log", 3)), *ranks, text=INNER))

    assert (
        "; rank 0 is in the branch of train.py:2 (`if rank == 0`), within train.py:6 (`if step % 5 == 0`), "
        "ranks 1-3 are not" in verdict.sentence
    )


def test_where_one_line_leads_to_both_it_is_not_known_whether_the_odd_rank_has_passed_the_branch() -> None:
    """As `model(x).sum().backward()`: it is only not in there."""
    ranks = [stands(n, "all_reduce", ("main", 11), ("route", 4), ("reduce", 7)) for n in (0, 1, 2)]
    verdict = only(all_of(*ranks, stands(3, "barrier", ("main", 11)), text=ROUTER))

    assert verdict.sentence.endswith(
        "; ranks 0-2 are in the branch of train.py:3 (`if chosen.numel()`), rank 3 is not"
    )


MORE, LESS = [5] * 5 + [2] + [5] * 60, [5] * 65 + [8]


def test_the_branch_of_a_call_of_long_ago_is_found_by_the_one_line_that_calls_its_function() -> None:
    verdict = only(all_of(history(0, MORE), *(history(n, LESS) for n in (1, 2, 3)), text=HELPER))

    assert ("collective-skipped", [0]) == (verdict.code, verdict.ranks)
    assert (
        "; rank 0 made that call in the branch of train.py:6 (`if step == 4 and rank == 0`)"
    ) in verdict.sentence


def test_a_function_with_two_callers_leads_to_no_branch() -> None:
    text = f"{HELPER}log(loss)\n"
    verdict = only(all_of(history(0, MORE), *(history(n, LESS) for n in (1, 2, 3)), text=text))

    assert ("collective-skipped", [0]) == (verdict.code, verdict.ranks)
    assert "branch of" not in verdict.sentence


def test_two_ranks_of_which_one_called_more_long_ago_are_both_named() -> None:
    """Not the one that is done with the loop first: that is only a consequence."""
    evidence = all_of(history(0, MORE), history(1, LESS), per_node=2, text=HELPER)
    (node,) = evidence.evidence
    verdict = only(replace(evidence, evidence=[replace(node, loops={FILE: [[4, 7]]})]))

    assert ("collective-mismatch", [0, 1], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "at call 6 of the program rank 0 called all_reduce (train.py:2) and rank 1 called all_reduce "
        "(train.py:5); rank 0 made that call in the branch of train.py:6 (`if step == 4 and rank == 0`)"
    ) == verdict.sentence


def test_a_rank_that_is_done_while_the_other_waits_for_a_call_more_has_not_ended_early() -> None:
    done = replace(history(1, [5] * 65), alive=False, exit=Exited(NOW - 20, 0), stacks=[], groups=[])
    verdict = only(all_of(history(0, MORE[:66]), done, per_node=2, text=HELPER))

    assert ("collective-mismatch", [0, 1]) == (verdict.code, verdict.ranks)
    assert "rank 0 made that call in the branch of train.py:6" in verdict.sentence


def test_two_ranks_with_lines_of_their_own_for_one_call_have_not_parted_there() -> None:
    """The next calls agree, and rank 1 is done with the loop."""
    evidence = all_of(
        history(0, [5] * 5 + [2] + [5] * 60), history(1, [5] * 5 + [3] + [5] * 59 + [8]), per_node=2
    )
    (node,) = evidence.evidence
    verdict = only(replace(evidence, evidence=[replace(node, loops={FILE: [[4, 7]]})]))

    assert ("collective-skipped", [1]) == (verdict.code, verdict.ranks)
    assert "has left the loop (train.py:4-7)" in verdict.sentence


def test_what_may_lead_past_a_call_is_in_the_hint() -> None:
    """`continue` in the loop: neither call is in a branch that the other is not in."""
    rounds = [22, 23]
    text = RESUME.replace("    dist.barrier()\n", "        dist.barrier()\n")
    lines = [*rounds * 3, 22]
    left = [history_in(n, lines) for n in (0, 1, 2)]
    verdict = only(all_of(*left, history_in(3, [*rounds * 3, 23]), text=text))

    assert ("collective-skipped", [3]) == (verdict.code, verdict.ranks)
    assert verdict.hint.endswith("What may lead past it: train.py:20 (`if not step`: continue).")


def history_in(number: int, lines: Sequence[int]) -> RankEvidence:
    """A rank in `train` of RESUME that has gathered in line 22 and met the others in line 23."""
    its = history(number, [8 if line == 23 else line for line in lines])
    way = [Frame("train", FILE, lines[-1])]
    calls = [
        call("barrier" if line == 23 else "all_gather", place + 1, line, "returned")
        for place, line in enumerate(lines)
    ]
    calls[-1] = replace(calls[-1], state="entered")
    stacks = [Stack("MainThread", True, [Frame(calls[-1].op, C10D, 1), *way])]
    entry = Collective("0", calls[-1].seq, calls[-1].op, [[8]])
    return replace(its, calls=calls, sequences=[], stacks=stacks, collectives=[entry])


# --- ranks that died of it


DDP = """\
def main():
    for step in range(100):
        model(x).backward()
        if rank == 0:
            dist.all_reduce(total)
"""
WORDS = "[enforce fail at pair.cc:464] Is there a distributed collective mismatch in your code?"


def ended(number: int, line: int, *calls: Collective, seen: bool = True) -> RankEvidence:
    """A rank that ended in this line of `main`; not `seen`: SIGTERM took it, and left its calls alone."""
    inner = Frame("all_reduce", C10D, 1) if line == 5 else Frame("backward", f"{TORCH}/autograd/graph.py", 1)
    frames = [inner, Frame("main", FILE, line)]
    known = [call("all_reduce", 1, 9)]
    its = [
        replace(raised("RuntimeError", WORDS if line == 5 else "Connection closed by peer", 0), frames=frames)
    ]
    return dead(
        number,
        0.0,
        signal=6 if line == 5 else 15,
        by_us=line != 5,
        raised=its if seen else [],
        calls=[*known, *calls],
        sequences=sequences([*known, *calls]),
        collectives=[],
    )


def died(*ranks: RankEvidence) -> JobEvidence:
    """The job of these ranks, on one node with the program's source."""
    return job(*ranks, why="death", per_node=len(ranks), functions=source(DDP, 3, 5))


EXTRA = replace(call("all_reduce", 2, 5, "entered"), sizes=[[1]], dtypes=["float32"])


def test_a_rank_that_was_ended_before_anybody_could_look_has_not_made_the_call_either() -> None:
    """Its ring says so: three have not called what rank 0 is in."""
    verdict = only(died(ended(0, 5, EXTRA), ended(1, 3), ended(2, 3, seen=False), ended(3, 3)))

    assert ("collective-mismatch", [0], 0.97) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "at call 2 of the program rank 0 called all_reduce [1] (train.py:5), ranks 1 and 3 called "
        "backward (train.py:3); rank 0 is in the branch of train.py:4 (`if rank == 0`), ranks 1 and 3 are not"
    ) == verdict.sentence


def further(number: int, state: str = "returned", op: str = "all_reduce") -> RankEvidence:
    """A rank that has come back from a call that rank 1 has not made, and ended in the next."""
    met = replace(call(op, 2, 5, state), sizes=[[1]], dtypes=["float32"])
    return ended(number, 5, met, replace(EXTRA, seq=3))


def test_a_call_that_came_back_without_a_rank_has_met_torchs_own_collective_there() -> None:
    """The next one of torch's did not fit."""
    verdict = only(died(further(0), ended(1, 3), further(2)))

    assert ("collective-mismatch", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "at call 2 of the program rank 1 called backward (train.py:3), the others all_reduce [1] (train.py:5)"
    ) in verdict.sentence


@pytest.mark.parametrize(
    "others",
    [[further(0, op="broadcast"), further(2, op="broadcast")], [further(0, state="issued"), further(2)]],
    ids=["a root may go on alone", "it has not come back"],
)
def test_a_call_that_needs_no_other_rank_has_met_nothing(others: list[RankEvidence]) -> None:
    verdict = only(died(others[0], ended(1, 3), others[1]))

    assert [] == verdict.ranks
    assert "which rank differs was not recorded" in verdict.sentence


def test_of_two_ranks_of_which_one_left_its_calls_alone_both_are_named() -> None:
    verdict = only(died(ended(0, 5, EXTRA), ended(1, 3, seen=False)))

    assert ("collective-mismatch", [0, 1], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "rank 0 called all_reduce [1] (train.py:5) and rank 1 called a collective of" in verdict.sentence


def test_a_rank_that_has_called_as_much_as_the_one_that_died_differs_by_nothing_that_is_known() -> None:
    """Its ring ends with the same call, which has come back there."""
    same = replace(EXTRA, state="returned", done=True)
    verdict = only(died(ended(0, 5, EXTRA), ended(1, 3, same, seen=False)))

    assert "which rank differs was not recorded" in verdict.sentence


def test_a_rank_whose_records_died_with_it_is_with_those_that_ended_in_the_same_call() -> None:
    """Its ring has the call; the recorders of the others have it too, under torch's number."""
    inside = [ended(n, 5, EXTRA) for n in (1, 2)]
    recorded = [replace(its, collectives=[Collective("0", 77, "all_reduce", [[1]])]) for its in inside]
    odd = replace(ended(3, 3), collectives=[Collective("0", 77, "all_reduce", [[578]])])
    verdict = only(died(ended(0, 5, EXTRA), *recorded, odd))

    assert [3] == verdict.ranks
    assert "process group '0'; known of 4 of 4 ranks" in verdict.facts
