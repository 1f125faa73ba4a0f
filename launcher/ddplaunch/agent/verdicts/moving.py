"""No fault that a rule names: `slow` when things move after all, `unknown` when nothing tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import JobEvidence, Verdict
from ddplaunch.agent.verdicts import words
from ddplaunch.agent.verdicts.situation import IN_LOADER, Situation
from ddplaunch.agent.verdicts.waiting import doing

_LOOK_BELOW = (
    "All called the same collective: look at the network between the nodes, and at the GPUs (dmesg, Xid)."
)
_MORE_TIME = "Ask for more time (`slurm.time`), or have the job write checkpoints and go on from the last."
_POD_TAKEN = (
    "`kubectl get events` says who takes the pod: a drain, preemption by a higher priority, an eviction for "
    "memory or disk, somebody's delete. Have the job write checkpoints; `retries` with `kubernetes.jobset` "
    "starts all of it again."
)
_SEE_MORE = "The bundle holds all that was seen; where py-spy may trace (ptrace), more can be."

BUSY = 4.0
"""How much longer a rank may burn CPU without anything new than lie still."""


def quiet_for(stuck_for: float, still_for: float, waits: bool, busy: float = BUSY) -> float:
    """Seconds of patience that a rank has used up: since real progress when it waits, else since it moved."""
    return stuck_for if waits else max(still_for, stuck_for / busy)


def nothing_moves(situation: Situation, patience: float, busy: float = BUSY) -> bool:
    """Whether every living rank has been quiet for so long; ranks that have all ended do not hang."""
    if situation.ranks and not situation.alive:
        return False
    return all(_quiet(situation, rank, busy) >= patience for rank in situation.alive)


def slow(situation: Situation) -> Optional[Verdict]:
    """It moves, and takes long for it: who is slowest, and why."""
    patience = situation.evidence.notice_after
    movers = [
        rank
        for rank in situation.alive
        if rank not in situation.waiting and _quiet(situation, rank) < patience
    ]
    pause = situation.stuck_for
    step = max((_step(situation.ranks[rank].step_times) for rank in situation.alive), default=0.0)
    if not movers or max(step, pause) < patience / 2:
        return None
    slowest = [rank for rank in situation.holders if rank in movers] if situation.waiting else []
    parts = [
        f"{words.ranks(group)} {words.one_or(group, 'is', 'are')} in {stand} while the others wait"
        for stand, group in situation.groups_of_ranks(slowest).items()
    ]
    paused = f"{words.span(pause)} without {'a collective' if situation.waiting else 'anything new'} so far"
    measure = f"a step takes {words.span(step)}" if step >= pause else paused
    return Verdict(
        code="slow",
        sentence=f"not hung: {measure}{'; ' if parts else ''}{'; '.join(parts[:2])}",
        where="run",
        nodes=situation.nodes_of(slowest),
        ranks=slowest,
        victims=[rank for rank in situation.waiting if slowest],
        confidence=0.8,
        facts=[*(_pace(situation, rank) for rank in situation.alive[:8]), *situation.counts()],
        hint=_advice(situation, slowest),
    )


def unknown(situation: Situation) -> Verdict:
    """The evidence does not decide: where everybody stands, and what is missing."""
    stands = situation.groups_of_ranks(situation.alive)
    missing = [f"{situation.node(node)} did not answer" for node in situation.evidence.silent]
    missing += sorted(
        {f"{situation.node(node.node)}: {text}" for node in situation.nodes.values() for text in node.missing}
    )
    missing += [
        f"the stack of rank {number}"
        for number, rank in situation.ranks.items()
        if rank.alive and not rank.stacks
    ]
    if situation.absent or situation.unseen:
        missing.append(f"any word of {words.ranks([*situation.absent, *situation.unseen])}")
    hidden = [rank for rank in situation.holders if situation.waiting and situation.behind(rank)]
    if hidden:
        verb = words.one_or(hidden, "is", "are")
        where = f"{words.ranks(hidden)} {verb} behind the others, but where, no stack shows"
    elif len(stands) == 1 and situation.waiting:
        where = f"{_all(situation)} wait in {next(iter(stands))} and nothing moves"
    elif stands:
        groups = (f"{words.ranks(group)} in {stand}" for stand, group in list(stands.items())[:4])
        where = f"nothing moves: {'; '.join(groups)}"
    elif situation.ranks:
        where = f"{words.ranks(situation.ranks)} ended, and none by a fault of its own that is known"
    else:
        where = "no rank has been seen"
    return Verdict(
        code="unknown",
        sentence=f"{where}; missing: {', '.join(missing) or 'kernel log, network and GPU state'}",
        where="run",
        nodes=situation.nodes_of(hidden),
        ranks=hidden,
        victims=[rank for rank in situation.waiting if hidden],
        confidence=0.3 if hidden else 0.0,
        facts=[
            *(f"{words.ranks(group)}: {stand}" for stand, group in stands.items()),
            *situation.counts(),
            *_oddities(situation),
        ],
        hint=_LOOK_BELOW if len(stands) == 1 and situation.blocked and _all_seen(situation) else _SEE_MORE,
    )


def node_evicted(
    evidence: JobEvidence, why: str, missing: Optional[list[int]] = None, evicted: Sequence[int] = ()
) -> Verdict:
    """A job that somebody ends although nothing is wrong: how far it was.

    `missing`: nodes that had not come, while the job is still at the gate; None later. `evicted`: the nodes
    that were told to stop while the others were not; `why`: by what.
    """
    situation = Situation(evidence)
    if missing is not None:
        waited = f", waiting for {situation.named(missing)}" if missing else ""
        how_far = f"the nodes were at the gate{waited}"
    elif not situation.ranks:
        how_far = "no rank was there yet"
    else:
        how_far = "; ".join(situation.counts()) or f"{words.ranks(situation.ranks)} had called no collective"
    if evicted:
        whom = situation.named(evicted)
        said = f"{whom} {words.one_or(evicted, 'was', 'were')} told to stop by {why}, the others were not"
    else:
        said = f"the job is being ended from outside: {why}"
    # Also those that were ended already by the loss of a peer, but none that was done.
    victims = [
        number
        for number, rank in situation.ranks.items()
        if evicted and situation.node_of[number] not in evicted and (rank.exit is None or rank.exit.code != 0)
    ]
    return Verdict(
        code="node-evicted",
        sentence=f"{said}; {how_far}",
        where="gate" if missing is not None else "run",
        nodes=missing or list(evicted),
        victims=victims,
        confidence=0.9,
        facts=[_pace(situation, rank) for rank in situation.alive[:8]],
        hint=_POD_TAKEN if words.are_pods(evidence.names) else _MORE_TIME,
    )


def _oddities(situation: Situation) -> list[str]:
    """What may matter and no rule reads: processes that cannot run, launchers that have started nobody."""
    found = [
        f"rank {number} is {doing(rank.process)}"
        for number, rank in situation.ranks.items()
        if rank.process is not None and rank.process.state in ("D", "T", "t")
    ]
    for number, node in situation.nodes.items():
        if not node.ranks:
            found.append(f"{situation.node(number)} has started no worker yet")
            found += [f"{situation.node(number)}: {words.clipped(line)}" for line in node.launch_output[-2:]]
    return found


def _all_seen(situation: Situation) -> bool:
    """Whether every rank of the job was looked at; a rank that was not may have called something else."""
    return not situation.evidence.silent and situation.alive == situation.world


def _all(situation: Situation) -> str:
    return "all ranks" if _all_seen(situation) and len(situation.world) > 1 else words.ranks(situation.alive)


def _quiet(situation: Situation, number: int, busy: float = BUSY) -> float:
    rank = situation.ranks[number]
    return quiet_for(rank.stuck_for, rank.still_for, number in situation.waiting, busy)


def _step(times: list[float]) -> float:
    """Of the times between collectives, of which a step may have many, the longest of late."""
    return max(times[-8:], default=0.0)


def _pace(situation: Situation, number: int) -> str:
    rank = situation.ranks[number]
    cores = f", {rank.process.cpu_share:.1f} cores" if rank.process is not None else ""
    step = f", a step takes {words.span(_step(rank.step_times))}" if rank.step_times else ""
    return f"rank {number}: {situation.stands[number]}{step}{cores}"


def _advice(situation: Situation, slowest: list[int]) -> str:
    if any(situation.stands[rank].kind == IN_LOADER for rank in slowest):
        return "The data comes too slowly: more DataLoader workers, faster storage, or less work per sample."
    if slowest:
        return (
            f"See what {words.ranks(slowest)} {words.one_or(slowest, 'does', 'do')} that the others do not."
        )
    return "All ranks work; the step itself takes this long."
