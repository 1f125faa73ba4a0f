"""Why ranks went apart: the branch around the call of one camp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import (
    C10D,
    NOW,
    PEER_GONE,
    TORCH,
    dead,
    in_evaluate,
    job,
    only,
    raised,
    rank,
)
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import (
    Collective,
    Exited,
    Frame,
    Function,
    Group,
    JobEvidence,
    RankEvidence,
    Stack,
    Verdict,
)
from ddplaunch.agent.evidence.branches import find
from ddplaunch.agent.evidence.program import Program
from ddplaunch.agent.evidence.ring import sequences

FILE = "/job/train.py"
RESUME = """\
def main():
    if not os.path.exists(last):
        init_weights()
    else:
        load()
    train()

def init_weights():
    for weight in weights:
        dist.broadcast(weight, 0)

def load():
    dist.barrier()

def train():
    for step in range(9):
        if step % 5 == 0:
            if rank == 0:
                dist.all_reduce(loss)
        if not step:
            continue
        dist.all_gather(out, loss)
    dist.barrier()
"""


def source(text: str, *lines: int) -> dict[str, list[Function]]:
    """What a node knows of train.py with this text, where ranks called from these lines."""
    return find([Program(FILE, text)], {FILE: lines})


def stands(number: int, op: str, *frames: tuple[str, int], **more: object) -> RankEvidence:
    """A rank in collective 9, called by these functions and lines, the outermost first."""
    way = [Frame(name, FILE, line) for name, line in frames]
    stacks = [Stack("MainThread", True, [Frame(op, C10D, 1), *reversed(way)])]
    its = replace(rank(number, stacks, 9), collectives=[Collective("0", 9, op, [[8]])])
    return replace(its, **more)  # type: ignore[arg-type]


def all_of(*ranks: RankEvidence, per_node: int = 4, text: str = RESUME) -> JobEvidence:
    """The job of these ranks, on nodes with the program's source."""
    lines = [
        frame.line for its in ranks for each in its.stacks for frame in each.frames if frame.file == FILE
    ]
    lines += [frame.line for its in ranks for each in its.calls for frame in each.frames]
    lines += [site.line.line for its in ranks for each in its.sequences for site in each.sites]
    return job(*ranks, per_node=per_node, functions=source(text, *lines))


IN_INIT = (("main", 3), ("init_weights", 10))
IN_LOAD = (("main", 5), ("load", 13))


def test_the_branch_in_which_camps_have_parted_is_shown() -> None:
    """The ways are compared down to the function in which they part, not further."""
    ranks = [stands(n, "barrier", *IN_LOAD) for n in (0, 1, 3)]
    verdict = only(all_of(*ranks, stands(2, "broadcast", *IN_INIT)))

    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks)
    assert (
        "at collective 9 rank 2 called broadcast [8] (train.py:10), the others barrier [8] (train.py:13); "
        "rank 2 is in the loop of train.py:9 (`for weight in weights`), within train.py:2 "
        "(`if not os.path.exists(last)`), ranks 0, 1 and 3 are not"
    ) == verdict.sentence


def test_a_file_that_decides_may_lie_in_another_folder_on_each_node() -> None:
    """Only where no node has ranks in both camps."""
    apart = all_of(
        *(stands(n, "barrier", *IN_LOAD) for n in (0, 1)),
        *(stands(n, "broadcast", *IN_INIT) for n in (2, 3)),
        per_node=2,
    )
    mixed = all_of(
        *(stands(n, "barrier", *IN_LOAD) for n in (0, 2)),
        *(stands(n, "broadcast", *IN_INIT) for n in (1, 3)),
        per_node=2,
    )
    asked = "If a file decides at train.py:2 (`os.path.exists(last)`), "

    assert only(apart).hint.startswith(f"{asked}the path may not be the same folder on all nodes.")
    assert only(mixed).hint.startswith(f"{asked}a rank may make or remove the file while others look")
    assert 0.7 == only(apart).confidence


def test_nodes_of_one_machine_see_the_same_folder() -> None:
    apart = all_of(
        *(stands(n, "barrier", *IN_LOAD) for n in (0, 1)),
        *(stands(n, "broadcast", *IN_INIT) for n in (2, 3)),
        per_node=2,
    )
    here = replace(apart, evidence=[replace(node, machine="m") for node in apart.evidence])

    assert "same folder" not in only(here).hint


def test_branches_around_the_nearest_one_are_shown_too_because_any_of_them_may_have_decided() -> None:
    ranks = [stands(n, "barrier", ("main", 6), ("train", 23)) for n in (1, 2, 3)]
    verdict = only(all_of(stands(0, "all_reduce", ("main", 6), ("train", 19)), *ranks))

    shown = "the branch of train.py:18 (`if rank == 0`), within train.py:17 (`if step % 5 == 0`)"
    assert f"; rank 0 is in {shown}, ranks 1-3 are not" in verdict.sentence
    assert verdict.hint.endswith("Begin with train.py:17 and train.py:18.")
    assert "file decides" not in verdict.hint


def test_a_rank_that_may_be_a_round_ahead_has_perhaps_only_come_to_the_branch_first() -> None:
    """`continue` may have led it past the call in which the others are."""
    ranks = [stands(n, "all_gather", ("main", 6), ("train", 22)) for n in (1, 2, 3)]
    verdict = only(all_of(stands(0, "all_reduce", ("main", 6), ("train", 19)), *ranks))

    shown = "the branch of train.py:18 (`if rank == 0`), within train.py:17 (`if step % 5 == 0`)"
    assert f"; rank 0 is in {shown}, ranks 1-3 are not" in verdict.sentence
    assert verdict.hint.endswith("What may lead a rank past its call: train.py:20 (`if not step`: continue).")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ((("main", 6), ("train", 22)), (("main", 6), ("train", 22))),  # one line, different tensors
        ((("main", 6), ("other", 19)), (("main", 6), ("train", 22))),  # a line of no function that is known
        ((("elsewhere", 6), ("train", 22)), (("main", 6), ("load", 13))),  # no function in common
        ((("main", 6), ("load", 13)), (("main", 3), ("load", 13))),  # before and behind, in no branch
    ],
)
def test_ways_that_show_no_branch(mine: Sequence[tuple[str, int]], theirs: Sequence[tuple[str, int]]) -> None:
    """Nothing is said about one."""
    ranks = [stands(n, "all_gather", *theirs) for n in (1, 2, 3)]
    odd = stands(0, "broadcast", *mine)
    text = RESUME.replace("if not os.path.exists(last)", "with lock").replace("    else:", "    with lock:")
    verdict = only(all_of(odd, *ranks, text=text))

    assert ("collective-mismatch", [0]) == (verdict.code, verdict.ranks)
    assert not any(word in verdict.sentence for word in ("branch", "loop"))


def test_nodes_with_different_files_are_not_compared() -> None:
    ranks = [stands(n, "barrier", *IN_LOAD) for n in (0, 1)]
    odd = [stands(n, "broadcast", *IN_INIT) for n in (2, 3)]
    evidence = all_of(*ranks, *odd, per_node=2)
    older = source(RESUME.replace("    train()\n", "    prepare()\n    train()\n"), 3, 10)
    nodes = [evidence.evidence[0], replace(evidence.evidence[1], functions=older)]

    assert "branch of" not in only(replace(evidence, evidence=nodes)).sentence


def test_ranks_of_a_camp_that_came_by_different_ways_have_no_branch_in_common() -> None:
    ranks = [stands(n, "barrier", *IN_LOAD) for n in (0, 1, 2)]
    other = stands(3, "barrier", ("main", 3), ("load", 13))

    assert (
        "branch of" not in only(all_of(*ranks, other, stands(4, "broadcast", *IN_INIT), per_node=5)).sentence
    )


ENDS_A_LOOP = """\
def fit():
    for epoch in range(9):
        step()
        for name in names:
            if name == "loss":
                break
        {}
    report()

def step():
    dist.all_reduce(x)

def report():
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("if bad > 3: break", "train.py:7 (`if bad > 3`: break)"),
        ("if bad > 3: continue", "train.py:7 (`if bad > 3`: continue)"),
        ("if bad > 3: return", ""),
        ("log()", ""),
    ],
)
def test_what_ends_the_loop_or_a_round_of_it_may_be_why_one_camp_has_left_it(last: str, why: str) -> None:
    """`return` ends it too, but that rank is still in the function; and one `break` is of the loop in it."""
    ranks = [stands(n, "all_reduce", ("fit", 3), ("step", 11)) for n in (0, 1, 2)]
    left = stands(3, "barrier", ("fit", 8), ("report", 14))
    verdict = only(all_of(*ranks, left, text=ENDS_A_LOOP.format(last)))

    assert verdict.sentence.endswith(
        "ranks 0-2 are in the loop of train.py:2 (`for epoch in range(9)`), rank 3 is not"
        + (f"; {why} may be why" if why else "")
    )
    assert "The ranks do not run the same number of rounds" in verdict.hint
    assert bool(why) == (f"What also ends the loop, or a round of it: {why}." in verdict.hint)


def test_of_several_branches_that_end_a_loop_none_is_said_to_be_why() -> None:
    """They are in the hint."""
    text = ENDS_A_LOOP.format("if bad > 3: break")
    text = text.replace('if name == "loss":\n                break', "pass\n        if not x: continue")
    ranks = [stands(n, "all_reduce", ("fit", 3), ("step", 11)) for n in (0, 1, 2)]
    verdict = only(all_of(*ranks, stands(3, "barrier", ("fit", 8), ("report", 14)), text=text))

    assert "may be why" not in verdict.sentence
    assert "a round of it: train.py:6 (`if not x`: continue), train.py:7 (" in verdict.hint


def test_a_rank_that_has_left_the_function_of_the_loop_may_have_returned_from_it() -> None:
    text = ENDS_A_LOOP.format("if bad > 3: return")
    text = text.replace("    report()\n\ndef step", "    return 1\n\ndef step") + "\nfit()\nreport()\n"
    ranks = [stands(n, "all_reduce", ("<module>", 16), ("fit", 3), ("step", 11)) for n in (0, 1, 2)]
    left = stands(3, "barrier", ("<module>", 17), ("report", 14))

    assert only(all_of(*ranks, left, text=text)).sentence.endswith(
        "; train.py:7 (`if bad > 3`: return) may be why"
    )


GUARDED = """\
def fit():
    for step in range(9):
        dist.all_gather(x, x)
        if step % 5 == 0:
            save()

def save():
    if not main:
        return
    dist.all_reduce(x)
    if done:
        return
"""


def test_what_follows_a_return_is_a_branch_that_others_may_have_left() -> None:
    """One that comes after the call has led no rank past it."""
    ranks = [stands(n, "all_gather", ("fit", 3)) for n in (1, 2, 3)]
    verdict = only(all_of(stands(0, "all_reduce", ("fit", 5), ("save", 10)), *ranks, text=GUARDED))

    assert verdict.sentence.endswith(
        "; rank 0 is in the code after train.py:8 (`if not main: return`), within train.py:4 "
        "(`if step % 5 == 0`), ranks 1-3 are not"
    )
    assert verdict.hint.endswith("Begin with train.py:4 and train.py:8.")


ROUNDS = """\
def fit():
    for epoch in range(9):
        loss = run(epoch)
        save(loss)

def run(epoch):
    for batch in loader:
        loss.backward()
    dist.all_reduce(loss)
    return loss

def save(loss):
    if rank != 0:
        return
    dist.barrier()
"""


def in_rounds(number: int, op: str, *frames: tuple[str, int], last: int = 9) -> RankEvidence:
    """The same, with the call before: all_reduce, from line `last`."""
    its = stands(number, op, *frames)
    before = Collective("0", 8, "all_reduce", [[1]], frames=[Frame("run", FILE, last)])
    return replace(its, collectives=[before, *its.collectives])


def in_save(text: str, last: int = 9) -> str:
    """What is said of rank 0 in save(), while the others are in line 8 of run()."""
    others = [in_rounds(n, "all_gather", ("fit", 3), ("run", 8)) for n in (1, 2)]
    evidence = all_of(in_rounds(0, "barrier", ("fit", 4), ("save", 15), last=last), *others)
    read = source(text, 3, 4, 8, 9, 15)
    return only(replace(evidence, evidence=[replace(n, functions=read) for n in evidence.evidence])).sentence


def test_who_has_begun_a_later_round_has_passed_what_others_do_in_a_function() -> None:
    assert in_save(ROUNDS).endswith(
        "; rank 0 is in the code after train.py:13 (`if rank != 0: return`), ranks 1 and 2 are not"
    )


def test_a_second_backward_is_of_the_next_step() -> None:
    """What DDP sends has no line; of other shapes it may be of the same step."""
    text = ROUNDS.replace("    for batch in loader:\n        loss", "    if True:\n        loss")

    def said(shape: int) -> str:
        before = Collective("0", 8, "all_reduce", [[shape]])
        calls = [in_rounds(0, "barrier", ("fit", 4), ("save", 15))]
        calls += [in_rounds(n, "all_reduce", ("fit", 3), ("run", 8)) for n in (1, 2)]
        ranks = [replace(its, collectives=[before, its.collectives[-1]]) for its in calls]
        return only(all_of(*ranks, text=text)).sentence

    assert "rank 0 is in the code after train.py:13" in said(8)
    assert "is in the code after" not in said(4)


def test_who_may_still_be_in_the_round_before_has_passed_nothing() -> None:
    """The call before was not the same one, or it is in a loop that may have gone round by itself."""
    inner = ROUNDS.replace("    dist.all_reduce(loss)", "        dist.all_reduce(loss)")

    assert "is in the code after" not in in_save(ROUNDS, last=8)
    assert "is in the code after" not in in_save(inner)


HANDLED = """\
def fit():
    for step in range(99):
        try:
            loss = forward(step)
            loss.backward()
        except RuntimeError:
            skipped += 1
        if step % 20 == 19:
            dist.reduce(loss, 0)
"""


def test_an_exception_that_is_handled_may_have_led_past_the_others_call() -> None:
    ranks = [stands(n, "all_reduce", ("fit", 5)) for n in (0, 1)]
    verdict = only(all_of(*ranks, stands(2, "reduce", ("fit", 9)), text=HANDLED))

    assert verdict.sentence.endswith(
        "; rank 2 is in the branch of train.py:8 (`if step % 20 == 19`), ranks 0 and 1 are not; "
        "train.py:6 (`except RuntimeError`) may be why"
    )
    assert verdict.hint.endswith("What may lead a rank past its call: train.py:6 (`except RuntimeError`).")


BOTH_HANDLED = """\
def fit():
    for step in range(99):
        try:
            loss = forward(step)
            loss.backward()
            if step % 20 == 19:
                note(step)
            dist.reduce(loss, 0)
        except RuntimeError:
            skipped += 1
"""
BEFORE = """\
def fit():
    dist.reduce(loss, 0)
    try:
        loss = forward(step)
        loss.backward()
    except RuntimeError:
        skipped += 1
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(HANDLED.replace("skipped += 1", "raise"), 9, id="it does not go on"),
        pytest.param(BOTH_HANDLED, 8, id="it is around both calls"),
        pytest.param(BEFORE, 2, id="the rank has not come to it yet"),
    ],
)
def test_an_exception_that_cannot_have_led_past_the_others_call_is_no_reason(text: str, line: int) -> None:
    ranks = [stands(n, "all_reduce", ("fit", 5)) for n in (0, 1)]
    verdict = only(all_of(*ranks, stands(2, "reduce", ("fit", line)), text=text))

    assert "may be why" not in verdict.sentence


UNEVEN = """\
def train(loader):
    for epoch in range(3):
        for batch in loader:
            if batch.bad > 3:
                return
            loss.backward()

train(loader)
"""


@pytest.mark.parametrize(
    ("ends", "why"),
    [("return", "; train.py:4 (`if batch.bad > 3`: return) may be why"), ("log()", "")],
)
def test_who_has_finished_has_left_the_loop_in_which_the_others_are(ends: str, why: str) -> None:
    lost = raised("RuntimeError", PEER_GONE, 0.5)
    lost = replace(lost, frames=[Frame("train", FILE, 6), Frame("<module>", FILE, 8)])
    left = [dead(n, 1, code=1, raised=[lost]) for n in (0, 2)]
    evidence = job(
        left[0],
        dead(1, 0, code=0),
        left[1],
        why="death",
        functions=source(UNEVEN.replace("return", ends), 6, 8),
    )
    verdict = only(evidence)

    assert "rank-exited-early" == verdict.code
    assert verdict.sentence.endswith(f" in the loop of train.py:3 (`for batch in loader`){why}")


# --- calls of long ago


HELPER = """\
def log(value):
    dist.all_reduce(value)

for step in range(99):
    dist.all_reduce(grad)
    if step == 4 and rank == 0:
        log(loss)
dist.barrier()
"""


def history(number: int, lines: Sequence[int]) -> RankEvidence:
    """A rank that has called from these lines, and stands in the last."""
    calls = [
        call(
            "barrier" if line == 8 else "all_reduce",
            place + 1,
            line,
            "entered" if place == len(lines) - 1 else "returned",
        )
        for place, line in enumerate(lines)
    ]
    names = {2: "log"}
    calls = [
        replace(each, frames=[Frame(names.get(frame.line, "<module>"), FILE, frame.line)])
        for each in calls
        for frame in each.frames
    ]
    last = calls[-1]
    its = stands(number, last.op, ("<module>", lines[-1]))
    entry = Collective("0", last.seq, last.op, [[8]])
    return replace(
        its,
        calls=calls[-2:],
        sequences=sequences(calls),
        collectives=[entry],
        groups=[Group("0", [], last.seq, last.seq - 1)],
    )


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


# --- modules


MOE = """\
class Expert(nn.Module):
    def forward(self, x):
        dist.all_reduce(x)

def main():
    model(x)
"""


def in_module(number: int) -> RankEvidence:
    """A rank in a collective of its module Expert."""
    frames = [
        Frame("all_reduce", C10D, 1),
        Frame("forward", FILE, 3),
        Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 1),
        Frame("main", FILE, 6),
    ]
    its = stands(number, "all_reduce", ("main", 6))
    return replace(its, stacks=[Stack("MainThread", True, frames)])


def test_a_module_that_others_do_not_run_is_named() -> None:
    ranks = [stands(n, "barrier", ("main", 6)) for n in (0, 1, 3)]
    verdict = only(all_of(*ranks, in_module(2), text=MOE))

    assert [2] == verdict.ranks
    assert "; rank 2 is in the module Expert (train.py:3), ranks 0, 1 and 3 are not" in verdict.sentence


def test_a_module_that_all_run_is_not() -> None:
    ranks = [replace(in_module(n), collectives=[Collective("0", 9, "broadcast")]) for n in (0, 1, 3)]

    assert "module" not in only(all_of(*ranks, in_module(2), text=MOE)).sentence


# --- one line that calls different functions


METERS = """\
def flush(meters):
    for meter in meters:
        meter.reduce()

class Mean:
    def reduce(self):
        dist.all_reduce(x)

class Median:
    def reduce(self):
        dist.broadcast(x)
"""


def of_meters(text: str, *lines: int, frame: str = "flush") -> Verdict:
    """Of ranks that have come to these lines of METERS by its line 3."""
    op = {7: "all_reduce", 11: "broadcast"}
    ranks = [stands(n, op[line], ("main", 20), (frame, 3), ("reduce", line)) for n, line in enumerate(lines)]
    return only(all_of(*ranks, text=text, per_node=len(ranks)))


def test_a_loop_whose_order_differs_is_told() -> None:
    verdict = of_meters(METERS, 7, 7, 11)

    assert [2] == verdict.ranks
    assert "; both calls come from train.py:2 (`for meter in meters`)" in verdict.sentence
    assert "Go through it sorted" in verdict.hint
    comprehension = of_meters(METERS.replace("    for meter in meters:", ""), 7, 7, 11, frame="<listcomp>")
    assert "; both calls come from train.py:3" in comprehension.sentence


@pytest.mark.parametrize(
    "text",
    [
        METERS.replace("for meter in meters", "for meter in sorted(meters)"),
        METERS.replace("for meter in meters", "if meters"),
    ],
    ids=["sorted", "no loop"],
)
def test_a_loop_in_one_order_and_a_line_in_none_are_not_why(text: str) -> None:
    verdict = of_meters(text, 7, 7, 11)

    assert "both calls come from" not in verdict.sentence
    assert "sorted" not in verdict.hint


# --- `__del__`, and gradients that never came


CACHE = """\
class Handle:
    def __del__(self):
        self.close()

    def close(self):
        dist.barrier()

def fit():
    for step in steps:
        handles.pop()
        dist.all_reduce(x)
"""
FREES = (("fit", 10), ("__del__", 3), ("close", 6))


def test_a_collective_in_a_finalizer_is_told_with_the_line_that_freed_the_object() -> None:
    ranks = [stands(n, "all_reduce", ("fit", 11)) for n in (0, 2, 3)]
    verdict = only(all_of(*ranks, stands(1, "barrier", *FREES), text=CACHE))

    assert [1] == verdict.ranks
    said = "; rank 1 is in `__del__` (train.py:3), for an object that Python freed in fit (train.py:10)"
    assert said in verdict.sentence
    assert "call no collective there" in verdict.hint


def test_a_finalizer_in_which_all_ranks_are_is_not_why() -> None:
    ranks = [stands(n, "broadcast", *FREES) for n in (0, 2, 3)]
    verdict = only(all_of(*ranks, stands(1, "barrier", *FREES), text=CACHE))

    assert "__del__" not in verdict.sentence
    assert "call no collective there" not in verdict.hint


HEADS = """\
def fit():
    for step in steps:
        loss = model(x)
        loss.backward()
        gather(loss)

def gather(loss):
    dist.all_gather(losses, loss)
"""
BUCKET, LOSSES = ("all_reduce", 64), ("all_gather", 1)


def makes(number: int, line: int, *kinds: tuple[str, int]) -> RankEvidence:
    """A rank in this line of `fit`, after these collectives and in the last of them."""
    ways = (("fit", line), ("gather", 8)) if line == 5 else (("fit", line),)
    its = stands(number, kinds[-1][0], *ways)
    first = 10 - len(kinds)
    calls = [Collective("0", first + at, op, [[size]]) for at, (op, size) in enumerate(kinds)]
    return replace(its, collectives=calls)


def unused(*of_one: tuple[str, int], text: str = HEADS) -> Verdict:
    """Of a job whose ranks 0 and 2 wait in backward, and of whose rank 1 these are the last collectives."""
    before = of_one[:-1]
    ranks = [makes(n, 4, *before, BUCKET) for n in (0, 2)]
    lines = {f"{FILE}:{number}": line.strip() for number, line in enumerate(text.splitlines(), 1)}
    return only(job(*ranks, makes(1, 5, *of_one), per_node=3, functions=source(text, 4, 5, 8), lines=lines))


def test_a_rank_that_is_past_backward_without_its_collective_lacks_gradients() -> None:
    verdict = unused(BUCKET, LOSSES, BUCKET, LOSSES, LOSSES)

    assert ("collective-mismatch", [1]) == (verdict.code, verdict.ranks)
    said = "; rank 1 is past `loss.backward()` (train.py:4) in the same round: some parameters may have got"
    assert said in verdict.sentence
    assert "find_unused_parameters=True" in verdict.hint


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ((BUCKET, LOSSES, BUCKET, LOSSES), HEADS),
        ((BUCKET, LOSSES, BUCKET, LOSSES, LOSSES), HEADS.replace("loss.backward()", "dist.all_reduce(x)")),
        ((LOSSES, LOSSES), HEADS),
        ((BUCKET, LOSSES, BUCKET, LOSSES, LOSSES), HEADS.replace("        gather(loss)", "    gather(loss)")),
    ],
    ids=["the others left its call out", "no backward", "no round is known", "behind the loop"],
)
def test_nothing_is_said_of_gradients_where_it_may_be_otherwise(
    calls: tuple[tuple[str, int], ...], text: str
) -> None:
    verdict = unused(*calls, text=text)

    assert "gradient" not in verdict.sentence
    assert "find_unused_parameters" not in verdict.hint


# --- DDP's own broadcast, and ranks in their own code


def test_a_rank_that_evaluates_with_the_ddp_model_learns_the_way_out() -> None:
    frames = [
        Frame("_sync_buffers", f"{TORCH}/nn/parallel/distributed.py", 1),
        Frame("forward", f"{TORCH}/nn/parallel/distributed.py", 1),
        Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 1),
        Frame("train", FILE, 19),
    ]
    ranks = [stands(n, "barrier", ("train", 23)) for n in (1, 2)]
    evaluates = replace(stands(0, "broadcast", ("train", 19)), stacks=[Stack("MainThread", True, frames)])
    verdict = only(all_of(evaluates, *ranks, per_node=3))

    assert [0] == verdict.ranks
    assert "model.module(…)" in verdict.hint
    within = [frames[0], Frame("_run_ddp_forward", frames[0].file, 1), *frames[1:]]
    model = replace(evaluates, stacks=[Stack("MainThread", True, within)])  # as in SyncBatchNorm
    assert "model.module" not in only(all_of(model, *ranks, per_node=3)).hint
    plain = only(all_of(stands(0, "broadcast", ("train", 19)), *ranks, per_node=3))
    assert "model.module" not in plain.hint


def test_a_rank_in_its_own_code_is_shown_with_its_branch() -> None:
    """As a fact: the others may have been there before."""
    stands_in = Stack("MainThread", True, [Frame("init_weights", FILE, 9), Frame("main", FILE, 3)])
    busy = replace(rank(3, in_evaluate(), called=8), stacks=[stands_in])
    ranks = [stands(n, "barrier", *IN_LOAD) for n in (0, 1, 2)]
    verdict = only(all_of(*ranks, busy))

    assert ("rank-in-user-code", [3]) == (verdict.code, verdict.ranks)
    assert (
        "rank 3 is in the branch of train.py:2 (`if not os.path.exists(last)`), ranks 0-2 are not"
    ) in verdict.facts
    assert verdict.hint.startswith("If a file decides at train.py:2 (`os.path.exists(last)`), ")


FOLDERS = """\
def ensure(path):
    if not os.path.exists(path):
        dist.barrier()

def main():
    for epoch in range(3):
        ensure(folder)
        for _ in range(5):
            dist.all_reduce(x)
"""


def test_a_loop_that_all_ranks_come_to_explains_less_than_a_branch_that_one_has_passed() -> None:
    ranks = [stands(n, "all_reduce", ("main", 9)) for n in (1, 2, 3)]
    verdict = only(all_of(stands(0, "barrier", ("main", 7), ("ensure", 3)), *ranks, text=FOLDERS))

    assert ("collective-mismatch", [0]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith(
        "; rank 0 is in the branch of train.py:2 (`if not os.path.exists(path)`), ranks 1-3 are not"
    )
    assert "a rank may make or remove the file while others look" in verdict.hint


WAITS = """\
def main():
    if rank == 0:
        build()
    else:
        while not os.path.exists(marker):
            time.sleep(1)
    for shard in shards:
        dist.all_reduce(x)
"""


def waiting_for(line: int) -> list[Stack]:
    return [Stack("MainThread", True, [Frame("main", FILE, line)])]


def test_a_loop_in_an_else_is_said_to_be_in_the_else() -> None:
    waits = [rank(n, waiting_for(6), 8) for n in (1, 2, 3)]
    said = stands(0, "all_reduce", ("main", 8), last_output="no cache: disk full")
    verdict = only(all_of(said, *waits, text=WAITS))

    assert "no cache" not in f"{verdict.facts}"  # they do not wait for it, as far as is known
    assert ("rank-in-user-code", [1, 2, 3]) == (verdict.code, verdict.ranks)
    assert (
        "ranks 1-3 are in the loop of train.py:5 (`while not os.path.exists(marker)`), within the `else` of "
        "train.py:2 (`if rank == 0`), rank 0 is not"
    ) in verdict.facts


def test_who_waits_for_a_file_is_told_what_the_others_have_printed_last() -> None:
    """Who should have made the file may have caught an exception."""
    line = "while not os.path.exists(marker): time.sleep(1)"
    waits = [rank(n, waiting_for(5), 8) for n in (1, 2, 3)]
    said = stands(0, "all_reduce", ("main", 8), last_output="no cache: disk full")
    evidence = all_of(said, *waits, text=WAITS.replace("marker):\n            time", "marker): time"))
    nodes = [replace(node, lines={f"{FILE}:5": line}) for node in evidence.evidence]
    verdict = only(replace(evidence, evidence=nodes))

    assert "waiting for a file" in verdict.sentence
    assert "the last line of rank 0: no cache: disk full" in verdict.facts
    assert "See what that rank did instead" in verdict.hint


def test_a_loop_in_which_the_others_wait_says_nothing_of_a_rank_before_it() -> None:
    others = [stands(n, "all_reduce", ("main", 8)) for n in (1, 2, 3)]
    verdict = only(all_of(rank(0, waiting_for(3), 8), *others, text=WAITS))

    assert ("rank-in-user-code", [0]) == (verdict.code, verdict.ranks)
    assert not any("for shard in shards" in fact for fact in verdict.facts)


ORDER = """\
def main():
    if overflow:
        dist.all_reduce(norm, group=dp)
        dist.all_reduce(norm, group=tp)
    else:
        dist.all_reduce(norm, group=tp)
        dist.all_reduce(norm, group=dp)
"""


def in_pair(number: int, line: int, group: str, members: list[int]) -> RankEvidence:
    """A rank in the first collective of one of its two groups."""
    its = stands(number, "all_reduce", ("main", line))
    whole = Group("dp", [0, 1], int(group == "dp"), 0), Group("tp", members, int(group == "tp"), 0)
    entry = Collective(group, 1, "all_reduce", [[8]], at=NOW - 20)
    return replace(its, groups=list(whole), collectives=[entry])


def test_the_branch_that_changes_the_order_of_groups_is_shown() -> None:
    evidence = all_of(in_pair(0, 3, "dp", [0, 1]), in_pair(1, 6, "tp", [0, 1]), per_node=2, text=ORDER)
    verdict = only(evidence)

    assert ("group-partial", [0, 1]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith(
        "is in the branch of train.py:2 (`if overflow`), rank 1 is not"
    ) or verdict.sentence.endswith("is in the `else` of train.py:2 (`if overflow`), rank 0 is not")
    assert "begin with train.py:2" in verdict.hint


def test_groups_that_wait_at_one_line_are_in_no_branch_of_their_own() -> None:
    evidence = all_of(in_pair(0, 3, "dp", [0, 1]), in_pair(1, 3, "tp", [0, 1]), per_node=2, text=ORDER)
    verdict = only(evidence)

    assert "group-partial" == verdict.code
    assert "if overflow" not in verdict.sentence


SOME = """\
def main():
    if rank in encoders:
        group = dist.new_group(encoders)
    dist.barrier()
"""


def test_the_branch_in_which_some_ranks_make_a_group_is_shown() -> None:
    makes = [
        rank(n, [Stack("MainThread", True, [Frame("new_group", C10D, 1), Frame("main", FILE, 3)])], 3)
        for n in (0, 1)
    ]
    others = [replace(stands(n, "barrier", ("main", 4)), collectives=[]) for n in (2, 3)]
    verdict = only(all_of(*makes, *others, text=SOME))

    assert ("group-partial", [2, 3]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith(
        "; ranks 0 and 1 are in the branch of train.py:2 (`if rank in encoders`), ranks 2 and 3 are not"
    )
    assert "(train.py:2)" in verdict.hint


RETRY = """\
for step in range(9):
    number = step
    dist.all_reduce(x)
    try:
        write(number)
    except OSError:
        dist.all_reduce(failed)
    dist.barrier()
"""


def test_a_call_that_was_made_in_a_handler_is_told_with_what_its_rank_printed() -> None:
    """As a rule that is the exception."""
    printed = "cannot write: stale file handle"
    others = [replace(history(n, [3, 8, 3, 8, 3]), last_output="step 2") for n in (0, 1, 2)]
    verdict = only(
        all_of(*others, replace(history(3, [3, 8, 3, 7, 8]), last_output=printed), text=RETRY, per_node=4)
    )

    assert ("collective-skipped", [3]) == (verdict.code, verdict.ranks)
    assert verdict.sentence.endswith(
        "; rank 3 made that call in the handler of train.py:6 (`except OSError`)"
    )
    assert f"the last line of rank 3: {printed}" in verdict.facts
    assert not any("step 2" in fact for fact in verdict.facts)


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [("name in set(metrics)", True), ("number in range(9)", False), ("each in model.parameters()", False)],
)
def test_one_line_in_a_loop_over_a_set_sends_in_another_order_on_each_rank(loop: str, is_told: bool) -> None:
    text = f"for {loop}:\n    step = 1\n    dist.all_reduce(x)\n"
    ranks = [stands(n, "all_reduce", ("<module>", 3)) for n in range(3)]
    entries = [
        Collective("0", 9, "all_reduce", [[size]], frames=[Frame("<module>", FILE, 3)]) for size in (4, 8, 2)
    ]
    verdict = only(
        all_of(
            *(replace(its, collectives=[entry]) for its, entry in zip(ranks, entries)), text=text, per_node=3
        )
    )

    assert "collective-mismatch" == verdict.code
    assert is_told == (f"If train.py:1 (`for {loop}`) goes through a set" in verdict.hint)


@pytest.mark.parametrize(
    ("loop", "ranks"), [("name in set(metrics)", [0, 1, 2]), ("batch in loader", [2])], ids=["chance", "data"]
)
def test_where_the_order_is_chance_it_is_no_ranks_fault_that_two_others_agree(
    loop: str, ranks: list[int]
) -> None:
    text = f"for {loop}:\n    step = 1\n    dist.all_reduce(x)\n"
    line = [Frame("<module>", FILE, 3)]
    entries = [Collective("0", 9, "all_reduce", [[size]], frames=line) for size in (4, 4, 2)]
    its = [
        replace(stands(n, "all_reduce", ("<module>", 3)), collectives=[each])
        for n, each in enumerate(entries)
    ]

    assert ranks == only(all_of(*its, text=text, per_node=3)).ranks


def _of_one_line(text: str, line: int, *calls: Collective) -> Verdict:
    """The verdict on ranks whose calls of one line differ."""
    where = [Frame("<module>", FILE, line)]
    ranks = [
        replace(stands(n, "all_reduce", ("<module>", line)), collectives=[replace(each, frames=where)])
        for n, each in enumerate(calls)
    ]
    return only(all_of(*ranks, text=text, per_node=len(ranks)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step = 1\nx = torch.cat(parts)\n", "`x` comes from train.py:2 (`x = torch.cat(parts)`)"),
        (  # the second has set it for certain
            "x = load()\nx = torch.cat(x)\n",
            "`x` comes from train.py:2 (`x = torch.cat(x)`), `x` from train.py:1 (`x = load()`)",
        ),
        (  # either may have
            "x = ones(4)\nif odd: x = ones(5)\n",
            "`x` comes from train.py:2 (`x = ones(5)`) or train.py:1 (`x = ones(4)`)",
        ),
    ],
)
def test_of_tensors_that_differ_on_one_line_it_is_said_where_they_come_from(text: str, expected: str) -> None:
    shapes = [Collective("0", 9, "all_reduce", [[size]]) for size in (4, 4, 4, 2)]
    verdict = _of_one_line(f"{text}dist.all_reduce(x)\n", 3, *shapes)

    assert [3] == verdict.ranks
    assert verdict.sentence.endswith(f"; {expected}")


def test_of_roots_that_differ_on_one_line_it_is_said_where_they_come_from() -> None:
    """Also in a loop, whose order need not be chance; and nothing of the tensor, which is the same."""
    text = "for batch in loader:\n    first = step % 2; x = torch.rand(4)\n    dist.broadcast(x, first)\n"
    calls = [Collective("0", 9, "broadcast", [[4]], peer=peer) for peer in (0, 0, 0, 1)]
    verdict = _of_one_line(text, 3, *calls)

    assert [3] == verdict.ranks
    assert "; `first` comes from train.py:2 (`first = step % 2" in verdict.sentence
    assert "`x`" not in verdict.sentence


def test_where_the_call_differs_nothing_is_said_of_its_tensor() -> None:
    text = "step = 1\nx = torch.cat(parts)\ndist.all_reduce(x)\n"
    calls = [Collective("0", 9, "all_reduce", [[4]])] * 3
    verdict = _of_one_line(text, 3, *calls, Collective("0", 9, "broadcast", [[4]]))

    assert "comes from" not in str(verdict.sentence)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            [{"FAST": ""}, {"FAST": ""}, {"FAST": "a1b2"}],
            "; rank 2 was started with FAST, ranks 0 and 1 without it",
        ),
        (
            [{"FAST": "a1b2"}, {"FAST": "a1b2"}, {"FAST": ""}],
            "; ranks 0 and 1 were started with FAST, rank 2 without it",
        ),
        (
            [{"FAST": "a1b2"}, {"FAST": "a1b2"}, {"FAST": "c3d4"}],
            "; rank 2 was started with another value of FAST than ranks 0 and 1",
        ),
        ([{"FAST": "a1b2"}, {"FAST": ""}, {"FAST": "c3d4"}], ""),  # it differs within a camp too
        ([{"FAST": ""}, {}, {"FAST": "a1b2"}], ""),  # of rank 1 it is not known
        ([{"FAST": "a1b2"}, {"FAST": "a1b2"}, {"FAST": "a1b2"}], ""),
        ([{"MY_RANK": "a1b2"}, {"MY_RANK": "a1b2"}, {"MY_RANK": "c3d4"}], ""),  # by right
    ],
)
def test_a_variable_of_the_environment_that_only_one_camp_has(
    variables: list[dict[str, str]], expected: str
) -> None:
    text = 'if os.getenv("FAST"):\n    dist.broadcast(x, 0)\ndist.all_reduce(x)\n'
    calls = [("all_reduce", 3), ("all_reduce", 3), ("broadcast", 2)]
    ranks = [
        stands(number, op, ("<module>", line), variables=variables[number])
        for number, (op, line) in enumerate(calls)
    ]
    sentence = only(all_of(*ranks, text=text)).sentence

    assert sentence.partition("ranks 0 and 1 are not")[2] == expected
