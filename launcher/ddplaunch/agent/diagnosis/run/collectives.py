"""collective-mismatch: ranks called different collectives where they had to call the same one.

Every group counts its collectives. Calls with the same number in the same group are one operation, so they
must be the same on all its ranks. If the counts are not recorded, a rank's own last message may still tell.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Collective, Fact, Frame, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import blocked, branches, call_order, call_records, causes, signals, stacks
from ddplaunch.agent.diagnosis.run.view import BACKWARD, FORWARD, JobView, plain
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, joined, listed, say

_ALL_ALIKE = "All ranks of a group must call the same collectives in the same order, with the same shapes"
_HINT = (
    f"{_ALL_ALIKE}: look for a branch on the rank, or on data that differs between ranks, around the calls "
    "named here."
)
_UNUSED = (
    "DistributedDataParallel sends a bucket of gradients once it has all of them. If some batches do not use "
    "all parts of the model, pass find_unused_parameters=True. If there is a `no_sync()`, or a branch around "
    "`backward`, all ranks must take it in the same step."
)
_OTHER_DATA = (
    f"{_ALL_ALIKE}: one line sends different tensors here. Compare what it sends, such as the parameters of "
    "the model or the last batch, and the versions of the installed packages that make it."
)
_NO_THREAD_ALONE = (
    "A collective needs all ranks of its group: start the thread on all of them, or let it call none."
)
_OTHER_ROOT = (
    "All ranks of a group must name the same root: compare where each rank has its number from, such as its "
    "configuration or its environment."
)
_OTHER_ORDER = (
    " If {loop} goes through a set, or through the files of a folder, each process has an order of its own: "
    "sort them."
)
_UNORDERED = re.compile(r"\b(set|frozenset|listdir|scandir|i?glob|iterdir)\(|\{[^{}:]+ for [^{}:]+\}")
"""In a loop, or in what it goes through: what has another order in each process, or on each node. Braces
without a colon are a set."""
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), ?OpType=(\w+)"
    r"(?:, ?TensorShape=\[([\d, ]*)\])?(?:, ?TensorDtypes=(\w+))?"
)
_DETAIL_NAMES = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather"}
_TORCHS_OWN = "a collective of torch's own, as in backward"
_MEETING = re.compile(
    r"all_(gather|reduce)(_into_tensor|_object|_coalesced)?|(monitored_)?barrier|" + BACKWARD
)
"""Calls from which no rank returns before all ranks of the group have come."""
_OF_ALL = re.compile(r"all_(gather|reduce|to_all)|reduce_scatter|(monitored_)?barrier")
"""The same, by the names that the ring has."""
_TO_ROOT = re.compile(r"gather|reduce")
_UNCOUNTED = "monitored_barrier"
"""It sends and receives: torch's recorder has no number of it, nor the root of any call. The ring has."""
_DDP_ROOT = 0
"""From which DDP broadcasts buffers (`_sync_buffers` in torch/nn/parallel/distributed.py)."""
_OF_A_ROOT = re.compile(r"(broadcast|scatter)(_object_list)?|gather(_object)?")
"""Calls that no rank leaves before the root has come. Once the root has left, all have or get their part."""

Source = dict[int, list[Collective]]
"""Rank -> its calls in one kind of record. Different kinds count differently, and are never compared."""


@dataclass(frozen=True)
class Mismatch:
    """The `camps` that disagree at collective `number` of `group`.

    `number` 0: it is not known. `culprits` is the minority: all ranks if no camp has more than half of them,
    none if a member whose call is not known would decide.
    """

    group: str
    number: int
    camps: dict[str, list[int]]  # "broadcast [4] (train.py:88)" -> ranks
    culprits: list[int]
    calls: dict[int, Collective] = field(default_factory=dict)  # of these ranks, as far as they are known
    of_program: bool = False  # the number counts the program's calls alone, without those of torch itself
    more: Sequence[int] = ()  # of two camps the one that has made a call more since, or all its calls

    @property
    def involved(self) -> int:
        return sum(len(ranks) for ranks in self.camps.values())

    def facts(self, view: JobView) -> list[Fact]:
        """Return what each camp has called."""
        which = self.which if self.number else "the call in which they wait"
        by = "torch's flight recorder and the hook's ring"
        return [
            view.fact(f"{subjects.ranks(ranks)}: {which} is {call}", by, ranks, "collectives, calls")
            for call, ranks in self.camps.items()
        ]

    @property
    def which(self) -> str:
        """'collective 17', 'call 17 of the program'."""
        return f"call {self.number} of the program" if self.of_program else f"collective {self.number}"

    @property
    def tie(self) -> bool:
        return len(self.culprits) in (0, self.involved)

    def in_two(self) -> tuple[dict[int, Optional[Collective]], dict[int, Optional[Collective]]]:
        """Return the calls of the culprits' camp and of the largest other; of the first two in a tie."""
        first, *rest = self.camps.values()
        other = max(rest, key=len)
        return {rank: self.calls.get(rank) for rank in first}, {rank: self.calls.get(rank) for rank in other}


def collective_mismatch(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that made different calls under the same number of the same group."""
    mismatch = _first_in_a_tie(view) or find_mismatch(view)
    return None if mismatch is None else _mismatch_verdict(view, mismatch)


def _mismatch_verdict(view: JobView, mismatch: Mismatch) -> Verdict:
    few, many = mismatch.in_two()
    choice = _parted_at(view, mismatch)
    loop = _loop_of_one_line(view, mismatch) if choice is None else ""
    origin = _assigned(view, mismatch) if choice is None else []
    made: Sequence[Sayable] = origin if not loop or _differ_in_root(mismatch) else []
    if loop and _UNORDERED.search(_gone_through(view, mismatch)):  # which ranks agree is chance
        mismatch = replace(
            mismatch, culprits=sorted(rank for ranks in mismatch.camps.values() for rank in ranks)
        )
    if mismatch.more:
        choice = branches.find_of(view, *((few, many) if mismatch.more[0] in few else (many, few)))
    way = branches.called(view, choice) if mismatch.more else branches.stands(view, choice)
    started = branches.started_with(view, [*few], [*many]) if choice is None else []
    exits = [] if choice is None else [*_exits(view, choice)]
    if not mismatch.more:
        exits += branches.either_past(view, few, many, guards=choice is None)
    ddp, hint = _ddp_hint(view, few) or _accumulation_hint(mismatch), _hint(view, mismatch, choice, exits)
    within = branches.finalizer(view, few, many)
    if within:
        hint = branches.NOT_IN_FINALIZER
    elif choice is None and not mismatch.more:
        if order := branches.one_order(view, few, many):
            made, hint = [f"both calls come from {order}"], branches.OTHER_ORDER.format(order)
        elif not exits and (unused := _without_gradient(view, few, many)):
            made, hint = unused, _UNUSED
        elif retries := _tried_again(view, few, many):
            made, exits = [say(subjects.ranks([*few]), " called it twice in a row")], retries
            hint = _NO_RETRY_AROUND
    if (story := _other_story(view, few, many)) is not None:
        made, ddp, hint = story.made, "", story.hint
        way, exits = (way, exits) if story.in_one_program else ([], [])
    sentence = say(f"at {mismatch.which} " if mismatch.number else "", _contrast(view, mismatch))
    found = view.verdict(
        code="collective-mismatch",
        sentence=joined(
            "; ",
            [
                sentence,
                *(within or branches.module(view, few, many)),
                *way,
                *made,
                *branches.perhaps(exits),
                *started,
            ],
        ),
        ranks=mismatch.culprits,
        victims=view.victims_of(mismatch.culprits),
        confidence=_confidence(mismatch),
        facts=[
            *mismatch.facts(view),
            *([] if mismatch.tie else view.own_last_lines(mismatch.culprits)),
            f"process group {mismatch.group!r}; known of {mismatch.involved} of {len(view.world)} ranks",
        ],
        hint=f"{branches.file_hint(view, choice)}{ddp}{hint}",
    )
    return signals.decided(view, found, few, many)


def _parted_at(view: JobView, mismatch: Mismatch) -> Optional[branches.Choice]:
    """Return the branch that one camp is in; None: none is known, or only a loop behind the others' call,
    which the camp may have left out by a `return`.
    """
    few, many = mismatch.in_two()
    choice = branches.find(view, few, many)
    if choice is None or not choice.is_loop or mismatch.more:
        return choice
    ahead, behind = (few, many) if choice.ranks == sorted(few) else (many, few)
    return None if branches.returned_before(view, ahead, behind) else choice


_TWO_FILES = (
    "The ranks run different files of one name: compare the versions of this package on all nodes, "
    "PYTHONPATH and sys.path. Install the same everywhere."
)


class _Story(NamedTuple):
    """Why camps called different things, other than by a branch. What it was `made` of, for the sentence."""

    made: list[Text]
    hint: str
    in_one_program: bool  # so that branches of it may tell more


def _other_story(view: JobView, few: branches.Camp, many: branches.Camp) -> Optional[_Story]:
    if aside := _in_a_thread(view, few, many):
        return _Story(aside, f"{_NO_THREAD_ALONE} {call_records.OWN_GROUP}", True)
    if copies := _of_two_files(view, few, many):
        return _Story(copies, _TWO_FILES, False)
    return None


def _of_two_files(view: JobView, few: branches.Camp, many: branches.Camp) -> list[Text]:
    """Return 'rank 0 runs a/sync.py, ranks 1-3 run b/sync.py' if both are in a function of the same name."""
    of_camps = [_innermost_files(view, camp) for camp in (few, many)]
    if any(len(each) != 1 for each in of_camps):
        return []
    (one,), (other,) = of_camps
    alike = one.name == other.name and posixpath.basename(one.file) == posixpath.basename(other.file)
    if not alike or one.file == other.file:
        return []
    mine, theirs = phrases.apart(one.file, other.file)
    verbs = [phrases.one_or([*camp], "runs", "run") for camp in (few, many)]
    return [
        say(
            subjects.ranks(few),
            f" {verbs[0]} {mine}, ",
            subjects.ranks(many),
            f" {verbs[1]} {theirs}",
        )
    ]


def _innermost_files(view: JobView, camp: branches.Camp) -> set[Frame]:
    """Return the innermost frames of the program, by file and function."""
    found = set()
    for rank in camp:
        for frame in stacks.users(branches.frames_of(view, rank))[:1]:
            found.add(Frame(frame.name.rpartition(".")[2], stacks.shared(frame.file), 0))
    return found


_NO_RETRY_AROUND = (
    "A rank that tries again repeats its collectives, and the others do not. Retry the read or the write "
    "alone, without a collective in it; or let all ranks agree whether to try again (all_reduce a flag)."
)


def _tried_again(view: JobView, few: branches.Camp, many: branches.Camp) -> list[str]:
    """Return ['io.py:26 (`except OSError`)'], the handler for which one camp may have made its call again.

    Empty unless all ranks there made the same call just before, from the same line, and none of the others.
    """

    def again(rank: int, call: Optional[Collective]) -> bool:
        if call is None or not call.frames:
            return False
        before = (call.group, call.seq - 1, call.op, False)
        return any(
            (each.group, each.seq, each.op, each.p2p) == before and each.frames[:1] == call.frames[:1]
            for each in view.ranks[rank].calls
        )

    alone = all(again(*each) for each in few.items()) and not any(again(*each) for each in many.items())
    return branches.tries_again(view, few, many)[:1] if alone else []


def _in_a_thread(view: JobView, few: branches.Camp, many: branches.Camp) -> list[Text]:
    """'rank 0 called it in a thread of its own, beside main (train.py:79)'.

    Empty unless all ranks of the smaller camp did, and none of the larger.
    """

    def aside(rank: int, call: Optional[Collective]) -> bool:
        return call is not None and call_records.in_other_thread(view.ranks[rank], call)

    def in_main(rank: int) -> bool:
        frames = call_records.last_frames(view.ranks[rank])
        return bool(frames) and not stacks.is_pythons(frames)

    if not few or not all(aside(*each) for each in few.items()) or not all(map(in_main, many)):
        return []
    sites = [stacks.user_frame(stacks.main(view.ranks[rank].stacks)) for rank in few]
    beside = {phrases.place(site) for site in sites if site is not None}
    where = f", beside {beside.pop()}" if len(beside) == 1 else ""
    return [
        say(
            subjects.ranks(few),
            f" called it in a thread of {phrases.one_or([*few], 'its', 'their')} own{where}",
        )
    ]


def _exits(view: JobView, choice: branches.Choice) -> list[str]:
    """Return what may lead a rank past the calls of the others."""
    if choice.skips or choice.branch.kind not in branches.LOOPS:
        return choice.skips
    loop = [choice.branch.line, choice.branch.lines[1]]
    return branches.ends_of(view, choice.others[0], choice.file, loop)


def _hint(view: JobView, mismatch: Mismatch, choice: Optional[branches.Choice], exits: Sequence[str]) -> str:
    if _differ_in_root(mismatch) or (_is_of_one_line(mismatch) and choice is None):
        loop = _loop_of_one_line(view, mismatch)
        what = _OTHER_ROOT if _differ_in_root(mismatch) else _OTHER_DATA
        return what + (_OTHER_ORDER.format(loop=loop) if loop else "")
    if choice is not None and not choice.skips and choice.branch.kind in branches.LOOPS:
        hint = branches.UNEVEN if choice.is_loop else _HINT
        return f"{hint} {branches.ALSO_ENDS.format(', '.join(exits))}" if exits else hint
    if exits:
        return f"{_HINT} What may lead a rank past its call: {', '.join(exits)}."
    return _HINT if choice is None else f"{_HINT} Begin with {choice.all_places}."


def _is_of_one_line(mismatch: Mismatch) -> bool:
    return bool(mismatch.calls) and len({label.rpartition(" (")[2] for label in mismatch.camps}) == 1


def _assigned(view: JobView, mismatch: Mismatch) -> list[str]:
    """Return where the tensors come from that one line sends, or the root that it names, if they differ."""
    rank, call = next(iter(mismatch.calls.items()), (0, None))
    same_call = len({plain(each.op) for each in mismatch.calls.values()}) == 1
    differ = len({(str(each.sizes), str(each.dtypes)) for each in mismatch.calls.values()}) > 1
    roots = _differ_in_root(mismatch)
    if call is None or not call.frames or not (same_call and _is_of_one_line(mismatch)):
        return []
    return branches.assigned(view, rank, call.frames[0], root=roots) if differ or roots else []


def _differ_in_root(mismatch: Mismatch) -> bool:
    """Whether the calls differ in the root that they name, and in nothing else."""
    calls = mismatch.calls.values()
    return len({*map(_kind, calls)}) == 1 and len({_root(call) for call in calls} - {None}) > 1


def _loop_of_one_line(view: JobView, mismatch: Mismatch) -> str:
    """Return the loop around the one line that made all the calls, if its order may be chance; else ""."""
    rank, call = next(iter(mismatch.calls.items()), (0, None))
    if call is None or not call.frames or not _is_of_one_line(mismatch):
        return ""
    return branches.order_of(view, rank, call.frames[0])


def _gone_through(view: JobView, mismatch: Mismatch) -> str:
    """Return the text of that loop, and of what has made the variable that it goes through."""
    rank, call = next(iter(mismatch.calls.items()))
    return branches.gone_through(view, rank, call.frames[0], root=_differ_in_root(mismatch))


def _ddp_hint(view: JobView, few: Iterable[int]) -> str:
    """Return the way out for ranks that call DDP's forward where others do not."""
    if not all(_in_ddp_forward(view, rank) for rank in few):
        return ""
    return (
        "DistributedDataParallel sends the model's buffers in `forward`: if only some ranks evaluate, let "
        "them call the model within it, `model.module(…)`. "
    )


def _accumulation_hint(mismatch: Mismatch) -> str:
    """Return what to look at if some ranks alone are in backward: the others may have left gradients as they
    are.
    """
    inside = [label.startswith((BACKWARD, _TORCHS_OWN)) for label in mismatch.camps]
    if all(inside) or not any(inside):
        return ""
    return (
        "DistributedDataParallel sends gradients in `backward`, except within `no_sync()`: a program that "
        "accumulates them must leave it in the same step on all ranks. "
    )


def _without_gradient(view: JobView, few: branches.Camp, many: branches.Camp) -> list[Text]:
    """Return 'rank 1 is past `loss.backward()` (train.py:69) in the same round: …' for ranks that have gone
    through `backward` and made none of DDP's collectives, for which the others wait there; else nothing.

    DDP sends a bucket of gradients once it has all of them: without one of them, backward returns all the
    same.
    """
    sites = {stacks.user_frame(branches.frames_of(view, rank)) for rank in many}
    site = sites.pop() if len(sites) == 1 else None
    if site is None or not all(branches.past_in_round(view, rank, site) for rank in few):
        return []
    texts = {view.line_of(rank, site) for rank in many}
    awaited = {_kind(call) for call in many.values() if call is not None}
    if not all(".backward(" in text for text in texts) or len(awaited) != 1:
        return []
    if not all(_came_too_soon(view.ranks[rank], call, *awaited) for rank, call in few.items()):
        return []
    past = f" {phrases.one_or([*few], 'is', 'are')} past `{texts.pop()}`{phrases.at(site)} in the same round"
    return [say(subjects.ranks(few), f"{past}: some parameters may have got no gradient there")]


def _kind(call: Collective) -> tuple[str, str]:
    """Return its operation and its shapes, by which calls of different rounds are alike."""
    return plain(call.op), str(call.sizes)


def _came_too_soon(rank: RankEvidence, call: Optional[Collective], awaited: tuple[str, str]) -> bool:
    """Whether in earlier rounds `awaited` came right before a call like this one, and it is missing now.

    Otherwise the others may have left out this call, and wait in the next round.
    """
    if call is None:
        return False
    earlier = [each for each in rank.collectives if each.group == call.group and each.seq < call.seq]
    kinds = [_kind(each) for each in sorted(earlier, key=lambda each: each.seq)]
    steps = {*zip(kinds, kinds[1:])}
    return bool(kinds) and (kinds[-1], _kind(call)) not in steps and (awaited, _kind(call)) in steps


def _in_ddp_forward(view: JobView, rank: int) -> bool:
    return stacks.in_ddp_forward(branches.frames_of(view, rank))


def _confidence(mismatch: Mismatch) -> float:
    if mismatch.tie:
        return sure.CALLS_IN_A_TIE if mismatch.culprits else sure.CALLS_WITHOUT_CULPRIT
    if len(mismatch.calls) == mismatch.involved and len(_camps(mismatch.calls)) == 1:
        return sure.CALLS_BY_LINES
    return sure.NUMBERED_CALLS if mismatch.number else sure.CALLS_BY_STACKS


def mismatch_in_words(view: JobView) -> Optional[Verdict]:
    """Return the verdict if a rank reported that its peer made another call, and no record shows more."""
    reports = causes.mismatch_reports(view)
    if not reports:
        return None
    mismatch = _first_in_a_tie(view) or (
        _fingerprinted(view, reports)
        or find_mismatch(view, failed_too=True)
        or _beside_torchs_own(view)
        or _met_torchs_own(view)
        or _by_lines(view)
    )
    if mismatch is not None:
        return _mismatch_verdict(view, mismatch)
    speakers = sorted(reports)
    sites = {rank: stacks.user_frame(call_records.last_frames(view.ranks[rank])) for rank in view.ranks}
    known = {phrases.at(sites[rank]) for rank in speakers}
    where = known.pop() if len(known) == 1 else ""
    return Verdict.of(
        code="collective-mismatch",
        sentence=say(
            subjects.ranks(speakers),
            f" ended{where} because the ranks called different collectives; ",
            "which rank differs was not recorded",
        ),
        where="run",
        confidence=sure.CALLS_WITHOUT_CULPRIT,
        facts=[
            *(f"rank {rank} was in {phrases.place(site)}" for rank, site in [*sites.items()][:8] if site),
            *(f"rank {rank} said: {phrases.clipped(text, 400)}" for rank, text in sorted(reports.items())),
        ],
        hint=f"{_HINT} TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare the calls before it starts them.",
    )


def _fingerprinted(view: JobView, reports: dict[int, str]) -> Optional[Mismatch]:
    """Return the mismatch that ranks report under TORCH_DISTRIBUTED_DEBUG=DETAIL, with the other's call."""
    calls: dict[int, Collective] = {}
    for text in reports.values():
        for rank, number, op, sizes, dtype in _FINGERPRINT.findall(text):
            shape = [int(size) for size in sizes.split(",") if size.strip()]
            name = _DETAIL_NAMES.get(op, op.lower())
            calls[int(rank)] = Collective("0", int(number), name, [shape], [dtype] if dtype else [])
    camps = _camps(calls)
    if len(camps) < 2:
        return None
    culprits = _minority(camps) or sorted(calls)
    ordered = sorted(camps, key=lambda ranks: ranks[0] not in culprits)
    number = min(call.seq for call in calls.values())
    return Mismatch("0", number, _labelled(view, calls, ordered), culprits)


def _by_lines(view: JobView) -> Optional[Mismatch]:
    """Return the mismatch of ranks that ended in the same operation, and called it from different lines.

    That is no fault by itself: a root may have a line of its own. But here it is known that the last calls
    did not fit, all before were alike, and no shape says more.
    """
    calls = {
        number: rank.calls[-1]
        for number, rank in view.ranks.items()
        if rank.calls and call_records.is_in(rank, rank.calls[-1]) and rank.calls[-1].frames
    }
    if any(call.sizes or call_order.ROOTED.fullmatch(plain(call.op)) for call in calls.values()):
        return None
    places = {(call.group, call.seq) for call in calls.values()}
    group, seq = places.pop() if len(places) == 1 else ("", 0)
    histories = call_order.histories_of(view, group)
    if sorted(calls) != view.members.get(group, view.world) or call_order.parted_earlier(histories):
        return None
    if not all(call_order.lined(each.calls) and len(each.calls) > 1 for each in histories):
        return None
    lines: dict[call_records.CallLine, list[int]] = {}
    for rank, call in sorted(calls.items()):
        lines.setdefault(call_records.call_line(call), []).append(rank)
    if len(lines) != 2:
        return None
    camps = sorted(lines.values(), key=lambda ranks: (-len(ranks), ranks))
    culprits = _minority(camps)
    labels = _labelled(view, calls, camps[::-1] if culprits else camps)
    return Mismatch(group, seq, labels, culprits or sorted(calls), calls, of_program=True)


def _beside_torchs_own(view: JobView) -> Optional[Mismatch]:
    """Return the mismatch with a collective that torch makes by itself, as in DDP's backward or a DTensor.

    The ring has none of these. A rank that is in such a function, and has made all calls of the others except
    the one in which they are, has met that one with torch's own collective. One that was ended before anybody
    could look has not made that call either, if its ring says so.
    """
    within: dict[int, Collective] = {}
    beside: dict[int, str] = {}
    elsewhere: list[int] = []  # ended before anybody could look: its calls are left
    unknown = 0  # the same, without calls
    for number in view.world:
        rank = view.ranks.get(number)
        frames = call_records.last_frames(rank) if rank is not None else []
        function = stacks.torchs_own(frames)
        if rank is not None and rank.calls and call_records.is_in(rank, rank.calls[-1]):
            within[number] = rank.calls[-1]
        elif rank is not None and function and (rank.calls or _has_hook(rank)):
            beside[number] = f"{function}{phrases.at(stacks.user_frame(frames))}"
        elif rank is not None and not rank.alive and not frames and (rank.calls or rank.rendezvous):
            elsewhere.append(number)
        elif rank is not None and not rank.alive and not frames:
            unknown += 1
        else:
            return None
    labels = _labelled(view, within, _camps(within))
    for each, label in beside.items():
        labels.setdefault(label, []).append(each)
    if not beside and elsewhere:
        labels[_TORCHS_OWN] = elsewhere
    made = [_made(view.ranks[each]) for each in (*beside, *elsewhere)]
    calls = {(call.group, call.seq) for call in within.values()} or {("0", 0)}
    group, seq = calls.pop()
    in_step = all((its.get(group, 0) == seq - 1 if within else its == made[0]) for its in made)
    if calls or not made or len(labels) != 2 or not in_step:
        return None
    # Those elsewhere have not made the call of those within. If nobody is in one, their camp is not known.
    sides = [[*within], [*beside, *elsewhere]] if within else [*labels.values()]
    unknown += 0 if within else len(elsewhere)
    culprits = _minority(sorted(sides, key=len, reverse=True), unknown)
    if len(sides[0]) == len(sides[1]) and not unknown:
        culprits = view.world
    ordered = sorted(labels, key=lambda call: labels[call] != culprits)
    camps = {call: labels[call] for call in ordered}
    return Mismatch(group, seq, camps, culprits, dict(within), of_program=True)


def _met_torchs_own(view: JobView) -> Optional[Mismatch]:
    """Return the first call that met a collective of torch's own and came back, though it needs all ranks.

    A function of torch, such as `get_model_state_dict`, may gather several tensors, of which the first fit.
    """
    within: dict[int, Collective] = {}
    beside: dict[int, str] = {}
    for number in view.world:
        rank = view.ranks.get(number)
        frames = call_records.last_frames(rank) if rank is not None else []
        function = stacks.torchs_own(frames)
        if rank is None or not rank.calls or rank.backend == "nccl":  # NCCL's calls return at once
            return None
        if call_records.is_in(rank, rank.calls[-1]):
            within[number] = rank.calls[-1]
        elif function is not None:
            beside[number] = f"{function}{phrases.at(stacks.user_frame(frames))}"
        else:
            return None
    places = {(call.group, call.seq) for call in within.values()}
    group, seq = places.pop() if len(places) == 1 else ("", 0)
    made = {_made(view.ranks[number]).get(group, 0) for number in beside}
    if not seq or len(made) != 1 or len(set(beside.values())) != 1:
        return None
    first = made.pop() + 1
    met = {number: call for number in within for call in view.ranks[number].calls if call.seq == first}
    fits = [
        call.group == group
        and call.state == "returned"
        and bool(call.frames)
        and bool(_OF_ALL.match(call.op))
        for call in met.values()
    ]
    lines = {call_records.call_line(call) for call in met.values() if call.frames}
    if len(met) != len(within) or not all(fits) or len(lines) != 1 or first >= seq:
        return None
    labels = _labelled(view, met, [[*met]])
    labels[next(iter(beside.values()))] = [*beside]
    culprits = _minority(sorted(([*beside], [*met]), key=len, reverse=True)) or view.world
    camps = {call: labels[call] for call in sorted(labels, key=lambda call: labels[call] != culprits)}
    return Mismatch(group, first, camps, culprits, met, of_program=True)


def _has_hook(rank: RankEvidence) -> bool:
    """Whether its hook would have recorded calls."""
    sources = {rank.stack_source, *(each.source for each in rank.raised if not each.handled)}
    return not sources.isdisjoint({"hook", "faulthandler", "crash"})


def _made(rank: RankEvidence) -> dict[str, int]:
    """Return how many collectives the program has called, by group."""
    ends = {each.group: each.first + len(each.calls) - 1 for each in rank.sequences if each.group}
    return {**ends, **{call.group: call.seq for call in rank.calls if not call.p2p}}


def find_mismatch(view: JobView, failed_too: bool = False) -> Optional[Mismatch]:
    """Return the earliest collective that is not done everywhere and was called differently.

    A collective that failed is recorded as done. With `failed_too`, the last one of each group counts as
    well, and so does what the hook's ring has kept of ranks whose recorders died with them.
    """
    recorded = {number: rank.collectives for number, rank in view.ranks.items() if rank.collectives}
    called = {number: rank.calls for number, rank in view.ranks.items() if rank.calls}
    only_there = any(
        call.op == _UNCOUNTED or _root(call) is not None
        for its in called.values()
        for call in its
        if call.state == "entered"
    )
    both = failed_too or only_there or len(called) > len(recorded)
    sources = [recorded, called] if both else [recorded]
    found = [_differing(view, source, failed_too) for source in sources]
    known = [mismatch for mismatch in found if mismatch is not None]
    if not known and not failed_too:
        return _by_stacks(view)
    return max(known, key=lambda mismatch: (not mismatch.tie, mismatch.involved), default=None)


def _by_stacks(view: JobView) -> Optional[Mismatch]:
    """Return the mismatch that stacks alone show, of ranks whose calls are not counted.

    All ranks must be in calls of the default group that no rank leaves before all have come: then they are
    all at the same call, or out of step. Ranks that wait for a root are out of step as well: the root is in
    another call, and no rank can leave without it. If the root waits, other ranks may have left already.

    Where torch counts its calls and records none, all may be in the call with one number, as their counters
    show. Then it is the same call for all, whichever it is, and other threads of theirs have no part in it.
    """
    if view.waiting != view.world or view.stuck_for < view.evidence.notice_after:
        return None
    places: dict[str, list[int]] = {}
    counted = _at_one_number(view)
    for number in view.world:
        rank, location = view.ranks[number], view.locations[number]
        known = location.what == BACKWARD or (rank.stands_in is not None and not rank.groups)
        if rank.unrecorded:
            own = counted and stacks.torchs_own(stacks.main(rank.stacks)) is not None
            known = location.group == "0" and (
                location.what in (BACKWARD, FORWARD) or call_records.is_within(rank) or own
            )
        asleep = rank.process is not None and rank.process.state == "S"
        asleep = asleep and (counted or blocked.is_held(view, number))
        held = any(stack.owns_gil and not stack.main for stack in rank.stacks)
        meets = _MEETING.fullmatch(location.what) or _waits_for_root(rank) or location.what == FORWARD
        if not known or not asleep or held or not (meets or counted) or location.what == _UNCOUNTED:
            return None
        places.setdefault(location.what + _of_root(rank), []).append(number)
    if BACKWARD in places:  # the root is through forward sooner than others, and they are in one step
        places[BACKWARD] += places.pop(FORWARD, [])
    elif FORWARD in places and _DDP_ROOT not in places[FORWARD]:
        return None  # the root may have been there; only while it waits itself, others have not come
    camps = sorted(places.values(), key=lambda ranks: (len(ranks), ranks))
    if len(camps) < 2:
        return None
    culprits = _minority(camps[::-1]) or view.world
    labelled = {
        f"{view.locations[ranks[0]]}{_of_root(view.ranks[ranks[0]])}": sorted(ranks) for ranks in camps
    }
    calls = {number: call for number in view.world if (call := view.ranks[number].stands_in) is not None}
    # Only the root can differ then: from outside, calls have no shapes by which they are compared.
    alike = len(calls) == len(view.world) and len({call.op for call in calls.values()}) == 1
    return Mismatch("0", 0, labelled, sorted(culprits), calls if alike else {})


def _at_one_number(view: JobView) -> bool:
    """Whether all ranks have done as many calls of the default group, and are in the next one."""
    known = [each for rank in view.world for each in view.ranks[rank].groups if each.name == "0"]
    return (
        all(view.ranks[rank].unrecorded for rank in view.world)
        and len(known) == len(view.world)
        and len({each.completed for each in known}) == 1
        # Else an earlier one may be the open one.
        and all(each.enqueued == each.completed + 1 for each in known)
    )


def _of_root(rank: RankEvidence) -> str:
    """' from rank 3', of a rank that waits for the root of its call."""
    call = rank.stands_in
    return f" from rank {call.peer}" if call is not None and _waits_for_root(rank) else ""


def _waits_for_root(rank: RankEvidence) -> bool:
    call = rank.stands_in
    if call is None or call.peer in (None, rank.rank):
        return False
    return _OF_A_ROOT.fullmatch(call.op) is not None


def _differing(view: JobView, source: Source, failed_too: bool) -> Optional[Mismatch]:
    entries = [entry for its in source.values() for entry in its if not entry.p2p]
    places = {(entry.seq, entry.group) for entry in entries if not entry.done}
    if failed_too:
        last = {entry.group: entry.seq for entry in sorted(entries, key=lambda entry: entry.seq)}
        places |= {(number, group) for group, number in last.items()}
    for number, group in sorted(places):
        calls = _at(source, group, number)
        members = view.members.get(group, view.world)
        if failed_too:
            calls.update(_beside_others(view, calls, [rank for rank in members if rank not in source]))
        camps = _camps(calls)
        if len(camps) > 1:
            unseen = [rank for rank in view.unseen if rank in members]
            silent = [rank for rank in view.alive if rank in members and rank not in source]
            both = [] if unseen or silent else sorted(calls)  # the missing call would decide
            culprits = _minority(camps, len(unseen)) or _newcomers(camps, calls, source) or both
            reports = _labelled(view, calls, sorted(camps, key=lambda ranks: ranks[0] not in culprits))
            return Mismatch(group, number, reports, culprits, calls)
    return None


def _beside_others(view: JobView, calls: dict[int, Collective], ranks: list[int]) -> dict[int, Collective]:
    """Return the calls of these ranks, whose records died with them, if they ended in the call of another."""
    last = {
        rank: its.calls[-1]
        for rank, its in view.ranks.items()
        if its.calls and call_records.is_in(its, its.calls[-1])
    }
    found = {}
    for rank in ranks:
        for other, call in calls.items():
            mine, its = last.get(rank), last.get(other)
            if mine is None or its is None or (plain(its.op), its.sizes) != (plain(call.op), call.sizes):
                continue
            if (mine.group, mine.seq, mine.sizes, mine.frames) == (its.group, its.seq, its.sizes, its.frames):
                found[rank] = call
    return found


def _first_in_a_tie(view: JobView) -> Optional[Mismatch]:
    """Return where two equally large camps have parted by a call that one made more, however long ago.

    Where they are now is only a consequence, and does not tell whether one made it or the other left it out.
    """
    for group in sorted({call.group for rank in view.ranks.values() for call in rank.calls}):
        histories = call_order.histories_of(view, group)
        parted = call_order.parted_by_a_call(
            histories, [rank for rank in view.ranks if rank not in view.alive]
        )
        if parted is None:
            continue
        number, more = parted
        calls = {rank: each.calls[number] for each in histories for rank in each.ranks}
        camps: dict[call_records.CallLine, list[int]] = {}
        for rank in sorted(calls):
            camps.setdefault(call_records.call_line(calls[rank]), []).append(rank)
        everyone = sorted(calls) == view.members.get(group, view.world)
        first, second = sorted(camps.values())
        if len(first) == len(second):
            culprits = sorted(calls) if everyone else []
            labels = _labelled(view, calls, [first, second])
            return Mismatch(group, number, labels, culprits, calls, of_program=True, more=more)
    return None


def _at(source: Source, group: str, number: int) -> dict[int, Collective]:
    """Return what each rank called as this collective of this group."""
    return {
        rank: entry
        for rank, entries in source.items()
        for entry in entries
        if entry.group == group and entry.seq == number and not entry.p2p
    }


def _camps(calls: dict[int, Collective]) -> list[list[int]]:
    """Return the ranks, grouped by what they called; the largest camp first."""
    comparable = {plain(call.op) for call in calls.values()} <= call_order.ALIKE
    camps: dict[object, list[int]] = {}
    for rank, call in sorted(calls.items()):
        shape = (str(call.sizes), str(call.dtypes)) if comparable and call.sizes else ()
        root = _root(call) if None not in map(_root, calls.values()) else None
        camps.setdefault((plain(call.op), shape, root), []).append(rank)
    return sorted(camps.values(), key=lambda ranks: (-len(ranks), ranks))


def _root(call: Collective) -> Optional[int]:
    """Return the root of a broadcast, a scatter, a gather or a reduce; None: unknown."""
    return call.peer if call_order.ROOTED.fullmatch(plain(call.op)) and not call.p2p else None


def _minority(camps: list[list[int]], unseen: int = 0) -> list[int]:
    """Return the ranks outside the camp of more than half; none if there is none, or unseen ranks decide."""
    if 2 * len(camps[0]) <= sum(map(len, camps)) + unseen:
        return []
    return sorted(rank for ranks in camps[1:] for rank in ranks)


def _newcomers(camps: list[list[int]], calls: dict[int, Collective], source: Source) -> list[int]:
    """Return the ranks that changed the shape, if camps of equal size differ in shape alone.

    Before, the line must have sent one shape only, the same on all ranks. DDP, or a loop over parameters,
    sends each parameter once, each with its own shape: there the models may differ, and no rank has changed
    anything.
    """
    if len({plain(call.op) for call in calls.values()}) > 1:
        return []
    before = {
        rank: [
            str(each.sizes)
            for each in source[rank]
            if each.group == call.group
            and each.seq < call.seq
            and call.frames
            and each.frames[:1] == call.frames[:1]
        ]
        for rank, call in calls.items()
    }
    if len({shape for shapes in before.values() for shape in shapes}) != 1 or not all(before.values()):
        return []
    changed = [ranks for ranks in camps if any(str(calls[rank].sizes) != before[rank][-1] for rank in ranks)]
    return sorted(rank for ranks in changed for rank in ranks) if len(changed) < len(camps) else []


def _labelled(view: JobView, calls: dict[int, Collective], camps: list[list[int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    types = {tuple(call.dtypes) for call in calls.values() if call.dtypes}
    roots = {root for call in calls.values() if (root := _root(call)) is not None}
    for camp in camps:
        for rank in camp:
            call = calls[rank]
            parts = [plain(call.op), *(str(size) for size in call.sizes if size)]
            parts += call.dtypes if len(types) > 1 else []
            if len(roots) > 1 and _root(call) is not None:
                parts.append(f"{'to' if _TO_ROOT.match(call.op) else 'from'} rank {_root(call)}")
            site, its = stacks.user_frame(call.frames), view.ranks.get(rank)
            # Without evidence, it is known only from what the others report.
            if site is None and its is not None:
                if call_records.in_other_thread(its, call):
                    parts.append("in a thread of torch's own")
                else:
                    site = view.locations[rank].site or stacks.user_frame(call_records.last_frames(its))
            if _in_ddp_forward(view, rank) and call.state not in ("completed", "returned"):
                parts.append("in DDP's forward")
            found.setdefault(" ".join(parts) + phrases.at(site), []).append(rank)
    return found


def _contrast(view: JobView, mismatch: Mismatch) -> Text:
    whole = mismatch.involved == len(view.members.get(mismatch.group, view.world))
    (first, odd), *rest = mismatch.camps.items()
    parts = [say(subjects.ranks(odd), f" called {first}")]
    for call, ranks in rest:
        plain_majority = len(rest) == 1 and not mismatch.tie and len(ranks) > 1 and whole
        parts.append(
            say(f"the others {call}") if plain_majority else say(subjects.ranks(ranks), f" called {call}")
        )
    return listed(parts) if mismatch.tie else joined(", ", parts)
