"""Asks the rules of the run about the evidence of one moment, in the order of one table.

The hub asks when a job hangs, when a rank has died and at its end; the launcher asks of a bundle, and must
get the same answer. Nothing here does I/O or reads the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Callable, NamedTuple, Optional, Union

from ddplaunch.agent.contract import JobEvidence, NodeEvidence, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.diagnosis.run import (
    blocked,
    collectives,
    devices,
    ends,
    exits,
    held,
    locks,
    messages,
    mpi,
    nccl_ras,
    processes,
    rendezvous,
    signals,
    skipped,
    slow,
    stragglers,
    threads,
    torchruns,
    unseen,
)
from ddplaunch.agent.diagnosis.run.causes import before_timeouts
from ddplaunch.agent.diagnosis.run.view import Found, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import say

ALARM = 0.7
"""Share of the patience for which every rank must have been quiet, by the evidence itself, for an alarm."""

Rule = Callable[[JobView], Optional[Verdict]]
"""Returns what it has found; None if the evidence does not support its verdict. A rule changes nothing."""
StragglerRule = Callable[[JobView], Optional[Found]]


# --- the situations in which rules are asked: each returns the view that they are asked about, or None


def always(view: JobView) -> Optional[JobView]:
    """Every job."""
    return view


def before_they_met(view: JobView) -> Optional[JobView]:
    """Ranks are in init_process_group, and those that ended badly had called it, maybe because of it."""
    waits = {call.rank for call in view.open_init_calls}
    for number, rank in view.ranks.items():
        if rank.exit is not None and _is_bad_end(view, number) and number not in waits:
            return None
    return view if waits else None


def something_is_wrong(view: JobView) -> Optional[JobView]:
    """The job hangs, a rank has died, or no living rank has got any further for the job's patience."""
    stuck = view.stuck_for >= view.evidence.notice_after
    return view if stuck or _hangs(view) or _has_died(view) else None


def hanging(view: JobView) -> Optional[JobView]:
    """Nothing moves, and that is why the evidence was taken."""
    return view if _hangs(view) and view.evidence.why != "death" else None


def all_in_init(view: JobView) -> Optional[JobView]:
    """Nothing moves, and every rank that lives is in init_process_group."""
    waits = len(view.open_init_calls)
    return view if waits and waits >= len(view.alive) and hanging(view) else None


def died(view: JobView) -> Optional[JobView]:
    """A rank has ended badly."""
    return view if _has_died(view) and not hanging(view) else None


def died_of_timeouts(view: JobView) -> Optional[JobView]:
    """Ranks gave up in a collective: the job as it was while they still waited there."""
    before = before_timeouts(view.evidence) if died(view) else None
    return None if before is None else JobView(before)


def asked_while_it_moves(view: JobView) -> Optional[JobView]:
    """`ddplaunch diagnose` asks about a job that goes on."""
    return view if view.evidence.why == "asked" and not hanging(view) and not _has_died(view) else None


def _hangs(view: JobView) -> bool:
    still = bool(view.alive) and slow.nothing_moves(view, view.evidence.notice_after)
    return still or view.evidence.why in ("still", "deadline")


def _has_died(view: JobView) -> bool:
    return view.evidence.why == "death" or any(_is_bad_end(view, rank) for rank in view.ranks)


def _is_bad_end(view: JobView, number: int) -> bool:
    end = view.ranks[number].exit
    return end is not None and not end.by_us and bool(end.code or end.signal)


# --- the table


class FirstOf(NamedTuple):
    """In situation `when` the first rule that finds something has found what is wrong."""

    when: Callable[[JobView], Optional[JobView]]
    rules: tuple[Rule, ...]


class AllOf(NamedTuple):
    """In situation `when` every rule speaks of its stragglers, except those that an earlier one explains."""

    when: Callable[[JobView], Optional[JobView]]
    rules: tuple[StragglerRule, ...]


MEETING: tuple[Rule, ...] = (
    # What torch itself refuses, and a name without an address, are exact, whatever else is wrong.
    rendezvous.nccl_without_gpu,
    rendezvous.unresolved,
    # Where an address leads. The node itself comes before another node, because 127.0.0.1 is on every list.
    rendezvous.loopback,
    # Its addresses are of other nodes as well, and that is not why.
    rendezvous.place_before_a_restart,
    rendezvous.other_node,
    # Before the port: of two that are rank 0, one finds it held by the other.
    rendezvous.rank_twice,
    rendezvous.port_held,
    rendezvous.no_store,
    # They reach one place, and disagree there. Sizes come before places, because places are compared by size.
    rendezvous.sizes_differ,
    rendezvous.places_differ,
    rendezvous.backends_differ,
    # Only if all else is right: the store works, with the addresses of processes that are gone.
    rendezvous.file_of_an_earlier_run,
)
"""What calls of init_process_group prove by themselves, however long the ranks have waited."""

TORCHRUNS: tuple[Rule, ...] = (torchruns.cannot_meet, torchruns.each_alone)
"""What is seen of torchruns as they start."""

STRAGGLERS: tuple[StragglerRule, ...] = (
    # The exact cause, as the kernel or Python reports it, before the place where the rank was found.
    # Before locks: a rank that gets no CPU may be anywhere, also in a function that takes a lock.
    processes.cpu_starved,
    # A rank that waits for what another rank may give is not to blame, and no rule below names it.
    locks.queued,
    locks.late_for_a_lock,
    locks.waits_for_a_lock,
    # After file locks: a rank waits for a lock on an NFS file in functions of NFS.
    processes.io_stuck,
    # Before `lock_deadlock`: a rank that cannot get the GIL may be at a lock for which it does not wait.
    locks.gil_held,
    locks.lock_deadlock,
    # A rank that waits for one whose collective lacks it is half of a circle.
    messages.asks_a_blocked_rank,
    # Ranks without a stack, by their sockets and sleeps; the rules below would only know that they have none.
    unseen.not_connected,
    unseen.asleep,
    unseen.in_no_collective,
    unseen.sent_nothing,
    # The place alone. Late ones first: whatever they do, the others wait in init_process_group.
    stragglers.rank_late_to_init,
    stragglers.rank_in_dataloader,
    # Before the place in its own code: there is none any more.
    stragglers.rank_at_its_end,
    stragglers.rank_in_user_code,
)

TABLE: tuple[Union[FirstOf, AllOf], ...] = (
    # Ranks that cannot meet time out, or wait. Their calls explain both better.
    FirstOf(before_they_met, MEETING),
    FirstOf(
        always,
        # The end of a rank, or of a node, explains everything after it.
        (
            # Before all ends of ranks: what ranks report once their peers' node is gone follows from that.
            ends.network_lost,
            # Before calls that do not fit: threads whose calls cross are why they do not.
            threads.group_in_two_threads,
            # A rank died of a message or a call that does not fit its peer's, and reported it itself. Before
            # the exits, which would call that a failed rank. Which call was left out tells more than which
            # two differ.
            messages.message_too_large,
            skipped.skipped_in_words,
            collectives.mismatch_in_words,
            mpi.mpi_unmatched_in_words,
            # Before the launch command and the ranks, whose ends would look like their own failures.
            ends.stopped_from_outside,
            ends.launch_failed,
            # SIGKILL for memory and SIGBUS are signals too: the exact one comes before `rank_killed`.
            ends.rank_killed_memory,
            ends.rank_killed_bus,
            ends.rank_killed,
            # NCCL's refusal of a shared GPU comes as an exception: before `rank_failed`.
            devices.device_shared,
            ends.rank_failed,
        ),
    ),
    FirstOf(
        something_is_wrong,
        # Ranks out of step never meet again, whatever else moves.
        (
            # A raised or caught exception is why a rank is out of step. The cause comes before the effect.
            held.exception_held,
            # So is a second process in a rank's place, which may be anywhere.
            rendezvous.joined_again,
            # Before caught exceptions: those of a retry only say that another rank has not come.
            stragglers.collective_retried,
            stragglers.exception_swallowed,
            # Which call was left out tells more than which two differ.
            skipped.collective_skipped,
            skipped.loop_left,
            collectives.collective_mismatch,
        ),
    ),
    FirstOf(
        hanging,
        # Nothing moves, and no rank in its own code or in its data loader is to blame.
        (
            # A rank that cannot run may be anywhere; its place says nothing.
            processes.rank_stopped,
            # A rank that is gone explains why the others' MPI calls and collectives lack it.
            mpi.mpi_rank_lost,
            # These abstain unless all ranks are in MPI. A circle is certain; in other cases one side may be
            # right.
            mpi.mpi_deadlock,
            mpi.mpi_partial_collective,
            mpi.mpi_unmatched,
            # A wait that was left out tells more than that its rank is done.
            messages.async_not_waited,
            exits.rank_exited_early,
            # Who waits for it within init_process_group waits for no group of the program's.
            rendezvous.detail_alone,
            # All ranks must call new_group: the groups below may not even exist yet.
            blocked.new_group_partial,
            # Before groups that wait: by their counters alone, a rank is where only a thread of it is.
            locks.lock_around_collective,
            blocked.groups_wait,
            # A receive that can never be filled is why ranks wait in a circle.
            messages.message_differs_in_nccl,
            messages.message_deadlock,
            # No circle: a rank that receives from any rank waits for nobody in particular.
            messages.unanswered,
            # Last: it assumes that all ranks agree, and so that no rule above has found anything.
            devices.gpu_stuck,
        ),
    ),
    # No rank has been started: the rules below are about ranks.
    FirstOf(hanging, (torchruns.cannot_meet,)),
    AllOf(hanging, STRAGGLERS),
    FirstOf(
        all_in_init,
        # No rank holds the others up. The calls explain it, now that nothing has moved for so long.
        (
            rendezvous.too_few,
            rendezvous.nobodys_address,
            rendezvous.files_of_each_machine,
            rendezvous.other_script,
            # Last: it only knows that the script's choice was not tried.
            rendezvous.otherwise_than_proved,
        ),
    ),
    FirstOf(hanging, (unseen.unknown,)),
    # Ranks died, none of them by its own fault: one that the others needed is gone, or
    FirstOf(
        died,
        (mpi.mpi_rank_lost, messages.async_not_waited, exits.rank_exited_early, exits.group_destroyed),
    ),
    # they gave up waiting for one that never came.
    AllOf(died_of_timeouts, (*STRAGGLERS, unseen.never_came)),
    # The last two know no more than what ranks say of one another.
    FirstOf(died, (ends.late_for_monitored_barrier, ends.victims_alone, unseen.unknown)),
    # Parameters that are being sent are no rank's slowness; little is sure about ranks without stacks.
    FirstOf(asked_while_it_moves, (slow.slow_broadcast, slow.slow, unseen.runs_on)),
)
"""From top to bottom: the first part that finds something gives the verdict, and later parts are not asked.

Deaths come before waits, waits before slowness; `unknown` when something is wrong and no rule knows it.
"""


# --- asking


def judge(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return what is wrong, in the order in which it must be fixed; empty if nothing is.

    `complain` gets the failure of a rule, and then there is no verdict: see `rule_runner`. A job that has
    died ends all the same.
    """
    return rule_runner.run(_judged, evidence, complain, "run")


def _judged(evidence: JobEvidence) -> list[Verdict]:
    found = [each for one in situations(evidence) for each in _of(one)]
    known = [each for each in found if each.code != "unknown"]
    return known or found[:1]


def _of(view: JobView) -> list[Verdict]:
    found = stragglers.with_crashes(view, signals.told(view, _of_world(view)))
    return nccl_ras.with_facts(view, with_unseen(view, found))


def _of_world(view: JobView) -> list[Verdict]:
    for part in TABLE:
        asked = part.when(view)
        if asked is not None:
            found = _all(part.rules, asked) if isinstance(part, AllOf) else _first(part.rules, asked)
            if found:
                return found
    return []


def _first(rules: Sequence[Rule], view: JobView) -> list[Verdict]:
    found = next(filter(None, (rule(view) for rule in rules)), None)
    return [] if found is None else [found]


def _all(rules: Sequence[StragglerRule], view: JobView) -> list[Verdict]:
    verdicts = []
    for rule in rules:
        found = rule(view)
        if found is not None:
            verdicts += [nccl_ras.doubted(view, found.verdict)] if found.verdict is not None else []
            view = view.without(found.explains)
    return verdicts


def never_meet(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return the verdicts on calls of init_process_group that have just been made, or on torchruns."""
    return rule_runner.run(_never_meet, evidence, complain, "run")


def _never_meet(evidence: JobEvidence) -> list[Verdict]:
    view = JobView(evidence)
    found = _first(MEETING, view) if view.open_init_calls else []
    return found or _first(TORCHRUNS, view)


def is_odd_start(evidence: JobEvidence) -> bool:
    """Whether any call of init_process_group is of a kind that no launcher makes, or torchruns were not
    started alike, so that all nodes are asked.

    A job that leaves everything to its launcher has none, and no node is asked.
    """
    view = JobView(evidence)
    if torchruns.are_odd(view):
        return True
    waits = view.open_init_calls
    ranks = [call.rank for call in waits]
    return (
        any(call.is_chosen or call.made.unresolved or call.made.holder for call in waits)
        or len(ranks) > len(set(ranks))
        or len({(call.made.port, call.world_size, call.made.backend) for call in waits}) > 1
    )


def nothing_moves(evidence: JobEvidence) -> bool:
    """Whether fresh evidence confirms that nothing moves. Some of the patience passes while it is taken.

    At the deadline, a rank that uses CPU without doing anything new has had its time, and so has a GPU.
    """
    busy = 1.0 if evidence.why == "deadline" else slow.BUSY
    patience = ALARM * evidence.notice_after
    views = situations(evidence)
    return all(slow.nothing_moves(one, patience, busy) for one in views) and not _computing_for(views)


def computing_for(evidence: JobEvidence) -> float:
    """Return the seconds for which GPUs that may compute are not yet called stuck; 0 if there are none."""
    return _computing_for(situations(evidence))


def _computing_for(views: Sequence[JobView]) -> float:
    left = [
        slow.BUSY * ALARM * one.evidence.notice_after - one.stuck_for
        for one in views
        if one.evidence.why != "deadline" and devices.may_compute(one)
    ]
    return max([0.0, *left])


# --- separate worlds inside one job, and which of their ranks were never seen
#
# A job may hold several worlds: a script may start one torchrun after another, or two side by side. Ranks of
# different worlds share numbers and never wait for one another, so each world is judged by itself.


Place = tuple[str, Optional[int], str]


def split(evidence: JobEvidence) -> list[JobEvidence]:
    """Return the evidence of each world; the evidence itself if there is only one.

    Only existing process groups prove that there are several worlds: ranks that were sent to different places
    and wait there are one world that cannot meet.
    """
    everything = [(node, rank) for node in evidence.evidence for rank in node.ranks]
    made = {
        _meeting_place(rank)
        for _, rank in everything
        if rank.rendezvous is not None and rank.rendezvous.passed
    }
    numbers = [rank.rank for _, rank in everything]
    if len(made) < 2 or len(numbers) == len(set(numbers)):
        return [evidence]
    launched = {
        (node.node, rank.launcher): place
        for node, rank in everything
        if rank.launcher and (place := _meeting_place(rank)) in made
    }
    found = []
    for place in sorted(made, key=str):
        nodes = [
            replace(node, ranks=[rank for rank in node.ranks if _world_of(node, rank, launched) == place])
            for node in evidence.evidence
        ]
        found.append(replace(evidence, world_size=None, evidence=[node for node in nodes if node.ranks]))
    return found


def situations(evidence: JobEvidence) -> list[JobView]:
    """Return a view of each world. Of several, those that have ended well are left out."""
    found = [JobView(world) for world in split(evidence)]
    going = [
        one for one in found if any(rank.exit is None or rank.exit.code != 0 for rank in one.ranks.values())
    ]
    return found if len(found) == 1 or not going else going


def with_unseen(view: JobView, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts. If some ranks of the world were not seen, each says how many were."""
    misnumbered = {call.made.given_rank for call in view.init_calls}  # they are there, by another number
    if not view.ranks or misnumbered.issuperset(view.unseen):
        return list(verdicts)
    verb = phrases.one_or(view.unseen, "runs", "run")
    where = f"{verb} on nodes that do not answer"
    if not view.evidence.silent:
        has = phrases.one_or(view.unseen, "has", "have")
        where = f"{has} not started, or {verb} where ddplaunch does not look"
    note = say(
        f"{len(view.ranks)} of {len(view.world)} ranks seen; ", subjects.ranks(view.unseen), f" {where}"
    )
    return [each.continued(" (", note, ")") for each in verdicts]


def _meeting_place(rank: RankEvidence) -> Optional[Place]:
    made = rank.rendezvous
    return None if made is None else (made.address, made.port, made.file)


def _world_of(
    node: NodeEvidence, rank: RankEvidence, launched: dict[tuple[int, int], Optional[Place]]
) -> Optional[Place]:
    """Return where it meets its peers; before its call, where siblings with the same parent meet."""
    return _meeting_place(rank) or launched.get((node.node, rank.launcher))
