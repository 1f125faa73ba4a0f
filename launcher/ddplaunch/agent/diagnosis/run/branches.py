"""Which branch of the program leads to the call of one camp of ranks, and not to that of the other.

Rules that have found two camps ask it. The ways of both, from the outermost caller inwards, are compared as
far as the function in which they part; what its lines look like was read on the nodes (evidence/branches.py).
A call of long ago has no stack: its callers are known only where one line alone calls its function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Branch, Collective, Fact, Frame, Function
from ddplaunch.agent.diagnosis.run import call_records, stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Text, say, spelled

_CALLERS = 4
"""Callers of callers that are followed without a stack."""
_WAYS = 8
"""Different ways in one camp: ranks that differ in more have no branch in common."""
_WITHIN = 2
"""Branches around the nearest one that are shown: of more, the sentence would be a listing."""
_EXITS = 3
"""Branches that may lead past a call, at most: of more, none is worth a look."""
UNEVEN = (
    "The ranks do not run the same number of rounds, or do not call the same in each. Give each rank as many "
    "batches as the others (DistributedSampler with drop_last=True), wrap the loop in "
    "torch.distributed.algorithms.join.Join, or let all ranks agree when to stop."
)
ALSO_ENDS = "What also ends the loop, or a round of it: {}."
"""A hint, for what `ends_of` finds."""
_OF_A_RANK = re.compile("RANK|PROCID|LOCALID|NODEID|NODENAME|HOSTNAME|TASK|WORKER|VISIBLE_DEVICES")
"""Variables of the environment that differ between ranks or nodes by right."""
_IN_ORDER = re.compile(r"\b(range|parameters|enumerate|sorted)\(")
_GOES_THROUGH = re.compile(r"`for .+ in (\w+)`")
_COMPREHENSIONS = ("<dictcomp>", "<listcomp>", "<setcomp>", "<genexpr>")
"""Their frames. From Python 3.12 on, only the last one has its own."""
OTHER_ORDER = (
    "{} calls a different function on some ranks. If it goes through a dict or a set, the order may differ "
    "between ranks: a dict keeps the order in which it was filled. Go through it sorted, or use a fixed list."
)
"""A hint, for what `one_order` finds."""
_CALL_MODULE = ("_call_impl", "_wrapped_call_impl")
"""Functions of torch that call a module's `forward`."""
LOOPS = ("for", "while")
_PLACES = {
    "if": "the branch of {}",
    "case": "the branch of {}",
    "else": "the `else` of {}",
    "for": "the loop of {}",
    "while": "the loop of {}",
    "except": "the handler of {}",
    "past": "the code after {}",
}
_AROUND = {kind: place for kind, place in _PLACES.items() if kind in ("else", "except", "past")}
"""Branches that are not where their condition holds."""

Way = tuple[Frame, ...]
"""Lines of the program by which a rank came to a call, the outermost first."""
Camp = Mapping[int, Optional[Collective]]
"""Ranks, each with its call; None: where it is now, or where it ended."""
Pair = tuple[int, Way]
"""A rank, and its way."""
At = tuple[str, Branch]
"""A branch of this file."""
Look = Callable[[JobView, Pair, Pair, Function], list[At]]


class Choice(NamedTuple):
    """`ranks` are, or were, in this branch of `file`, and `others` not.

    `within`: the branches around it, the nearest first, in which `others` are not either. Which of them
    decided is not known: below `if rank == 0` there may be an `if step % 100 == 0` that is true on all ranks.
    What follows an `if rank: return` in a function counts as a branch, too.

    `skips`: branches with a `continue` in a loop around both. A rank that took one is a round ahead, and may
    be in the branch before the others come there.
    """

    ranks: list[int]
    others: list[int]
    file: str
    branch: Branch
    within: list[At]
    skips: list[str]

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop alone, which all ranks may run: some are elsewhere now."""
        return self.branch.kind in LOOPS and not self.within

    @property
    def place(self) -> str:
        """'train.py:18'."""
        return _placed(self.file, self.branch)

    @property
    def all_places(self) -> str:
        """'train.py:18', or 'train.py:16 and train.py:18' with the branches around it."""
        return " and ".join(_placed(*each) for each in (*self.within[::-1], (self.file, self.branch)))

    @property
    def shown(self) -> str:
        """'the branch of train.py:18 (`if rank == 0`)'."""
        what = _PLACES.get(self.branch.kind, "{}").format(_shown(self.file, self.branch))
        around = [_AROUND.get(each.kind, "{}").format(_shown(file, each)) for file, each in self.within]
        return ", within ".join([what, *around])


def find(view: JobView, few: Camp, many: Camp) -> Optional[Choice]:
    """Return the nearest branch around the calls of one camp, and around none of the other's.

    That of the smaller camp is looked for first, and a loop alone last. None: none is known, or the ranks of
    a camp differ.
    """
    loop = None
    below = partial(_below, before=_before(view, {**few, **many}))
    for look in (_around, below):
        for own, others in ((few, many), (many, few)):
            found = _found(view, look, own, others)
            if found is not None and not found.is_loop:
                return found
            loop = loop or found
    return loop


def find_of(view: JobView, more: Camp, less: Camp) -> Optional[Choice]:
    """Return the branch around calls of which it is known that one camp made them, and the other did not."""
    return _found(view, _around, more, less) or _found(view, _inside, more, less)


def ways_past(view: JobView, own: Camp, others: Camp, guards: bool) -> list[str]:
    """Return ['train.py:78 (`except RuntimeError`)'], what may have led one camp past the calls of the other.

    An `except` that goes on, and whose `try` is around the calls of the others alone; with `guards`, also an
    `if` that returns before them, or leaves a round of the loop around them, in a function below the one in
    which the camps part. What a program catches is not known before Python 3.12, so nothing says whether an
    exception was caught there.
    """
    return _common_exits([_past(view, mine, theirs, guards) for mine, theirs in _pairs(view, own, others)])


def either_past(view: JobView, few: Camp, many: Camp, guards: bool) -> list[str]:
    """Return `ways_past` of either camp."""
    return [*ways_past(view, few, many, guards), *ways_past(view, many, few, guards)]


def _past(view: JobView, mine: Pair, theirs: Pair, guards: bool) -> list[At]:
    places = _parting(mine[1], theirs[1])
    if places is None or not _may_have_been(view, mine, theirs, places):
        return []
    own, other = mine[1][places[0]], theirs[1][places[1]]
    found = []
    for frame in reversed(theirs[1][places[1] :]):
        function = view.function_of(theirs[0], frame)
        if function is None:
            continue
        for each in function.branches:
            both = frame is other and (each.protects(own.line) or each.has(own.line))
            handles = _goes_on(each, frame.line) and not both
            if handles or (guards and frame is not other and _passes(each, frame, function)):
                found.append((stacks.shared(frame.file), each))
    return found


def _passes(branch: Branch, line: Frame, function: Function) -> bool:
    """Whether this leads past a later line: out of the function, or out of a round of a loop around both."""
    if branch.lines[1] >= line.line:
        return False
    in_loop = bool(_loops_of_lines(function, line.line, branch.line))
    return branch.ends == "return" or (branch.ends in ("continue", "break") and in_loop)


def returned_before(view: JobView, own: Camp, others: Camp) -> list[str]:
    """Return ['moe.py:51 (`if not tokens`: return)'], by which one camp may have left a function before the
    call of the others, if it is now at a later line of the function in which they part.
    """
    found = []
    for mine, theirs in _pairs(view, own, others):
        places = _parting(mine[1], theirs[1])
        if places is None or mine[1][places[0]].line <= theirs[1][places[1]].line:
            return []
        found.append(
            [(file, each) for file, each in _past(view, mine, theirs, guards=True) if each.ends == "return"]
        )
    return _common_exits(found)


def _common_exits(found: Sequence[list[At]]) -> list[str]:
    """Return those that are in all of these lists, unless they are too many."""
    common = [each for each in found[0] if all(each in its for its in found)] if found else []
    return [_leaving(file, each) for file, each in common] if len(common) <= _EXITS else []


def _may_have_been(view: JobView, mine: Pair, theirs: Pair, places: tuple[int, int]) -> bool:
    """Whether one may have been where the other is: that is before its own line, or in a loop around both."""
    own, other = mine[1][places[0]], theirs[1][places[1]]
    if own.line > other.line:
        return True
    outer = [(frame, frame) for frame in mine[1][: places[0]]]
    for one, two in [(own, other), *outer]:
        function = view.function_of(mine[0], one)
        if function is not None and _loops_around(function, one, two):
            return True
    return False


def _found(view: JobView, look: Look, own: Camp, others: Camp) -> Optional[Choice]:
    found = [_branch(view, look, mine, theirs) for mine, theirs in _pairs(view, own, others)]
    nearest = found[0][0] if found else []
    if not nearest or any(each != nearest for each, _ in found):
        return None
    skips = {skip: None for _, its in found for skip in its}
    return Choice(sorted(own), sorted(others), *nearest[0], nearest[1:], [*skips][:_EXITS])


def called(view: JobView, choice: Optional[Choice]) -> list[Text]:
    """'rank 0 made that call in the branch of train.py:18 (`if rank == 0`)'; empty if it is unknown.

    For calls of long ago. The others may have been in the branch as well, and have left it before the call.
    """
    if choice is None:
        return []
    made = say(subjects.ranks(choice.ranks), f" made that call in {choice.shown}")
    return [made, *started_with(view, choice.ranks, choice.others)]


def stands(view: JobView, choice: Optional[Choice]) -> list[Text]:
    """'rank 0 is in the branch of train.py:18 (`if rank == 0`), ranks 1-3 are not'.

    Of where ranks are, and not of what they took: the others may have been there, or come there yet.
    """
    if choice is None:
        return []
    return [_stand(choice), *started_with(view, choice.ranks, choice.others)]


def _stand(choice: Choice) -> Text:
    is_, are = (phrases.one_or(its, "is", "are") for its in (choice.ranks, choice.others))
    others = subjects.ranks(choice.others)
    return say(subjects.ranks(choice.ranks), f" {is_} in {choice.shown}, ", others, f" {are} not")


def started_with(view: JobView, one: Sequence[int], other: Sequence[int]) -> list[Text]:
    """'rank 2 was started with SKIP_EVAL, ranks 0, 1 and 3 without it': what a branch of the program reads,
    and what differs between two camps and within neither.
    """
    names = sorted({name for rank in one if rank in view.ranks for name in view.ranks[rank].variables})
    for name in names:
        own, others = (_value(view, ranks, name) for ranks in (one, other))
        if _OF_A_RANK.search(name) or own is None or others is None or own == others:
            continue
        few, many = (one, other) if own else (other, one)
        was = say(subjects.ranks(few), f" {phrases.one_or(few, 'was', 'were')} started with ")
        if own and others:
            return [say(was, f"another value of {name} than ", subjects.ranks(many))]
        return [say(was, f"{name}, ", subjects.ranks(many), " without it")]
    return []


def _value(view: JobView, ranks: Sequence[int], name: str) -> Optional[str]:
    """Return the digest of the value that all these ranks have; None if they differ, or if one is unknown."""
    values = {view.ranks[rank].variables.get(name) if rank in view.ranks else None for rank in ranks}
    return values.pop() if len(values) == 1 else None


def facts(view: JobView, choice: Optional[Choice]) -> list[Fact]:
    """Return `stands` as facts, each with its source."""
    if choice is None:
        return []
    ranks = [*choice.ranks, *choice.others]
    started = started_with(view, choice.ranks, choice.others)
    return [
        view.fact(spelled(_stand(choice)), "stacks and the program's source", ranks, "functions"),
        *(view.fact(spelled(text), "/proc/PID/environ", ranks, "variables") for text in started),
    ]


def file_hint(view: JobView, choice: Optional[Choice]) -> str:
    """Return what it may mean that a branch asks for a file; "" if it does not."""
    if choice is None or not choice.branch.file_test:
        return ""
    mine, theirs = (view.machines(ranks) for ranks in (choice.ranks, choice.others))
    why = "a rank may make or remove the file while others look, or the path depends on the rank"
    if mine.isdisjoint(theirs):
        why = "the path may not be the same folder on all nodes"
    file = f"{choice.place} (`{choice.branch.file_test}`)"
    return f"If a file decides at {file}, {why}. Let one rank look, and broadcast what it has found. "


def one_order(view: JobView, few: Camp, many: Camp) -> str:
    """Return 'board.py:63 (`for meter in meters`)', the loop from one line of which both camps have called
    different functions; of a comprehension 'board.py:64' alone. "" without one, or if the loop counts.
    """
    found = {_parts_at(view, mine, theirs) for mine, theirs in _pairs(view, few, many)}
    line = found.pop() if len(found) == 1 else None
    if line is None or any(_line_of_both(view, *each) for each in _pairs(view, few, many)):
        return ""
    return (
        _at(line.file, line.line) if line.name in _COMPREHENSIONS else order_of(view, next(iter(few)), line)
    )


def _parts_at(view: JobView, mine: Pair, theirs: Pair) -> Optional[Frame]:
    """Return the last line that two ways have in common, if they go on from it into different functions."""
    common: Optional[Frame] = None
    for own, other in zip(mine[1], theirs[1]):
        if own != other:
            known, same = view.function_of(mine[0], own), view.function_of(theirs[0], other)
            differ = _named(own) != _named(other) or (known and same and known.lines != same.lines)
            return common if differ else None
        common = own
    return None


def _line_of_both(view: JobView, mine: Pair, theirs: Pair) -> Optional[Frame]:
    """Return the last common line of two ways if it calls both functions: one is through with the first."""
    common = _parts_at(view, mine, theirs)
    if common is None:
        return None
    text = view.line_of(mine[0], common)
    called = [way[way.index(common) + 1].name.rpartition(".")[2] for way in (mine[1], theirs[1])]
    return common if all(re.search(rf"\b{re.escape(name)}\(", text) for name in called) else None


def past_in_round(view: JobView, rank: int, line: Frame) -> bool:
    """Whether the rank is behind this line of its function, in the same round of the innermost loop."""
    for frame in stacks.users(frames_of(view, rank)):
        if (frame.name, frame.file) == (line.name, line.file) and frame.line > line.line:
            function = view.function_of(rank, frame)
            loops = [] if function is None else _loops_around(function, frame)
            return bool(loops) and max(loops, key=lambda each: each.line).has(line.line)
    return False


def finalizer(view: JobView, few: Camp, many: Camp) -> list[Text]:
    """'rank 1 is in `__del__` (cache.py:33), for an object that Python freed in get (cache.py:46)'.

    Empty unless all ranks of the one camp are in one, and none of the other.
    """
    for own, others in ((few, many), (many, few)):
        found = {_freed(view, rank) for rank in own}
        freed = found.pop() if len(found) == 1 else None
        if freed and not any(_freed(view, rank) for rank in others):
            return [say(subjects.ranks(own), f" {phrases.one_or([*own], 'is', 'are')} {freed}")]
    return []


def _freed(view: JobView, rank: int) -> str:
    frames = frames_of(view, rank)
    for place, frame in enumerate(frames):
        at = stacks.user_frame(frames[place + 1 :])
        if frame.name == "__del__" and stacks.is_own([frame]) and at is not None:
            return f"in `__del__`{phrases.at(frame)}, for an object that Python freed in {phrases.place(at)}"
    return ""


NOT_IN_FINALIZER = (
    "Python runs `__del__` when the last reference to an object is dropped, or in a garbage collection. That "
    "is at a different time on each rank: call no collective there. Have all ranks call a method such as "
    "`close()`."
)


def module(view: JobView, few: Camp, many: Camp) -> list[Text]:
    """'rank 1 is in the module Expert (moe.py:14), ranks 0, 2 and 3 are not', by the stacks; else empty."""
    for own, others in ((few, many), (many, few)):
        inside = [_modules(view, rank) for rank in own]
        outside = {name for rank in others for name in _modules(view, rank)}
        common = [name for name in inside[0] if all(name in its for its in inside)] if inside else []
        if all(frames_of(view, rank) for rank in others) and common and common[0] not in outside:
            is_, are = (phrases.one_or([*its], "is", "are") for its in (own, others))
            ranks, rest = subjects.ranks(own), subjects.ranks(others)
            return [say(ranks, f" {is_} in the module {inside[0][common[0]]}, ", rest, f" {are} not")]
    return []


def exits(view: JobView, rank: int, line: Frame) -> list[str]:
    """Return ['train.py:14 (`if not batch`: continue)'], the branches that may lead past a line.

    They are before it in the innermost loop around the line, or in its function without one; or an `except`
    whose `try` is around it, and which goes on.
    """
    function = view.function_of(rank, line)
    if function is None:
        return []
    loops = [each.lines for each in function.branches if each.kind in LOOPS and each.has(line.line)]
    first, _ = max(loops, default=function.lines)
    found = [
        _leaving(line.file, each)
        for each in function.branches
        if (each.ends and first <= each.line and each.lines[1] < line.line) or _goes_on(each, line.line)
    ]
    return found if len(found) <= _EXITS else []


def handles_in_a_loop(view: JobView, rank: int, line: Frame, raised: Sequence[int]) -> bool:
    """Whether a line is in the `except` of one that raised, both in a loop that the `except` does not end."""
    function = view.function_of(rank, line)
    return function is not None and any(
        each.has(line.line) and any(_brings_back(each, other, function) for other in raised)
        for each in function.branches
    )


def _brings_back(handler: Branch, line: int, function: Function) -> bool:
    """Whether this is an `except` of a `try` around the line that goes on with the next round of a loop."""
    ends_no_loop = handler.ends in ("", "continue")
    return handler.protects(line) and ends_no_loop and bool(_loops_of_lines(function, handler.lines[0], line))


def tries_again(view: JobView, own: Camp, others: Camp) -> list[str]:
    """Return ['io.py:26 (`except OSError`)'], a handler in a loop that may have brought one camp back to the
    line of its call, around all lines where both camps are.
    """
    found = []
    for mine, theirs in _pairs(view, own, others):
        places = _parting(mine[1], theirs[1])
        outer = mine[1][: places[0]] if places is not None else ()
        found.append(
            [
                (stacks.shared(frame.file), each)
                for frame in reversed(outer)
                if (function := view.function_of(mine[0], frame)) is not None
                for each in function.branches
                if _brings_back(each, frame.line, function)
            ][:1]
        )
    return _common_exits(found)


def brought_back(view: JobView, rank: int, line: Frame) -> list[str]:
    """Return ['io.py:26 (`except OSError`)'], a handler in a loop that may have led the rank back to a line:
    it is around that line, or around the calls by which the rank is in the same function now.
    """
    called = view.function_of(rank, line)
    frames = stacks.users(frames_of(view, rank))
    within = [place for place, frame in enumerate(frames) if view.function_of(rank, frame) == called]
    if called is None or not within:
        return []
    for frame in (line, *frames[within[0] + 1 :]):
        function = view.function_of(rank, frame)
        if function is None:
            continue
        for each in function.branches:
            if _brings_back(each, frame.line, function):
                return [_leaving(stacks.shared(frame.file), each)]
    return []


def rounds_left(view: JobView, rank: int, line: Frame) -> list[str]:
    """Return ['serve.py:38 (`if bad`: continue)'], what ends a round of the innermost loop around a line."""
    function = view.function_of(rank, line)
    loops = _loops_around(function, line) if function is not None else []
    loop = max(loops, key=lambda each: each.line, default=None)
    if function is None or loop is None:
        return []
    return _ends_of(function, stacks.shared(line.file), [loop.line, loop.lines[1]], ("continue",))


def ends_of(view: JobView, rank: int, file: str, loop: Sequence[int]) -> list[str]:
    """Return ['train.py:21 (`if bad > 3`: break)'], the branches that end a loop that the rank has left, or
    a round of it. By `return` only if the rank has left the function as well. `loop`: with its header.
    """
    first, last = loop
    functions = [
        each
        for name, its in view.nodes[view.node_of[rank]].functions.items()
        for each in its
        if stacks.shared(name) == file and each.lines[0] <= first <= last <= each.lines[1]
    ]
    function = min(functions, key=lambda each: each.lines[1] - each.lines[0], default=None)
    if function is None:
        return []
    stays = any(view.function_of(rank, frame) == function for frame in stacks.users(frames_of(view, rank)))
    ends = ("break", "continue") if stays else ("break", "continue", "return")
    return _ends_of(function, file, loop, ends)


def _ends_of(function: Function, file: str, loop: Sequence[int], ends: Sequence[str]) -> list[str]:
    first, last = loop
    loops = [each.lines for each in function.branches if each.kind in LOOPS and each.line != first]
    inner = [its for its in loops if first <= its[0] and its[1] <= last]
    found = [
        _leaving(file, each)
        for each in function.branches
        if each.ends in ends and first <= each.line and each.lines[1] <= last
        if each.ends == "return" or not any(its[0] <= each.line <= its[1] for its in inner)
    ]
    return found if len(found) <= _EXITS else []


def loop_left_by_others(
    view: JobView, ranks: Sequence[int], left: Sequence[Frame] = ()
) -> tuple[str, list[str]]:
    """Return 'the loop of train.py:45 (`for batch in loader`)', in which all these ranks are or have failed,
    and what ends it, or the nearest loop around it that can be ended, for a rank that has come to the end of
    the program. "": there is none, or not one alone.

    `left`: the frames in which that rank called sys.exit. If it did so in the loop, nothing else ended it.
    """
    found = [_loops_of(view, rank) for rank in ranks]
    if not found or not found[0] or any(each[:1] != found[0][:1] for each in found):
        return "", []
    file, _, innermost = found[0][0]
    place = _PLACES[innermost.kind].format(_shown(file, innermost))
    if any(
        stacks.shared(frame.file) == file and its.has(frame.line)
        for frame in left
        for file, _, its in found[0]
    ):
        return place, []
    common = [loop for loop in found[0] if all(loop in each for each in found)]
    ends = (
        _ends_of(function, file, [its.line, its.lines[1]], ("break", "return"))
        for file, function, its in common
    )
    return place, next(filter(None, ends), [])


def _loops_of(view: JobView, rank: int) -> list[tuple[str, Function, Branch]]:
    """Return the loops in which a rank is, the innermost first, through all of its program's functions."""
    found = []
    for frame in stacks.users(frames_of(view, rank)):
        function = view.function_of(rank, frame)
        loops = [] if function is None else _loops_around(function, frame)
        for each in sorted(loops, key=lambda each: -each.line):
            assert function is not None
            found.append((stacks.shared(frame.file), function, each))
    return found


def perhaps(exits: Sequence[str]) -> list[str]:
    """'train.py:21 (`if bad > 3`: break) may be why', or one of two; of more, it would be a guess."""
    return [f"{' or '.join(exits)} may be why"] if 0 < len(exits) < 3 else []


def around(view: JobView, rank: int, line: Frame) -> str:
    """Return 'the branch of train.py:55 (`if not data`)', the nearest around a line; "" if there is none.

    Loops do not count, nor does `if __name__ == "__main__"`.
    """
    function = view.function_of(rank, line)
    every = [] if function is None else _around_line(line, function)
    found = [each for each in every if each.kind not in LOOPS and "__name__" not in each.text]
    return _PLACES[found[0].kind].format(_shown(stacks.shared(line.file), found[0])) if found else ""


def order_of(view: JobView, rank: int, line: Frame) -> str:
    """Return 'train.py:13 (`for name in set(metrics)`)', the loop around a line whose order may be chance.

    "" without one, or if it counts, or goes through a model's parameters: that order is the same everywhere.
    """
    text = loop_around(view, rank, line)
    return "" if _IN_ORDER.search(text) else text


def loop_around(view: JobView, rank: int, line: Frame) -> str:
    """Return 'train.py:13 (`for name in names`)', the nearest `for` around a line; "" without one."""
    function = view.function_of(rank, line)
    loops = [] if function is None else [each for each in _around_line(line, function) if each.kind == "for"]
    return _shown(line.file, loops[0]) if loops else ""


def gone_through(view: JobView, rank: int, line: Frame, root: bool = False) -> str:
    """Return the text of the loop around a line, and of the assignments to the variable that it goes through.

    `root`: as in `assigned`, which knows only the variables behind what the line sends, or its root.
    """
    loop, function = loop_around(view, rank, line), view.function_of(rank, line)
    goes = _GOES_THROUGH.search(loop)
    wanted = (line.line, root, goes[1] if goes else "")
    known = [] if function is None else function.assignments
    return " ".join([loop, *(each.text for each in known if (each.used, each.root, each.name) == wanted)])


def assigned(view: JobView, rank: int, line: Frame, root: bool = False) -> list[str]:
    """Return ['`x` comes from train.py:8 (`x = torch.zeros(4)`) or train.py:10 (`x = …`)'], of what a line
    sends, or of the `root` that it names: any of these may have set it. Empty if it is not known.
    """
    function = view.function_of(rank, line)
    places: dict[tuple[int, str], list[str]] = {}
    for each in function.assignments if function is not None else ():
        if (each.used, each.root) == (line.line, root):
            places.setdefault((each.back, each.name), []).append(
                f"{_at(each.file, each.line)} (`{each.text}`)"
            )
    text = ", ".join(f"`{name}` from {' or '.join(its)}" for (_, name), its in places.items())
    return [text.replace("` from", "` comes from", 1)] if text else []


# --- ways


def _pairs(view: JobView, own: Camp, others: Camp) -> list[tuple[Pair, Pair]]:
    """Return each way of one camp beside each of the other's; none if a camp has too many."""
    mine, theirs = _ways(view, own), _ways(view, others)
    if max(len(mine), len(theirs)) > _WAYS:
        return []
    return [((rank, way), (other, its)) for way, rank in mine.items() for its, other in theirs.items()]


def _ways(view: JobView, camp: Camp) -> dict[Way, int]:
    """Return the different ways of a camp, each with a rank that came by it."""
    found: dict[Way, int] = {}
    for rank, call in camp.items():
        found.setdefault(_way(view, rank, call), rank)
    return found


def _way(view: JobView, rank: int, call: Optional[Collective]) -> Way:
    frames = stacks.users(frames_of(view, rank))
    if call is None or not call.frames:
        runs_ahead = call is not None and (call.done or view.ranks[rank].backend == "nccl")
        return () if runs_ahead else tuple(frames[::-1])
    site, last = call.frames[0], view.ranks[rank].calls[-1:]
    now = call_records.is_open(call)
    now = now or any(call_records.is_in(view.ranks[rank], each) and each.frames == [site] for each in last)
    for place, frame in enumerate(frames):
        if (frame.file, frame.line) == (site.file, site.line) and now:
            return tuple(frames[place:][::-1])
    way = [site]
    for _ in range(_CALLERS):
        function = view.function_of(rank, way[0])
        if function is None or len(function.callers) != 1 or function.callers[0] in way:
            break
        way.insert(0, function.callers[0])
    return tuple(way)


def frames_of(view: JobView, rank: int) -> list[Frame]:
    """Return where a rank is, or where it ended, the innermost first; empty if nobody has seen it."""
    its = view.ranks.get(rank)
    return [] if its is None else call_records.last_frames(its)


def _branch(view: JobView, look: Look, mine: Pair, theirs: Pair) -> tuple[list[At], list[str]]:
    """Return what `look` finds where one way parts from the other, and what leads to a next round there."""
    places = _parting(mine[1], theirs[1])
    if places is None:
        return _in_one_line(view, mine, theirs), []
    at, its = places
    own, other = mine[1][at], theirs[1][its]
    function, same = view.function_of(mine[0], own), view.function_of(theirs[0], other)
    if function is None or same is None or (function.name, function.lines) != (same.name, same.lines):
        return [], []  # or the nodes have different files
    found = look(view, (mine[0], mine[1][at:]), (theirs[0], theirs[1][its:]), function)
    around = [(frame, view.function_of(mine[0], frame)) for frame in mine[1][:at]]
    skips = [skip for frame, its in around if its is not None for skip in _skips(frame, its, frame)]
    return found, [*skips, *_skips(own, function, other)]


def _in_one_line(view: JobView, mine: Pair, theirs: Pair) -> list[At]:
    """Return the branches in a function whose caller calls that of the others in the same line.

    Of loops the outermost: the others are through with all of it, or have not come to it.
    """
    common = _line_of_both(view, mine, theirs)
    if common is None:
        return []
    frame = mine[1][mine[1].index(common) + 1]
    function, file = view.function_of(mine[0], frame), stacks.shared(frame.file)
    around = _around_line(frame, function) if function is not None else []
    loops = [each for each in around if each.kind in LOOPS]
    others = [each for each in around if each.kind not in LOOPS]
    return _telling([(file, each) for each in (*others, *loops[-1:])])


def _skips(line: Frame, function: Function, other: Frame) -> list[str]:
    """Return the branches that go on with the next round of a loop around both lines."""
    loops = [
        each.lines
        for each in function.branches
        if each.kind in LOOPS and each.has(line.line) and each.has(other.line)
    ]
    first, last = min(loops, default=(0, -1))
    return [
        _leaving(line.file, each)
        for each in function.branches
        if each.ends == "continue" and first <= each.line and each.lines[1] <= last
    ]


def _around(view: JobView, mine: Pair, theirs: Pair, function: Function) -> list[At]:
    """Return the nearest branches around one line, and not around the other.

    If that line has called functions, the branches there are nearer: the others may have come as far as that.
    Loops there say nothing: the others have left what is around the line, or not come to it.
    """
    own, other = mine[1][0], theirs[1][0]
    around = [each for each in _around_line(own, function) if not each.has(other.line)]
    if not around:
        return []
    file = stacks.shared(own.file)
    below = [each for each in _innermost(view, mine) if each[1].kind not in LOOPS]
    return _telling([*below, *((file, each) for each in around)])


def _below(
    view: JobView, mine: Pair, theirs: Pair, function: Function, before: Optional[_Before] = None
) -> list[At]:
    """Return the nearest branches in the functions that one line has called, if the other rank has passed it.

    That rank has made this call as well, and has come back without what the others do in there. In a loop it
    may be a round behind: then nothing may lead past its own call. `before`: the call that all made last.
    """
    own, other = mine[1][0], theirs[1][0]
    may_be_behind = _loops_around(function, own, other) and _innermost(view, theirs)
    passed = own.line <= other.line and not may_be_behind
    if passed or (before is not None and _has_come_round(view, own, theirs, function, before)):
        return _telling(_innermost(view, mine))
    return []


def _inside(view: JobView, mine: Pair, *_: object) -> list[At]:
    """Return the nearest branches in the functions that one line has called: the other rank did not make the
    call in there, and nothing where they part has led past that line.
    """
    return _telling(_innermost(view, mine))


class _Before(NamedTuple):
    """The call that all ranks made last, and those that are now in one just like it.

    What DDP sends in backward has no line. A second one of the same shape is that of the next step.
    """

    call: Collective
    again: list[int]


def _before(view: JobView, camp: Camp) -> Optional[_Before]:
    """Return the call before these in the same record, if all ranks made it from one line."""
    found = []
    for rank, call in camp.items():
        its = view.ranks.get(rank)
        if call is None or its is None:
            return None
        # From their ends: the records of thousands of ranks have thousands of calls each.
        recorded = any(each is call for each in reversed(its.collectives))
        earlier = reversed(its.collectives if recorded else its.calls)
        last = next((each for each in earlier if (each.group, each.seq) == (call.group, call.seq - 1)), None)
        if last is None:
            return None
        found.append(last)
    lines = {call_records.call_line(each) if each.frames else None for each in found}
    shapes = {(each.op, str(each.sizes)) for each in found}
    if len(lines) > 1 or (None in lines and len(shapes) > 1):
        return None
    again = [
        rank
        for rank, call in camp.items()
        if call is not None and not call.frames and None in lines and (call.op, str(call.sizes)) in shapes
    ]
    return _Before(found[0], again)


def _has_come_round(view: JobView, own: Frame, theirs: Pair, function: Function, before: _Before) -> bool:
    """Whether a rank is in a later round than the call that all made last.

    Its line is before that call's, or the same. Then it has passed all that follows that call in the loop
    around both, such as `own`.
    """
    was = now = theirs[1][-1]
    if theirs[0] not in before.again:
        way = _way(view, theirs[0], before.call) if before.call.frames else ()
        places = _parting(way, theirs[1])
        same = bool(way) and (_named(way[-1]), way[-1].line) == (_named(now), now.line)
        if places is not None:
            was, now = way[places[0]], theirs[1][places[1]]
        elif not same:
            return False
    its = view.function_of(theirs[0], now)
    if its is None or now.line > was.line:
        return False
    if (its.name, its.lines) == (function.name, function.lines):
        return bool(_loops_around(its, was, now, own))
    return not _loops_around(its, was, now)  # a loop there may be the one that it has gone round


def _loops_around(function: Function, *lines: Frame) -> list[Branch]:
    """Return the loops around all of these lines of a function."""
    return _loops_of_lines(function, *(line.line for line in lines))


def _loops_of_lines(function: Function, *lines: int) -> list[Branch]:
    loops = [each for each in function.branches if each.kind in LOOPS]
    return [each for each in loops if all(each.has(line) for line in lines)]


def _innermost(view: JobView, way: Pair) -> list[At]:
    """Return the branches in the functions below the first of a way, the nearest first.

    An `if` that returns before the line may have led others past it.
    """
    rank, (_, *inner) = way
    found: list[At] = []
    for frame in reversed(inner):
        function, file = view.function_of(rank, frame), stacks.shared(frame.file)
        if function is not None:
            past = [
                each for each in function.branches if each.ends == "return" and each.lines[1] < frame.line
            ]
            past = [replace(each, kind="past", text=f"{each.text}: return") for each in past[::-1]]
            found += [(file, each) for each in (*_around_line(frame, function), *past)]
    return found


def _telling(found: list[At]) -> list[At]:
    """Return the nearest, and those around it that are no loops."""
    return [*found[:1], *(each for each in found[1:] if each[1].kind not in LOOPS)][: 1 + _WITHIN]


def _around_line(line: Frame, function: Function) -> list[Branch]:
    """Return the branches of a function around a line, the nearest first."""
    around = [each for each in function.branches if each.has(line.line)]
    return sorted(around, key=lambda each: each.lines[1] - each.lines[0])


def _parting(mine: Way, theirs: Way) -> Optional[tuple[int, int]]:
    """Return the places in two ways at which they part within one function; None: otherwise, or not.

    One way may end at the line from which the other goes on.
    """
    names = [_named(frame) for frame in theirs]
    begin = next((place for place, frame in enumerate(mine) if _named(frame) in names), len(mine))
    if begin == len(mine):
        return None
    first = names.index(_named(mine[begin]))
    for place, (own, other) in enumerate(zip(mine[begin:], theirs[first:])):
        if _named(own) != _named(other):
            return None
        ends = len(mine) - begin != len(theirs) - first and place + 1 in (
            len(mine) - begin,
            len(theirs) - first,
        )
        if own.line != other.line or ends:
            return begin + place, first + place
    return None


def _named(frame: Frame) -> tuple[str, str]:
    return frame.name.rpartition(".")[2], stacks.shared(frame.file)


def _modules(view: JobView, rank: int) -> dict[str, str]:
    """Return the program's modules that a rank is in, innermost first: 'Expert' -> 'Expert (moe.py:14)'."""
    frames, found = frames_of(view, rank), {}
    for frame, outer in zip(frames, frames[1:]):
        function = view.function_of(rank, frame)
        if function is not None and outer.name in _CALL_MODULE and stacks.in_torch([outer]):
            name = function.name.rpartition(".")[0].rpartition(".")[2]
            if name:
                found[name] = f"{name}{phrases.at(frame)}"
    return found


def _goes_on(branch: Branch, line: int) -> bool:
    """Whether it is an `except` that may lead past this line of its `try`."""
    return branch.protects(line) and branch.ends != "raise"


def _placed(file: str, branch: Branch) -> str:
    return _at(file, branch.line)


def _at(file: str, line: int) -> str:
    return f"{file.rpartition('/')[2]}:{line}"


def _shown(file: str, branch: Branch) -> str:
    return f"{_placed(file, branch)} (`{branch.text}`)"


def _leaving(file: str, branch: Branch) -> str:
    return f"{_shown(file, branch)[:-1]}: {branch.ends})" if branch.ends else _shown(file, branch)
