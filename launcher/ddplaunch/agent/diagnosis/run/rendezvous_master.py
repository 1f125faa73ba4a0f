"""Rules about calls of init_process_group that lead to no master or to a wrong one. Pure."""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import rendezvous_calls as calls
from ddplaunch.agent.diagnosis.run.call_records import ADDRESS, PORT, line
from ddplaunch.agent.diagnosis.run.job_view import JobView

_DELETE = "Delete the line: the launcher sets {}, and init_process_group reads it."
DELETE_BOTH = (
    "Delete the lines that set MASTER_ADDR and MASTER_PORT: the launcher sets both, and init_process_group "
    "reads them."
)
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_NO_GPU = re.compile(r"ProcessGroupNCCL is only supported with GPUs|nccl2 requires at least one CUDA device")
"""What torch says to NCCL without a GPU, up to 2.14 and since."""
_PRIVATE = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - compared only


def nccl_without_gpu(view: JobView) -> Optional[Verdict]:
    """torch refuses NCCL where it sees no GPU."""
    refused = [
        call
        for call in view.open_init_calls
        if any(_NO_GPU.search(raised.message) for raised in call.process.raised)
    ]
    if not refused:
        return None
    where = view.named({call.node for call in refused})
    return calls.verdict(
        view,
        "backend-unfit",
        refused,
        f"{line(refused[0].made.frame)} asks for NCCL, and torch sees no GPU on {where}",
        'Ask for "gloo" where there is no GPU, or give the job GPUs and a torch that was built for them.',
    )


def unresolved(view: JobView) -> Optional[Verdict]:
    """Return the verdict where the master's name has no address; one by the launcher may still appear."""
    waiting = view.open_init_calls
    lost = [
        call
        for call in waiting
        if call.by_network and call.made.unresolved and (call.is_chosen or view.evidence.why != "call")
    ]
    if not lost:
        return None
    first = lost[0]
    unanswered = first.made.unresolved == "timeout"
    everywhere = len({call.node for call in lost}) == len({call.node for call in waiting})
    where = "" if everywhere else f" on {view.named({call.node for call in lost})}"
    ending = "which the name server does not answer for" if unanswered else "which does not resolve"
    return calls.verdict(
        view,
        "dns-unanswered" if unanswered else "dns-not-found",
        lost,
        f"{first.choice(ADDRESS)}, {ending}{where}{calls.proved(view)}",
        _DELETE.format(ADDRESS) if first.is_chosen else "Set MASTER_ADDR to a name that every node resolves.",
    )


def loopback(view: JobView) -> Optional[Verdict]:
    """Ranks on several machines, and an address that leads each machine to itself."""
    waiting = view.open_init_calls
    here = [call for call in waiting if call.loops_back]
    homes = calls.by_machine(view, here)
    if "" in calls.machines(view) or len(calls.by_machine(view, waiting)) < 2:
        return None
    store = calls.home_of_store(view)
    astray = [call for machine, group in homes.items() if machine != store for call in group]
    if not astray or (store is None and len(homes) < 2) or calls.overlap(homes.values()):
        return None
    if any(calls.could_be_a_job_of_its_own(view, group) for group in homes.values()):
        return None
    first = astray[0]
    if len(here) == len(waiting):
        nodes = len({call.node for call in here})
        ending = f"each of the {nodes} nodes waits for itself"
        astray = here
    else:
        ending = f"{view.named({call.node for call in astray})} waits for itself"
    return calls.verdict(
        view,
        "master-is-loopback",
        astray,
        f"{first.choice(ADDRESS)}: {ending}{calls.proved(view)}",
        _DELETE.format(ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of node 0.",
    )


def other_node(view: JobView) -> Optional[Verdict]:
    """Return the verdict where the address is another node's than the one that opens the store."""
    store = calls.home_of_store(view)
    astray = [
        call
        for call in view.open_init_calls
        if store and not call.loops_back and calls.leads_to(view, call) not in (None, "", store)
    ]
    if not astray:
        return None
    first = astray[0]
    owner = calls.home(view, calls.leads_to(view, first))
    return calls.verdict(
        view,
        "master-is-not-node-zero",
        astray,
        f"{first.choice(ADDRESS)}, an address of {owner}: the store is on {calls.home(view, store)}"
        f"{calls.proved(view)}",
        _DELETE.format(ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of rank 0's node.",
    )


def port_held(view: JobView) -> Optional[Verdict]:
    """Return the verdict where rank 0 cannot open its store, or all ranks reach one of another job."""
    waiting = view.open_init_calls
    for call in waiting:
        if not call.by_network or (call.rank != 0 and not call.made.agent_store):
            continue
        if call.made.agent_store and call.changed(PORT) is None:
            continue  # torchrun itself listens there
        refused = any(_IN_USE.search(raised.message) for raised in call.process.raised)
        if not call.made.holder and not refused:
            continue
        node = view.node(call.node)
        shared = [each for each in waiting if each.made.agent_store and each.changed(PORT) is not None]
        held = f"is held by {call.made.holder}" if call.made.holder else "is held by another process"
        return calls.verdict(
            view,
            "store-shared" if shared else "port-in-use",
            shared or [call],
            f"{call.choice(PORT)}, which on {node} {held}"
            + ("; torchrun opens no store of this job's there" if shared else ""),
            _DELETE.format(PORT) if call.is_chosen else "Choose another port, or end who holds this one.",
        )
    return None


def no_store(view: JobView) -> Optional[Verdict]:
    """torchrun keeps the job's store, and the script sends its ranks elsewhere."""
    astray = [
        call for call in view.open_init_calls if call.made.agent_store and call.changed(PORT) is not None
    ]
    if not astray:
        return None
    first = astray[0]
    setting = first.changed(PORT)
    kept = f" at port {setting.given}" if setting is not None and setting.given else ""
    return calls.verdict(
        view,
        "rendezvous-overridden",
        astray,
        f"{first.choice(PORT)}, where no rank opens a store: torchrun keeps the job's{kept}",
        DELETE_BOTH,
    )


def nobodys_address(view: JobView) -> Optional[Verdict]:
    """Rules a MASTER_ADDR that no node of the job has, and that no load balancer leads to the right one."""
    astray = [call for call in view.open_init_calls if calls.leads_to(view, call) == ""]
    if not astray:
        return None
    first = astray[0]
    return calls.verdict(
        view,
        "master-is-not-node-zero",
        astray,
        f"{first.choice(ADDRESS)}, which is no address of this job's nodes{calls.proved(view)}",
        _DELETE.format(ADDRESS) if first.is_chosen else "Set MASTER_ADDR to an address of rank 0's node.",
        calls.LIKELY,
    )


def files_of_each_machine(view: JobView) -> Optional[Verdict]:
    """A file on a path that is each machine's own."""
    waiting = view.open_init_calls
    first = waiting[0]
    private = first.made.file.startswith(_PRIVATE)
    if not private or len(calls.machines(view) - {""}) < 2:
        return None
    return calls.verdict(
        view,
        "rendezvous-overridden",
        waiting,
        f"{first.choice(ADDRESS)}: on each of the {len(view.nodes)} nodes that may be another file",
        "Use the launcher's rendezvous (init_method left out), or a file on storage that all nodes share.",
        calls.LIKELY,
    )


def file_of_an_earlier_run(view: JobView) -> Optional[Verdict]:
    """Every rank found keys in the file, and so did the first one, before any rank of this job had written.

    The store still works, with the addresses of processes that are gone; a call in time is left alone.
    """
    waiting = view.open_init_calls
    made = view.init_calls
    found = {call.rank for call in made if call.made.file_used}
    files = {call.made.file for call in made}
    if view.evidence.why in ("call", "asked") or found != {*view.world} or len(files) > 1:
        return None
    return calls.verdict(
        view,
        "store-shared",
        waiting,
        f"{waiting[0].choice(ADDRESS)}: the file held the keys of an earlier run when the first rank came",
        "Give each run a file of its own, or delete it before; or leave init_method out, for the launcher "
        "has prepared a rendezvous.",
        calls.LIKELY,
    )


def otherwise_than_proved(view: JobView) -> Optional[Verdict]:
    """The script has chosen an address or a port that the gate has not tried."""
    waiting = view.open_init_calls
    chosen = [call for call in waiting if call.is_chosen and call.by_network]
    proved = view.evidence.master_addr
    if not proved or view.unseen or len(chosen) < len(waiting) or chosen[0].made.agent_store:
        return None
    name = ADDRESS if chosen[0].made.address != proved else PORT
    return calls.verdict(
        view,
        "rendezvous-overridden",
        chosen,
        f"{chosen[0].choice(name)}; the gate has proved {proved}:{view.evidence.master_port}, and all "
        "ranks wait in init_process_group",
        DELETE_BOTH,
        0.7,
    )
