"""Process groups with separate worlds inside one job, and which of their ranks were never seen. Pure.

A job may hold several worlds: a script may start one torchrun after another, or two side by side. Ranks of
different worlds share numbers and never wait for one another, so each world is judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import JobEvidence, NodeEvidence, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

Place = tuple[str, Optional[int], str]


def split(evidence: JobEvidence) -> list[JobEvidence]:
    """Return the evidence of each world; the evidence itself where there is but one.

    Only process groups that exist prove that worlds are several: ranks that were led to different places and
    wait there are one world that cannot meet.
    """
    everything = [(node, rank) for node in evidence.evidence for rank in node.ranks]
    made = {_place(rank) for _, rank in everything if rank.rendezvous is not None and rank.rendezvous.passed}
    numbers = [rank.rank for _, rank in everything]
    if len(made) < 2 or len(numbers) == len(set(numbers)):
        return [evidence]
    launched = {
        (node.node, rank.launcher): place
        for node, rank in everything
        if rank.launcher and (place := _place(rank)) in made
    }
    found = []
    for place in sorted(made, key=str):
        nodes = [
            replace(node, ranks=[rank for rank in node.ranks if _world(node, rank, launched) == place])
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
    """Return the verdicts, each of which says how many ranks of the world were seen, where some were not."""
    if not view.unseen or not view.ranks:
        return list(verdicts)
    verb = phrases.one_or(view.unseen, "runs", "run")
    where = f"{verb} on nodes that do not answer"
    if not view.evidence.silent:
        has = phrases.one_or(view.unseen, "has", "have")
        where = f"{has} not started, or {verb} where ddplaunch does not look"
    note = f"{len(view.ranks)} of {len(view.world)} ranks seen; {subjects.ranks(view.unseen)} {where}"
    return [each.continued(f" ({note})") for each in verdicts]


def _place(rank: RankEvidence) -> Optional[Place]:
    made = rank.rendezvous
    return None if made is None else (made.address, made.port, made.file)


def _world(
    node: NodeEvidence, rank: RankEvidence, launched: dict[tuple[int, int], Optional[Place]]
) -> Optional[Place]:
    """Return where it meets its peers; before its call, where its siblings of one parent meet."""
    return _place(rank) or launched.get((node.node, rank.launcher))
