"""slow-broadcast: a model's parameters go from rank 0 to all ranks, slowly. Nothing is hung.

A byte that one rank sends another receives, so the sockets of all ranks together move each byte of the model
twice for every rank but rank 0, whatever way it takes.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ddplaunch.agent.contract import RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import plain
from ddplaunch.agent.system import phrases, subjects

_CALLS = ("_sync_module_states", "_sync_params_and_buffers")
_HINT = (
    "Wait, or give the ranks a faster path: the interface in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, and "
    "what limits the link. Where every rank loads the same weights, DistributedDataParallel(init_sync=False) "
    "sends nothing."
)
_AGREE = 1.5
"""How far the bytes so far may be from the rate times the time since the begin: else other traffic counts."""


class _Progress(NamedTuple):
    rate: float  # of the model's bytes a second, on their way to each rank
    done: float  # share of the model; 0: not known
    left: float  # seconds


def slow_broadcast(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that all wait in a broadcast of parameters, while bytes move."""
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
    return Verdict(
        code="slow-broadcast",
        sentence=f"not hung: {_sender(view.ranks[ranks[0]])} broadcasts parameters{sent} at "
        f"{phrases.size(rate)}/s{progress}",
        where="run",
        confidence=0.9,
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
    """Return 'DDP' or 'FSDP', in whose construction it broadcasts the model's state; empty: in none."""
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
    """Return how fast and how far the model is; None where bytes may take another way than TCP sockets."""
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
    """Return when the first of the broadcasts began that this rank now makes; 0: it is not known."""
    began = 0.0
    for entry in reversed(rank.collectives):
        if plain(entry.op) != "broadcast" or entry.frames != rank.collectives[-1].frames:
            break
        began = entry.at
    return began
