"""Jobs that need only some of their nodes: without which ones they go on, and the record of it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from ddplaunch.agent.contract import Exit, Phase, Verdict
from ddplaunch.agent.contract.messages import Judged
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.system import phrases

ALL = "all nodes"
LEFT_OUT = "the job goes on without it"
WAITS = "waits until the job lets it in"
"""Details of nodes that are not the job's. A later hub knows them by these."""


def dispensable(verdicts: Sequence[Verdict], record: JobRecord) -> set[int]:
    """Return the nodes without which no verdict is left; empty where the job ends: it needs them.

    A node that differs from node 0, or does not reach it, goes; node 0 has the hub and torchrun's store. Of
    two nodes with a broken path between them the newcomer goes, if one is: the job ran without it.
    """
    plan = record.plan
    blamed = {node for verdict in verdicts for node in verdict.nodes if node} & record.members
    for out in (blamed & record.newcomers, blamed):
        enough = len(record.members - out) >= (plan.min_nodes or plan.nodes)
        if enough and all(out.intersection(verdict.nodes) for verdict in verdicts):
            return out
    return set()


def leave_out(record: JobRecord, out: Set[int], verdicts: list[Verdict]) -> None:
    """Go on without these nodes, and log why."""
    for verdict in record.placed(verdicts):
        record.event("notice", f"{verdict.code}: {verdict.sentence}")
    record.members -= out
    record.newcomers -= out
    for node in out:
        record.check_ins.pop(node, None)
        record.passed.pop(str(node), None)
        record.links.pop(str(node), None)
        record.node(node, phase=Phase.ENDED, detail=LEFT_OUT)
    if record.agreed is not None:
        record.agreed = replace(record.agreed, nodes=len(record.members))
    record.mesh = [each for each in record.mesh if out.isdisjoint((each.node, each.peer))]
    record.event("notice", f"the job goes on without {phrases.nodes(sorted(out), record.plan.names)}")


def members(record: JobRecord) -> str:
    """Return 'all nodes', or 'nodes 0 (n1) and 2 (n3)'."""
    everyone = len(record.members) == record.plan.nodes
    return ALL if everyone else phrases.nodes(sorted(record.members), record.plan.names)


def gone(record: JobRecord, nodes: Sequence[int]) -> list[Verdict]:
    """Return why newcomers are left out that are not there any more."""
    who = phrases.nodes(nodes, record.plan.names)
    return [Verdict("node-missing", f"{who} went away before the job was ready", "gate", nodes=list(nodes))]


def too_late(record: JobRecord, node: int) -> Judged:
    """Return the answer to a node that the job goes on without."""
    sentence = f"{record.node_name(node)} came when the job had gone on without it"
    return Judged([Verdict("node-missing", sentence, "gate", nodes=[node])], Exit.NODE_AT_FAULT)
