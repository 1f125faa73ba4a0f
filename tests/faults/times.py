"""How soon a fault was told, from what the job's hub wrote down."""

from __future__ import annotations

from collections.abc import Iterable

from ddplaunch.agent.contract import Bundle, Event, Verdict
from ddplaunch.agent.contract.evidence import JobEvidence

AT_THE_DEADLINE = frozenset({"node-missing"})
"""Codes that are told when `gate.timeout` is over, and not before: their time is the job file's choice."""
AT_THE_CALL = frozenset(
    {"dns-not-found", "master-is-loopback", "rendezvous-overridden", "rank-duplicate", "port-in-use"}
)
"""Codes that follow from where a rank's init_process_group leads it, before anything has stood still."""


def seconds(bundle: Bundle, code: str) -> float | None:
    """From the fault to the first word that names its cause; None where nobody can say, or it was not told.

    At the gate: from the check-in of the last healthy node; 0 where that came after the word. While the job
    runs: from the death, from a lost node's last sign, from the last call of init_process_group, or from the
    moment since which nothing moves.
    """
    words = [event for event in bundle.events if event.text.startswith(f"{code}: ")]
    told = _first(words, "notice", "verdict")
    where = {verdict.where for verdict in bundle.verdicts if verdict.code == code}
    if told is None or not where or code in AT_THE_DEADLINE:
        return None
    if "gate" in where:
        since = _last_check_in(bundle.events, bundle.verdicts)
        return None if since is None else max(0.0, told.at - since)
    if code in AT_THE_CALL:
        since = _last_call(bundle.evidence, told.at)
    else:
        since = _began(bundle.events, bundle.evidence)
    # Evidence that was taken anew after the first word tells of a later moment.
    return None if since is None or since > told.at else told.at - since


def _last_check_in(events: Iterable[Event], verdicts: list[Verdict]) -> float | None:
    """Of the nodes that are not at fault; of all, when all are."""
    came = [event for event in events if event.kind == "check-in" and event.node is not None]
    culprits = {node for verdict in verdicts for node in verdict.nodes}
    healthy = [event for event in came if event.node not in culprits]
    return max((event.at for event in healthy or came), default=None)


def _last_call(evidence: JobEvidence | None, before: float) -> float | None:
    """A rank that calls after the word came adds nothing to it."""
    nodes = evidence.evidence if evidence is not None else []
    met = (rank.rendezvous for node in nodes for rank in node.ranks)
    return max((each.at for each in met if each is not None and each.at <= before), default=None)


def _began(events: Iterable[Event], evidence: JobEvidence | None) -> float | None:
    if evidence is not None and evidence.lost:
        return min(lost.at for lost in evidence.lost)
    death = _first(events, "death")
    if death is not None:
        return death.at
    nodes = evidence.evidence if evidence is not None else []
    return max((node.at - rank.stuck_for for node in nodes for rank in node.ranks), default=None)


def _first(events: Iterable[Event], *kinds: str) -> Event | None:
    return next((event for event in events if event.kind in kinds), None)
