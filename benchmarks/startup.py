"""How fast the command line answers, against torchx from PyPI in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measure import Line, ratio

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venv-peer"
JOB = """\
apiVersion: ddplaunch/v1
name: bench
nodes: 4
nproc_per_node: 8
command: [train.py]
"""


def run(folder: Path, runs: int) -> list[Line]:
    """--help, and the rendering of a job of 4 nodes with 8 processes each."""
    subprocess.run(
        [ROOT / "scripts/make-venv", PEER, sys.executable, "requirements/peer.txt"], check=True, cwd=ROOT
    )
    ddplaunch, torchx = str(ROOT / ".venv/bin/ddplaunch"), str(PEER / "bin/torchx")
    job, script = folder / "job.yaml", folder / "train.py"
    job.write_text(JOB)
    script.write_text("")
    dry = ["run", "--scheduler", "slurm", "--dryrun", "dist.ddp", "-j", "4x8", "--script", str(script)]
    return [
        ratio("--help, against torchx --help", [ddplaunch, "--help"], [torchx, "--help"], 0.5, runs),
        ratio(
            "render 4x8, against torchx run --dryrun (slurm)",
            [ddplaunch, "render", str(job), "--to", "local"],
            [torchx, *dry],
            0.5,
            runs,
        ),
    ]
