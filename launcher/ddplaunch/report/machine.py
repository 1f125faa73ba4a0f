"""The same facts for scripts: plain data, whose keys are as stable as the exit codes."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import codec
from ddplaunch.backends.job import Job
from ddplaunch.report import reachability, verdict
from ddplaunch.report.diagnosis import Diagnosis, known_verdicts


def job_data(job: Job) -> dict[str, Any]:
    """`status --json`; a list of it is `list --json`. Times are seconds since the epoch, or null."""
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
        "lingers": job.lingers,
        "attempt": status.get("attempt", 0),
        "phase": status.get("phase"),
        "since": status.get("since"),
        "waiting_for": status.get("waiting_for", []),
        "nodes": status.get("nodes", []),
        "verdicts": [codec.dump(each) for each in known_verdicts(job)],
    }


def doctor_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """`doctor --json`: the same, what each node found at home, and which node reaches which.

    `rows` of that are words of letters, one word for each node that tried.
    """
    bundle = diagnosis.bundle
    reached = bundle and {"legend": reachability.STATES, "rows": reachability.rows(bundle)}
    checks = [
        {"node": check_in.node, **{key: value for key, value in codec.dump(check).items() if key != "facts"}}
        for check_in in (bundle.check_ins if bundle else [])
        for check in check_in.checks
    ]
    return {**diagnosis_data(diagnosis), "checks": checks, "reachability": reached}


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """`diagnose --json`: the verdicts, and beside them what was looked at."""
    evidence = diagnosis.evidence
    return {
        "verdicts": [codec.dump(each) for each in diagnosis.verdicts],
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
        },
    }
