"""Rules about living ranks that the others wait for: late, at their data, or in their own code.

Each such rank belongs to one rule; each rule speaks of all its ranks at once.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Optional

from ddplaunch.agent.contract import AnyFact, Fact, Frame, Process, Raised, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import branches, causes, collectives, stacks, ties
from ddplaunch.agent.diagnosis.run.view import IN_LOADER, Found, JobView, file_lock_wait
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, joined, say

STARVED = 0.5
"""Share of the time for which a process was runnable without a CPU, above which a verdict mentions it."""
RECENT = 30.0
"""Seconds before progress stopped within which a caught exception counts as the reason."""

CALL_FIRST = (
    "What comes before init_process_group must finish on every rank. Call it first and load data afterwards, "
    "or prepare the data before the job starts."
)
_SKIP_TOGETHER = (
    "A rank that skips a step skips its collectives, and the others wait for ever. Let the exception end the "
    "rank, or let all ranks agree (all_reduce of a flag) to skip the step together."
)
_THREAD_ALONE = (
    "An exception ends its thread alone. Pass it on: submit the work to concurrent.futures, whose `result` "
    "raises it again, or put it into the queue; and give `get` and `wait` a timeout."
)
_NO_RETRY = (
    "A timeout closes the group's connections: no later call in this group can succeed, even when all ranks "
    "come. Let the exception end the rank, and give the call a timeout that is longer than the slowest rank "
    "needs."
)
_SEE_THE_LOADER = (
    "Look at what the loader reads: storage that does not answer, a lock inherited by fork, or a full queue. "
    "DataLoader(timeout=…) turns this into an exception."
)
_UNNOTICED = (
    "Queues and pipes of multiprocessing do not notice the end of a process: give `get` and `recv` a timeout "
    "and check the process's `exitcode`, or use concurrent.futures, which raises BrokenProcessPool."
)
_COMPILE_ALIKE = (
    "Ranks compile alike only if their inputs are: look for a shape, or a branch, that differs between "
    "ranks. TORCH_LOGS=recompiles shows what made a rank compile again. Otherwise only this rank may have "
    "missed the cache of compiled code: let all ranks share it, or compile before the first collective."
)
_PROVIDE = (
    "Another rank, or another process, is meant to provide what is waited for here. See what that one did "
    "instead: it may have left it out after an exception, or have put it in a folder that the nodes do not "
    "share."
)
_SAME_NAMES = (
    "Each of these ranks waits for a file of another name. If they are to wait for one file, see what its "
    "name is made of here: a folder, a hash or a time that not all ranks have alike."
)
_SAME_KEYS = (
    "Ranks that wait for one another need the same names: see what the names are made of here, such as a "
    "count or an index that not all ranks have alike."
)
KEEP_SHORT = (
    "If only some ranks are meant to do this, keep it shorter than `watchdog.kill_after`, or let the others "
    "wait without a collective."
)


def rank_late_to_init(view: JobView) -> Optional[Found]:
    """Return the verdict if some ranks are in init_process_group and others have not called it."""
    late = [rank for rank in view.late if rank not in view.explained]
    absent = view.absent if view.in_init else []
    if not late and not absent:
        return None
    choice = branches.find(view, *(dict.fromkeys(its) for its in (late, view.in_init)))
    who = sorted([*late, *absent])
    parts = _standing(view, late)
    if absent:
        parts.append(say("of ", subjects.ranks(absent), " no process has been seen"))
    verdict = verdict_on(
        view,
        "rank-late-to-init",
        who,
        say(subjects.ranks(who), " never reached init_process_group; ", joined("; ", parts[:3])),
        [*branches.facts(view, choice), *holder_facts(view, late)],
        f"{branches.file_hint(view, choice)}{CALL_FIRST}",
        sure.LATE_UNSEEN
        if absent or not all(view.ranks[rank].stacks for rank in late)
        else sure.LATE_WITH_STACK,
    )
    return Found(verdict, who)


def exception_swallowed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that caught an exception and went on without their collective.

    Or an exception has ended one of their threads, and with it nothing else.
    """
    found = swallowed(view)
    if not found:
        return None
    ranks = sorted(found)
    parts: list[Sayable] = []
    facts: list[AnyFact] = []
    for rank in ranks:
        raised = found[rank]
        kind = raised.type.rpartition(".")[2]
        site, message = phrases.at(stacks.user_frame(raised.frames)), phrases.clipped(raised.message)
        if stacks.ended_thread(raised.frames):
            parts.append(f"{_whole(raised)} has ended a thread of rank {rank}")
            facts.append(f"the thread of rank {rank} was in {stacks.chain(stacks.users(raised.frames))}")
            continue
        parts.append(f"rank {rank} caught {kind}{site} and went on without the others")
        facts.append(f"rank {rank} caught {kind}: {message}")
    mismatch = collectives.find_mismatch(view)
    if mismatch is not None:
        facts += mismatch.facts(view)
        parts.append(f"at collective {mismatch.number} they are out of step")
    else:
        parts += [say("now ", subjects.ranks(ranks), f" {_is(ranks)} in {view.locations[ranks[0]]}")]
    return verdict_on(
        view,
        "exception-swallowed",
        ranks,
        joined("; ", parts[:3]),
        [*facts, *holder_facts(view, [rank for rank in ranks if rank in view.stragglers])],
        _THREAD_ALONE if stacks.ended_thread(found[ranks[0]].frames) else _SKIP_TOGETHER,
        sure.CAUGHT_BEFORE,
    )


def collective_retried(view: JobView) -> Optional[Verdict]:
    """Return the verdict if ranks try a collective again that a timeout has ended.

    The rank for which they tried is to blame, or these themselves if all have come by now.
    """
    tries = {rank: times for rank in view.alive if (times := _failed_tries(view.ranks[rank])) > 1}
    others = [rank for rank in view.stragglers if rank not in tries]
    if not tries or (not others and len(tries) < len(view.alive)):
        return None
    first, times = min(tries), max(tries.values())
    call = view.ranks[first].calls[-1]
    what = f"{call.op}{phrases.at(stacks.user_frame(call.frames))}"
    often = f"{times} times" if times < len(view.ranks[first].calls) else f"at least {times} times"
    who = say(subjects.ranks(tries), f" {phrases.one_or([*tries], 'has', 'have')} tried ")
    if others:
        code = "rank-in-user-code"
        if all(view.locations[rank].kind == IN_LOADER for rank in others):
            code = "rank-in-dataloader"
        came = phrases.one_or(others, "has", "have")
        places = joined("; ", view.places(others)[:2])
        sentence = say(
            places, f", and {came} not come to {what}, which ", who, f"{often}: it raised each time"
        )
    else:
        code, sentence = "exception-swallowed", say(who, f"{what} {often}, and it raised each time")
    said = [raised for raised in view.ranks[first].raised if causes.is_consequence(raised)][-1:]
    words = [f"rank {first}: {each.type}: {phrases.clipped(causes.words_of(each))}" for each in said]
    found = verdict_on(
        view,
        code,
        others or [*tries],
        sentence,
        [*words, *holder_facts(view, others)],
        _NO_RETRY,
        sure.BY_STACK_ALONE if others else sure.CAUGHT_BEFORE,
    )
    return replace(found, victims=sorted({*found.victims, *tries})) if others else found


def _failed_tries(rank: RankEvidence) -> int:
    """Return how often it has called the same collective in a row that raised because a rank did not come."""
    if not any(map(causes.is_consequence, [*rank.raised, *rank.in_flight])):
        return 0
    calls = rank.calls[:-1] if rank.calls[-1:] and rank.calls[-1].state == "entered" else rank.calls
    if not calls or not calls[-1].frames:
        return 0
    last = calls[-1].op, calls[-1].frames[0].file, calls[-1].frames[0].line
    same = takewhile(
        lambda call: (
            call.state == "raised"
            and call.frames
            and (call.op, call.frames[0].file, call.frames[0].line) == last
        ),
        reversed(calls),
    )
    return len([*same])


def rank_in_dataloader(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks that wait for their next batch."""
    ranks = [rank for rank in _plain_holders(view) if view.locations[rank].kind == IN_LOADER]
    if not ranks:
        return None
    first = ranks[0]
    doing = _loader_state(view.ranks[first])
    sites = view.groups_of_ranks(ranks)
    verdict = verdict_on(
        view,
        "rank-in-dataloader",
        ranks,
        say(
            subjects.ranks(ranks),
            f" {_is(ranks)} in {next(iter(sites))}{doing and '; ' + doing}{others(view, ranks)}",
        ),
        holder_facts(view, ranks),
        _SEE_THE_LOADER,
        confidence_in(view, ranks),
    )
    return Found(verdict, ranks)


def rank_at_its_end(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks whose program is over, while something keeps their Python from ending."""
    found = {
        rank: its for rank in _plain_holders(view) if (its := ties.awaited_at_end(view, rank)) is not None
    }
    if not found:
        return None
    ranks = [*found]
    first = found[ranks[0]]
    parts = [
        f"rank {rank} has come to the end of its program, and its Python {found[rank].text}" for rank in ranks
    ]
    done = [rank for rank, its in view.ranks.items() if its.exit is not None and its.exit.code == 0]
    rest = say("; ", subjects.ranks(done), f" {phrases.one_or(done, 'has', 'have')} finished") if done else ""
    verdict = verdict_on(
        view,
        "rank-in-user-code",
        ranks,
        say("; ".join(parts[:3]), others(view, ranks), rest),
        [*(fact for rank in ranks[:4] for fact in ties.facts(view, rank)), *holder_facts(view, ranks)],
        first.hint,
        confidence_in(view, ranks),
    )
    return Found(verdict, ranks)


def rank_in_user_code(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks that compute, loop or wait in their own code while others wait for them."""
    ranks = [rank for rank in _plain_holders(view) if view.locations[rank].kind != IN_LOADER]
    if not ranks or not any(view.locations[rank].site for rank in ranks):
        return None
    ties_of = {rank: its for rank in ranks if (its := ties.awaited(view, rank)) is not None}
    compiling = all(stacks.compiles(stacks.main(view.ranks[rank].stacks)) for rank in ranks)
    parts = _standing(view, ranks, ", in the compiler of torch.compile," if compiling else "", lasting=True)
    longest = max(view.ranks[rank].stuck_for for rank in ranks)
    site = view.locations[ranks[0]].site
    victims = [rank for rank in view.waiting if rank not in ranks]
    lost = [(rank, child) for rank in ranks for child in _lost_children(view.ranks[rank])]
    what = _of_what(view, lost)
    ends = [
        f"rank {rank}'s child process {_child(child)} {_end(child)}{what}, and " for rank, child in lost[:1]
    ]
    choice = branches.find(view, *(dict.fromkeys(its) for its in (ranks, victims)))
    if choice is not None and choice.is_loop and choice.ranks != ranks:
        choice = None  # the others have come to it, and these ranks will
    awaiting = all(view.locations[rank].awaits and file_lock_wait(view.ranks[rank]) is None for rank in ranks)
    place = phrases.place(site) if site else "it"
    hint = f"No rank can go on until {place} returns. {_COMPILE_ALIKE if compiling else KEEP_SHORT}"
    if not view.waiting:
        hint = f"The job goes on when {place} returns."
    known = ties_of[ranks[0]].hint if ranks[0] in ties_of else ""
    hint = known or hint
    unset = victims if awaiting and len(victims) < len(ranks) and _awaits_same(view, ranks) else []
    left = _unset(view, ranks, unset) if unset else ""
    odd = [] if unset or lost else _of_other_keys(view, ranks)
    verdict = verdict_on(
        view,
        "rank-in-user-code",
        unset or odd or ranks,
        say(*ends, joined("; ", parts[:3]), f" for {phrases.span(longest)}{others(view, ranks)}", left),
        [
            *branches.facts(view, choice),
            *(view.last_lines(victims) if awaiting else []),
            *_of_children(view, lost),
            *_handled(view, ranks),
            *(fact for rank in [*ties_of][:4] for fact in ties.facts(view, rank)),
            *holder_facts(view, ranks),
        ],
        f"{'' if what else _find_out(view, *lost[0])}{_UNNOTICED}"
        if lost
        else _SAME_KEYS
        if odd
        else _SAME_NAMES
        if _await_other_files(view, ranks)
        else (_PROVIDE if awaiting else f"{branches.file_hint(view, choice)}{hint}"),
        sure.TO_PROVIDE
        if unset or odd
        else min(sure.AWAITS_ANOTHER if awaiting else 1.0, confidence_in(view, ranks)),
    )
    if unset or odd:
        verdict = replace(verdict, victims=sorted({*verdict.victims, *ranks} - {*verdict.ranks}))
    elif awaiting and ranks == view.world and len(ranks) > 1 and _is_one_place(view, ranks):
        verdict = replace(verdict, ranks=[], nodes=[], victims=ranks)  # all wait, and nobody is the odd one
    return Found(verdict, ranks)


def _is_one_place(view: JobView, ranks: list[int]) -> bool:
    """Whether they are all in one line, and wait for the same there."""
    return len({str(view.locations[rank]) for rank in ranks}) == 1


def _awaits_same(view: JobView, ranks: list[int]) -> bool:
    """Whether all ranks but the waiting ones wait for the same key or file, which none of them can give then.

    Another node may not see a file that is there.
    """
    what = {(*view.ranks[rank].keys, view.ranks[rank].awaited_file) for rank in ranks}
    alike = len(what) == 1 and ("",) not in what and sorted([*ranks, *view.waiting]) == view.world
    return alike and (bool(view.ranks[ranks[0]].keys) or len(view.nodes) == 1)


def _await_other_files(view: JobView, ranks: list[int]) -> bool:
    """Whether several ranks wait at one line, each for a file of its own name in one folder."""
    files = {view.ranks[rank].awaited_file for rank in ranks}
    folders = {file.rpartition("/")[0] for file in files}
    sites = {view.locations[rank].site for rank in ranks}
    return "" not in files and len(files) == len(ranks) > 1 and len(folders) == len(sites) == 1


def _of_other_keys(view: JobView, ranks: list[int]) -> list[int]:
    """Return the ranks that wait for other keys than most, if all ranks of the job wait at one line."""
    keys: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks:
        keys.setdefault(tuple(view.ranks[rank].keys), []).append(rank)
    most = max(keys.values(), key=len)
    sites = {view.locations[rank].site for rank in ranks}
    if () in keys or len(sites) != 1 or sorted(ranks) != view.world or 2 * len(most) <= len(ranks):
        return []
    return sorted(rank for rank in ranks if rank not in most)


def _unset(view: JobView, ranks: list[int], others: list[int]) -> Text:
    """'; rank 0 has not set it': of what all others wait for."""
    if view.ranks[ranks[0]].keys:
        return say("; ", subjects.ranks(others), f" {phrases.one_or(others, 'has', 'have')} not set it")
    return say("; it is for ", subjects.ranks(others), " to write it, most likely")


def _standing(view: JobView, ranks: list[int], inside: str = "", lasting: bool = False) -> list[Text]:
    """'rank 0 is in sync (save.py:7), waiting for the end of its child process 812 (rsync)'.

    `lasting`: how long follows: 'rank 0 has been in sync'.
    """
    parts = []
    for location, group in view.groups_of_ranks(ranks).items():
        tie = ties.awaited(view, group[0]) if len(group) == 1 else None
        awaits = f", {tie.text}" if tie is not None else ""
        again = _tries_again(view, group[0]) if len(group) == 1 else None
        if again is not None:
            awaits = f", trying again after {_whole(again)}"
        if not awaits and all(_waits_for_nobody(view, view.ranks[rank]) for rank in group):
            awaits = ", waiting for another thread (its program has none)"
        verb = _has_been(group) if lasting else _is(group)
        parts.append(say(subjects.ranks(group), f" {verb} in {location}{inside}{awaits}"))
    return parts


_ALL_THREADS = ("hook", "py-spy")
"""Sources of stacks that list every Python thread."""


def _waits_for_nobody(view: JobView, rank: RankEvidence) -> bool:
    """Whether its main thread waits without a timeout for a thread, and no thread of the program is left.

    Only native code could still wake it, as the callback of a library does; or a handler of a signal.
    """
    if view.nodes[view.node_of[rank.rank]].handlers:
        return False
    main = next((each for each in rank.stacks if each.main), None)
    others = [each for each in rank.stacks if not each.main and each.frames]
    waits = main is not None and main.on_lock and stacks.waits_for_thread(main.frames)
    return waits and rank.stack_source in _ALL_THREADS and not others


def _handled(view: JobView, ranks: list[int]) -> list[str]:
    """'rank 0 handles ValueError: no such token (train.py:61)': it is in an `except`, which may go on."""
    found = []
    for rank in ranks[:4]:
        for raised in view.ranks[rank].in_flight[:1]:
            kind, site = raised.type.rpartition(".")[2], phrases.at(stacks.user_frame(raised.frames))
            message = f": {phrases.clipped(causes.words_of(raised))}" if raised.message else ""
            found.append(f"rank {rank} handles {kind}{message}{site}")
    return found


def _lost_children(rank: RankEvidence) -> list[Process]:
    """Return the dead children of a rank that waits for processes, whose failure it has not noticed.

    One that is gone was waited for, and one that was asked to end may have been so by the rank.
    """
    if not stacks.waits_for_process(stacks.main(rank.stacks)):
        return []
    dead = [child for child in rank.children if child.exit_signal or child.exit_code]
    return [child for child in dead if child.state != "X" or child.exit_signal != signal.SIGTERM]


_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_APART = ("collective-mismatch", "collective-skipped")


def with_crashes(view: JobView, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts; those on ranks that are out of step say which of their children have crashed.

    The exception that this raises in a rank may have been caught there.
    """
    told = []
    for verdict in verdicts:
        crashed = [
            f"rank {rank}'s child process {_child(child)} {_end(child)}"
            for rank in verdict.ranks
            if rank in view.ranks
            for child in view.ranks[rank].children
            if child.exit_signal in _CRASHES
        ]
        if verdict.code in _APART and len(verdict.ranks) < len(view.world):
            verdict = verdict.continued(*(f"; {text}" for text in crashed[:1])).with_facts(crashed[:4])
        told.append(verdict)
    return told


def _child(child: Process) -> str:
    """'2105', '2105 (tokenizer)'."""
    return f"{child.pid} ({child.name})" if child.name else str(child.pid)


def _end(child: Process) -> str:
    """'was killed by SIGKILL', 'ended with exit code 1'."""
    if child.exit_signal:
        return f"was killed by {phrases.signal_name(child.exit_signal)}"
    return f"ended with exit code {child.exit_code}"


def _of_what(view: JobView, lost: list[tuple[int, Process]]) -> str:
    """' after KeyError: 'bike' (train.py:47)', if a rank has lost one child, which has printed that."""
    if len(lost) != 1 or not lost[0][1].exit_code:
        return ""
    rank = lost[0][0]
    raised = [each for each in view.ranks[rank].raised if view.is_of_child(rank, each)]
    if len(raised) != 1:
        return ""
    return f" after {_whole(raised[0])}"


def _find_out(view: JobView, rank: int, child: Process) -> str:
    node = view.node(view.node_of[rank])
    return f"Find out what ended process {child.pid}: `dmesg` on {node} names it if it ran out of memory. "


def _whole(raised: Raised) -> str:
    """'KeyError: 'bike' (train.py:47)'."""
    kind, message = raised.type.rpartition(".")[2], phrases.clipped(raised.message)
    return f"{kind}{message and ': ' + message}{phrases.at(stacks.user_frame(raised.frames))}"


def _of_children(view: JobView, lost: list[tuple[int, Process]]) -> list[str]:
    """Return what the kernel has logged of these processes."""
    return [
        f"{view.node(node)}'s kernel: {phrases.clipped(line)}"
        for rank, child in lost
        for node in view.nodes_of([rank])
        for line in view.nodes[node].kernel
        if re.search(rf"\b{child.pid}\b", line)
    ][:4]


def swallowed(view: JobView) -> dict[int, Raised]:
    """Return the ranks that are out of step after an exception of their own that they caught, with it.

    Or that wait for a thread of theirs after an exception has ended one. It counts even if all ranks have it.
    """
    found: dict[int, Raised] = {}
    mismatch = collectives.find_mismatch(view)
    if mismatch is not None:
        for rank in mismatch.culprits:
            raised = view.own_exception(rank)
            if raised is not None:
                found[rank] = raised
        return found
    for rank in view.stragglers:
        raised = _of_thread(view.ranks[rank]) or (view.own_exception(rank) if view.waiting else None)
        if file_lock_wait(view.ranks[rank]) is not None or _tries_again(view, rank) is not None:
            continue  # an attempt may raise, and it has not gone on
        if raised is not None and rank not in view.late and _is_recent(view, rank, raised):
            found[rank] = raised
    return found


def _tries_again(view: JobView, rank: int) -> Optional[Raised]:
    """Return the exception in whose handler it sleeps, in the loop that tries again what has raised it."""
    here = stacks.user_frame(stacks.main(view.ranks[rank].stacks))
    for raised in view.ranks[rank].in_flight[:1]:
        lines = [each.line for each in raised.frames if here is not None and _same_function(each, here)]
        if here is None or not lines:
            continue
        text = view.line_of(rank, here)
        round_after = view.sleeps(rank) and branches.handles_in_a_loop(view, rank, here, lines)
        if round_after or _RETRIES.search(text):
            return raised
    return None


def _same_function(one: Frame, other: Frame) -> bool:
    return (one.name, one.file) == (other.name, other.file)


_RETRIES = re.compile(r"^(while|for)\b.*\bexcept\b.*sleep\(")
"""The text of a loop, up to the line in which it sleeps."""


def _of_thread(rank: RankEvidence) -> Optional[Raised]:
    """Return the exception that has last ended a thread of a rank whose main thread waits for another one."""
    if not stacks.waits_for_thread(stacks.main(rank.stacks)):
        return None
    return next((each for each in reversed(rank.raised) if stacks.ended_thread(each.frames)), None)


def _is_recent(view: JobView, rank: int, raised: Raised) -> bool:
    """Whether it was caught shortly before progress stopped; otherwise it is not the reason."""
    node = view.nodes[view.node_of[rank]]
    stopped = node.at - view.stuck_for
    return raised.at >= stopped - RECENT


def _plain_holders(view: JobView) -> list[int]:
    taken = {*view.late, *view.explained, *swallowed(view)}
    parents = [  # of ranks that are not seen yet, where no other rank waits for this one
        rank
        for rank in view.stragglers
        if not view.waiting and stacks.joins_spawned(stacks.main(view.ranks[rank].stacks))
    ]
    return [rank for rank in view.stragglers if rank not in taken and rank not in parents]


def verdict_on(
    view: JobView,
    code: str,
    ranks: list[int],
    sentence: Sayable,
    facts: Sequence[AnyFact],
    hint: str,
    confidence: float,
) -> Verdict:
    """Return a verdict on ranks for which the others wait; these are its victims, and its last facts."""
    victims = [rank for rank in view.waiting if rank not in ranks]
    queued = [rank for rank in view.queued if rank not in ranks]
    return view.verdict(
        code=code,
        sentence=joined("; ", [sentence, *view.places(queued)[:2]]),
        ranks=ranks,
        victims=sorted([*victims, *queued]),
        confidence=confidence,
        facts=[*facts, *waiting_facts(view, victims), *_stacks_of(view, queued[:2])],
        hint=hint,
    )


def confidence_in(view: JobView, ranks: list[int]) -> float:
    """Return the confidence: counters and stacks agree, or stacks alone; less if no rank waits for them."""
    if not view.waiting:
        return sure.NOBODY_WAITS
    return sure.BEHIND_BY_COUNT if all(view.behind(rank) for rank in ranks) else sure.BY_STACK_ALONE


def _is(ranks: list[int]) -> str:
    return phrases.one_or(ranks, "is", "are")


def _has_been(ranks: list[int]) -> str:
    return phrases.one_or(ranks, "has been", "have been")


def others(view: JobView, ranks: list[int]) -> str:
    """', the others wait in all_reduce 17 (train.py:92)'."""
    locations = view.groups_of_ranks([rank for rank in view.waiting if rank not in ranks])
    if not locations:
        return ""
    victims = sum(len(group) for group in locations.values())
    if len(locations) == 1:
        return f", {phrases.others(victims)} wait{'s' * (victims == 1)} in {next(iter(locations))}"
    return f", {phrases.others(victims)} wait in collectives"


def waiting_facts(view: JobView, victims: list[int]) -> list[Fact]:
    """'ranks 0-2 wait in all_reduce 17 (train.py:92)', for each place where some of these ranks wait."""
    locations = view.groups_of_ranks(victims).items()
    return [
        view.of_stacks(
            f"{subjects.ranks(group)} {phrases.one_or(group, 'waits', 'wait')} in {location}", group
        )
        for location, group in locations
    ][:4]


def holder_facts(view: JobView, ranks: list[int]) -> list[Fact]:
    """Return for each rank its whole stack in one line, what its process does, and its counters."""
    facts: list[Fact] = []
    for number in ranks[:4]:
        rank = view.ranks[number]
        facts += _stacks_of(view, [number])
        facts += [line for line in view.line_shown(number, view.locations[number].site) if line not in facts]
        facts += [view.of_rank(text, number) for text in _threads(rank)]
        printed = [each for each in rank.raised if each.source == "log" and stacks.of_libraries(each.frames)]
        facts += [
            view.of_rank(
                f"rank {number}, or a process that it has started, has printed {each.type}: "
                f"{phrases.clipped(each.message)}",
                number,
            )
            for each in printed[-1:]
        ]
        if rank.process is not None:
            hunger = starved(rank.process)
            does = f"{doing(rank.process)}{hunger and ', ' + hunger}"
            text = f"rank {number}: {does}, nothing new for {phrases.span(rank.stuck_for)}"
            facts.append(view.of_rank(text, number))
        texts = [f"rank {number}'s worker {child.pid}: {_worker(child)}" for child in _workers(rank)[:4]]
        facts += [view.of_rank(text, number) for text in texts]
    if len(ranks) > 4:
        facts.append(Fact(f"and {len(ranks) - 4} more ranks like these"))
    return facts + [count for count in view.counts() if view.waiting]


def _threads(rank: RankEvidence) -> list[str]:
    """Return where its other threads are, of a rank whose main thread waits for one of them."""
    main = stacks.main(rank.stacks)
    if not (stacks.waits_for_thread(main) or stacks.at_end(main)):
        return []
    own = [each for each in rank.stacks if not each.main and stacks.is_own(each.frames)]
    return [f'rank {rank.rank}, thread "{each.thread}": {stacks.chain(each.frames)}' for each in own[:3]]


def _stacks_of(view: JobView, ranks: list[int]) -> list[Fact]:
    chains = ((rank, stacks.chain(stacks.main(view.ranks[rank].stacks))) for rank in ranks)
    return [view.of_rank(f"rank {rank}: {chain or 'no stack could be read'}", rank) for rank, chain in chains]


def doing(process: Process) -> str:
    """'asleep (pipe_read)', 'burns 1.0 cores', 'stopped', as /proc shows it."""
    if process.cpu_share >= 0.1:
        return f"burns {process.cpu_share:.1f} cores"
    function = process.wchan.partition(".")[0]  # without what the compiler appends
    place = f" ({function})" if function not in ("", "0") else ""
    states = {
        "R": "runnable",
        "D": "blocked in the kernel",
        "T": "stopped by a signal",
        "t": "held by a debugger",
        "Z": "dead",
    }
    return states.get(process.state, "asleep") + place


def starved(process: Optional[Process]) -> str:
    """'throttled 92 % (limit 2 CPUs, 64 threads)', 'without a CPU for 84 % of the time'; "" if it has one.

    If the quota cuts most periods, the quota is what keeps the process from its CPU.
    """
    if process is None or process.delayed < STARVED or process.state != "R":
        return ""
    threads = phrases.count(process.threads, "thread")
    if process.throttled is not None and process.throttled >= STARVED:
        limit = f"limit {process.cpu_limit:g} CPUs, " if process.cpu_limit else ""
        return f"throttled {100 * process.delayed:.0f} % of the time ({limit}{threads})"
    return f"without a CPU for {100 * process.delayed:.0f} % of the time ({threads})"


def _workers(rank: RankEvidence) -> list[Process]:
    return [child for child in rank.children if child.role == "loader"]


def _worker(child: Process) -> str:
    task = stacks.worker_task(stacks.main(child.stacks))
    pipe = ties.named_pipe(child)
    does = f"waiting until somebody opens the other end of the named pipe {pipe}" if pipe else doing(child)
    if task is not None:
        return f"in {phrases.place(task)}, {does}"
    return "waits for work" if child.stacks else doing(child)


def _loader_state(rank: RankEvidence) -> str:
    """Return what the loader's workers do, in half a sentence; empty if there are none."""
    workers = _workers(rank)
    frames = stacks.main(rank.stacks)
    if not workers:
        site = stacks.user_frame(frames)
        own = site is not None and site != stacks.loader_caller(frames)
        return f"it loads in its own process, in {phrases.place(site)}" if own and site is not None else ""
    busy = [child for child in workers if stacks.worker_task(stacks.main(child.stacks)) is not None]
    for child in busy or [each for each in workers if each.state == "D"]:
        return f"its worker {child.pid} is {_worker(child)}"
    if any(child.stacks for child in workers):
        return f"its {len(workers)} workers wait for work"
    return f"its worker {workers[0].pid} is {doing(workers[0])}"
