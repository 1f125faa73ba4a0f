"""Turns a job and its bundle into terminal text, JSON data or one self-contained HTML file.

`cli` and `api` call it. This layer must not collect evidence, talk to a scheduler, or decide a job's exit
code.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddplaunch.agent.contract import Bundle, JobEvidence, Verdict
from ddplaunch.backends.job import Job


@dataclass(frozen=True)
class Diagnosis:
    """A job with its bundle and verdicts, the input of every report."""

    job: Job
    bundle: Bundle | None
    verdicts: list[Verdict]

    @property
    def evidence(self) -> JobEvidence | None:
        return self.bundle.evidence if self.bundle else None


def diagnose(job: Job, bundle: Bundle | None) -> Diagnosis:
    """Return the job with the bundle's verdicts, which the hub reached; without any, with the backend's."""
    if bundle is None:
        return Diagnosis(job, bundle, known_verdicts(job))
    return Diagnosis(job, bundle, bundle.verdicts or list(job.verdicts))


def known_verdicts(job: Job) -> list[Verdict]:
    """Return the verdicts without the bundle: the hub's, else the backend's."""
    return (list(job.status.verdicts) if job.status else []) or list(job.verdicts)
