"""Puts together what is wrong with a job: the verdicts of its bundle, and what its backend knows."""

from __future__ import annotations

from dataclasses import dataclass

from ddplaunch.agent.contract import Bundle, JobEvidence, Verdict
from ddplaunch.backends.job import Job


@dataclass(frozen=True)
class Diagnosis:
    """The input of every report."""

    job: Job
    bundle: Bundle | None
    verdicts: list[Verdict]

    @property
    def evidence(self) -> JobEvidence | None:
        return self.bundle.evidence if self.bundle else None


def diagnose(job: Job, bundle: Bundle | None) -> Diagnosis:
    """The verdicts of the bundle, made where all evidence was. Where that abstained, so does this."""
    if bundle is None:
        return Diagnosis(job, bundle, known_verdicts(job))
    return Diagnosis(job, bundle, bundle.verdicts or list(job.verdicts))


def known_verdicts(job: Job) -> list[Verdict]:
    """Without looking into its bundle. What its backend knows counts where the job's own hub said nothing."""
    return (list(job.status.verdicts) if job.status else []) or list(job.verdicts)
