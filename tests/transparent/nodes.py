"""Commands that two nodes of a scheduler run alike, plain and behind `run --join`, as data.

Each is a text for `sh -c`, in which $NODE is the node's number and $FIRST the name of node 0. The programs of
this folder lie in the working directory.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.transparent.compare import OURS, PROGRAMS, Outcome, differences
from tests.transparent.table import Row

FAILS = ("files",)
"""What is compared where torchrun fails: its log names times, and hosts in an order of chance."""
_SCHEDULER = re.compile(rb"slurmstepd|\[\d{4}-\d\d-\d\dT[\d:.]+\] error: ")
"""How lines of the scheduler begin in the command's stderr; from Slurm 26.05 on with the time."""
_TORCHRUN = "torchrun --nnodes 2 --node-rank $NODE --nproc-per-node 1 --master-addr $FIRST --master-port"
OF_NODES = (
    Row("exits-0", "exit 0", whole=True),
    Row("exits-7", "echo $NODE; exit 7"),
    Row("one-exits-7", "sleep $NODE; exit $((NODE * 7))", whole=True),
    Row("streams", "python prints.py both; printf 'unfinished on %s' $NODE", whole=True),
    Row("binary", "python prints.py binary", whole=True),
    Row(
        "surroundings",
        "umask 027; mkdir of-$NODE; pwd > of-$NODE/pwd; umask; ulimit -n; nice; stat -c %a of-$NODE",
        whole=True,
    ),
    Row("or", "python own.py uncaught || echo instead on $NODE", whole=True),
    Row(
        "restart",
        f"exec {_TORCHRUN} 29631 --max-restarts 2 restart.py",
        exact=False,
        compares=("stdout", *FAILS),
        whole=True,
    ),
    Row(
        "torchrun-or-torchrun",
        f"{_TORCHRUN} 29632 fail.py || {_TORCHRUN} 29633 ok.py",
        exact=False,
        compares=("stdout", *FAILS),
        whole=True,
    ),
    Row(
        "usr1",
        "exec python signals.py handlers",
        signals=(("up", "USR1"), ("got SIGUSR1", "USR2")),
    ),
    Row("term-with-handler", "exec python signals.py handlers", signals=(("up", "TERM"),), whole=True),
)
OF_PODS = tuple(row for row in OF_NODES if not row.signals and row.name != "binary")
"""Those of which a pod's log, in which both streams are one, and its exit code tell enough."""


def report(row: Row, plain: Outcome, under: Outcome) -> str:
    """Return what differs, with both sides; nothing where they are the same."""
    found = differences(row, plain, under)
    if not found:
        return ""
    lines = [f"{row.name}: {row.command}", *found]
    return "\n".join([*lines, "", "--- plain", plain.text(), "", "--- under ddplaunch", under.text()])


def outcome(code: int | str, streams: list[tuple[bytes, bytes]], folder: Path, *, under: bool) -> Outcome:
    """Return what a side did. `streams`: stdout and stderr of each node; `folder`: in which it ran."""
    found = Outcome(codes=[code])
    for out, err in streams:
        found.stdout += out
        for line in err.splitlines(keepends=True):
            if (under and OURS.match(line)) or _SCHEDULER.match(line):
                found.ours += line
            else:
                # Where the command has not ended its line, ddplaunch does before its own.
                found.stderr += line if line.endswith(b"\n") else line + b"\n"
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "__pycache__" not in path.parts and not (PROGRAMS / name).exists():
            found.files[name] = path.read_bytes()
    return found
