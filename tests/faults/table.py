"""The table of faults and backends: what is measured in faults.json, and the page that is made of it."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE, GATE, RUN

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs/reference/faults.json"
BACKENDS = ("local", "slurm", "kubernetes")
PARTS = {"gate": [each.code for each in GATE], "run": [each.code for each in RUN]}
"""The codes of causes that are told before anything runs, and of those of a job that runs."""

RECORDED = frozenset(["gpu-stuck"])
"""Causes that take broken hardware: their rules are judged from what real jobs have shown elsewhere."""

Measured = dict[str, Any]
"""{"measured": {backend: {part: {"runs", "cpus", "load"}}}, "faults": {code: {backend: cell}}}

A cell is {"tests", "runs", "hits", "seconds", "slowest"}: `runs` counts the single tries, `seconds` is their
median from fault to verdict and `slowest` their largest, or None.
"""
Line = list[Any]
"""[code, backend, name of the test, hit or None when it was only found, seconds or None]."""

HEAD = """\
# Faults and verdicts

Generated from faults.json, which `make faults` measures. Every cause is provoked for real; a try is a hit if
the right verdict names the right nodes or ranks.

A cell shows hits of tries, and the median time in seconds from the fault to the first word that names it. At
the gate, this time counts from the check-in of the last healthy node; a fault that may pass is named then as
well, and ends the job if it does not pass. While a job runs, the time counts from the death, the last sign
of life, or the moment after which nothing moves. It includes `notice_after`, which is 3 to 10 s in these
tests. A node that never comes is reported when `gate.timeout` is over. What only the smoke test finds, if a
job asks for it, is reported after all ranks have imported torch and a collective has hung. `not run`: there
is a test, but no measurement yet. `-`: no test provokes the cause there; some causes need broken hardware,
and are judged from recorded facts.
"""


def load() -> Measured:
    """What was measured last."""
    found: Measured = json.loads(MEASURED.read_text("utf-8"))
    return found


def text(measured: Measured) -> str:
    """As it is committed: in the table's order."""
    faults = {code: _ordered(measured["faults"].get(code, {})) for code in codes(measured)}
    kept = {"measured": _ordered(measured["measured"]), "faults": {c: f for c, f in faults.items() if f}}
    return json.dumps(kept, indent=1) + "\n"


def merge(old: Measured, lines: Iterable[Line], backends: Iterable[str]) -> Measured:
    """The measurement of these backends anew, where there were tries; what no test provokes is forgotten."""
    found: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        found.setdefault(line[0], {}).setdefault(line[1], []).append(line)
    faults: dict[str, dict[str, Any]] = {}
    for code in {*found, *old["faults"]}:
        kept = {b: c for b, c in old["faults"].get(code, {}).items() if b not in backends}
        for backend, those in found.get(code, {}).items():
            kept[backend] = _cell(those, old["faults"].get(code, {}).get(backend, {}))
        faults[code] = kept
    return {"measured": old["measured"], "faults": faults}


def _cell(lines: list[Line], old: dict[str, Any]) -> dict[str, Any]:
    tests = len({line[2] for line in lines})
    tries = [line for line in lines if line[3] is not None]
    if not tries:
        return {"runs": 0, "hits": 0, "seconds": None, "slowest": None, **old, "tests": tests}
    told = [line[4] for line in tries if line[3] and line[4] is not None]
    seconds = round(statistics.median(told), 1) if told else None
    slowest = round(max(told), 1) if told else None
    hits = sum(line[3] for line in tries)
    return {"tests": tests, "runs": len(tries), "hits": hits, "seconds": seconds, "slowest": slowest}


def page(measured: Measured) -> str:
    """faults.md."""
    parts = [HEAD, *(_of(backend, part, measured) for part in PARTS for backend in BACKENDS), ""]
    parts += [f"| | {' | '.join(BACKENDS)} |", "|---|---|---|---|"]
    for code in codes(measured):
        name = f"[{code}](verdicts.md#{code})" if code in CATALOGUE else code
        cells = [shown(code, backend, measured) for backend in BACKENDS]
        parts.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*parts, ""])


def codes(measured: Measured) -> list[str]:
    """All, those of the gate first; what is measured and has left the catalogue stands last."""
    return list(dict.fromkeys([*CATALOGUE, *sorted(measured["faults"])]))


def shown(code: str, backend: str, measured: Measured) -> str:
    """A cell."""
    cell = measured["faults"].get(code, {}).get(backend)
    if cell is None:
        return "-"
    if not cell["runs"]:
        return "not run"
    seconds = "" if cell["seconds"] is None else f", {cell['seconds']} s"
    return f"{cell['hits']}/{cell['runs']}{seconds}"


def marked() -> set[tuple[str, str]]:
    """(code, backend) of the tests that name a code where they are marked, without collecting them."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        backend = next((name for name in BACKENDS[1:] if f"/cluster/{name}/" in place), "local")
        found |= {(code, backend) for code in re.findall(r'mark\.fault\("([a-z-]+)"\)', path.read_text())}
    return found


def _of(backend: str, part: str, measured: Measured) -> str:
    what = f"{backend}, {'at the gate' if part == 'gate' else 'while it runs'}"
    cells = [of[backend] for code, of in measured["faults"].items() if backend in of and code in PARTS[part]]
    hits, runs = sum(cell["hits"] for cell in cells), sum(cell["runs"] for cell in cells)
    about = measured["measured"].get(backend, {}).get(part)
    if not about or not runs:
        return f"- {what}: not run"
    slowest = max((cell["slowest"] for cell in cells if cell.get("slowest") is not None), default=None)
    within = f", named within {slowest} s" if slowest is not None else ""
    return (
        f"- {what}: {hits} of {runs} right ({100 * hits / runs:.1f} %){within}; each test "
        f"{about['runs']} times, on {about['cpus']} CPUs under a load of {about['load']}"
    )


def _ordered(values: dict[str, Any]) -> dict[str, Any]:
    return {backend: values[backend] for backend in BACKENDS if backend in values}
