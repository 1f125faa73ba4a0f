"""Returns jobs and diagnoses as plain data for scripts, whose keys are as stable as the exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ddplaunch.agent.contract import Status, Verdict, codec
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.backends.job import Earlier, Job
from ddplaunch.report import measured, reachability, verdict
from ddplaunch.report.diagnosis import Diagnosis, known_verdicts


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
        "earlier": [_earlier(each) for each in job.earlier],
        "sweep": dict(job.sweep),
        "phase": status.get("phase"),
        "since": status.get("since"),
        "waiting_for": status.get("waiting_for", []),
        "nodes": status.get("nodes", []),
        "pace": asdict(job.status.pace) if job.status and job.status.pace else None,
        "verdicts": verdicts_data(known_verdicts(job)),
    }


def _earlier(attempt: Earlier) -> dict[str, Any]:
    status = attempt.status
    return {
        "attempt": attempt.number,
        "exit_code": status.exit_code if status else None,
        "verdicts": verdicts_data(status.verdicts if status else []),
    }


def verdicts_data(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The verdicts as people read them: what their sentences were made of is left out."""
    return [codec.dump(replace(each, template=None, machines=None)) for each in verdicts]


def doctor_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return `doctor --json`: `diagnosis_data`, the checks of each node, how it is reached, and by which.

    `rows` of the latter has a word for each node that tried, with a letter for each node that it tried.
    """
    bundle = diagnosis.bundle
    reached = bundle and {"legend": reachability.STATES, "rows": reachability.rows(bundle)}
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


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return `diagnose --json`: the verdicts, the job, and which evidence there was."""
    evidence = diagnosis.evidence
    return {
        "verdicts": verdicts_data(diagnosis.verdicts),
        "handle": str(diagnosis.job.handle),
        "state": str(diagnosis.job.state),
        "exit_code": diagnosis.job.exit_code,
        "detail": diagnosis.job.detail,
        "hint": diagnosis.job.hint,
        "submitted": diagnosis.job.submitted,
        "ended": diagnosis.job.ended,
        "evidence": evidence
        and {
            "at": evidence.at,
            "why": evidence.why,
            "nodes": len(evidence.evidence),
            "ranks": sum(len(node.ranks) for node in evidence.evidence),
            "silent": evidence.silent,
            "missing": verdict.missing(diagnosis),
            "pace": [
                asdict(pace.brief(rank)) for node in evidence.evidence for rank in node.ranks if rank.alive
            ],
        },
    }
