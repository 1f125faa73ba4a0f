"""Other reasons why ranks went apart: modules, finalizers, gradients, orders, assignments, variables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import C10D, NOW, TORCH, in_evaluate, job, only, rank
from tests.agent.diagnosis.run.build_branches import FILE, all_of, history, source, stands

from ddplaunch.agent.contract import Collective, Frame, Group, RankEvidence, Stack, Verdict

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
    ranks = [stands(n, "barrier", ("main", 5), ("load", 13)) for n in (0, 1, 2)]
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
    assert "See what that one did instead" in verdict.hint


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
    ("names", "ranks"),
    [("{n for n in grads if n}", [0, 1, 2, 3]), ("{n: 1 for n in grads}", [3])],
    ids=["a set", "a dictionary"],
)
def test_what_a_loop_goes_through_may_be_a_set(names: str, ranks: list[int]) -> None:
    text = f"names = {names}\nfor name in names:\n    dist.broadcast(p[name], owner[name])\n"
    calls = [Collective("0", 9, "broadcast", [[4]], peer=peer) for peer in (0, 0, 0, 1)]
    verdict = _of_one_line(text, 3, *calls)

    assert ranks == verdict.ranks
    assert "If train.py:2 (`for name in names`) goes through a set" in verdict.hint


def test_a_set_that_only_sizes_a_tensor_makes_no_order_chance() -> None:
    text = "for batch in loader:\n    x = torch.zeros(len(set(batch)))\n    dist.all_reduce(x)\n"
    verdict = _of_one_line(text, 3, *(Collective("0", 9, "all_reduce", [[size]]) for size in (4, 4, 4, 2)))

    assert [3] == verdict.ranks


def test_without_a_camp_of_more_than_half_no_rank_is_accused_alone() -> None:
    calls = [Collective("0", 9, "broadcast", [[4]], peer=peer) for peer in (0, 0, 1, 2)]
    verdict = _of_one_line("dist.broadcast(p, owner)\n", 1, *calls)

    assert ([0, 1, 2, 3], 0.7) == (verdict.ranks, verdict.confidence)


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
