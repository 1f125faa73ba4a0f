"""The evidence of a job, prepared for all rules: where each rank is, which ranks wait, and for whom.

A rank *waits* if it is in a collective, in init_process_group or in a function of MPI. It *holds* the others
up if it lives, waits nowhere, and is behind: it has called fewer collectives of the blocked group than the
ranks that wait in it. Counters decide if they are known, otherwise stacks.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import (
    AnyFact,
    Collective,
    Fact,
    Frame,
    Function,
    Group,
    JobEvidence,
    NodeEvidence,
    Phase,
    Posture,
    Raised,
    RankEvidence,
    Source,
    Stack,
    Verdict,
    Wait,
)
from ddplaunch.agent.diagnosis.run import call_records, nccl_ras, polling, stacks
from ddplaunch.agent.diagnosis.run.call_records import Call
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.quantities import some
from ddplaunch.agent.text.saying import Sayable, Subject, Text, say, spelled

_NATIVE_WAIT = re.compile(r"\.(wait|item|tolist|cpu|numpy|synchronize|(monitored_)?barrier)\(")


class Found(NamedTuple):
    """What a rule on stragglers has found. `explains`: the ranks that no later rule speaks of."""

    verdict: Optional[Verdict]
    explains: Collection[int]


class JobView:
    """Answers the rules' questions. Each answer is computed once; the order of nodes does not matter."""

    def __init__(self, evidence: JobEvidence) -> None:
        self.evidence = evidence
        self.nodes: dict[int, NodeEvidence] = {}
        self.ranks: dict[int, RankEvidence] = {}
        self.node_of: dict[int, int] = {}
        for node in sorted(evidence.evidence, key=lambda node: (node.node, node.at)):
            self.nodes[node.node] = node
            for rank in node.ranks:
                seen = replace(rank, stacks=_trainer_first(rank))
                groups = [_counted(seen, group) for group in rank.groups]
                self.ranks[rank.rank] = replace(seen, groups=groups)
                self.node_of[rank.rank] = node.node
        fewest = _fewest_calls(self.ranks)
        self.ranks = {number: _opened(self.ranks[number], fewest) for number in sorted(self.ranks)}
        self.explained: frozenset[int] = frozenset()

    def without(self, explained: Collection[int]) -> JobView:
        """Return this view for a rule that must not speak of these stragglers: their cause is known."""
        view = copy.copy(self)
        view.explained = self.explained.union(explained)
        return view

    def node(self, number: int) -> Subject:
        """'node 2 (n3)'."""
        return subjects.node(number, self.evidence.names)

    def named(self, numbers: Iterable[int]) -> Subject:
        """'nodes 1 (n2) and 2 (n3)'."""
        return subjects.nodes(numbers, self.evidence.names)

    @cached_property
    def world_size(self) -> Optional[int]:
        """Return what the ranks' own groups and calls say, otherwise what was planned; None: not known."""
        sizes = [rank.world_size for rank in self.ranks.values() if rank.world_size]
        return max(sizes) if sizes else self.evidence.world_size

    @cached_property
    def world(self) -> list[int]:
        """Return the ranks that there should be."""
        return sorted({*self.ranks, *range(self.world_size or 0)})

    def is_everyone(self, numbers: Collection[int]) -> bool:
        """Whether these are all ranks of a world of several, whose size is known."""
        return len(numbers) == self.world_size and len(numbers) > 1

    @cached_property
    def absent(self) -> list[int]:
        """Return the ranks that were planned on nodes that have answered, but whose processes were not found.

        If the script makes a larger world than was planned, the others may run where no supervisor looks.
        """
        laid_out = self.evidence.world_size is not None and self.world_size == self.evidence.world_size
        if not laid_out or self.evidence.silent or len(self.nodes) < self.evidence.nodes:
            return []
        return [rank for rank in self.world if rank not in self.ranks]

    @cached_property
    def unseen(self) -> list[int]:
        """Return the ranks of which nothing is known: nothing may be concluded about them, or from them."""
        return [rank for rank in self.world if rank not in self.ranks and rank not in self.absent]

    @cached_property
    def alive(self) -> list[int]:
        return [number for number, rank in self.ranks.items() if rank.alive]

    @cached_property
    def locations(self) -> dict[int, Location]:
        found = {number: locate(rank, self._innermost_line(number)) for number, rank in self.ranks.items()}
        for number, its in found.items():
            if its.kind == ELSEWHERE and not its.awaits and (polled := self._polled(number)):
                found[number] = replace(its, awaits=polled)
        return found

    def sleeps(self, number: int) -> bool:
        """Whether the rank sleeps for a time. The text of its line says so as well, but may be cut."""
        process = self.ranks[number].process
        asleep = process is not None and "nanosleep" in process.wchan
        return asleep or "sleep(" in self._innermost_line(number)

    def _polled(self, number: int) -> str:
        """Return what the rank looks for again and again in its own loop; "" if it does not sleep in one."""
        rank = self.ranks[number]
        frames = stacks.main(rank.stacks)
        if not frames or stacks.user_frame(frames) != frames[0]:
            return ""
        if not self.sleeps(number):
            return ""
        return polling.awaited(self.function_of(number, frames[0]), frames[0])

    def _innermost_line(self, rank: int) -> str:
        frames = stacks.main(self.ranks[rank].stacks)
        return self.line_of(rank, frames[0]) if frames else ""

    @cached_property
    def waiting(self) -> list[int]:
        """Return the ranks that wait for others; none if all are in MPI_Finalize."""
        if all(self.locations[rank].what == IN_FINALIZE for rank in self.alive):
            return []
        return [
            rank
            for rank in self.alive
            if self.locations[rank].kind in (IN_COLLECTIVE, IN_INIT, IN_MPI)
            or (self.locations[rank].kind == IN_EXIT and self._has_called_most(rank))
        ]

    def _has_called_most(self, rank: int) -> bool:
        """Whether it has made all its calls, and others that live have made fewer in each of its groups.

        Calls of NCCL return at once: its program may be over while its GPU waits for other ranks.
        """
        mine = _last_calls(self.ranks[rank])
        others = [_last_calls(self.ranks[other]) for other in self.alive if other != rank]
        numbers = [(seq, its.get(group, 0)) for group, seq in mine.items() for its in others]
        return any(seq > its for seq, its in numbers) and all(seq >= its for seq, its in numbers)

    @cached_property
    def in_init(self) -> list[int]:
        return [rank for rank in self.waiting if self.locations[rank].kind == IN_INIT]

    @cached_property
    def init_calls(self) -> list[Call]:
        """Return every process's last call of init_process_group; two processes may claim one rank."""
        found = [
            Call(node.node, process, process.rendezvous)
            for node in self.nodes.values()
            for process in node.ranks
            if process.rendezvous is not None
        ]
        return sorted(found, key=lambda call: (call.node, call.rank, call.process.pid))

    @cached_property
    def open_init_calls(self) -> list[Call]:
        """Return the calls that have not returned. What a silent node reported may be long over."""
        return [call for call in self.init_calls if call.waits and call.node not in self.evidence.silent]

    @cached_property
    def blocked(self) -> dict[str, int]:
        """Return the groups in which a rank waits, with the number of the first unfinished collective."""
        found: dict[str, int] = {}
        for rank in self.waiting:
            for group in self.ranks[rank].groups:
                if group.enqueued > group.completed:
                    first = found.get(group.name, group.completed + 1)
                    found[group.name] = min(first, group.completed + 1)
        return found

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """Return the ranks of each group, if they are known."""
        return {
            group.name: group.ranks for rank in self.ranks.values() for group in rank.groups if group.ranks
        }

    @cached_property
    def stragglers(self) -> list[int]:
        """Return the ranks that the others wait for; all living ranks when no rank waits."""
        return [
            rank
            for rank in self.alive
            if rank not in self.waiting
            and (not self.waiting or self.behind(rank) is not False)
            and not self.may_wait_unseen(rank)
        ]

    @cached_property
    def queued(self) -> list[int]:
        """Return stragglers that wait for something, such as a file lock or a key, that another may provide.

        The other one does not wait. No rank was seen to hold the lock, so these must not be blamed.
        """
        waits = {rank: file_lock_wait(self.ranks[rank]) for rank in self.stragglers}
        known = [rank for rank, wait in waits.items() if wait or self.locations[rank].awaits]
        unseen = [rank for rank in known if (wait := waits[rank]) is None or wait.holder <= 0]
        return unseen if len(known) < len(waits) else []

    def may_wait_unseen(self, rank: int) -> bool:
        """Whether it is where only counters would show a collective, and its hook has not given any."""
        its = self.ranks[rank]
        if rank in self.launched or its.posture == Posture.OWN:
            return False
        if has_no_hook(its) and self._may_be_native_wait(rank):
            return True
        frames = stacks.main(its.stacks)
        if its.unrecorded and stacks.torchs_own(frames) is not None:
            return True
        return not its.groups and its.initialized is not False and stacks.in_backward(frames)

    def is_uncounted(self, rank: int) -> bool:
        """Whether it has no hook that answers, so that none of its calls is known."""
        return has_no_hook(self.ranks[rank]) and not self.ranks[rank].groups

    def _may_be_native_wait(self, rank: int) -> bool:
        """Whether the user's line may wait in native code, for earlier work or for the GPU."""
        inner, site = stacks.main(self.ranks[rank].stacks)[:1], self.locations[rank].site
        calls = stacks.users(inner)  # native code, without torch's Python
        if site is None:
            return False
        if calls and self.ranks[rank].posture == Posture.COLLECTIVE and not self._sleeps_by_itself(rank):
            return True
        return bool(_NATIVE_WAIT.search(self.line_of(rank, calls[0] if calls else site)))

    def _sleeps_by_itself(self, rank: int) -> bool:
        process = self.ranks[rank].process
        return process is not None and SLEEP.fullmatch(process.wchan.partition(".")[0]) is not None

    @cached_property
    def late(self) -> list[int]:
        """Return the living ranks that have not called init_process_group while others wait there for them.

        No rank leaves init_process_group before all have called it: one in a collective proves that all did.
        """
        if not self.in_init or len(self.in_init) < len(self.waiting):
            return []
        return [rank for rank in self.alive if rank not in self.waiting and not self._initialized(rank)]

    @cached_property
    def stuck_for(self) -> float:
        """Return the seconds since the last progress of the living ranks."""
        return min((max(self.ranks[rank].stuck_for, 0.0) for rank in self.waiting or self.alive), default=0.0)

    def behind(self, rank: int) -> Optional[bool]:
        """Whether this rank has not called what others wait in; None: its counters are not known."""
        if rank in self.late:
            return True
        mine = {group.name: group for group in self.ranks[rank].groups}
        answers = [
            _missed(mine.get(name), first)
            for name, first in self.blocked.items()
            if rank in self.members.get(name, [rank])
        ]
        if any(answers):
            return True
        return self.launched.get(rank) if None in answers or not self.blocked else False

    @cached_property
    def launched(self) -> dict[int, bool]:
        """Return by rank whether it has launched less than others, by NCCL's count, if NCCL was asked."""
        return nccl_ras.behind(self.evidence.evidence)

    def has_called_less(self, rank: int, others: Iterable[int]) -> bool:
        """Whether any of the others has called more collectives than this rank, or that is not known.

        A rank that was seen a moment too early, still in a collective that this rank has left, proves
        nothing.
        """
        mine = {group.name: group for group in self.ranks[rank].groups}
        answers = [
            _missed(mine.get(group.name), group.enqueued)
            for other in others
            for group in self.ranks[other].groups
            if group.enqueued and rank in self.members.get(group.name, [rank])
        ]
        return not answers or any(answer is not False for answer in answers)

    def own_exception(self, rank: int) -> Optional[Raised]:
        """Return the latest exception that this rank's program caught and its peers' did not.

        None if no peer's exceptions are known: an import that fails and is caught does so in every rank.
        """
        peers = [other for number, other in self.ranks.items() if number != rank]
        if not any(other.stack_source == "hook" for other in peers):
            return None
        theirs = {
            (raised.type, without_numbers(raised.message))
            for other in peers
            for raised in other.raised
            if raised.handled
        }
        for raised in reversed(self.ranks[rank].raised):
            if stacks.of_libraries(raised.frames) or self.is_of_child(rank, raised):
                continue  # one that a child process has printed is not even the rank's
            if raised.handled and (raised.type, without_numbers(raised.message)) not in theirs:
                return raised
        return None

    def is_of_child(self, rank: int, raised: Raised) -> bool:
        """Whether the rank lives, and what was printed of this exception is the end of a child process."""
        return raised.source == "log" and self.ranks[rank].alive and stacks.ended_process(raised.frames)

    def groups_of_ranks(self, numbers: list[int]) -> dict[str, list[int]]:
        """Return the ranks by where they are: 'all_reduce 17 (train.py:92)' -> [0, 1, 2]."""
        found: dict[str, list[int]] = {}
        for rank in numbers:
            found.setdefault(str(self.locations[rank]), []).append(rank)
        return found

    def places(self, numbers: list[int]) -> list[Text]:
        """'ranks 0-2 are in all_reduce 17 (train.py:92)', for each place where some of these ranks are."""
        return [
            say(subjects.ranks(group), f" {phrases.one_or(group, 'is', 'are')} in {location}")
            for location, group in self.groups_of_ranks(numbers).items()
        ]

    def whereabouts(self, numbers: list[int]) -> list[Fact]:
        """Return `places` as facts."""
        groups = self.groups_of_ranks(numbers).values()
        return [self.of_stacks(spelled(place), group) for place, group in zip(self.places(numbers), groups)]

    def standing(self, groups: Mapping[str, list[int]]) -> list[Fact]:
        """'ranks 0-2: all_reduce 17 (train.py:92)', for each of these places."""
        return [
            self.of_stacks(f"{subjects.ranks(group)}: {location}", group)
            for location, group in groups.items()
        ]

    def of_stacks(self, text: str, ranks: list[int]) -> Fact:
        """Return a fact that the stacks of these ranks show; without a source if they have none."""
        kinds = sorted({self.ranks[rank].stack_source for rank in ranks} - {""})
        by = f"stacks by {' and '.join(kinds)}"
        return self.fact(text, by, ranks, "stacks") if kinds else Fact(text)

    def of_rank(self, text: str, rank: int) -> Fact:
        """Return a fact that a rank's stack and /proc show; without a source if it has no stack."""
        its = self.ranks[rank]
        by = f"the stack by {its.stack_source}{' and /proc' if its.process is not None else ''}"
        return self.fact(text, by, [rank], "ranks") if its.stack_source else Fact(text)

    def fact(self, text: str, collector: str, ranks: list[int], keys: str) -> Fact:
        """Return a fact with its source: what `collector` has of these ranks, by keys of bundle.json."""
        place = f"{keys} of {some('node', self.nodes_of(ranks))} in bundle.json"
        return Fact(text, Source(collector, some("rank", ranks), place))

    def line_of(self, rank: int, frame: Frame) -> str:
        """Return the text of a line at which a thread of this rank is; "" if it is not known."""
        return self.nodes[self.node_of[rank]].lines.get(f"{frame.file}:{frame.line}", "")

    def function_of(self, rank: int, line: Frame) -> Optional[Function]:
        """Return the function of this line, as it was read on the rank's node."""
        functions = (
            self.nodes[self.node_of[rank]].functions.get(line.file, []) if rank in self.node_of else []
        )
        around = [each for each in functions if each.lines[0] <= line.line <= each.lines[1]]
        found = min(around, key=lambda each: each.lines[1] - each.lines[0], default=None)
        name = line.name.rpartition(".")[2]
        return found if found is not None and found.name.rpartition(".")[2] == name else None

    def line_shown(self, rank: int, frame: Optional[Frame]) -> list[Fact]:
        """Return ['train.py:31: `dist.barrier()`'], empty if the line is not known."""
        text = "" if frame is None else self.line_of(rank, frame)
        if frame is None or not text:
            return []
        shown = f"{frame.file.rpartition('/')[2]}:{frame.line}: `{text}`"
        return [self.fact(shown, "the program's source", [rank], "lines")]

    def last_lines(self, ranks: Iterable[int]) -> list[Fact]:
        """Return 'the last line of rank 0: no cache: disk full', of each of these ranks that printed one."""
        found = [(rank, phrases.clipped(self.ranks[rank].last_output)) for rank in ranks]
        return [
            self.fact(f"the last line of rank {rank}: {text}", "the ranks' output", [rank], "ranks")
            for rank, text in found
            if text
        ][:_LAST_LINES]

    def own_last_lines(self, ranks: Collection[int]) -> list[Fact]:
        """Return `last_lines` of those of these ranks that printed last what no other rank did."""
        lines = [
            without_numbers(its.last_output) for number, its in self.ranks.items() if number not in ranks
        ]
        return self.last_lines(
            rank for rank in ranks if without_numbers(self.ranks[rank].last_output) not in lines
        )

    def last_call(self, rank: int) -> list[Fact]:
        """'rank 2 was in recv from rank 0 (train.py:13)'; empty if no call is known."""
        texts = call_records.last(self.ranks[rank])
        return [self.fact(text, "the hook's ring", [rank], "calls") for text in texts]

    def counts(self) -> list[Fact]:
        """'ranks 0-2 have called 41 collectives', 'rank 3 has called 40': of each rank's busiest group.

        A rank that has only sent and received has no such count: its last operation is given instead.
        """
        by = "torch's process groups"
        return [self.fact(spelled(text), by, ranks, "groups") for text, ranks in self.counted()]

    def counted(self) -> list[tuple[Text, list[int]]]:
        """Return the text of each count, and its ranks."""
        found: dict[str, list[int]] = {}
        for number, rank in sorted(self.ranks.items(), key=lambda item: _called(item[1])):
            pairwise = [entry for entry in rank.collectives if entry.p2p]
            if rank.groups and (_called(rank) or not pairwise):
                found.setdefault(phrases.count(_called(rank), "collective"), []).append(number)
            elif pairwise:
                found.setdefault(_pairwise(pairwise[-1]), []).append(number)
        return [
            (
                say(subjects.ranks(numbers), f" {phrases.one_or(numbers, 'has', 'have')} called {what}"),
                numbers,
            )
            for what, numbers in found.items()
        ]

    def victims_of(self, culprits: list[int]) -> list[int]:
        """Return all other ranks, except those that were done."""
        return [
            number
            for number, rank in self.ranks.items()
            if number not in culprits and not (rank.exit is not None and rank.exit.code == 0)
        ]

    def verdict(
        self,
        code: str,
        ranks: list[int],
        sentence: Sayable,
        victims: list[int],
        confidence: float,
        facts: Sequence[AnyFact],
        hint: str,
    ) -> Verdict:
        """Return the verdict that blames these ranks, and their nodes."""
        return Verdict.of(
            code, sentence, "run", self.nodes_of(ranks), ranks, victims, confidence, facts, hint
        )

    def nodes_of(self, numbers: list[int]) -> list[int]:
        return sorted({self.node_of[rank] for rank in numbers if rank in self.node_of})

    def machines(self, numbers: list[int]) -> set[str]:
        """Return the machines of these ranks, as each node's own: several nodes may share one."""
        return {self.nodes[node].machine or str(node) for node in self.nodes_of(numbers)}

    def _initialized(self, number: int) -> bool:
        return bool(self.ranks[number].initialized or self.ranks[number].groups)


def _trainer_first(rank: RankEvidence) -> list[Stack]:
    """Return its stacks, with the thread that trains as the main one if that only waits, as for a thread.

    It trains if it is in a collective or in backward, or in a function that made one of the last calls.
    """
    main = stacks.main(rank.stacks)
    if not stacks.waits_for_thread(main) and not stacks.idles_in_loop(main):
        return rank.stacks
    callers = {(call.frames[0].name, call.frames[0].file) for call in rank.calls if call.frames}
    trainers = [
        stack
        for stack in rank.stacks
        if not stack.main
        and (
            stacks.collective(stack.frames)
            or stacks.in_backward(stack.frames)
            or any((frame.name, frame.file) in callers for frame in stack.frames)
        )
    ]
    if len(trainers) != 1 or any((frame.name, frame.file) in callers for frame in main):
        return rank.stacks
    others = [replace(stack, main=False) for stack in rank.stacks if stack is not trainers[0]]
    return [replace(trainers[0], main=True), *others]


def _last_calls(rank: RankEvidence) -> dict[str, int]:
    """Return the number of the last call in each group, as the hook has noted them."""
    return {call.group: call.seq for call in rank.calls if not call.p2p}


def _counted(rank: RankEvidence, group: Group) -> Group:
    """Return the group with a count that agrees with its records: Gloo's own count may lag behind them.

    An NCCL call that first makes a communicator is only in the hook's ring.
    """
    done = {
        entry.seq for entry in rank.collectives if entry.group == group.name and entry.done and not entry.p2p
    }
    completed = group.completed
    while completed + 1 in done:
        completed += 1
    makes = group.enqueued <= completed and rank.backend == "nccl" and _is_entering(rank, group.name)
    return replace(group, enqueued=completed + 1 if makes else group.enqueued, completed=completed)


def _opened(rank: RankEvidence, fewest: Mapping[str, int]) -> RankEvidence:
    """Return the rank with the collective open for which it waits, where only torch's counts can show it.

    Before torch 2.8 nothing tells in which of several groups a rank waits that is in a collective of torch's
    own. If another member has called less in one of its groups, and only in one, it is there: all of them are
    done where all members have called as many. `fewest`: what any member of a group has called.
    """
    frames = stacks.main(rank.stacks)
    asleep = rank.alive and rank.process is not None and rank.process.state == "S"
    if not rank.unrecorded or not asleep or _pending(rank, frames):
        return rank
    entered = [each for each in rank.groups if each.enqueued and _is_entering(rank, each.name)]
    if entered:  # in another thread than the main one, whose wait the supervisor has looked at
        done = {entered[0].name: entered[0].enqueued - 1}
    elif stacks.torchs_own(frames) is not None:
        done = {each.name: fewest[each.name] for each in rank.groups if _is_ahead(each, fewest)}
    else:
        done = {}
    if len(done) != 1:
        return rank
    groups = [replace(each, completed=done.get(each.name, each.completed)) for each in rank.groups]
    return replace(rank, groups=groups)


def _is_ahead(group: Group, fewest: Mapping[str, int]) -> bool:
    return fewest.get(group.name, group.enqueued) < group.enqueued


def _fewest_calls(ranks: Mapping[int, RankEvidence]) -> dict[str, int]:
    """Return by group what the member has called that has called least, if that is known of all members."""
    counts: dict[str, list[int]] = {}
    members = {}
    for rank in ranks.values():
        for group in rank.groups:
            counts.setdefault(group.name, []).append(group.enqueued)
            members[group.name] = len(group.ranks)
    return {name: min(its) for name, its in counts.items() if len(its) == members[name]}


def _is_entering(rank: RankEvidence, group: str) -> bool:
    """Whether its main thread is in a collective of this group that has not returned."""
    last = rank.calls[-1] if rank.calls else None
    inside = last is not None and last.state == "entered" and last.group == group and not last.p2p
    return inside and bool(stacks.collective(stacks.main(rank.stacks)))


def _called(rank: RankEvidence) -> int:
    """Return the number of collectives called in its busiest group."""
    return max((group.enqueued for group in rank.groups), default=0)


def _pairwise(entry: Collective) -> str:
    """'no collective, and recv from rank 1 last'."""
    name = plain(entry.op).partition(" ")[0]
    way = "from" if "recv" in name else "to"
    whom = "" if entry.peer is None else f" {way} " + ("any rank" if entry.peer < 0 else f"rank {entry.peer}")
    return f"no collective, and {name}{whom} last"


def _missed(group: Optional[Group], first: int) -> Optional[bool]:
    return None if group is None else group.enqueued < first


def without_numbers(message: str) -> str:
    """Return a text that is the same for the same event on several ranks: without numbers and addresses."""
    return _NUMBERS.sub("", message)


_NUMBERS = re.compile(r"\b0x[0-9a-f]+|\d")


# --- where a rank is: in a collective, in its loader, at its exit, or in its own code


IN_COLLECTIVE = "collective"
IN_INIT = "init_process_group"
IN_LOADER = "loader"
IN_MPI = "mpi"
IN_FINALIZE = "MPI_Finalize"
IN_EXIT = "exit"
_INITS = dict.fromkeys(["Init", "Init_thread"], "MPI_Init")
"""Mostly called when mpi4py is imported, where no user reads its name."""
BACKWARD, FORWARD = "backward", "forward"
"""Stand for DDP's collectives of gradients and of buffers, which have no frames of their own."""
SLEEP = re.compile(
    r"hrtimer_nanosleep|(anon_)?pipe_read|wait_for_partner|do_wait|\w*sys_pause|do_sigtimedwait"
)
"""Where the kernel keeps a process that wants to sleep, reads a pipe, or waits for a child or a signal."""
_LOCKS = re.compile(r"^\s*with\b|\.acquire\(")
_A_FILE = "a file"
_AWAITED = {
    "a key in the store": re.compile(r"(?i)store\.(wait|(multi_)?get)\("),
    _A_FILE: re.compile(r"^(while|for)\b.*(exists|is_?file)\(.*sleep\("),
}
"""What a rank may wait for until another rank provides it, and the source lines at which it does so."""
_LAST_LINES = 2
"""Ranks whose last line is shown: most print the same."""
_LOOKS = 20.0
"""Wake-ups a second: TORCH_NCCL_BLOCKING_WAIT sleeps a millisecond between two looks at its collective."""
_ASLEEP = 5.0
"""Seconds without movement after which backward counts as waiting, if its calls are not counted."""
ELSEWHERE = "elsewhere"
ENDED = "ended"


@dataclass(frozen=True)
class Location:
    """Position of a rank. `site` is the user's line, `number` the collective's, if they are known."""

    kind: str
    what: str = ""  # the collective's name as the user called it, or MPI's function
    group: str = ""
    number: Optional[int] = None
    site: Optional[Frame] = None
    awaits: str = ""  # 'a file', which another may provide

    def __str__(self) -> str:
        if self.kind == IN_COLLECTIVE:
            if self.number is None:
                return f"{self.what or 'a collective'}{phrases.at(self.site)}"
            return f"{self.what or 'collective'} {self.number}{phrases.at(self.site)}"
        if self.kind == IN_INIT:
            return f"init_process_group{phrases.at(self.site)}"
        if self.kind == IN_MPI:
            return f"{self.what}{phrases.at(self.site)}"
        if self.kind == IN_LOADER:
            return f"DataLoader.__next__{phrases.at(self.site)}"
        if self.kind == IN_EXIT:
            return "the exit of Python"
        if self.site is None:
            return "a place that no stack shows"
        return phrases.place(self.site) + (f", waiting for {self.awaits}" if self.awaits else "")


def locate(rank: RankEvidence, line: str = "") -> Location:
    """Return where the rank is, by its stack and by what it has called and not finished.

    `line`: the text of its main thread's innermost line, if it is known.
    """
    if not rank.alive:
        return Location(ENDED, site=stacks.user_frame(rank.raised[-1].frames) if rank.raised else None)
    frames = stacks.main(rank.stacks)
    site = stacks.user_frame(frames)
    if stacks.in_init(frames):
        return Location(IN_INIT, site=site)
    if rank.phase == Phase.FINALIZING and not frames:
        return Location(IN_MPI, IN_FINALIZE) if rank.mpi == "ending" else Location(IN_EXIT)
    function = stacks.mpi_function(frames)
    if function:
        return Location(IN_MPI, _INITS.get(function, function), site=site)
    named = stacks.collective(frames) or call_records.entered(rank, site)
    waited = None if named else call_records.waited_for(rank)
    pending = (
        None if rank.backend == "nccl" and _waits_by_itself(rank, frames, line) else _pending(rank, frames)
    )
    if waited is not None and (waited.p2p or pending is None):
        what = call_records.named(waited) if waited.p2p else waited.op
        return Location(IN_COLLECTIVE, what, waited.group, site=site)
    if named or (pending and not stacks.in_loader(frames)):
        group, number, op = pending or ("", None, "")
        if rank.unrecorded and not call_records.is_within(rank):  # torch's own, maybe not the last of several
            number, op = None, stacks.ddp_step(frames)
        return Location(IN_COLLECTIVE, named or op, group, number, site)
    if has_no_hook(rank) and not rank.groups and rank.still_for >= _ASLEEP and stacks.in_backward(frames):
        return Location(IN_COLLECTIVE, BACKWARD, site=site)
    if stacks.in_loader(frames):
        return Location(IN_LOADER, site=stacks.loader_caller(frames))
    return Location(
        ELSEWHERE, site=site, awaits=file_lock(rank) or _key(rank) or _file(rank, line) or _awaited(line)
    )


def has_no_hook(rank: RankEvidence) -> bool:
    """Whether no hook has given its calls. A debug server gives collectives, but no messages of Gloo."""
    return rank.stack_source in ("", "py-spy", "debug server") and not rank.calls


def _key(rank: RankEvidence) -> str:
    """'the key ready/1 in the store'; "" if it waits for none, or its hook has not read which."""
    if not rank.keys:
        return ""
    return (
        f"the {phrases.one_or(rank.keys, 'key', 'keys')} {phrases.clipped(', '.join(rank.keys))} in the store"
    )


def _file(rank: RankEvidence, line: str) -> str:
    """'the file /data/index.bin'; "" if it waits for none, or its hook has not read which."""
    named = bool(rank.awaited_file) and _awaited(line) == _A_FILE
    return f"the file {phrases.clipped(rank.awaited_file)}" if named else ""


def _awaited(line: str) -> str:
    """'a file', if the line waits for one that another rank provides; "" if it waits for nothing."""
    return next((what for what, calls in _AWAITED.items() if calls.search(line)), "")


def _waits_by_itself(rank: RankEvidence, frames: Sequence[Frame], line: str) -> bool:
    """Whether the main thread does not wait for a GPU, whatever the rank has begun there.

    It sleeps, reads, or waits for a lock, a file or a key.
    """
    own = frames[:1] != [] and not stacks.in_torch(frames[:1])
    process = rank.process
    sleeps = process is not None and SLEEP.fullmatch(process.wchan.partition(".")[0]) is not None
    seldom = process is not None and process.wakeups < _LOOKS
    locked = any(stack.main and stack.on_lock for stack in rank.stacks) and _LOCKS.search(line) is not None
    polls = stacks.polls(frames) is not None or bool(rank.keys) or bool(_awaited(line))
    return polls or stacks.sleeps_in_python(frames) or (own and (locked or (sleeps and seldom)))


def _pending(rank: RankEvidence, frames: Sequence[Frame]) -> Optional[tuple[str, Optional[int], str]]:
    """Return group, number and name of the first collective that this rank called and that is not done.

    If the main thread is in one, that in which another thread stands is passed over.
    """
    within = stacks.collective(frames) is not None or stacks.torchs_own(frames) is not None
    for group in sorted(rank.groups, key=lambda group: group.name):
        for number in range(group.completed + 1, group.enqueued + 1):
            entries = [entry for entry in rank.collectives if entry.group == group.name and not entry.p2p]
            entry = next((each for each in entries if each.seq == number), None)
            if entry is None:
                return group.name, number, ""
            if not (within and call_records.in_other_thread(rank, entry)):
                return group.name, number, plain(entry.op)
    return None


def plain(op: str) -> str:
    """'all_reduce' of 'gloo:all_reduce'."""
    return op.rpartition(":")[2]


# --- the lock on a file for which a rank waits: in the kernel, or in a function that polls


def file_lock_wait(rank: RankEvidence) -> Optional[Wait]:
    """Return its wait, without a file or a holder if none was seen; None: it waits for no such lock."""
    wait = rank.process.waits_for if rank.process is not None else None
    if wait is not None and wait.holder and wait.file:
        return wait
    made = lock_file(rank)
    if made:
        return Wait(file=made)
    if stacks.polls(stacks.main(rank.stacks)) is None or (wait is not None and wait.functions):
        return None  # or it waits for storage, when it looks at the file
    return wait or Wait()


def lock_file(rank: RankEvidence) -> str:
    """Return the file that it tries to make, as a lock, while another process has made it; "" if it does not.

    It is in the handler of the FileExistsError that open() with O_EXCL, or mkdir, has raised.
    """
    frames = stacks.main(rank.stacks)
    here = stacks.user_frame(frames)
    for raised in rank.in_flight[:1]:
        path = _EXISTS.search(raised.message)
        functions = {(each.name, each.file) for each in raised.frames}
        is_here = here is not None and (here.name, here.file) in functions
        if raised.type == "FileExistsError" and path is not None and is_here:
            return path[1]
    return ""


_EXISTS = re.compile(r"File exists: '([^']+)'$")


def file_lock(rank: RankEvidence) -> str:
    """'the lock on /data/cache.lock'; "" if it waits for none."""
    wait = file_lock_wait(rank)
    return "" if wait is None else f"the lock on {wait.file or 'a file'}"
