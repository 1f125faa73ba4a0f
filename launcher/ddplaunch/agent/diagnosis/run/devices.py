"""Rules about GPUs: ranks that share one, and a collective that all ranks have begun and none finishes.

NCCL before 2.30 names the ranks that it finds on one GPU, and each of them reports it by itself; later
versions refuse on all ranks and name none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from ddplaunch.agent.contract import Collective, Fact, Source, Verdict, Xid
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import nccl_ras, stacks
from ddplaunch.agent.diagnosis.run.causes import Cause, first_ends
from ddplaunch.agent.diagnosis.run.view import JobView, plain
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import say

_TWICE = re.compile(r"Duplicate GPU detected : rank \d+ and rank \d+ both on CUDA device ([0-9a-f]+)")
_SOMEWHERE = "Multiple Ranks are using the same GPU/Partition"
_ONE_EACH = (
    'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) on every rank, before anything else uses CUDA '
    "or NCCL, and start no more ranks on a node than it has GPUs. Parts of one GPU (MIG) count as one for "
    "NCCL before 2.30; later versions take NCCL_MULTI_RANK_GPU_ENABLE=1."
)
_LOOK_BELOW = (
    "The ranks agree, so look below torch: `dmesg | grep -i xid` and `nvidia-smi -q` on each node, and the "
    "fabric (NVLink, InfiniBand). NCCL_DEBUG=INFO in the next run shows which path NCCL takes; "
    "TORCH_NCCL_ENABLE_TIMING=1 makes torch record what has started on the GPU."
)
_MEND_GPU = (
    "`nvidia-smi -q` there shows the GPU's state. Leave the node out, and have the GPU reset or replaced."
)
_END_BEFORE = (
    "The usual reason is a kernel of your own (CUDA, Triton) that never ends. CUDA_LAUNCH_BLOCKING=1 in the "
    "next run stops that rank at the line that starts it."
)
_NOTES = frozenset([63, 64, 92, 154])
"""Xids that only inform: rows remapped, a rate of errors, what is recommended for recovery."""
_FOLLOWS = "caused by previous Xid"
_AROUND = 60.0
"""Seconds before progress stopped within which a GPU's event counts as related."""


def device_shared(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that NCCL has found on one GPU."""
    causes = first_ends(view, "exception") or first_ends(view, "code")
    if not causes or not _words(view, causes[0]):
        return None
    refused = {cause.rank: words for cause in causes if (words := _words(view, cause))}
    devices = {
        (view.node_of[rank], twice[1]) for rank, words in refused.items() if (twice := _TWICE.match(words))
    }
    ranks = sorted(refused) if devices else _bound_alike(view, refused)
    facts = [f"rank {rank}: {words}" for rank, words in list(refused.items())[:4]]
    bound = {rank: view.ranks[rank].device for rank in refused if view.ranks[rank].device}
    facts += [f"rank {rank}'s process groups are bound to GPU {device}" for rank, device in bound.items()][:4]
    raised = causes[0].raised
    site = phrases.at(stacks.user_frame(raised.frames)) if raised else ""
    who = say("some of ", subjects.ranks(refused), ", which NCCL does not name,")
    if ranks:
        who = say(subjects.ranks(ranks), " of ", view.named(view.nodes_of(ranks)))
    shared = "one GPU" if len(devices) < 2 else "GPUs with one another"
    return view.verdict(
        code="device-shared",
        sentence=say(who, f" share {shared}, and NCCL refuses that{site}"),
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=sure.DEVICE_NAMED if ranks else sure.DEVICE_UNNAMED,
        facts=facts,
        hint=_ONE_EACH,
    )


def _words(view: JobView, cause: Cause) -> str:
    """Return NCCL's message about a shared GPU from the rank's exception or last lines; empty if none."""
    rank = view.ranks[cause.rank]
    text = "\n".join([cause.raised.message if cause.raised else "", *rank.last_lines])
    twice = _TWICE.search(text)
    return twice[0] if twice else _SOMEWHERE if _SOMEWHERE in text else ""


def _bound_alike(view: JobView, ranks: Iterable[int]) -> list[int]:
    """Return the ranks whose node and bound GPU are also another rank's."""
    places: dict[tuple[int, str], list[int]] = {}
    for rank in ranks:
        if view.ranks[rank].device:
            places.setdefault((view.node_of[rank], view.ranks[rank].device), []).append(rank)
    return sorted(rank for same in places.values() if len(same) > 1 for rank in same)


def gpu_stuck(view: JobView) -> Optional[Verdict]:
    """Return the verdict if all ranks have begun the same NCCL collective, and none finishes it."""
    begun = _all_begun(view)
    if not begun:
        return None
    behind = [rank for rank, entry in begun.items() if entry.state != "started"]
    if 0 < len(behind) < len(begun):
        return _behind(view, begun, behind)
    started = not behind
    events = _at_the_stop(view)
    if not started and not events:
        return None  # a long computation on the GPUs before it looks the same
    what = _names(begun)
    verb = "started" if started else "called"
    sentence = say(f"all {len(begun)} ranks have {verb} {what} and none has finished")
    ranks: list[int] = []
    if events:
        node, event = events[0]
        ranks = [
            rank for rank in view.alive if view.ranks[rank].pid == event.pid and view.node_of[rank] == node
        ]
        sentence = say(sentence, f"; Xid {event.number} on GPU {event.gpu} of ", view.node(node))
    else:
        sentence = say(sentence, ", so look at the GPUs and at the fabric between them")
    return Verdict.of(
        code="gpu-stuck",
        sentence=sentence,
        where="run",
        nodes=sorted({node for node, _ in events}),
        ranks=ranks,
        victims=[rank for rank in view.alive if rank not in ranks] if events else [],
        confidence=sure.GPU_EVENT if events else sure.GPU_WITHOUT_EVENT,
        facts=[*gpu_facts(view, view.nodes), *view.whereabouts(view.alive)[:4], *_unread(view, not events)],
        hint=_MEND_GPU if events else _LOOK_BELOW,
    )


def may_compute(view: JobView) -> bool:
    """Whether all ranks have called one NCCL collective: the GPUs may still compute what comes before it."""
    begun = _all_begun(view)
    return (
        bool(begun) and all(entry.state == "scheduled" for entry in begun.values()) and not _at_the_stop(view)
    )


def _all_begun(view: JobView) -> dict[int, Collective]:
    """Return the NCCL collective that all ranks have called and none has done; empty: there is none."""
    if view.absent or view.unseen or len(view.alive) < 2 or view.alive != view.world:
        return {}
    if nccl_ras.differ(view):
        return {}  # torch has recorded a call that NCCL has not launched
    begun = {rank: entry for rank in view.alive if (entry := _begun(view, rank)) is not None}
    return begun if len(begun) == len(view.alive) and _complete(view, begun) else {}


def _behind(view: JobView, begun: dict[int, Collective], behind: list[int]) -> Verdict:
    """Return the verdict on ranks whose GPUs have not reached the collective that the others' have started.

    torch knows what has started only with TORCH_NCCL_ENABLE_TIMING.
    """
    who, has = subjects.ranks(behind), phrases.one_or(behind, "has", "have")
    what = _names({rank: begun[rank] for rank in behind})
    return view.verdict(
        code="gpu-stuck",
        sentence=say(
            who,
            f" {has} called {what}, but it has not started on the GPU, while that of the others has: what "
            "was queued before it does not end",
        ),
        ranks=behind,
        victims=[rank for rank in view.alive if rank not in behind],
        confidence=sure.GPU_NOT_STARTED,
        facts=[*view.whereabouts(view.alive)[:4], *gpu_facts(view, view.nodes_of(behind))],
        hint=_END_BEFORE,
    )


def _names(begun: dict[int, Collective]) -> str:
    """'all_reduce 16', 'all_reduce 16 and broadcast 3 and 2 more'."""
    names = sorted({f"{plain(entry.op)} {entry.seq}" for entry in begun.values()})
    return " and ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _begun(view: JobView, number: int) -> Optional[Collective]:
    """Return the one NCCL collective in which this rank is, in the only group in which it has any open."""
    rank = view.ranks[number]
    if "nccl" not in rank.backend or number not in view.waiting:
        return None
    open_groups = [group for group in rank.groups if group.enqueued > group.completed]
    waits_for_peer = any(entry.p2p and not entry.done for entry in rank.collectives)
    if len(open_groups) != 1 or waits_for_peer:
        return None  # calls that are queued in another order on another rank may block one another
    group = open_groups[0]
    for entry in rank.collectives:
        if (entry.group, entry.seq) == (group.name, group.completed + 1) and not entry.done:
            return entry if entry.state in ("scheduled", "started") else None
    return None


def _complete(view: JobView, begun: dict[int, Collective]) -> bool:
    """Whether every rank of every group has begun the same call."""
    for group in {entry.group for entry in begun.values()}:
        calls = {rank: entry for rank, entry in begun.items() if entry.group == group}
        members = view.members.get(group, view.world)
        if sorted(calls) != sorted(members) or len({(e.seq, plain(e.op)) for e in calls.values()}) != 1:
            return False
    return True


def _at_the_stop(view: JobView) -> list[tuple[int, Xid]]:
    """Return GPU events, with their nodes, from shortly before progress stopped or since; causes first."""
    stopped = view.evidence.at - view.stuck_for
    found = [
        (number, xid)
        for number, node in view.nodes.items()
        for xid in node.xids
        if xid.number not in _NOTES and xid.at >= stopped - _AROUND
    ]
    first = [each for each in found if _FOLLOWS not in each[1].text]
    return sorted(first or found, key=lambda each: each[1].at)


def gpu_facts(view: JobView, nodes: Iterable[int]) -> list[Fact]:
    """Return the newest lines of the kernel and nvidia-smi about these nodes' GPUs."""
    facts = []
    for number in nodes:
        node, place = view.nodes[number], f"xids, gpus of node {number} in bundle.json"
        texts = [f"{view.node(number)}'s kernel: {phrases.clipped(xid.text)}" for xid in node.xids[-2:]]
        texts += [f"{view.node(number)}'s nvidia-smi: {phrases.clipped(line)}" for line in node.gpus[:8]]
        source = Source("the kernel's log and nvidia-smi", f"node {number}", place)
        facts += [Fact(text, source) for text in texts]
    return facts[:16]


def _unread(view: JobView, wanted: bool) -> list[str]:
    texts = ("kernel log", "nvidia-smi")
    return [
        f"not seen on {view.node(number)}: {text}"
        for number, node in view.nodes.items()
        for text in node.missing
        if wanted and text.startswith(texts)
    ][:4]
