"""Reads a job's plan from its folder: from the job file if it is there, otherwise from the plan's file."""

from __future__ import annotations

import os

from ddplaunch.agent.contract import Files, JobPlan, Verdict, codec


def find(folder: str) -> str:
    """Return the path of the file that describes the job, whether or not the file exists."""
    job = os.path.join(folder, Files.JOB)
    return job if os.path.exists(job) else os.path.join(folder, Files.PLAN)


def read(path: str) -> tuple[JobPlan, list[Verdict]]:
    """Return the plan, and the verdicts on the job file that it comes from. Raises OSError or ValueError."""
    if os.path.basename(path) == Files.PLAN:
        return codec.read(JobPlan, path), []
    from ddplaunch.agent.job_file import read as job_file  # only pods of a chart have one

    with open(path, encoding="utf-8") as file:
        return job_file.parse(file.read())
