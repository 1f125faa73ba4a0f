"""What other tools say of a fault: torchrun alone, torchfrtrace, and py-spy with the eye of a person.

One run of the program under plain torchrun, without ddplaunch, until it ends or until a limit; then the ranks
that still live are asked, and all of them are ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.corpus import plain
from tests.corpus.faults import Fault
from tests.corpus.harness import HERE, living

SHORTEST, LONGEST = 15.0, 40.0
"""Seconds that a job gets at least and at most, from the moment progress stops."""
DUMPS_WITHIN = 5.0
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):\s*\[0\]:\s*time\s*:\s*(\S+).*?rank\s*:\s*(\d+)", re.S
)
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+)")
Peers = dict[str, list[int] | None]
"""The ranks that each peer names, None where it abstains."""


def applies(fault: Fault) -> bool:
    """Whether torchrun starts it, as it is, and ranks are at fault."""
    return bool(fault.ranks) and not fault.mpi and not fault.plain and fault.memory is None


def ask(fault: Fault, folder: Path, took: float, env: dict[str, str] | None = None) -> Peers:
    """All of them, in `folder`; `took`: the seconds from the last progress to ddplaunch's first word."""
    folder.mkdir(parents=True)
    for name in ("raw", "mended"):
        (folder / name).mkdir()
    own = {"PEER_DUMPS": str(folder), "PYTHONPATH": str(HERE / "peer_hook")}
    with plain.job(fault, folder, {**own, **(env or {})}) as launchers:
        start = time.monotonic()
        limit = start + plain.STARTED
        while any(each.poll() is None for each in launchers) and time.monotonic() < limit:
            if limit == start + plain.STARTED and list(folder.glob("stopped-*")):
                limit = time.monotonic() + min(LONGEST, max(SHORTEST, 2 * took))
            time.sleep(0.1)
        ranks = _ranks(folder, {each.pid for each in launchers})
        spied = _py_spy(fault, ranks)
        (folder / "now").touch()
        until = time.monotonic() + DUMPS_WITHIN
        while len(list((folder / "mended").glob("rank_*[0-9]"))) < len(ranks) and time.monotonic() < until:
            time.sleep(0.1)
    output = [(folder / f"output-{node}").read_text("utf-8", "replace") for node in range(fault.nodes)]
    return {
        "torchrun": root_cause(output),
        "torchfrtrace": _torchfrtrace(folder / "raw"),
        "torchfrtrace, mended dumps": _torchfrtrace(folder / "mended"),
        "py-spy": spied,
    }


def _ranks(folder: Path, launchers: set[int]) -> dict[int, int]:
    """The process of each living rank: a child of a launcher; a loader's workers have its variables too."""
    found = {}
    for pid, rank in living(folder).items():
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if rank is not None and parent in launchers:
                found[rank] = pid
    return found


def root_cause(output: list[str]) -> list[int] | None:
    """The rank whose failure torchrun has seen first, of several nodes by its time."""
    found = sorted(
        (match[1], int(match[2])) for text in output if (match := _ROOT_CAUSE.search(text)) is not None
    )
    return [found[0][1]] if found else None


def _torchfrtrace(folder: Path) -> list[int] | None:
    """The ranks that torch's analyser names in the dumps of a folder."""
    if not list(folder.iterdir()):
        return None
    module = "torch.distributed.flight_recorder.fr_trace"
    words = [sys.executable, "-m", module, "--allow-incomplete-ranks", "--prefix", "rank_", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    (folder.parent / f"{folder.name}.txt").write_text(done.stdout + done.stderr, "utf-8")
    return None if done.returncode else analysed(done.stdout + done.stderr)


def analysed(text: str) -> list[int] | None:
    """The ranks that it calls missing in a collective, or culprits of a mismatch; None without any."""
    missing = [int(rank) for match in _MISSING.finditer(text) for rank in match[1].split(",") if rank.strip()]
    culprits = [int(match[1]) for match in _CULPRIT.finditer(text)]
    return sorted({*missing, *culprits}) or None


def _py_spy(fault: Fault, ranks: dict[int, int]) -> list[int] | None:
    """The odd ones out among the ranks that live."""
    lines = {rank: line for rank, pid in ranks.items() if (line := _innermost(fault, pid)) is not None}
    return odd_ones(lines, fault.nodes * fault.nproc)


def odd_ones(lines: dict[int, str], world: int) -> list[int] | None:
    """The ranks that are not where more than half of all ranks are; None where there is no such place."""
    if not lines:
        return None
    place, count = Counter(lines.values()).most_common(1)[0]
    return (
        sorted(rank for rank, line in lines.items() if line != place) or None if 2 * count > world else None
    )


def _innermost(fault: Fault, pid: int) -> str | None:
    """The innermost line of the main thread in the program's own folder."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        done = subprocess.run(
            [spy, "dump", "--json", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        for thread in json.loads(done.stdout or "[]"):
            if thread["thread_name"] == "MainThread":
                own = str(HERE / fault.folder)
                frames = [frame for frame in thread["frames"] if frame["filename"].startswith(own)]
                return f"{frames[0]['filename']}:{frames[0]['line']}" if frames else None
    return None
