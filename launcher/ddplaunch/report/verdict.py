"""A diagnosis as terminal text: first what is wrong, in one sentence; then whose fault it is, why, what to
do.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from ddplaunch.agent.contract import JobEvidence, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.diagnosis.run.unseen import unexplained
from ddplaunch.agent.diagnosis.run.view import ELSEWHERE, JobView
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import PROCESS, State
from ddplaunch.report import Diagnosis
from ddplaunch.report.words import PLAIN, Paint, and_more, clock, count, duration, some

_NARROWEST = 60
_LABEL = 12
_MOVED = 5.0
"""A job moves if a rank has moved within this many seconds."""
_OF_CAMPS = ("collective-mismatch", "collective-skipped", "group-partial")
_MOST = 8
"""Places, or ranks with their pace, to list at the most."""


def diagnosis_text(diagnosis: Diagnosis, paint: Paint = PLAIN, width: int | None = None) -> str:
    """Return the whole text, for `diagnose` and the end of a watched job. `width` None: no line is broken."""
    names = node_names(diagnosis)
    parts = [verdict_text(verdict, paint, width, names) for verdict in diagnosis.verdicts]
    if not parts:
        parts = [without_verdict(diagnosis)]
    return "\n\n".join([*parts, about_text(diagnosis, width)])


def verdict_text(
    verdict: Verdict, paint: Paint = PLAIN, width: int | None = None, names: Sequence[str] = ()
) -> str:
    """Return one verdict as text, without a newline at its end. `names`: the nodes', if they help."""
    lines = [*map(paint.bad, _folded(verdict.sentence, width, "").splitlines()), ""]
    lines += _entry("culprit", [culprits(verdict, names)], width)
    lines += _entry("victims", [some("rank", verdict.victims)] if verdict.victims else [], width)
    lines += _entry("because", verdict.facts, width)
    lines += _entry("hint", [verdict.hint] if verdict.hint else [], width)
    lines += _entry("confidence", [f"{verdict.confidence:.0%}"] if verdict.confidence < 1 else [], width)
    lines += _entry("more", [f"ddplaunch explain {verdict.code}"], width)
    return "\n".join(lines)


def culprits(verdict: Verdict, names: Sequence[str] = ()) -> str:
    """`rank 3 on node 1 (n2)`, `nodes 1 and 4`, or that nobody in particular is at fault.

    In a tie both camps are named, and none of their ranks is accused.
    """
    ranks = some("rank", verdict.ranks) if verdict.ranks else ""
    if (
        verdict.code in _OF_CAMPS
        and verdict.confidence <= sure.CALLS_IN_A_TIE
        and not verdict.victims
        and ranks
    ):
        return f"not decided: {ranks} disagree, and either side may be wrong"
    nodes = phrases.nodes(verdict.nodes, names) if verdict.nodes else ""
    return f"{ranks} on {nodes}" if ranks and nodes else ranks or nodes or "not known"


def node_names(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes' names, the scheduler's for nodes that never came; none if all are on one host."""
    status, bundle, evidence = diagnosis.job.status, diagnosis.bundle, diagnosis.evidence
    hosts = {each.node: each.host for each in (evidence.evidence if evidence else [])}
    hosts |= {each.node: each.host for each in (status.nodes if status else []) if each.host}
    hosts |= {each.node: each.host for each in (bundle.check_ins if bundle else [])}
    names = [printable(hosts.get(node, "")) for node in range(max(hosts, default=-1) + 1)]
    return names if len(set(filter(None, names))) > 1 else []


def about_text(diagnosis: Diagnosis, width: int | None = None) -> str:
    """Return what was looked at: the job, its evidence, and what could not be seen."""
    job = diagnosis.job
    took = f" after {duration(job.ended - job.submitted)}" if job.ended else ""
    begun = "started" if job.handle.target == PROCESS else "submitted"
    lines = _entry("job", [f"{job.handle}, {begun} {clock(job.submitted)}, {job.state}{took}"], width)
    events = diagnosis.bundle.events if diagnosis.bundle else []
    lines += _entry("checkpoint", [each.text for each in events if each.kind == "checkpoint"], width)
    evidence = diagnosis.evidence
    if evidence is not None:
        ranks = sum(len(node.ranks) for node in evidence.evidence)
        silent = unexplained(evidence)
        answered = count(len(evidence.evidence) - len(evidence.silent) + len(silent), "node")
        seen = f"{clock(evidence.at)}, of {count(ranks, 'rank')} on {answered}"
        lines += _entry("evidence", [seen], width)
        if silent:
            lines += _entry("silent", [f"{some('node', silent)} gave no evidence in time"], width)
        lines += _entry("unseen", missing(diagnosis), width)
        if diagnosis.verdicts and job.hint and job.status is None:  # a job that ddplaunch did not start
            lines += _entry("see more", [job.hint], width)
        if not diagnosis.verdicts:  # otherwise the verdict has what matters of it
            lines += _entry("where", places(evidence), width)
            lines += _entry("pace", paces(evidence), width)
    return "\n".join(lines)


def places(evidence: JobEvidence) -> list[str]:
    """Return where the ranks were, in at most eight places, the place with the most ranks first."""
    nodes = [replace(node, ranks=[_before_stop(rank) for rank in node.ranks]) for node in evidence.evidence]
    view = JobView(replace(evidence, evidence=nodes))
    at = view.locations
    seen = [rank for rank in view.alive if at[rank].kind != ELSEWHERE or at[rank].site is not None]
    groups = sorted(view.groups_of_ranks(seen).items(), key=lambda each: (-len(each[1]), each[1]))
    lines = [f"{some('rank', numbers)}: {place}" for place, numbers in groups[:_MOST]]
    return [*lines, *and_more(len(groups) - _MOST, "place")]


def _before_stop(rank: RankEvidence) -> RankEvidence:
    """Return a rank as it was before it was ended with its job, when it was looked at."""
    return replace(rank, alive=True) if rank.exit is not None and rank.exit.by_us else rank


def paces(evidence: JobEvidence) -> list[str]:
    """Return how fast at most eight living ranks go, the one that waits least for the others first."""
    ranks = [rank for node in evidence.evidence for rank in node.ranks if rank.alive]
    known = [rank for rank in ranks if pace.text(rank)]
    known.sort(
        key=lambda rank: (
            pace.share(rank, pace.IN_COLLECTIVES) if pace.seconds_observed(rank) else 1.0,
            rank.rank,
        )
    )
    lines = [f"rank {rank.rank}: {pace.text(rank)}" for rank in known[:_MOST]]
    return [*lines, *and_more(len(known) - _MOST, "rank")]


def _moves(evidence: JobEvidence | None) -> bool:
    """Whether a rank did something, or computed, shortly before it was looked at."""
    ranks = [rank for node in (evidence.evidence if evidence else []) for rank in node.ranks if rank.alive]
    return any(rank.still_for < _MOVED for rank in ranks)


def missing(diagnosis: Diagnosis) -> list[str]:
    """Return what the collectors could not get, each with the nodes on which it was missing."""
    where: dict[str, list[int]] = {}
    for node in diagnosis.evidence.evidence if diagnosis.evidence else []:
        for text in node.missing:
            where.setdefault(text, []).append(node.node)
    return [f"{text} ({some('node', nodes)})" for text, nodes in where.items()]


def without_verdict(diagnosis: Diagnosis) -> str:
    """Return why there is no verdict. This text is not a verdict."""
    job = diagnosis.job
    if job.state is State.SUCCEEDED:
        return "nothing is wrong: the job succeeded"
    if job.state in (State.LOST, State.CANCELLED):
        return f"no verdict: the job was {job.state}" + (f"; {printable(job.detail)}" if job.detail else "")
    if not job.state.ended and job.detail:
        pending = "the job is pending; " if job.state is State.PENDING else ""
        hint = f"\n\nhint: {printable(job.hint)}" if job.hint else ""
        return f"no verdict: {pending}{printable(job.detail)}{hint}"
    if not job.state.ended and _moves(diagnosis.evidence):
        return "nothing is wrong: the job moves"
    if not job.state.ended:
        return "no verdict: nothing is known to be wrong with this job"
    if job.detail:
        return f"no verdict: the job failed; {printable(job.detail)}"
    return "no verdict: the job failed and left no evidence that decides; its log may say more"


def _entry(label: str, texts: Sequence[str], width: int | None) -> list[str]:
    """`  label     text`, further texts below the first."""
    heads = [f"  {label if number == 0 else '':<{_LABEL}}" for number in range(len(texts))]
    return [_folded(head + text, width, " " * (_LABEL + 2)) for head, text in zip(heads, texts, strict=True)]


def _folded(text: str, width: int | None, indent: str) -> str:
    text = printable(text)
    if width is None:
        return text
    return textwrap.fill(
        text,
        max(width, _NARROWEST),
        subsequent_indent=indent,
        break_long_words=False,  # people copy paths and names from here
        break_on_hyphens=False,
        drop_whitespace=True,
    )
