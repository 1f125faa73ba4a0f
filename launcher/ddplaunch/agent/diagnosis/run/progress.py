"""The last rules: `slow` when ranks make progress after all, `unknown` when no evidence points anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import JobEvidence, Phase, Verdict
from ddplaunch.agent.diagnosis.run import devices, pace
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import IN_LOADER
from ddplaunch.agent.diagnosis.run.waiting import doing, starved
from ddplaunch.agent.system import phrases, subjects

_LOOK_BELOW = (
    "All called the same collective: look at the network between the nodes, and at the GPUs (dmesg, Xid)."
)
_NO_COMMUNICATOR = (
    "NCCL has not made its first communicator: for that the ranks connect to one another, on ports of NCCL's "
    "choosing. NCCL_DEBUG=INFO in the next run shows by which interface (NCCL_SOCKET_IFNAME); with "
    "`gate: {smoke_test: true}` the gate tries it before the job starts."
)
_CHECKPOINTS = "Have the job write checkpoints, and go on from the last."
_MORE_CPUS = (
    "Ask for more CPUs (`resources.cpus`), start fewer threads (OMP_NUM_THREADS, num_workers), or end what "
    "else uses them."
)
_SEE_MORE = "The bundle holds all that was seen; where py-spy may trace (ptrace), more can be."

BUSY = 4.0
"""How much longer a rank may burn CPU without anything new than lie still."""


def quiet_for(stuck_for: float, still_for: float, waits: bool, busy: float = BUSY) -> float:
    """Seconds of patience that a rank has used up: since real progress when it waits, else since it moved."""
    return stuck_for if waits else max(still_for, stuck_for / busy)


def nothing_moves(view: JobView, patience: float, busy: float = BUSY) -> bool:
    """Whether every living rank has been quiet for so long; ranks that have all ended do not hang."""
    if view.ranks and not view.alive:
        return False
    return all(_quiet(view, rank, busy) >= patience for rank in view.alive)


def slow(view: JobView) -> Optional[Verdict]:
    """Rules slow: the job moves on, and takes long for each step because of a rank for which the others wait.

    Where no rank holds the others up, a long step is what this job takes, and nothing is wrong.
    """
    patience = view.evidence.notice_after
    movers = [rank for rank in view.alive if rank not in view.waiting and _quiet(view, rank) < patience]
    pause = view.stuck_for
    step = max((_step(view.ranks[rank].step_times) for rank in view.alive), default=0.0)
    if not movers or max(step, pause) < patience / 2:
        return None
    counted = not all(map(view.is_uncounted, movers))
    if not counted and not any(_stays(view, rank) for rank in view.waiting):
        return None  # without counted calls, these ranks may be making progress
    slowest = [rank for rank in view.stragglers if rank in movers] if view.waiting else []
    last = pace.last_to_come([view.ranks[rank] for rank in view.alive]) if not view.unseen else None
    victims = [rank for rank in view.waiting if slowest]
    if last is not None and last.rank in movers and slowest in ([], [last.rank]):
        slowest = [last.rank]
        victims = [rank for rank in view.alive if rank != last.rank]
        parts = [f"rank {last.rank} {pace.where(last)} while the others wait for it"]
    else:
        parts = _holding(view, slowest)
    if not slowest or not victims:
        return None
    hungry = {rank: hunger for rank in slowest if (hunger := starved(view.ranks[rank].process))}
    parts = [*parts[:2], *(f"rank {rank} is {hunger}" for rank, hunger in list(hungry.items())[:1])]
    anything = "a collective" if view.waiting and counted else "anything new"
    paused = f"{phrases.span(pause)} without {anything} so far"
    measure = f"a step takes {phrases.span(step)}" if step >= pause else paused
    return view.verdict(
        code="slow",
        sentence=f"not hung: {measure}{'; ' if parts else ''}{'; '.join(parts)}",
        ranks=slowest,
        victims=victims,
        confidence=0.8,
        facts=[*(_pace(view, rank) for rank in view.alive[:8]), *_throttled(view), *view.counts()],
        hint=_MORE_CPUS if hungry else _advice(view, slowest),
    )


def _holding(view: JobView, slowest: list[int]) -> list[str]:
    return [
        f"{subjects.ranks(group)} {phrases.one_or(group, 'is', 'are')} in {location} while the others wait"
        for location, group in view.groups_of_ranks(slowest).items()
    ]


def unknown(view: JobView) -> Verdict:
    """Return the verdict that the evidence does not decide: where all ranks stand, and what is missing."""
    locations = view.groups_of_ranks(view.alive)
    missing = [f"{view.node(node)} did not answer" for node in unexplained(view.evidence)]
    missing += sorted(
        {f"{view.node(node.node)}: {text}" for node in view.nodes.values() for text in node.missing}
    )
    missing += [
        f"the stack of rank {number}" for number, rank in view.ranks.items() if rank.alive and not rank.stacks
    ]
    if view.absent or view.unseen:
        missing.append(f"any word of {subjects.ranks([*view.absent, *view.unseen])}")
    hidden = [rank for rank in view.stragglers if view.waiting and view.behind(rank)]
    if hidden:
        verb = phrases.one_or(hidden, "is", "are")
        where = f"{subjects.ranks(hidden)} {verb} behind the others, but where, no stack shows"
    elif len(locations) == 1 and view.waiting:
        verb = phrases.one_or(view.alive, "waits", "wait")
        where = f"{_all(view)} {verb} in {next(iter(locations))} and nothing moves"
    elif locations:
        groups = (f"{subjects.ranks(group)} in {location}" for location, group in list(locations.items())[:4])
        where = f"nothing moves: {'; '.join(groups)}"
    elif view.ranks:
        where = f"{subjects.ranks(view.ranks)} ended, and none by a fault of its own that is known"
    else:
        where = "no word of any rank has come" if view.evidence.silent else "no rank has been seen"
    return view.verdict(
        code="unknown",
        sentence=f"{where}; missing: {', '.join(missing) or 'kernel log, network and GPU state'}",
        ranks=hidden,
        victims=[rank for rank in view.waiting if hidden],
        confidence=0.3 if hidden else 0.0,
        facts=[
            *(f"{subjects.ranks(group)}: {location}" for location, group in locations.items()),
            *view.counts(),
            *_oddities(view),
            *devices.gpu_facts(view, view.nodes),
        ],
        hint=_where_to_look(view),
    )


def unexplained(evidence: JobEvidence) -> list[int]:
    """Return the silent nodes for whose silence nothing in the evidence is a reason."""
    explained = [each.node for each in evidence.evidence if each.missing and not each.ranks]
    return [node for node in evidence.silent if node not in explained]


def _where_to_look(view: JobView) -> str:
    alike = len(view.groups_of_ranks(view.alive)) == 1 and bool(view.blocked) and _all_seen(view)
    ranks = [view.ranks[rank] for rank in view.alive]
    if alike and all(rank.backend == "nccl" and not rank.collectives for rank in ranks):
        return _NO_COMMUNICATOR
    return _LOOK_BELOW if alike else _SEE_MORE


def node_evicted(
    evidence: JobEvidence, why: str, missing: Optional[list[int]] = None, evicted: Sequence[int] = ()
) -> Verdict:
    """Return the verdict on a job that is ended although nothing is wrong: how far it was.

    `missing`: nodes that had not come, while the job is still at the gate; None later. `evicted`: the nodes
    that got a signal to stop while the others did not; `why`: by what.
    """
    view = JobView(evidence)
    if missing is not None:
        waited = f", waiting for {view.named(missing)}" if missing else ""
        how_far = f"the nodes were at the gate{waited}"
    elif not view.ranks:
        how_far = "no rank was there yet"
    else:
        how_far = "; ".join(view.counts()) or f"{subjects.ranks(view.ranks)} had called no collective"
    if evicted:
        whom = view.named(evicted)
        what = f"{whom} {phrases.one_or(evicted, 'was', 'were')} told to stop by {why}, the others were not"
    else:
        what = f"the job is being ended from outside: {why}"
    # Also those that were ended already by the loss of a peer, but none that was done.
    victims = [
        number
        for number, rank in view.ranks.items()
        if evicted and view.node_of[number] not in evicted and (rank.exit is None or rank.exit.code != 0)
    ]
    return Verdict(
        code="node-evicted",
        sentence=f"{what}; {how_far}",
        where="gate" if missing is not None else "run",
        nodes=missing or list(evicted),
        victims=victims,
        confidence=0.9,
        facts=[_pace(view, rank) for rank in view.alive[:8]],
        hint=platforms.named(evidence.platform).hint("evicted", _CHECKPOINTS),
    )


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
    """Whether every rank of the job was looked at; a rank that was not may have called something else."""
    return not view.evidence.silent and view.alive == view.world


def _all(view: JobView) -> str:
    return "all ranks" if _all_seen(view) and len(view.world) > 1 else subjects.ranks(view.alive)


def _quiet(view: JobView, number: int, busy: float = BUSY) -> float:
    rank = view.ranks[number]
    return quiet_for(rank.stuck_for, rank.still_for, number in view.waiting, busy)


def _stays(view: JobView, number: int) -> bool:
    """Whether a waiting rank has been in its call for more than a moment, as all looks at it show."""
    return not view.ranks[number].stack_moves


def _step(times: list[float]) -> float:
    """Return the longest of the last times between collectives: a step may have many."""
    return max(times[-8:], default=0.0)


def _pace(view: JobView, number: int) -> str:
    rank = view.ranks[number]
    cores = f", {rank.process.cpu_share:.1f} cores" if rank.process is not None else ""
    usual = pace.text(rank)
    return f"rank {number}: in {view.locations[number]}{cores}{usual and '; ' + usual}"


def _throttled(view: JobView) -> list[str]:
    return [
        f"{view.node(number)}: its CPU quota has cut {node.throttled:.0%} of the periods"
        for number, node in view.nodes.items()
        if node.throttled and node.throttled >= 0.1
    ]


def _advice(view: JobView, slowest: list[int]) -> str:
    data = [rank for rank in slowest if pace.seconds_observed(view.ranks[rank])]
    if any(pace.share(view.ranks[rank], pace.FOR_DATA) >= 0.5 for rank in data) or any(
        view.locations[rank].kind == IN_LOADER for rank in slowest
    ):
        return "The data comes too slowly: more DataLoader workers, faster storage, or less work per sample."
    do = phrases.one_or(slowest, "does", "do")
    return f"See what {subjects.ranks(slowest)} {do} that the others do not."
