"""Reads the last messages of a job whose hub could not finish: of its script, of Slurm and of its gates."""

from __future__ import annotations

import re
from pathlib import Path

from ddplaunch.agent.contract import Files, Verdict
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.backends import files, lines

_ERROR = re.compile(r"\[slurm\] \S+ error: (.+)|(?:slurmstepd-\S+): error: (TaskProlog failed .+)")


def of_script(output: Path | None) -> str:
    """Return why the batch script gave up, or Slurm did not start it; empty when neither printed it."""
    found = [_ERROR.fullmatch(line) for line in lines.last_lines(output, 40)] if output else []
    return next((match[1] or match[2] for match in reversed(found) if match), "")


def of_gates(folder: Path | None) -> list[Verdict]:
    """Return the verdicts of gates that did not reach the hub, each once. `folder`: the job's."""
    try:
        text = files.tail(folder / Files.GATES, files.MAX_SMALL) if folder else b""
    except OSError:
        return []
    last = {
        report.node: report.verdict
        for line in text.splitlines()
        if (report := scheduler_log.read_report(line))
    }
    return [verdict for _, verdict in hub_unreached.by_cause(last)]
