"""Why ranks went apart: the branch around the call of one camp, the loop it left, the guard it passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import PEER_GONE, dead, job, only, raised
from tests.agent.diagnosis.run.build_blocked import call
from tests.agent.diagnosis.run.build_branches import FILE, RESUME, all_of, source, stands

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Verdict

IN_INIT = (("main", 3), ("init_weights", 10))
IN_LOAD = (("main", 5), ("load", 13))


def test_the_branch_in_which_camps_have_parted_is_shown() -> None:
    """The ways are compared down to the function in which they part, not further."""
    ranks = [stands(n, "barrier", *IN_LOAD) for n in (0, 1, 3)]
    verdict = only(all_of(*ranks, stands(2, "broadcast", *IN_INIT)))

    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks)
    assert (
        "at collective 9 rank 2 called broadcast [8] (train.py:10), the others barrier [8] (train.py:13); "
        "rank 2 is in the branch of train.py:2 "
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


def left_a_loop_that(*ends: str) -> Verdict:
    """The verdict on rank 3, which has left the loop; in it are branches that end it."""
    text = ENDS_A_LOOP.format("\n        ".join(ends)).replace(
        'if name == "loss":\n                break', "pass"
    )
    report = next(number for number, line in enumerate(text.splitlines(), 1) if line == "    report()")
    step = [(name, line + report - 8) for name, line in (("step", 11), ("report", 14))]
    ranks = [stands(n, "all_reduce", ("fit", 3), step[0]) for n in (0, 1, 2)]
    return only(all_of(*ranks, stands(3, "barrier", ("fit", report), step[1]), text=text))


def test_either_of_two_branches_that_end_a_loop_may_be_why() -> None:
    verdict = left_a_loop_that("if not x: continue", "if bad > 3: break")

    assert verdict.sentence.endswith(
        "train.py:6 (`if not x`: continue) or train.py:7 (`if bad > 3`: break) may be why"
    )


def test_of_three_branches_that_end_a_loop_none_is_said_to_be_why() -> None:
    """They are in the hint."""
    verdict = left_a_loop_that("if not x: continue", "if bad > 3: break", "if late: break")

    assert "may be why" not in verdict.sentence
    assert "a round of it: train.py:6 (`if not x`: continue), train.py:7 (" in verdict.hint


CLIPS = """\
def fit():
    for step in range(9):
        forward()
        clip()

def forward():
    dist.all_gather(x)

def clip():
    for weight in weights:
        if weight.grad is None: {}
        dist.all_reduce(norm)
        if weight.done: continue
        log(weight)
"""


@pytest.mark.parametrize(("end", "why"), [("continue", "continue"), ("break", "break"), ("pass", "")])
def test_a_round_that_was_left_before_the_others_call_may_be_why(end: str, why: str) -> None:
    """A `continue` behind that call is not: it comes too late."""
    ranks = [stands(n, "all_reduce", ("fit", 4), ("clip", 12)) for n in (0, 1, 2)]
    verdict = only(
        all_of(*ranks, stands(3, "all_gather", ("fit", 3), ("forward", 7)), text=CLIPS.format(end))
    )

    told = f"; train.py:11 (`if weight.grad is None`: {why}) may be why"
    assert (told in verdict.sentence) == bool(why), verdict.sentence
    assert "train.py:13" not in f"{verdict.sentence} {verdict.hint}"


def test_a_rank_that_has_left_the_function_of_the_loop_may_have_returned_from_it() -> None:
    text = ENDS_A_LOOP.format("if bad > 3: return")
    text = text.replace("    report()\n\ndef step", "    return 1\n\ndef step") + "\nfit()\nreport()\n"
    ranks = [stands(n, "all_reduce", ("<module>", 16), ("fit", 3), ("step", 11)) for n in (0, 1, 2)]
    left = stands(3, "barrier", ("<module>", 17), ("report", 14))

    assert only(all_of(*ranks, left, text=text)).sentence.endswith(
        "; train.py:7 (`if bad > 3`: return) may be why"
    )


SEGMENTS = """\
def main():
    for until in segments:
        {}

def run():
    for step in range(until):
        for p in parameters:
            dist.all_reduce(p)

def summary(loss):
    dist.all_gather(losses, loss)
"""


@pytest.mark.parametrize(
    ("line", "both"), [("summary(run())", True), ("board[until]()", False), ("summary(loss)", False)]
)
def test_ranks_in_two_functions_that_one_line_calls_are_in_no_wrong_order(line: str, both: bool) -> None:
    """One is through with the first; else the line calls another function on some ranks."""
    ranks = [stands(n, "all_gather", ("main", 3), ("summary", 11)) for n in (0, 1, 3)]
    late = stands(2, "all_reduce", ("main", 3), ("run", 8))
    evidence = all_of(*ranks, late, text=SEGMENTS.format(line))
    nodes = [replace(node, lines={f"{FILE}:3": line}) for node in evidence.evidence]
    verdict = only(replace(evidence, evidence=nodes))

    said = "; rank 2 is in the loop of train.py:6 (`for step in range(until)`), ranks 0, 1 and 3 are not"
    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks)
    assert both == verdict.sentence.endswith(said), verdict.sentence
    assert both != ("both calls come from train.py:2" in verdict.sentence)


RETRIES = """\
def export():
    dist.all_gather(counts, count)
    write()
    dist.all_reduce(written)

def patient():
    for attempt in range(4):
        try:
            export()
        except OSError:
            {}
"""


@pytest.mark.parametrize(("last", "told"), [("log()", True), ("raise", False)])
@pytest.mark.parametrize("twice", [True, False])
def test_a_rank_that_called_again_may_have_tried_again(last: str, told: bool, twice: bool) -> None:
    def at(number: int, op: str, line: int, before: tuple[str, int]) -> RankEvidence:
        its = stands(number, op, ("patient", 9), ("export", line))
        calls = [call(before[0], 8, before[1], "returned"), call(op, 9, line, "entered")]
        calls = [
            replace(each, frames=[replace(frame, name="export") for frame in each.frames]) for each in calls
        ]
        return replace(its, calls=calls, collectives=[replace(each, sizes=[[8]]) for each in calls])

    ranks = [at(n, "all_reduce", 4, ("all_gather", 2)) for n in (0, 1, 3)]
    ranks.append(at(2, "all_gather", 2, ("all_gather", 2 if twice else 4)))
    verdict = only(all_of(*ranks, text=RETRIES.format(last)))

    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks)
    said = "; rank 2 called it twice in a row; train.py:10 (`except OSError`) may be why"
    assert (told and twice) == verdict.sentence.endswith(said), verdict.sentence
    assert (told and twice) == ("agree whether to try again" in verdict.hint)


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


ROUTES = """\
def main():
    for step in range(99):
        out = route(tokens)
        average(grads)

def route(tokens):
    if not len(tokens):
        return tokens
    return exchange(tokens)

def average(grads):
    for grad in grads:
        dist.all_reduce(grad)
"""


def test_a_loop_behind_the_others_call_is_no_reason_where_a_return_leads_past_it() -> None:
    """All had been in that loop before."""
    ranks = [stands(n, "all_to_all", ("main", 3), ("route", 9)) for n in (0, 1)]
    ranks += [stands(2, "all_reduce", ("main", 4), ("average", 13))]
    before = Collective("0", 8, "all_reduce", [[8]], frames=[Frame("average", FILE, 13)])
    ranks = [replace(each, collectives=[before, *each.collectives]) for each in ranks]
    verdict = only(all_of(*ranks, text=ROUTES))

    assert verdict.sentence.endswith("; train.py:7 (`if not len(tokens)`: return) may be why")
    assert "loop" not in verdict.sentence
    without = only(all_of(*ranks, text=ROUTES.replace("return tokens", "log(tokens)")))
    assert "rank 2 is in the loop of train.py:12 (`for grad in grads`)" in without.sentence


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


EVALUATES = """\
def main():
    for epoch in range(3):
        train_epoch(model)
        if CONDITION:
            evaluate(model)
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("condition", "accused"), [("rank == 0", [0]), ("self.is_main_process", [0]), ("step % 10 == 0", [1, 2])]
)
def test_a_call_for_one_rank_alone_in_a_loop_does_not_make_the_others_leave_it_early(
    condition: str, accused: list[int]
) -> None:
    others = [stands(number, "barrier", ("main", 6)) for number in (1, 2)]
    text = EVALUATES.replace("CONDITION", condition)
    evidence = all_of(stands(0, "broadcast", ("main", 5)), *others, text=text, per_node=3)
    (node,) = evidence.evidence
    verdict = only(replace(evidence, evidence=[replace(node, loops={FILE: [[2, 5]]})]))

    assert accused == verdict.ranks
    assert ("left the loop" in verdict.sentence) == (accused == [1, 2])


def test_camps_in_one_function_of_two_files_run_different_programs() -> None:
    def at(number: int, op: str, line: int, folder: str, name: str = "push") -> RankEvidence:
        its = stands(number, op, (name, line))
        moved = [
            replace(frame, file=f"/env/{folder}/sync/__init__.py") if frame.file == FILE else frame
            for frame in its.stacks[0].frames
        ]
        return replace(its, stacks=[replace(its.stacks[0], frames=moved)])

    first = [at(n, "all_reduce", 15, "a") for n in (0, 1)]
    verdict = only(job(*first, *(at(n, "broadcast", 13, "b") for n in (2, 3))))

    assert verdict.sentence.endswith(
        "; ranks 0 and 1 run a/sync/__init__.py, ranks 2 and 3 run b/sync/__init__.py"
    )
    assert "compare the versions" in verdict.hint
    for others in (
        [at(n, "broadcast", 13, "a") for n in (2, 3)],
        [at(n, "broadcast", 13, "b", "pull") for n in (2, 3)],
        [at(2, "broadcast", 13, "a"), at(3, "broadcast", 13, "b")],
    ):
        assert "run a/" not in only(job(*first, *others)).sentence
