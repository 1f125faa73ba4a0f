"""Rules about ranks that were killed, failed, or finished too early. The rest are victims."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import Files, Verdict
from ddplaunch.agent.diagnosis.run import call_records, devices, stacks
from ddplaunch.agent.diagnosis.run.causes import (
    TOGETHER,
    Cause,
    causes_of,
    complaint,
    first_ends,
    left_behind,
    words_of,
)
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

_SOMEBODY = (
    "Somebody sent it: a person, the scheduler, or a memory killer outside the job's own cgroup. Look into "
    "the node's kernel log (dmesg) and the scheduler's log at that time."
)
_CRASH = (
    "Native code crashed. PYTHONFAULTHANDLER=1 makes Python print where; a library built for another torch "
    "or another CPU is the usual reason."
)
_CRASHES = ("SIGSEGV", "SIGILL", "SIGFPE", "SIGABRT", "SIGBUS")
_TERMINATE = "terminate called without an active exception"
_GOODBYE = (
    "A thread still ran while the process ended, most often one of torch's own: call "
    "torch.distributed.destroy_process_group() as the program's last act."
)
_LATE = (
    "A GPU's error is raised late, by any line that asks for a result. CUDA_LAUNCH_BLOCKING=1 in the next "
    "run raises it in the line that causes it; look there"
)
_TRACEBACK = "Traceback (most recent call last):"
_QUOTED = 10
"""Last lines of a rank or a command that a verdict quotes."""
_HELD = re.compile(r"Killed process (\d+) .*anon-rss:(\d+)kB")
"""Linux, mm/oom_kill.c: who was killed, and the resident memory of its own that it held."""
_MEMORY = (
    "Give the node more memory, or use less of it: smaller batches, fewer DataLoader workers, nothing kept "
    "across steps (losses kept as tensors keep their graphs)."
)


def rank_killed_memory(view: JobView) -> Optional[Verdict]:
    """SIGKILL, and the kernel counted or logged a kill for memory on that node."""
    causes = first_ends(view, "memory")
    if not causes:
        return None
    facts = []
    for node in view.nodes_of([cause.rank for cause in causes]):
        found = view.nodes[node]
        if found.oom_kills:
            facts.append(
                f"{view.node(node)}: the memory cgroup has counted {found.oom_kills} kill(s) for memory"
            )
        kills = [line for line in found.kernel if _HELD.search(line)]
        facts += [f"{view.node(node)}'s kernel: {phrases.clipped(line)}" for line in kills[-2:]]
    where = view.named(view.nodes_of([cause.rank for cause in causes]))
    limits = _memory(view, causes[0])
    return verdict_on(
        view,
        "rank-killed-memory",
        causes,
        f"{killed_whom(causes)} killed for memory on {where}{limits and ': ' + limits}",
        facts,
        _MEMORY,
        0.97,
    )


def rank_killed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a signal that neither torchrun nor the supervisor sent."""
    causes = first_ends(view, "signal")
    if not causes:
        return None
    first = causes[0]
    facts: list[str] = []
    if first.what == "SIGKILL":
        node = view.node_of[first.rank]
        facts.append(f"{view.node(node)}: the cgroup counted no kill for memory, and the kernel logged none")
    if not first.loader:
        facts += call_records.last(view.ranks[first.rank])
    if first.loader:
        facts += shared_memory(view, first.rank)
    facts += last_lines(view, first)
    sentence = f"{killed_whom(causes)} killed by {first.what}"
    unfinished = first.what == "SIGABRT" and _TERMINATE in view.ranks[first.rank].last_output
    hint = _GOODBYE if unfinished else _CRASH if first.what in _CRASHES else _SOMEBODY
    return verdict_on(view, "rank-killed", causes, sentence, facts, hint, 0.95)


def rank_failed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on the first exception, or exit code, that is not another rank's fault.

    A script may exit so because a peer went away: without an exception, all peers must have been seen.
    """
    causes = first_ends(view, "exception") or ([] if view.unseen else first_ends(view, "code"))
    return _failure(view, causes, 0.95) if causes else None


def rank_exited_early(view: JobView) -> Optional[Verdict]:
    """Exit code 0 while others wait, or have since failed because their peer was gone."""
    lost = left_behind(view)
    ends = {
        number: rank.exit.at
        for number, rank in view.ranks.items()
        if rank.exit is not None and rank.exit.code == 0 and view.has_called_less(number, lost)
    }
    gone = [
        number
        for number, at in ends.items()
        if lost and number not in lost and at <= max(lost.values()) + TOGETHER
    ]
    if not gone:
        return None
    # Once one has failed for want of a peer, the job ends for all who were not done.
    victims = sorted(lost) if lost.keys() <= {*view.waiting} else view.victims_of(gone)
    waiting = view.groups_of_ranks([rank for rank in victims if rank in view.waiting])
    tail = f"in {next(iter(waiting))}" if len(waiting) == 1 else "in their collectives"
    ending = (
        f"still wait{'s' if len(victims) == 1 else ''} {tail}"
        if waiting
        else "needed it"
        if len(gone) == 1
        else "needed them"
    )
    facts = [f"{subjects.ranks(ranks)}: {location}" for location, ranks in waiting.items()]
    facts += [
        f"rank {number} failed {phrases.span(at - ends[gone[0]])} later: {complaint(view.ranks[number])}"
        for number, at in lost.items()
        if number not in view.waiting
    ]
    return view.verdict(
        code="rank-exited-early",
        sentence=f"{subjects.ranks(gone)} finished normally (exit code 0) "
        f"while {subjects.ranks(victims)} {ending}",
        ranks=gone,
        victims=victims,
        confidence=0.95,
        facts=facts + view.counts(),
        hint="The ranks do not get the same number of batches: use DistributedSampler (drop_last=True), or "
        "wrap the loop in torch.distributed.algorithms.join.Join.",
    )


def launch_failed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a launch command that failed without workers, or was killed with them."""
    failed = sorted(
        (node.launch_exit.at, number)
        for number, node in view.nodes.items()
        if node.launch_exit is not None
        and not node.launch_exit.by_us
        and (node.launch_exit.signal or (node.launch_exit.code and not node.ranks))
    )
    if not failed or any(cause.at < failed[0][0] - TOGETHER for cause in causes_of(view)):
        return None
    number = failed[0][1]
    node = view.nodes[number]
    assert node.launch_exit is not None
    how = phrases.exited(node.launch_exit)
    when = "while its workers ran" if node.ranks else "before it started a worker"
    said = [line for line in node.launch_output if line.strip(" -=*")]  # mpirun frames its words by rules
    return Verdict(
        code="launch-failed",
        sentence=f"{view.node(number)}'s launch command ended with {how} {when}{': ' if said else ''}"
        f"{phrases.clipped(said[-1]) if said else ''}",
        where="launch",
        nodes=[number],
        victims=view.victims_of([]),
        confidence=0.9,
        facts=_quoted(f"{view.node(number)}'s launch command", said),
        hint="`ddplaunch logs` shows all that it said, as does "
        f"{Files.NODE.format(node=number)}/{Files.LAUNCH_LOG} in the job's folder",
    )


def victims_alone(view: JobView) -> Optional[Verdict]:
    """Ranks failed, each by another's fault, and no rank's own failure was seen: no rank is blamed."""
    failed = [
        (rank.exit.at, number)
        for number, rank in view.ranks.items()
        if rank.exit is not None and (rank.exit.code or rank.exit.signal) and not rank.exit.by_us
    ]
    if not failed or view.absent or view.unseen:
        return None
    at, first = min(failed)
    reason = complaint(view.ranks[first])
    found = verdict_on(
        view,
        "rank-failed",
        [Cause(first, "exception", at, reason)],
        f"rank {first} was the first to fail ({reason}), but by what it says another rank is at fault, "
        "and none is known",
        [f"rank {number} ended, and its exit code was not seen" for number in _unseen_ends(view)],
        "Read the logs of the other ranks and nodes just before this time; the evidence here does not name "
        "the cause.",
        0.4,
    )
    return replace(found, nodes=[], ranks=[], victims=sorted({first, *found.victims}))


def _unseen_ends(view: JobView) -> list[int]:
    """Return the ranks that ended without an exception, and of whose end no exit code was seen."""
    ended = {number: rank for number, rank in view.ranks.items() if rank.exit is not None and not rank.raised}
    return [
        n for n, rank in ended.items() if rank.exit and rank.exit.code is None and rank.exit.signal is None
    ]


def _failure(view: JobView, causes: list[Cause], confidence: float) -> Verdict:
    first = causes[0]
    numbers = sorted({cause.rank for cause in causes})
    who = "all ranks" if view.is_everyone(numbers) else subjects.ranks(numbers)
    if first.raised is None:
        rank = view.ranks[first.rank]
        said = f"; its last line: {phrases.clipped(rank.last_output)}" if rank.last_output else ""
        sentence = f"{who} ended with {first.what} and no exception (sys.exit or os._exit){said}"
        return verdict_on(
            view,
            "rank-failed",
            causes,
            sentence,
            last_lines(view, first),
            "See what it ran last; `ddplaunch logs` shows all that it wrote.",
            confidence - 0.25,
        )
    raised = first.raised
    kind = raised.type.rpartition(".")[2]
    site = stacks.user_frame(raised.frames)
    message = f": {phrases.clipped(words_of(raised))}" if raised.message else ""
    facts = []
    if raised.frames:
        facts.append(f"rank {first.rank} raised it in {stacks.chain(raised.frames)}")
    facts += last_lines(view, first)
    if "CUDA" in raised.message:
        facts += devices.gpu_facts(view, view.nodes_of(numbers))
    mend = f"Mend {phrases.place(site) if site else 'what the traceback names'}"
    hint = _LATE if "CUDA error" in raised.message else mend
    return verdict_on(
        view,
        "rank-failed",
        causes,
        f"{who} raised {kind}{message}{phrases.at(site)}",
        facts,
        f"{hint}; what the others report follows from it.",
        confidence,
    )


def last_lines(view: JobView, cause: Cause) -> list[str]:
    """Return the rank's last lines of output, without the traceback, which the verdict shortens."""
    lines = view.ranks[cause.rank].last_lines
    traces = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if cause.raised is not None:
        lines = lines[: traces[0]] if traces else []
    return _quoted(f"rank {cause.rank}", lines)


def _quoted(whose: str, lines: list[str]) -> list[str]:
    """'the last lines of rank 1:', then each with a bar before it."""
    last = [phrases.clipped(line) for line in lines[-_QUOTED:]]
    return [f"the last lines of {whose}:", *(f"| {line}" for line in last)] if last else []


def verdict_on(
    view: JobView,
    code: str,
    causes: list[Cause],
    sentence: str,
    facts: list[str],
    hint: str,
    confidence: float,
) -> Verdict:
    """Return a verdict on the ranks that ended so; the later ends of others are its last facts."""
    numbers = sorted({cause.rank for cause in causes})
    first = causes[0]
    victims = view.victims_of(numbers)
    later = []
    for number in victims:
        end = view.ranks[number].exit
        if end is not None and not end.by_us and (end.code or end.signal):
            later.append(
                f"rank {number} ended {phrases.span(end.at - first.at)} later, as a victim: "
                f"{complaint(view.ranks[number])}"
            )
    return view.verdict(
        code=code,
        sentence=sentence,
        ranks=numbers,
        victims=victims,
        confidence=confidence,
        facts=[*facts, *later[:4], *([f"and {len(later) - 4} more victims"] if len(later) > 4 else [])],
        hint=hint,
    )


def killed_whom(causes: list[Cause]) -> str:
    """'rank 1 was', 'rank 0's DataLoader worker 812 was'."""
    loader = causes[0].loader
    if loader is not None:
        return f"rank {causes[0].rank}'s DataLoader worker {loader} was"
    numbers = sorted({cause.rank for cause in causes})
    return f"{subjects.ranks(numbers)} {phrases.one_or(numbers, 'was', 'were')}"


def _memory(view: JobView, cause: Cause) -> str:
    """'limit 16.0 GiB, it held 15.2 GiB'. What the group uses after the kill says nothing any more."""
    node = view.nodes[view.node_of[cause.rank]]
    pid = cause.loader or view.ranks[cause.rank].pid
    parts = [] if node.memory_limit is None else [f"limit {phrases.size(node.memory_limit)}"]
    for line in node.kernel:
        held = _HELD.search(line)
        if held and int(held[1]) == pid:
            parts.append(f"it held {phrases.size(1024 * int(held[2]))}")
            break
    return ", ".join(parts)


def shared_memory(view: JobView, number: int) -> list[str]:
    """'node 0: /dev/shm holds 12 MiB of 64 MiB, and held 64 MiB at most', where it is known."""
    node = view.nodes[view.node_of[number]]
    if node.shm_size is None or node.shm_used is None:
        return []
    held = f"{phrases.size(node.shm_used)} of {phrases.size(node.shm_size)}"
    most = max(node.shm_peak or 0, node.shm_used)
    more = f", and held {phrases.size(most)} at most" if most > node.shm_used else ""
    return [f"{view.node(node.node)}: /dev/shm holds {held}{more}"]
