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
nodes: {nodes}
nproc_per_node: 8
command: [train.py]
"""


def run(folder: Path, runs: int) -> list[Line]:
    """--help, and the rendering of jobs of 2, 4 and 1024 nodes with 8 processes each."""
    subprocess.run(
        [ROOT / "scripts/make-venv", PEER, sys.executable, "requirements/peer.txt"], check=True, cwd=ROOT
    )
    ddplaunch, torchx = str(ROOT / ".venv/bin/ddplaunch"), str(PEER / "bin/torchx")
    script = folder / "train.py"
    script.write_text("")

    def ours(nodes: int, target: str) -> list[str]:
        job = folder / f"job-{nodes}.yaml"
        job.write_text(JOB.format(nodes=nodes))
        return [ddplaunch, "render", str(job), "--to", target]

    def theirs(nodes: int) -> list[str]:
        words = ["run", "--scheduler", "slurm", "--dryrun", "dist.ddp", "-j", f"{nodes}x8"]
        return [torchx, *words, "--script", str(script)]

    large, small = ours(1024, "slurm"), ours(2, "slurm")
    sizes = [len(subprocess.run(each, check=True, capture_output=True).stdout) for each in (large, small)]
    growth = Line(
        "bytes of the sbatch file that 1022 more nodes add",
        sizes[0] - sizes[1],
        1000,
        "B",
        f"{sizes[0]} against {sizes[1]}",
    )
    return [
        ratio("--help, against torchx --help", [ddplaunch, "--help"], [torchx, "--help"], 0.5, runs),
        ratio("render 4x8 (local), against torchx's dry run (slurm)", ours(4, "local"), theirs(4), 0.5, runs),
        ratio("render 4x8 (slurm), against torchx's dry run", ours(4, "slurm"), theirs(4), 0.5, runs),
        ratio("render 1024x8 (slurm), against torchx's dry run", large, theirs(1024), 0.5, runs),
        ratio("render 1024x8 (slurm), against 2x8", large, small, 1.1, runs),
        growth,
    ]
