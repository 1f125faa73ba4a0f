"""Returns jobs and diagnoses as plain data for scripts, whose keys are as stable as the exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ddplaunch.agent.contract import JobStatus, Status, Verdict, codec
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.backends.job import Earlier, Job
from ddplaunch.report import links, measured, reachability, verdict
from ddplaunch.report.diagnosis import Diagnosis, known_verdicts
from ddplaunch.report.diagnosis_schema import DiagnosisData, EvidenceData, NodeData, VerdictData


def job_data(job: Job) -> dict[str, Any]:
    """Return `status --json`, and an item of `list --json`. Times are seconds since the epoch, or null."""
    status = codec.dump(job.status) if job.status else {}
    return {
        "handle": str(job.handle),
        "name": job.name,
        "state": str(job.state),
        "exit_code": job.exit_code,
        "submitted": job.submitted,
        "ended": job.ended,
        "detail": job.detail,
        "hint": job.hint,
        "never_starts": job.never_starts,
        "lingers": job.lingers,
        "attempt": job.attempt,
        "launch_attempt": job.status.launch_attempt if job.status else 0,
        "earlier": [_earlier(each) for each in job.earlier],
        "failed_attempts": _failed_attempts(job.status),
        "sweep": dict(job.sweep),
        "phase": status.get("phase"),
        "since": status.get("since"),
        "waiting_for": status.get("waiting_for", []),
        "signal": status.get("signal"),
        "nodes": status.get("nodes", []),
        "pace": asdict(job.status.pace) if job.status and job.status.pace else None,
        "verdicts": verdicts_data(known_verdicts(job)),
    }


def _earlier(attempt: Earlier) -> dict[str, Any]:
    status = attempt.status
    return {
        "attempt": attempt.number,
        "exit_code": status.exit_code if status else None,
        "failed_attempts": _failed_attempts(status),
        "verdicts": verdicts_data(status.verdicts if status else []),
    }


def _failed_attempts(status: JobStatus | None) -> list[dict[str, Any]]:
    return [
        {
            "launch_attempt": each.number,
            "ended": each.ended,
            "verdicts": verdicts_data(each.verdicts),
        }
        for each in (status.failed_attempts if status else [])
    ]


def verdicts_data(verdicts: Sequence[Verdict]) -> list[VerdictData]:
    """The verdicts as people read them: what their sentences were made of is left out."""
    return [codec.dump(replace(each, template=None, machines=None)) for each in verdicts]


def doctor_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return `doctor --json`: `diagnosis_data`, the checks of each node, how it is reached, and by which.

    `rows` of the latter has a word for each node that tried, with a letter for each node that it tried;
    `links` has round trip and MTU of each path that passes, null where they were not seen.
    """
    bundle = diagnosis.bundle
    reached = bundle and {
        "legend": reachability.STATES,
        "rows": reachability.rows(bundle),
        "links": [each._asdict() for each in links.links(bundle)],
    }
    checks = [
        {
            "node": check_in.node,
            **{key: value for key, value in codec.dump(check).items() if key != "facts"},
            "applies": check.status != Status.PASS or measured.applies(check.check, check_in.facts),
        }
        for check_in in (bundle.check_ins if bundle else [])
        for check in check_in.checks
    ]
    network = [each._asdict() for each in measured.networks(bundle)] if bundle else []
    return {**diagnosis_data(diagnosis), "checks": checks, "network": network, "reachability": reached}


def diagnosis_data(diagnosis: Diagnosis) -> DiagnosisData:
    """Return `diagnose --json`: the verdicts, the job, its nodes, and which evidence there was."""
    job = diagnosis.job
    return {
        "schema": "urn:ddplaunch:diagnosis:v1",
        "verdicts": verdicts_data(diagnosis.verdicts),
        "handle": str(job.handle),
        "state": job.state,
        "exit_code": job.exit_code,
        "detail": job.detail,
        "hint": job.hint,
        "submitted": job.submitted,
        "ended": job.ended,
        "nodes": _nodes(diagnosis),
        "evidence": _evidence(diagnosis),
    }


def _nodes(diagnosis: Diagnosis) -> list[NodeData]:
    bundle, evidence, status = diagnosis.bundle, diagnosis.evidence, diagnosis.job.status
    hosts = {each.node: each.host for each in (status.nodes if status else []) if each.host}
    hosts |= {each.node: each.host for each in (evidence.evidence if evidence else [])}
    hosts |= {each.node: each.host for each in (bundle.check_ins if bundle else [])}
    return [{"node": node, "host": host} for node, host in sorted(hosts.items())]


def _evidence(diagnosis: Diagnosis) -> EvidenceData | None:
    evidence = diagnosis.evidence
    if evidence is None:
        return None
    ranks = [rank for node in evidence.evidence for rank in node.ranks]
    paces = [pace.brief(rank) for rank in ranks if rank.alive]
    return {
        "at": evidence.at,
        "why": evidence.why,
        "nodes": len(evidence.evidence),
        "ranks": len(ranks),
        "silent": evidence.silent,
        "missing": verdict.missing(diagnosis),
        "pace": [
            {
                "rank": each.rank,
                "step": each.step,
                "in_collectives": each.in_collectives,
                "for_data": each.for_data,
            }
            for each in paces
        ],
    }
