"""Rules about ranks that can never meet, by their calls of init_process_group, before these time out.

A call that has returned is right, whatever it was made with. So is one that leads to the same place as all
the others, where a store can answer: a script may choose its own rendezvous, as long as it works.
"""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import rendezvous_calls as calls
from ddplaunch.agent.diagnosis.run import rendezvous_master as master
from ddplaunch.agent.diagnosis.run import rendezvous_members as members
from ddplaunch.agent.diagnosis.run.job_view import JobView

_PROVEN = (
    master.nccl_without_gpu,
    master.unresolved,
    master.loopback,
    master.other_node,
    members.rank_twice,  # before the port: of two that are rank 0, one finds it held by the other
    master.port_held,
    master.no_store,
    members.sizes_differ,
    members.places_differ,
    members.backends_differ,
    master.file_of_an_earlier_run,
)
_LIKELY = (
    members.too_few,
    master.nobodys_address,
    master.files_of_each_machine,
    members.other_script,
    master.otherwise_than_proved,
)


def never_meet(view: JobView) -> Optional[Verdict]:
    """Return what the calls prove by themselves, however long ranks have waited."""
    waiting = calls.waiting(view)
    for rule in _PROVEN:
        verdict = rule(view, waiting) if waiting else None
        if verdict is not None:
            return verdict
    return None


def may_never_meet(view: JobView) -> Optional[Verdict]:
    """Return what explains that all ranks wait in init_process_group, where nothing better does."""
    waiting = calls.waiting(view)
    if not waiting or len(waiting) < len(view.alive):
        return None
    for rule in _LIKELY:
        verdict = rule(view, waiting)
        if verdict is not None:
            return verdict
    return None


def worth_a_look(view: JobView) -> bool:
    """Whether calls are of a kind that no launcher makes: then evidence of all nodes is taken at once.

    A job that leaves all to its launcher has none, and no node is asked.
    """
    waiting = calls.waiting(view)
    ranks = [call.rank for call in waiting]
    return (
        any(call.is_chosen or call.made.unresolved or call.made.holder for call in waiting)
        or len(ranks) > len(set(ranks))
        or len({(call.made.port, call.world_size, call.made.backend) for call in waiting}) > 1
    )


def explains_the_ends(view: JobView) -> bool:
    """Whether every rank that ended badly had called init_process_group, and the call had not returned."""
    called = {call.rank for call in calls.waiting(view)}
    return all(
        rank.exit is None or rank.exit.by_us or not (rank.exit.code or rank.exit.signal) or number in called
        for number, rank in view.ranks.items()
    )
