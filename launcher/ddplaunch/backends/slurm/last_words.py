"""Reads what a job left whose hub could not finish: words of the script, of Slurm and of the gates."""

from __future__ import annotations

import re
from pathlib import Path

from ddplaunch.agent.contract import Files, Verdict
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.backends import files, lines

_SAID = re.compile(r"\[slurm\] \S+ error: (.+)|(?:slurmstepd-\S+): error: (TaskProlog failed .+)")


def of_script(output: Path | None) -> str:
    """Return why the batch script itself gave up, or never was; empty when it did not say so."""
    found = [_SAID.fullmatch(line) for line in lines.last_words(output, 40)] if output else []
    return next((match[1] or match[2] for match in reversed(found) if match), "")


def of_gates(folder: Path | None) -> list[Verdict]:
    """Return what nodes say that did not reach the hub, each cause once. `folder`: the job's."""
    try:
        text = files.tail(folder / Files.GATES, files.MAX_SMALL) if folder else b""
    except OSError:
        return []
    last = {cry.node: cry.verdict for line in text.splitlines() if (cry := scheduler_log.read(line))}
    return [verdict for _, verdict in hub_unreached.alike(last)]
