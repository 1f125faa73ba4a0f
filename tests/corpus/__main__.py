"""Runs every program of the corpus and scores what is said of it: `python -m tests.corpus`.

Writes docs/reference/corpus.json, or corpus-torch-2.7.json if that is the torch here, and not the one of
requirements/dev.txt; of these, `make docs` makes docs/accuracy.md. Prints the confusion matrix.
Exits 1 on a false alarm, and when more than 2 of 100 verdicts are wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.corpus import accuracy, harness, outside, peers
from tests.corpus.cases import PORT_TAKEN, Case, cases
from tests.corpus.faults import Fault
from tests.corpus.nccl import nccl_cases
from tests.corpus.scores import KINDS, WRONG, Score
from tests.ports import own_port

AT_MOST_WRONG = 0.02
BLOCKS_ITSELF = "torch before 2.8 may block itself here"
"""In the hint on a defect of torch's that comes before the fault of programs which destroy their group."""


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each program (default: 3; 0: peers alone)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these; the others keep their rows")
    parser.add_argument("--new", action="store_true", help="only those that were never measured")
    parser.add_argument("--add", action="store_true", help="add to the runs that the table has")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="programs at a time (default: 2)")
    parser.add_argument("--peers", action="store_true", help="ask torchrun, torchfrtrace and py-spy as well")
    parser.add_argument("--outside", action="store_true", help="diagnose each under plain torchrun as well")
    parser.add_argument(
        "--ways", nargs="+", choices=outside.WAYS, default=outside.WAYS, help="ask from outside so alone"
    )
    parser.add_argument("--nccl", action="store_true", help="those that run with NCCL, on this machine's GPU")
    parser.add_argument("--keep", metavar="FOLDER", help="keep there what the jobs leave")
    asked = parser.parse_args()
    every, table = cases(), accuracy.table_of(_torch())
    if asked.nccl:
        every, table = nccl_cases(), accuracy.MEASURED_WITH_NCCL
    if unknown := set(asked.only or ()) - {case.name for case in every}:
        parser.error(f"no program is called {', '.join(sorted(unknown))}")
    known = accuracy.load(table)["programs"]
    wanted = set(asked.only or [case.name for case in every]) - (known.keys() if asked.new else set())
    chosen = [case for case in every if case.name in wanted]
    reason = harness.memory_cgroups_missing()
    possible = []
    for case in chosen:
        if reason and isinstance(case.job, Fault) and case.job.memory:
            print(f"left out: {case.name} {reason}", flush=True)
        elif case.since > tuple(map(int, _torch().split(".")[:2])):
            print(f"left out: {case.name} needs torch {case.since[0]}.{case.since[1]}", flush=True)
        else:
            possible.append(case)
    rows: dict[str, dict[str, Any]] = {}
    with (
        contextlib.nullcontext(asked.keep) if asked.keep else tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        earlier = {case.name: _runs(case, known) if asked.add or not asked.runs else [] for case in possible}
        tried = {
            pool.submit(_row, case, Path(folder), asked, earlier[case.name], known.get(case.name, {})): case
            for case in possible
        }
        try:
            for row in as_completed(tried):
                name = tried[row].name
                rows[name] = row.result()
                if runs := [*earlier[name], *rows[name]["runs"]]:
                    _write(table, every, {name: rows[name] | {"runs": runs}})
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{table.relative_to(accuracy.ROOT)} is written")
    return _report(possible, rows)


def _row(
    case: Case,
    folder: Path,
    asked: argparse.Namespace,
    earlier: list[dict[str, Any]],
    known: dict[str, Any],
) -> dict[str, Any]:
    """What was measured of one program, without its earlier runs; these say how long its peers may take.

    `known`: its row so far.
    """
    done = []
    for number in range(asked.runs):
        with _port(case) as env:
            run = _run(case, folder / f"{case.name}-{number}", env)
        if run is None:
            print(f"{case.name}: it did not come to its fault, as on a busy machine", flush=True)
            continue
        done.append({**run, "load": round(os.getloadavg()[0], 1)})
        print(_line(case, run), flush=True)
    row: dict[str, Any] = {"cpus": os.cpu_count(), "torch": _torch(), "runs": done}
    if asked.nccl:
        row["gpu"] = _gpu()
    if asked.peers and isinstance(case.job, Fault) and peers.applies(case.job):
        took = [run["seconds"] for run in (*earlier, *done) if run["seconds"] is not None]
        with _port(case) as env:
            row["peers"] = peers.ask(case.job, folder / f"{case.name}-peers", max(took, default=0.0), env)
        print(f"{case.name}: {row['peers']}", flush=True)
    if asked.outside and outside.applies(case.job):
        with _port(case) as env:
            seen = outside.ask(case, folder / f"{case.name}-outside", env, asked.ways)
        print(f"{case.name}: {seen or 'too busy a machine, it did not come to its fault'}", flush=True)
        row |= {"outside": {**known.get("outside", {}), **seen}} if seen else {}
    return row


def _torch() -> str:
    """'2.15.0'."""
    return version("torch").partition("+")[0]


@functools.cache
def _gpu() -> str:
    """'NVIDIA H100 80GB HBM3, NCCL 2.28.9'. In a process of its own: this one makes others by fork."""
    program = "import torch; print(torch.cuda.get_device_name(), *torch.cuda.nccl.version(), sep=';')"
    name, *numbers = subprocess.check_output([sys.executable, "-c", program], text=True).strip().split(";")
    return f"{name}, NCCL {'.'.join(numbers)}"


def _run(case: Case, folder: Path, env: dict[str, str]) -> dict[str, Any] | None:
    """One run; without a verdict where it does not end. None: it ended before its fault."""
    try:
        outcome = harness.run(case.job, folder, env)
    except (subprocess.TimeoutExpired, AssertionError) as error:
        print(f"{case.name}: no outcome: {str(error)[-2000:]}", flush=True)
        if case.healthy or (case.notes_its_stop and not list(folder.glob("stopped-*"))):
            return None
        return {"code": "none", "ranks": [], "confidence": 0.0, "seconds": None, "words": 0}
    if case.notes_its_stop and not outcome.came_to_it and outcome.code in ("none", "unknown"):
        return None
    verdict = outcome.verdicts[0] if outcome.verdicts else None
    if verdict is not None and BLOCKS_ITSELF in verdict.hint and case.code != verdict.code:
        return None
    early = [text.partition(":")[0] for text in (outcome.alarms if case.healthy else outcome.early)]
    return {
        "code": outcome.code,
        "ranks": verdict.ranks if verdict else [],
        "confidence": verdict.confidence if verdict else 0.0,
        "seconds": None if outcome.seconds is None else round(outcome.seconds, 1),
        "words": len(outcome.alarms),
        **({"early": early} if early else {}),
    }


@contextlib.contextmanager
def _port(case: Case) -> Iterator[dict[str, str]]:
    """A port for the seeds, free or held as the program expects it."""
    port = own_port()
    with contextlib.ExitStack() as held:
        if case.name == PORT_TAKEN:
            held.enter_context(socket.create_server(("", port)))
        yield {"SEED_PORT": str(port)}


def _write(table: Path, every: list[Case], rows: dict[str, dict[str, Any]]) -> None:
    """At once, so that a measurement which is broken off keeps what it has."""
    new = accuracy.merge(accuracy.load(table), rows, [case.name for case in every])
    table.write_text(accuracy.text(new), "utf-8")


def _line(case: Case, run: dict[str, Any]) -> str:
    kind = ("false alarm" if run["words"] else "ok") if case.healthy else Score(case, run).kind
    told = f"{run['code']} {run['ranks']} after {run['seconds']} s {run.get('early', '')}"
    return f"{case.name:<28} {kind:<12} {told}" + (
        "" if case.healthy else f", true: {case.code} {[*case.ranks]}"
    )


def _runs(case: Case, rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.get(case.name, {}).get("runs", [])
    return found


def _report(tried: list[Case], rows: dict[str, dict[str, Any]]) -> int:
    scores = [Score(case, run) for case in tried if not case.healthy for run in _runs(case, rows)]
    alarms = sum(accuracy.alarmed(run) for case in tried if case.healthy for run in _runs(case, rows))
    print("\n".join(accuracy.matrix(scores)))
    for kind in KINDS:
        print(f"{kind}: {sum(score.kind == kind for score in scores)} of {len(scores)}")
    print(f"false alarms: {alarms}")
    print(f"on {os.cpu_count()} CPUs, Python {platform.python_version()}")
    wrong = sum(score.kind == WRONG for score in scores)
    return 1 if alarms or wrong > AT_MOST_WRONG * len(scores) else 0


if __name__ == "__main__":
    sys.exit(main())
