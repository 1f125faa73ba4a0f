"""Which branch of the program leads to the call of one camp of ranks, and not to that of the other.

Rules that have found two camps ask it. The ways of both, from the outermost caller inwards, are compared as
far as the function in which they part; what its lines look like was read on the nodes (evidence/branches.py).
A call of long ago has no stack: its callers are known only where one line alone calls its function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Branch, Collective, Fact, Frame, Function
from ddplaunch.agent.diagnosis.run import call_records, stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Text, say, spelled

_CALLERS = 4
"""Callers of callers that are followed without a stack."""
_WAYS = 8
"""Different ways in one camp: ranks that differ in more have no branch in common."""
_EXITS = 3
"""Branches that may lead past a call, at most: of more, none is worth a look."""
_PAST = ("returned", "issued", "waited", "completed")
_CALL_MODULE = ("_call_impl", "_wrapped_call_impl")
"""Functions of torch that call a module's `forward`."""
_LOOPS = ("for", "while")
_PLACES = {
    "if": "the branch of {}",
    "case": "the branch of {}",
    "else": "the `else` of {}",
    "for": "the loop of {}",
    "while": "the loop of {}",
    "except": "the handler of {}",
}

Way = tuple[Frame, ...]
"""Lines of the program by which a rank came to a call, the outermost first."""
Camp = Mapping[int, Optional[Collective]]
"""Ranks, each with its call; None: where it is now, or where it ended."""


class Choice(NamedTuple):
    """`ranks` are, or were, in this branch of `file`, and `others` not. `within`: an `if` around a loop."""

    ranks: list[int]
    others: list[int]
    file: str
    branch: Branch
    within: Optional[Branch]

    @property
    def place(self) -> str:
        """'train.py:18'."""
        return f"{self.file.rpartition('/')[2]}:{self.branch.line}"

    @property
    def shown(self) -> str:
        """'the branch of train.py:18 (`if rank == 0`)'."""
        what = _PLACES.get(self.branch.kind, "{}").format(_shown(self.file, self.branch))
        return what if self.within is None else f"{what}, within {_shown(self.file, self.within)}"


def find(view: JobView, few: Camp, many: Camp) -> Optional[Choice]:
    """Return the nearest branch around the calls of one camp, and around none of the other's.

    That of the smaller camp is looked for first. None: none is known, or the ranks of a camp differ.
    """
    for own, others in ((few, many), (many, few)):
        mine, theirs = _ways(view, own), _ways(view, others)
        if max(len(mine), len(theirs)) > _WAYS:
            return None
        found = [
            _branch(view, (rank, way), (other, its))
            for way, rank in mine.items()
            for its, other in theirs.items()
        ]
        first = found[0] if found else None
        if first is not None and all(each == first for each in found):
            return Choice(sorted(own), sorted(others), *first)
    return None


def took(choice: Optional[Choice]) -> list[Text]:
    """'rank 0 took the branch of train.py:18 (`if rank == 0`), ranks 1-3 did not'; empty if it is unknown.

    Of a loop it is only known who was in it: the others may have left it before.
    """
    if choice is None or choice.branch.kind in _LOOPS:
        return stands(choice, "was", "were")
    verb = "went into" if choice.branch.kind == "except" else "took"
    others = subjects.ranks(choice.others)
    return [say(subjects.ranks(choice.ranks), f" {verb} {choice.shown}, ", others, " did not")]


def stands(choice: Optional[Choice], one: str = "is", many: str = "are") -> list[Text]:
    """The same of where ranks are: the others may have been there before, or come there later."""
    if choice is None:
        return []
    is_, are = (phrases.one_or(its, one, many) for its in (choice.ranks, choice.others))
    others = subjects.ranks(choice.others)
    return [say(subjects.ranks(choice.ranks), f" {is_} in {choice.shown}, ", others, f" {are} not")]


def facts(view: JobView, choice: Optional[Choice]) -> list[Fact]:
    """Return `stands` as a fact."""
    by = "stacks and the program's source"
    ranks = [] if choice is None else [*choice.ranks, *choice.others]
    return [view.fact(spelled(text), by, ranks, "functions") for text in stands(choice)]


def file_hint(view: JobView, choice: Optional[Choice]) -> str:
    """Return what it may mean that a test for a file decides; "" if none does."""
    if choice is None or not choice.branch.file_test:
        return ""
    mine, theirs = (_machines(view, ranks) for ranks in (choice.ranks, choice.others))
    why = "ranks of one node differ: does one make or remove the file while others look for it?"
    if mine.isdisjoint(theirs):
        why = "the path may not be the same folder on all nodes."
    return (
        f"A file decides at {choice.place} (`{choice.branch.file_test}`): {why} Let one rank look, and "
        "broadcast what it has found. "
    )


def module(view: JobView, few: Camp, many: Camp) -> list[Text]:
    """'rank 1 is in the module Expert (moe.py:14), ranks 0, 2 and 3 are not', by the stacks; else empty."""
    for own, others in ((few, many), (many, few)):
        inside = [_modules(view, rank) for rank in own]
        outside = {name for rank in others for name in _modules(view, rank)}
        common = [name for name in inside[0] if all(name in its for its in inside)] if inside else []
        if all(_frames(view, rank) for rank in others) and common and common[0] not in outside:
            is_, are = (phrases.one_or([*its], "is", "are") for its in (own, others))
            ranks, rest = subjects.ranks(own), subjects.ranks(others)
            return [say(ranks, f" {is_} in the module {inside[0][common[0]]}, ", rest, f" {are} not")]
    return []


def exits(view: JobView, rank: int, line: Frame, lines: Optional[list[int]] = None) -> list[str]:
    """Return ['train.py:14 (`if not batch`: continue)'], the branches before a line that may lead past it.

    They are in the innermost loop around the line, or in its function without one. `lines`: of a loop that a
    rank has left, in place of it.
    """
    function = _function(view, rank, line)
    if function is None or (lines and not function.lines[0] <= lines[0] <= lines[1] <= function.lines[1]):
        return []
    loops = [each.lines for each in function.branches if each.kind in _LOOPS and _has(each, line.line)]
    first, last = lines or max(loops, default=function.lines)
    found = [
        f"{_shown(line.file, each)[:-1]}: {each.ends})"
        for each in function.branches
        if each.ends and first <= each.line and each.lines[1] <= last and not _has(each, line.line)
        if each.ends in ("break", "return") or (lines is None and each.lines[1] < line.line)
    ]
    return found if len(found) <= _EXITS else []


# --- ways


def _ways(view: JobView, camp: Camp) -> dict[Way, int]:
    """Return the different ways of a camp, each with a rank that came by it."""
    found: dict[Way, int] = {}
    for rank, call in camp.items():
        found.setdefault(_way(view, rank, call), rank)
    return found


def _way(view: JobView, rank: int, call: Optional[Collective]) -> Way:
    frames = stacks.users(_frames(view, rank))
    if call is None or not call.frames:
        return tuple(frames[::-1]) if call is None or not call.done else ()
    site = call.frames[0]
    for place, frame in enumerate(frames):
        if (frame.file, frame.line) == (site.file, site.line) and call.state not in _PAST and not call.done:
            return tuple(frames[place:][::-1])
    way = [site]
    for _ in range(_CALLERS):
        function = _function(view, rank, way[0])
        if function is None or len(function.callers) != 1 or function.callers[0] in way:
            break
        way.insert(0, function.callers[0])
    return tuple(way)


def _frames(view: JobView, rank: int) -> list[Frame]:
    its = view.ranks.get(rank)
    return [] if its is None else call_records.last_frames(its)


def _branch(
    view: JobView, mine: tuple[int, Way], theirs: tuple[int, Way]
) -> Optional[tuple[str, Branch, Optional[Branch]]]:
    """Return the file and the nearest branch around one way, where it parts from the other."""
    parting = _parting(mine[1], theirs[1])
    if parting is None:
        return None
    own, other = parting
    function, same = _function(view, mine[0], own), _function(view, theirs[0], other)
    if function is None or same is None or (function.name, function.lines) != (same.name, same.lines):
        return None  # or the nodes have different files
    around = [each for each in function.branches if _has(each, own.line) and not _has(each, other.line)]
    around.sort(key=lambda each: each.lines[1] - each.lines[0])
    if not around:
        return None
    loop = around[0].kind in _LOOPS
    within = next((each for each in around if each.kind not in _LOOPS), None) if loop else None
    return stacks.shared(own.file), around[0], within


def _parting(mine: Way, theirs: Way) -> Optional[tuple[Frame, Frame]]:
    """Return the two lines of one function at which two ways part; None: they part otherwise, or not."""
    names = [_named(frame) for frame in theirs]
    begin = next((place for place, frame in enumerate(mine) if _named(frame) in names), len(mine))
    for own, other in zip(mine[begin:], theirs[names.index(_named(mine[begin])) :] if mine[begin:] else ()):
        if _named(own) != _named(other):
            return None
        if own.line != other.line:
            return own, other
    return None


def _named(frame: Frame) -> tuple[str, str]:
    return frame.name.rpartition(".")[2], stacks.shared(frame.file)


def _function(view: JobView, rank: int, line: Frame) -> Optional[Function]:
    """Return the function of this line, as it was read on the rank's node."""
    functions = view.nodes[view.node_of[rank]].functions.get(line.file, []) if rank in view.node_of else []
    around = [each for each in functions if each.lines[0] <= line.line <= each.lines[1]]
    found = min(around, key=lambda each: each.lines[1] - each.lines[0], default=None)
    name = line.name.rpartition(".")[2]
    return found if found is not None and found.name.rpartition(".")[2] == name else None


def _modules(view: JobView, rank: int) -> dict[str, str]:
    """Return the program's modules that a rank is in, innermost first: 'Expert' -> 'Expert (moe.py:14)'."""
    frames, found = _frames(view, rank), {}
    for frame, outer in zip(frames, frames[1:]):
        function = _function(view, rank, frame)
        if function is not None and outer.name in _CALL_MODULE and stacks.in_torch([outer]):
            name = function.name.rpartition(".")[0].rpartition(".")[2]
            if name:
                found[name] = f"{name}{phrases.at(frame)}"
    return found


def _machines(view: JobView, ranks: list[int]) -> set[str]:
    return {view.nodes[node].machine or str(node) for node in view.nodes_of(ranks)}


def _has(branch: Branch, line: int) -> bool:
    return branch.lines[0] <= line <= branch.lines[1]


def _shown(file: str, branch: Branch) -> str:
    return f"{file.rpartition('/')[2]}:{branch.line} (`{branch.text}`)"
