"""Starts a program of the corpus by plain torchrun, and asks `ddplaunch diagnose pid:…` what is wrong."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.corpus import peers, plain
from tests.corpus.cases import Case
from tests.corpus.faults import Fault, Healthy
from tests.corpus.harness import living

HANGS_FOR = 13.0
"""Seconds from the moment progress stops to the call: a hang is one after ten."""
RUNS_FOR = 20.0
"""Seconds from the moment all ranks of a healthy job are there to the call: all that takes long has begun."""
PROGRAMS = {"server": "with_debug_server", "files": "with_dump_files"}
"""Programs that run another one, so that its ranks tell of themselves."""
WAYS = ("py-spy", "none", "forbidden", *PROGRAMS)
"""With py-spy, without it, without the right to trace, and so of a program that has torch's debug server or
writes its flight recorder to files."""
NOTHING = {"ranks": [], "confidence": 0.0, "seconds": None}


def applies(job: Fault | Healthy) -> bool:
    """Whether torchrun starts it, as it is; a fault needs ranks that are at fault."""
    return peers.applies(job) if isinstance(job, Fault) else not (job.mpi or job.plain)


def ask(case: Case, folder: Path, env: dict[str, str], ways: Collection[str] = WAYS) -> dict[str, Any] | None:
    """Those of the WAYS: {way: asked, …, "load": …}; None: it did not come to its fault, and still runs.

    A program that tells of itself runs for itself, and its `asked` has the load of that run.
    """
    by_kernel = [way for way in ways if way not in PROGRAMS]
    found = _looks(case, folder, env, by_kernel) if by_kernel else {}
    for way in [way for way in ways if way in PROGRAMS]:
        told = _looks(Case(case.name, telling(case.job, way)), folder / way, env, ["forbidden"])
        if found is None or told is None:
            return None
        found[way] = {**told["forbidden"], "load": told["load"]}
    return found


def telling(job: Fault | Healthy, way: str) -> Any:
    """Return the job with a program of PROGRAMS around its own."""
    program = f"../{job.folder}/{job.file}"
    return replace(job, folder="programs", program=PROGRAMS[way], arguments=(program, *job.arguments))


def _looks(case: Case, folder: Path, env: dict[str, str], ways: Iterable[str]) -> dict[str, Any] | None:
    job = case.job
    folder.mkdir(parents=True)
    dumps = {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/dump_rank_"}  # where PROGRAMS alone write
    with plain.job(job, folder, {**env, **dumps}) as launchers:
        until = time.monotonic() + plain.STARTED
        comes = False
        while time.monotonic() < until and any(each.poll() is None for each in launchers):
            if not comes and _has_come(job, folder):
                comes = True
                until = time.monotonic() + (HANGS_FOR if isinstance(job, Fault) else RUNS_FOR)
            time.sleep(0.2)
        if case.notes_its_stop and not comes and any(each.poll() is None for each in launchers):
            return None
        load = round(os.getloadavg()[0], 1)
        found: dict[str, Any] = {way: _asked(launchers, way) for way in ways}
    return {**found, "load": load}


def _has_come(job: Fault | Healthy, folder: Path) -> bool:
    """Whether the fault is there, or all ranks of a healthy job are."""
    if isinstance(job, Fault):
        return bool(list(folder.glob("stopped-*")))
    ranks = set(living(folder).values()) - {None}
    return len(ranks) == job.nodes * job.nproc


def _asked(launchers: list[subprocess.Popen[bytes]], way: str) -> dict[str, Any]:
    pid = next((each.pid for each in launchers if each.poll() is None), None)
    if pid is None:
        return {"code": "ended", **NOTHING}
    began = time.monotonic()
    answer = plain.diagnosed(pid, way)
    return reduced(answer, round(time.monotonic() - began, 1))


def reduced(answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What is kept of an answer: code, ranks and confidence of its first verdict; "error" without ranks."""
    if "error" in answer:
        return {"code": "error", **NOTHING}
    verdict = (answer.get("verdicts") or [{"code": "none", **NOTHING}])[0]
    return {**{name: verdict[name] for name in ("code", "ranks", "confidence")}, "seconds": seconds}
