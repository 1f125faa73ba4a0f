"""Whether a job moves at all, and the rules on one that moves slowly: nothing is hung."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ddplaunch.agent.contract import RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import pace, stacks, ties
from ddplaunch.agent.diagnosis.run.stragglers import starved
from ddplaunch.agent.diagnosis.run.view import IN_LOADER, JobView, plain
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Text, joined, say

_MORE_CPUS = (
    "Ask for more CPUs (`resources.cpus`), start fewer threads (OMP_NUM_THREADS, num_workers), or end what "
    "else uses them."
)

BUSY = 4.0
"""How many times longer than a still rank one may use CPU without anything new."""


def quiet_for(stuck_for: float, still_for: float, waits: bool, busy: float = BUSY) -> float:
    """Return the seconds of patience used up by a rank: since progress if it waits, else since it moved.

    A rank that waits may use a whole core in its library's loop, so its CPU time proves nothing. A rank in
    its own code that uses CPU may be computing, and gets `busy` times the patience without progress; without
    a limit, a rank that loops for ever would never count as hanging.
    """
    return stuck_for if waits else max(still_for, stuck_for / busy)


def nothing_moves(view: JobView, patience: float, busy: float = BUSY) -> bool:
    """Whether every living rank has been quiet for this long; ranks that have all ended do not hang."""
    if view.ranks and not view.alive:
        return False
    return all(_quiet(view, rank, busy) >= patience for rank in view.alive)


def slow(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a job that moves, but slowly because of a rank for which the others wait.

    If no rank holds the others up, long steps are normal for this job, and nothing is wrong.
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
        parts = [say(f"rank {last.rank} {pace.where(last)} while the others wait for it")]
    else:
        parts = _holding(view, slowest)
    if not slowest or not victims:
        return None
    hungry = {rank: hunger for rank in slowest if (hunger := starved(view.ranks[rank].process))}
    parts = [*parts[:2], *(say(f"rank {rank} is {hunger}") for rank, hunger in list(hungry.items())[:1])]
    asking = {rank: wait for rank in slowest if (wait := ties.asks(view, rank))}
    if asking:
        parts = [say(f"rank {rank} is {wait}") for rank, wait in asking.items()]
    anything = "a collective" if view.waiting and counted else "anything new"
    paused = f"{phrases.span(pause)} without {anything} so far"
    measure = f"a step takes {phrases.span(step)}" if step >= pause else paused
    return view.verdict(
        code="slow",
        sentence=joined("; ", [f"not hung: {measure}", *parts]),
        ranks=slowest,
        victims=victims,
        confidence=sure.SLOW,
        facts=[*(pace_fact(view, rank) for rank in view.alive[:8]), *_throttled(view), *view.counts()],
        hint=ties.ANSWER if asking else _MORE_CPUS if hungry else _advice(view, slowest),
    )


def _holding(view: JobView, slowest: list[int]) -> list[Text]:
    return [
        say(
            subjects.ranks(group),
            f" {phrases.one_or(group, 'is', 'are')} in {location} while the others wait",
        )
        for location, group in view.groups_of_ranks(slowest).items()
    ]


def _quiet(view: JobView, number: int, busy: float = BUSY) -> float:
    rank = view.ranks[number]
    return quiet_for(rank.stuck_for, rank.still_for, number in view.waiting, busy)


def _stays(view: JobView, number: int) -> bool:
    """Whether all looks at a waiting rank show that it has been in its call for more than a moment."""
    return not view.ranks[number].stack_moves


def _step(times: list[float]) -> float:
    """Return the longest of the last times between collectives, because a step may have many."""
    return max(times[-8:], default=0.0)


def pace_fact(view: JobView, number: int) -> str:
    """'rank 3: in all_reduce 7 (train.py:92), 1.0 cores; a step takes 0.5 s'."""
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


# --- slow-broadcast: a model's parameters go from rank 0 to all ranks, slowly
#
# Each byte that one rank sends is received by another, so the sockets of all ranks together move each byte of
# the model twice for every rank but rank 0, whatever path it takes.


_CALLS = ("_sync_module_states", "_sync_params_and_buffers")
_HINT = (
    "Wait, or give the ranks a faster path: the interface in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, and "
    "what limits the link. If every rank loads the same weights, DistributedDataParallel(init_sync=False) "
    "sends nothing."
)
_AGREE = 1.5
"""How far the bytes so far may differ from rate times duration. Beyond that, other traffic is in them."""


class _Progress(NamedTuple):
    rate: float  # of the model's bytes a second, on their way to each rank
    done: float  # share of the model; 0: not known
    left: float  # seconds


def slow_broadcast(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that all wait in a broadcast of parameters while bytes move."""
    ranks = [rank for rank in view.alive if _sender(view.ranks[rank])]
    if not ranks or len(ranks) < 2 or ranks != view.alive or view.absent or view.unseen:
        return None
    moving = {rank: process.net_rate for rank in ranks if (process := view.ranks[rank].process) is not None}
    if not any(moving.values()):
        return None
    found = _progress(view, ranks)
    rate = found.rate if found else max(moving.values())
    progress = ""
    if found and found.done:
        progress = f", about {100 * found.done:.0f} % done, {phrases.span(found.left)} left at this rate"
    size = view.ranks[ranks[0]].broadcasting
    sent = f" ({phrases.size(size)})" if size else ""
    return Verdict.of(
        code="slow-broadcast",
        sentence=f"not hung: {_sender(view.ranks[ranks[0]])} broadcasts parameters{sent} at "
        f"{phrases.size(rate)}/s{progress}",
        where="run",
        confidence=sure.BROADCASTING,
        facts=[
            *view.whereabouts(ranks),
            *(
                f"{subjects.ranks([rank])}: {phrases.size(speed)}/s through its sockets"
                for rank, speed in list(moving.items())[:8]
            ),
        ],
        hint=_HINT,
    )


def _sender(rank: RankEvidence) -> str:
    """Return 'DDP' or 'FSDP' if it is constructing that and broadcasts the model's state; empty if not."""
    frames = stacks.main(rank.stacks)
    inside = [
        place
        for place, frame in enumerate(frames)
        if frame.name.rpartition(".")[2] in _CALLS and frame.file.endswith("torch/distributed/utils.py")
    ]
    callers = [frame.file for frame in frames[inside[-1] :]] if inside else []
    if any(file.endswith("torch/nn/parallel/distributed.py") for file in callers):
        return "DDP"
    return "FSDP" if any("torch/distributed/fsdp/" in file for file in callers) else ""


def _progress(view: JobView, ranks: list[int]) -> Optional[_Progress]:
    """Return how fast and how far the model is; None if bytes may move other than through TCP sockets."""
    evidence = [view.ranks[rank] for rank in ranks]
    processes = [rank.process for rank in evidence if rank.process is not None]
    size = evidence[0].broadcasting
    alike = all("gloo" in rank.backend and rank.broadcasting == size for rank in evidence)
    if not alike or len(ranks) != view.world_size or not all(each.net_rate for each in processes):
        return None
    ways = 2 * (len(ranks) - 1)
    rate = sum(process.net_rate for process in processes) / ways
    began = [at for rank in evidence if (at := _began(rank))]
    if not size or len(processes) < len(ranks) or not began:
        return _Progress(rate, 0.0, 0.0)
    moved = sum(process.net_bytes for process in processes) / ways
    expected = rate * (view.nodes[view.node_of[ranks[0]]].at - min(began))
    if moved >= size or not expected / _AGREE <= moved <= expected * _AGREE:
        return _Progress(rate, 0.0, 0.0)
    return _Progress(rate, moved / size, (size - moved) / rate)


def _began(rank: RankEvidence) -> float:
    """Return when the first of this rank's present broadcasts began; 0 if that is not known."""
    began = 0.0
    for entry in reversed(rank.collectives):
        if plain(entry.op) != "broadcast" or entry.frames != rank.collectives[-1].frames:
            break
        began = entry.at
    return began
