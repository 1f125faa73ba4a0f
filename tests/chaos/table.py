"""The counts: runs by backend, job and injury in chaos.json, and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos import oracle
from tests.chaos.jobs import KINDS
from tests.chaos.oracle import Facts
from tests.chaos.scenario import ATTACKS, JOBS, Scenario

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ROOT / "docs/reference/chaos.json"
RUNS = ROOT / "build/chaos/runs.jsonl"
_LOCK = threading.Lock()

Counts = dict[str, Any]
"""{"runs": {backend: {job: {injury: [runs, with complaints]}}}, "verdicts": {backend: [right, abstained]},
"complaints": [{"backend", "seed", "scenario", "complaints", "became"}]}.

A run with two injuries counts for both. `became` is written by hand.
"""

HEAD = """\
# Chaos

Generated from chaos.json, to which `make chaos` adds. Random jobs are hit in a random phase by one or two
random injuries, and an oracle judges them once they have ended: no process is left, and nothing in /tmp or
/dev/shm; state and exit code are right; the verdict names who is at fault, or abstains; the bundle is there;
and a healthy job is unharmed by injuries that hit only our own processes and files. `ENDS` in
tests/chaos/oracle.py says how a job may end after each injury. One number reproduces a run: `make chaos
SEED=7 BACKEND=local`.

A cell shows the number of runs, and in brackets those with a complaint; a run with two injuries counts in
both rows. `kill` is SIGKILL, `stop` is SIGSTOP for good, `pause` is SIGSTOP for up to 6 s. `fill` leaves no
space on the state disk, `jump` sets our clocks by up to a day, `cut` closes the path between the nodes and
the hub, `away` stops the scheduler.
"""


def line(scenario: Scenario, facts: Facts, complaints: list[str]) -> dict[str, Any]:
    """One run, as it is kept."""
    landed = [scenario.injuries[number] for number in facts.landed]
    return {
        "at": round(time.time()),
        "backend": scenario.backend,
        "seed": scenario.seed,
        "scenario": str(scenario),
        "job": scenario.job,
        "hit": sorted({f"{each.action} {each.target}" for each in landed}) or ["nothing"],
        "end": facts.end,
        "right": oracle.right(scenario, facts),
        "accused": bool(facts.verdicts),
        "complaints": complaints,
        "facts": dataclasses.asdict(facts),
    }


def record(found: dict[str, Any]) -> None:
    """Append a run to the lines that are kept."""
    with _LOCK:
        RUNS.parent.mkdir(parents=True, exist_ok=True)
        with RUNS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def load() -> Counts:
    """The counts so far."""
    if not COUNTED.exists():
        return {"runs": {}, "verdicts": {}, "complaints": []}
    found: Counts = json.loads(COUNTED.read_text("utf-8"))
    return found


def write(counts: Counts) -> None:
    """Write chaos.json."""
    COUNTED.write_text(json.dumps(counts, indent=1) + "\n", "utf-8")


def add(counts: Counts, lines: Iterable[dict[str, Any]]) -> Counts:
    """The counts with these runs; what was written of earlier complaints stays."""
    found: Counts = json.loads(json.dumps(counts))
    for each in lines:
        cells = found["runs"].setdefault(each["backend"], {}).setdefault(each["job"], {})
        wrong = bool(each["complaints"])
        for hit in [*each["hit"], "all"]:
            cell = cells.setdefault(hit, [0, 0])
            cell[0] += 1
            cell[1] += wrong
        if KINDS[each["job"]].accused:
            told = found["verdicts"].setdefault(each["backend"], [0, 0])
            told[0 if each["right"] else 1] += 1
        if wrong:
            keys = ("backend", "seed", "scenario", "complaints")
            found["complaints"].append({**{key: each[key] for key in keys}, "became": ""})
    return found


def page(counts: Counts) -> str:
    """chaos.md."""
    parts = [HEAD]
    for backend, kinds in counts["runs"].items():
        parts += _section(backend, kinds, *counts["verdicts"].get(backend, [0, 0]))
    if counts["complaints"]:
        head = "| run | scenario | complaint | what became of it |"
        parts += ["## Complaints", "", head, "|---|---|---|---|"]
    for each in counts["complaints"]:
        said = "; ".join(each["complaints"]).replace("|", "\\|")
        became = each["became"] or "open"
        parts.append(f"| {each['backend']} {each['seed']} | {each['scenario']} | {said} | {became} |")
    return "\n".join(parts).rstrip() + "\n"


def _section(backend: str, kinds: dict[str, Any], right: int, abstained: int) -> list[str]:
    runs = sum(cells["all"][0] for cells in kinds.values())
    wrong = sum(cells["all"][1] for cells in kinds.values())
    told = (
        f"{runs:,} runs, {wrong:,} with a complaint. In {right + abstained:,} of them a rank was meant to go "
    )
    told += f"wrong by itself: {right:,} times a verdict named it, or a rank that was hit; "
    told += "otherwise none named a rank."
    columns = [job for job in JOBS if job in kinds]
    parts = [f"## {backend}", "", told, "", f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for hit in ["nothing", *(f"{action} {target}" for action, target in ATTACKS[backend]), "all"]:
        cells = [_cell(kinds[job].get(hit)) for job in columns]
        if any(cells):
            parts.append(f"| {hit} | {' | '.join(cells)} |")
    return [*parts, ""]


def _cell(found: list[int] | None) -> str:
    """Runs, and how many of them had a complaint."""
    if not found:
        return ""
    return str(found[0]) + (f" ({found[1]})" if found[1] else "")
