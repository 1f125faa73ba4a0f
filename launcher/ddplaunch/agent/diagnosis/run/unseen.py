"""Rules about ranks whose stacks could not be read, by what else is seen of them; and `unknown`."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import JobEvidence, LastActs, Phase, Posture, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import call_records, devices
from ddplaunch.agent.diagnosis.run.stragglers import CALL_FIRST, KEEP_SHORT, doing, holder_facts, verdict_on
from ddplaunch.agent.diagnosis.run.view import SLEEP, Found, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, joined, say, spelled

_LOOKS = 2.0
"""Wake-ups a second: TORCH_NCCL_BLOCKING_WAIT sleeps a millisecond between two looks at its collective."""
_RAN_ON = 5.0
"""Seconds after its last message in which a rank may still prepare to wait for a collective that it began."""
_APART = 0.25
"""Seconds by which two events must differ: the kernel counts in steps of up to 10 ms, and CPUs are shared."""
_LET_TRACE = f"Only a stack shows where: let py-spy trace. {KEEP_SHORT}"
_POLL = "poll_schedule_timeout"

_LOOK_BELOW = (
    "All called the same collective: look at the network between the nodes, and at the GPUs (dmesg, Xid)."
)
_NO_COMMUNICATOR = (
    "NCCL has not made its first communicator. For that the ranks connect to one another, on ports that NCCL "
    "chooses. NCCL_DEBUG=INFO in the next run shows over which interface (NCCL_SOCKET_IFNAME); with "
    "`gate: {smoke_test: true}` the gate tries it before the job starts."
)
_RECORDS_LESS = (
    "torch {version} does not record what it sends with Gloo by itself, as for DDP; newer versions do. "
    "The bundle has all that was seen."
)
_SEE_MORE = "The bundle has all that was seen; if py-spy may trace (ptrace), more can be seen."


def not_connected(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks that are not where all others meet in init_process_group."""
    late, there = _postures(view, Posture.BEFORE), _postures(view, Posture.INIT)
    has = phrases.one_or(late, "has", "have")
    return _found(
        view,
        "rank-late-to-init",
        late,
        there,
        say(
            subjects.ranks(late),
            f" {has} no connection to the job's store, unlike ",
            subjects.ranks(there),
            ": init_process_group was not called, or called with another address",
        ),
        CALL_FIRST,
    )


def in_no_collective(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks in whose processes Gloo does nothing, while it waits in all others."""
    own, there = _postures(view, Posture.OWN), _postures(view, Posture.COLLECTIVE)
    are = phrases.one_or(own, "is", "are")
    return _found(
        view,
        "rank-in-user-code",
        own,
        there,
        say(
            subjects.ranks(own),
            f" {are} in no Gloo collective, unlike ",
            subjects.ranks(there),
            "; no stack shows the line",
        ),
        _LET_TRACE,
    )


def sent_nothing(view: JobView) -> Optional[Found]:
    """Return the verdict on a rank that has run since it last sent something, before all others did.

    Each of the others has come to a collective of the only group: its main thread has not run since it sent
    something, and one of Gloo's threads has. Times that are close to one another prove nothing.
    """
    acts = {rank: its for rank in view.alive if (its := view.ranks[rank].last_acts) is not None}
    if len(view.nodes) > 1 or any(view.ranks[rank].stacks for rank in acts):
        return None
    ran_on = [rank for rank, its in acts.items() if its.spoke - its.ran >= _RAN_ON]
    others = {rank: its for rank, its in acts.items() if rank not in ran_on}
    if len(ran_on) != 1 or not all(map(_has_come, others.values())):
        return None
    waits = view.ranks[ran_on[0]].posture == Posture.COLLECTIVE  # for a collective that it has begun before
    if waits or ran_on[0] in view.explained or _postures(view, Posture.OWN) not in ([], ran_on):
        return None
    silent = acts[ran_on[0]].sent
    if silent - max(its.sent for its in others.values()) < _APART:
        return None
    return _found(
        view,
        "rank-in-user-code",
        ran_on,
        list(others),
        say(
            subjects.ranks(ran_on),
            f" has sent nothing to another rank for {phrases.span(silent)}, and has run since; ",
            subjects.ranks(others),
            " sent something later, as ranks do when they come to a collective; no stack shows the line",
        ),
        _LET_TRACE,
    )


def _has_come(its: LastActs) -> bool:
    return its.sent - its.ran < _APART and its.worked - its.ran < _APART


def asleep(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks that sleep for something of their own.

    A rank that waits in a collective sleeps on a futex. A rank that has slept for seconds in a system call
    that no collective makes is in its own code, and one that polls is in its data loader if it has one.
    """
    processes = {
        rank: its
        for rank in view.alive
        if (its := view.ranks[rank].process) is not None and its.state == "S" and not view.ranks[rank].stacks
    }
    sleeps = {rank: its.wchan.partition(".")[0] for rank, its in processes.items()}
    ranks = [
        rank
        for rank, function in sleeps.items()
        if (SLEEP.fullmatch(function) or (function == _POLL and _has_loaders(view.ranks[rank])))
        and processes[rank].wakeups < _LOOKS
        and view.ranks[rank].stuck_for >= view.evidence.notice_after
        and rank not in view.explained
    ]
    others = [rank for rank in sleeps if sleeps[rank].startswith("futex_")]
    wait = ", ".join(sorted({sleeps[rank] for rank in ranks}))
    sleep, wait_too = phrases.one_or(ranks, "sleeps", "sleep"), phrases.one_or(others, "waits", "wait")
    return _found(
        view,
        "rank-in-dataloader" if all(sleeps[rank] == _POLL for rank in ranks) else "rank-in-user-code",
        ranks,
        others,
        say(
            subjects.ranks(ranks),
            f" {sleep} in the kernel ({wait}), where no collective waits, while ",
            subjects.ranks(others),
            f" {wait_too} for another thread or rank; no stack shows the line",
        ),
        _LET_TRACE,
    )


def _has_loaders(rank: RankEvidence) -> bool:
    return any(each.role == "loader" for each in rank.children)


def never_came(view: JobView) -> Optional[Found]:
    """Return the verdict on ranks that were ended after others had given up in a collective, by calls alone.

    Nobody saw where they were. But the program makes all collectives of the group itself, and they had not
    called that one, and were in none before it.
    """
    last = {rank: its.calls[-1] for rank, its in view.ranks.items() if its.calls}
    tried = {rank: call for rank, call in last.items() if call.state == "raised" and not call.p2p}
    late = [rank for rank in view.alive if rank not in (*tried, *view.explained)]
    first = min(tried, default=0)
    if not late or len(tried) <= len(late) or sorted([*late, *tried]) != view.world:
        return None
    call = tried[first]
    same = {(its.group, its.seq, str(its.frames[:1])) for its in tried.values()}
    before = all(
        (its.group, its.seq, its.state) == (call.group, call.seq - 1, "returned")
        and not view.ranks[rank].stacks
        for rank, its in ((rank, last.get(rank, call)) for rank in late)
    )
    counts = [group for rank in tried for group in view.ranks[rank].groups if group.name == call.group]
    own = len(counts) == len(tried) and all(group.enqueued <= call.seq for group in counts)
    if len(same) > 1 or not before or not own:
        return None
    ago = phrases.span(min(view.ranks[rank].stuck_for for rank in late))
    sentence = say(
        subjects.ranks(late),
        f" never came to {call_records.described(call)}, in which ",
        subjects.ranks(tried),
        f" gave up: {phrases.one_or(late, 'it', 'they')} came back from "
        f"{call_records.described(last[late[0]])} {ago} before the end, and no stack shows what came next",
    )
    facts = view.counts()
    found = verdict_on(view, "rank-in-user-code", late, sentence, facts, KEEP_SHORT, sure.WITHOUT_STACK)
    return Found(replace(found, victims=[*tried]), late)


def runs_on(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that run outside collectives while the others have waited long."""
    found = in_no_collective(view) or sent_nothing(view)
    verdict = None if found is None else found.verdict
    patience = view.evidence.notice_after
    if verdict is None or any(view.ranks[rank].still_for < patience for rank in verdict.victims):
        return None
    return replace(verdict.saying("not known to hang: ", verdict.text), code="slow")


def _postures(view: JobView, posture: str) -> list[int]:
    return [
        rank
        for rank in view.alive
        if view.ranks[rank].posture == posture and not view.ranks[rank].stacks and rank not in view.explained
    ]


def _found(
    view: JobView, code: str, ranks: list[int], victims: list[int], sentence: Sayable, hint: str
) -> Optional[Found]:
    """Return the verdict; None if these are not all ranks, or if one at fault may wait for another of them.

    In that case they sleep in different places.
    """
    if not ranks or not victims or sorted([*ranks, *victims]) != view.world:
        return None
    if len({its.wchan for rank in ranks if (its := view.ranks[rank].process) is not None}) > 1:
        return None
    found = verdict_on(view, code, ranks, sentence, holder_facts(view, ranks), hint, sure.WITHOUT_STACK)
    return Found(replace(found, victims=victims), ranks)


# --- the last rule


def _restarts(view: JobView) -> list[str]:
    """Return 'torchrun had restarted its ranks once before this', if it had."""
    most = max((rank.restart or 0 for rank in view.ranks.values()), default=0)
    times = "once" if most == 1 else f"{most} times"
    return [f"torchrun had restarted its ranks {times} before this"] if most else []


def unknown(view: JobView) -> Verdict:
    """Return the verdict that the evidence does not decide: where all ranks are, and what is missing."""
    locations = view.groups_of_ranks(view.alive)
    missing = [say(view.node(node), " did not answer") for node in unexplained(view.evidence)]
    lacks = {say(view.node(node.node), f": {text}") for node in view.nodes.values() for text in node.missing}
    missing += sorted(lacks, key=spelled)
    missing += [
        say(f"the stack of rank {number}")
        for number, rank in view.ranks.items()
        if rank.alive and not rank.stacks
    ]
    if view.absent or view.unseen:
        missing.append(say("any report from ", subjects.ranks([*view.absent, *view.unseen])))
    hidden = [rank for rank in view.stragglers if view.waiting and view.behind(rank)]
    if hidden:
        verb = phrases.one_or(hidden, "is", "are")
        where = say(subjects.ranks(hidden), f" {verb} behind the others, but no stack shows where")
    elif len(locations) == 1 and view.waiting:
        verb = phrases.one_or(view.alive, "waits", "wait")
        where = say(_all(view), f" {verb} in {next(iter(locations))} and nothing moves")
    elif locations:
        groups = (
            say(subjects.ranks(group), f" in {location}") for location, group in list(locations.items())[:4]
        )
        where = say("nothing moves: ", joined("; ", groups))
    elif view.ranks:
        where = say(subjects.ranks(view.ranks), " ended, and none of them is known to have failed by itself")
    else:
        where = say("no rank has reported anything" if view.evidence.silent else "no rank has been seen")
    return view.verdict(
        code="unknown",
        sentence=say(where, "; missing: ", joined(", ", missing) or "kernel log, network and GPU state"),
        ranks=hidden,
        victims=[rank for rank in view.waiting if hidden],
        confidence=sure.BEHIND_UNSEEN if hidden else sure.UNKNOWN,
        facts=[
            *view.standing(locations),
            *view.counts(),
            *_restarts(view),
            *_oddities(view),
            *devices.gpu_facts(view, view.nodes),
        ],
        hint=_where_to_look(view),
    )


def unexplained(evidence: JobEvidence) -> list[int]:
    """Return the silent nodes whose silence nothing in the evidence explains."""
    explained = [each.node for each in evidence.evidence if each.missing and not each.ranks]
    return [node for node in evidence.silent if node not in explained]


def _where_to_look(view: JobView) -> str:
    alike = len(view.groups_of_ranks(view.alive)) == 1 and bool(view.blocked) and _all_seen(view)
    ranks = [view.ranks[rank] for rank in view.alive]
    if alike and all(rank.backend == "nccl" and not rank.collectives for rank in ranks):
        return _NO_COMMUNICATOR
    versions = [rank.unrecorded for rank in ranks if rank.unrecorded]
    if versions and not alike:
        return _RECORDS_LESS.format(version=versions[0])
    return _LOOK_BELOW if alike else _SEE_MORE


def _oddities(view: JobView) -> list[str]:
    """Return facts that no rule reads: stopped processes, and launchers that have started no rank."""
    found = [
        f"rank {number} is {doing(rank.process)}"
        for number, rank in view.ranks.items()
        if rank.process is not None and rank.process.state in ("D", "T", "t")
    ]
    for number, node in view.nodes.items():
        if not node.ranks and node.phase != Phase.ENDED and number not in view.evidence.silent:
            found.append(f"{view.node(number)} has started no worker yet")
            found += [f"{view.node(number)}: {phrases.clipped(line)}" for line in node.launch_output[-2:]]
    return found


def _all_seen(view: JobView) -> bool:
    """Whether every rank of the job was looked at. A rank that was not may have called something else."""
    return not view.evidence.silent and view.alive == view.world


def _all(view: JobView) -> Sayable:
    return "all ranks" if _all_seen(view) and len(view.world) > 1 else subjects.ranks(view.alive)
