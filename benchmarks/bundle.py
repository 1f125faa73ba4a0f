"""`diagnose BUNDLE` and its page at the size of large jobs, and torch's tool on the recorders of that bundle.

The job is synthetic, its formats are torch's: all ranks have called ENTRIES collectives, and LATE is one
behind, in its own code. What is analysed is what the hub keeps of each rank, the newest 64 entries of each
recorder; the whole recorders lie beside it for torch's own tools. A hub keeps fewer of these than are here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "launcher")]

from ddplaunch.agent.contract import (  # noqa: E402
    Bundle,
    Collective,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Process,
    RankEvidence,
    Stack,
    bundle_file,
)
from ddplaunch.agent.evidence import flight  # noqa: E402

SIZES = {1024: 5.0, 4096: 25.0}
"""Seconds by the number of ranks."""
MEGABYTES = 1000.0
ENTRIES = 2000
LATE = 700
PER_NODE = 8
RATIO = 1.0
PAGE_SECONDS, PAGE_MEGABYTES = 2.0, 5.0
"""Limits of the HTML page of the smaller job, in seconds beyond those of `diagnose`."""
CAP = 200
"""Seconds of CPU time after which a command is ended."""
_MEASURED = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_CPU, (CAP, CAP))
try: main()
finally:
    sys.stdout.flush()
    peak = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
    sys.stdout.write(f"\\n{peak} {time.process_time()}")
"""
_OURS = f"CAP = {CAP}\nfrom ddplaunch.cli.main import main{_MEASURED}"
_TORCHS = f"CAP = {CAP}\nfrom torch.distributed.flight_recorder.fr_trace import main{_MEASURED}"
_NOW = 1_795_520_000.0
_PARAMETERS = ((4096, 1024), (1024, 4096), (1024,), (50257, 1024))
_OPS = ("all_reduce", "all_reduce", "broadcast")
_FILE = "/home/user/model/train.py"
_THREADS = "/usr/lib/python3.11/threading.py"
_TORCH = "/usr/lib/python3/site-packages/torch/distributed"
_CALLED = [
    Frame("all_reduce", f"{_TORCH}/distributed_c10d.py", 3087),
    Frame("wrapper", f"{_TORCH}/c10d_logger.py", 83),
    Frame("average", _FILE, 101),
    Frame("main", _FILE, 139),
]
_RECORDED = ROOT / "tests/agent/evidence/recorded/gloo-2.15.0.json"


class Ran(NamedTuple):
    """A command that has ended: its CPU time, its memory at the most, its output.

    It waits for nothing, so on a machine without other work its CPU time is its time.
    """

    seconds: float
    megabytes: float
    output: str


def run(folder: Path, runs: int) -> list[Line]:
    """Return the fastest of `runs`; the machine's other work is none of ours."""
    lines = []
    for ranks, limit in SIZES.items():
        path = folder / f"{ranks}.zip"
        path.write_bytes(bundle_file.packed(bundle(ranks), 1 << 40))
        command = [sys.executable, "-c", _OURS, "diagnose", str(path)]
        ran = min(_ran(command) for _ in range(runs))
        size = f"bundle of {path.stat().st_size / 1e6:.0f} MB"
        lines.append(Line(f"diagnose, {ranks} ranks", ran.seconds, limit, " s", size))
        lines.append(Line(f"diagnose, {ranks} ranks: memory", ran.megabytes, MEGABYTES, "MB"))
        wrong = not ran.output.startswith(f"rank {LATE} is in evaluate")
        lines.append(Line(f"diagnose, {ranks} ranks: wrong verdict", wrong, 0, "", ran.output[:80]))
        if ranks == min(SIZES):
            lines.append(_against_torch(folder, path, ran.seconds))
            lines += _page([*command, "--html", str(folder / "report.html")], ran.seconds, runs)
    return lines


def _page(command: list[str], without: float, runs: int) -> list[Line]:
    """Return what the page of this job takes, and its size."""
    seconds = min(_ran(command).seconds for _ in range(runs)) - without
    size = Path(command[-1]).stat().st_size / 1e6
    return [
        Line("page of 1024 ranks", seconds, PAGE_SECONDS, " s"),
        Line("page of 1024 ranks: size", size, PAGE_MEGABYTES, "MB"),
    ]


def _against_torch(folder: Path, path: Path, ours: float) -> Line:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    theirs = _ran([sys.executable, "-c", _TORCHS, str(folder / "flight/gloo"), "--prefix", "rank_"])
    named = f"missing ranks: {{{LATE}}}" in theirs.output
    how = "names the rank" if named else f"does not name it: {theirs.output.strip()[-80:]}"
    detail = f"{theirs.seconds:.1f} s, {theirs.megabytes:.0f} MB, and {how}"
    return Line("diagnose against torchfrtrace", ours / theirs.seconds, RATIO, detail=detail)


def _ran(command: list[str]) -> Ran:
    """Return the figures of the command, where it has ended within CAP. Raises where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launcher")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Ran(CAP, 0.0, "it had not ended")
    done.check_returncode()
    output, _, figures = done.stdout.rpartition("\n")
    kilobytes, seconds = figures.split()
    return Ran(float(seconds), int(kilobytes) / 1000, output + done.stderr)


def bundle(ranks: int) -> Bundle:
    """Return the bundle that the hub of such a job writes at its end, with the recorders of all ranks."""
    members = list(range(ranks))
    groups = {"0": [members, "default_pg"]}
    newest, packed = {}, {}
    for late in (False, True):
        dump = _recorder(ENTRIES - late)
        newest[late] = [
            replace(each, frames=[*_CALLED, Frame("<module>", _FILE, 150)])
            for each in flight.collectives(dump, {"0": members})
        ]
        packed[late] = bundle_file.dump_of(0, "gloo", flight.as_pickle(dump, groups))
    nodes = []
    for node in range(ranks // PER_NODE):
        own = range(node * PER_NODE, (node + 1) * PER_NODE)
        nodes.append(
            NodeEvidence(
                node,
                f"gpu-{node:04}",
                _NOW,
                "running",
                [_rank(rank, newest[rank == LATE], members) for rank in own],
                dumps=[replace(packed[rank == LATE], rank=rank) for rank in own],
            )
        )
    evidence = JobEvidence("large", len(nodes), ranks, "deadline", _NOW, nodes)
    return Bundle("large", 0, len(nodes), PER_NODE, _NOW - 9000, _NOW, evidence=evidence, exit_code=50)


def _recorder(count: int) -> dict[str, Any]:
    """Return a dump of torch 2.15 that holds `count` entries, made of one that it has written."""
    dump: dict[str, Any] = json.loads(_RECORDED.read_text())
    real = next(each for each in dump["entries"] if each["profiling_name"] == "gloo:all_reduce")
    entries = []
    for number in range(1, count + 1):
        sizes = [_PARAMETERS[number % len(_PARAMETERS)]]
        entries.append(
            {
                **real,
                "collective_seq_id": number,
                "op_id": number,
                "record_id": number - 1,
                "profiling_name": f"gloo:{_OPS[number % len(_OPS)]}",
                "input_sizes": sizes,
                "output_sizes": sizes,
                "retired": number < ENTRIES,
                "time_created_ns": int((_NOW - 600 - (ENTRIES - number) * 0.05) * 1e9),
            }
        )
    done = {"last_enqueued_collective": str(count), "last_completed_collective": str(ENTRIES - 1)}
    return {**dump, "entries": entries, "pg_status": {"0": {**done, "last_started_collective": "-1"}}}


def _rank(rank: int, newest: list[Collective], members: list[int]) -> RankEvidence:
    late, number = rank == LATE, newest[-1].seq
    inner = [Frame("get", "/usr/lib/python3.11/queue.py", 171), Frame("evaluate", _FILE, 88)]
    main = [*(inner if late else _CALLED), Frame("<module>", _FILE, 150)]
    others = [Stack(f"pin_memory_{each}", False, [Frame("run", _THREADS, 1000 + each)]) for each in range(4)]
    collectives = [replace(each, at=each.at + rank * 1e-5 + each.seq * 1e-7) for each in newest]
    return RankEvidence(
        rank,
        rank % PER_NODE,
        4000 + rank,
        True,
        "running",
        stacks=[Stack("MainThread", True, main), *others],
        stack_source="hook",
        still_for=600.0,
        stuck_for=600.0,
        groups=[Group("0", members, number, ENTRIES - 1, "default_pg")],
        collectives=collectives,
        process=Process(4000 + rank, "S", "python", "futex_do_wait", 40, 0.01, memory=(7 << 30) + rank),
        step_times=[round(0.05 + (rank * 7 + each) % 13 * 1e-4, 4) for each in range(64)],
        initialized=True,
        backend="gloo",
        last_output=f"step {number} loss 2.31{rank}",
        last_output_at=_NOW - 600,
        last_lines=[f"step {number - back} loss 2.3{back}{rank}" for back in range(5)],
        world_size=len(members),
        numbered_by="environment",
        calls=collectives[-16:],
    )
