"""Reads a job's plan from its folder: from the plan's own file, or from the job file, where that is there."""

from __future__ import annotations

import os

from ddplaunch.agent.contract import Files, JobPlan, Verdict, codec


def find(folder: str) -> str:
    """Return the path of the file that says what the job is, whether or not it is there."""
    job = os.path.join(folder, Files.JOB)
    return job if os.path.exists(job) else os.path.join(folder, Files.PLAN)


def read(path: str) -> tuple[JobPlan, list[Verdict]]:
    """Return the plan, and the verdicts on the job file it follows from. Raises OSError or ValueError."""
    if os.path.basename(path) == Files.PLAN:
        return codec.read(JobPlan, path), []
    from ddplaunch.agent.job_file import read as job_file  # only pods of a chart have one

    with open(path, encoding="utf-8") as file:
        return job_file.parse(file.read())
