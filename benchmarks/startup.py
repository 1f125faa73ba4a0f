"""CPU time of the command line, as a wheel installs it, against torchx in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from measure import Line, ratio

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venv-peer"
JOB = """\
apiVersion: ddplaunch/v1
name: bench
nodes: {nodes}
nproc_per_node: 8
image: trainer
command: [train.py]
"""


def run(folder: Path, runs: int) -> list[Line]:
    """Compare `--help`, and the rendering of jobs of 2, 4 and 1024 nodes with 8 ranks each: time, size."""
    subprocess.run(
        [ROOT / "scripts/make-venv", PEER, sys.executable, "requirements/peer.txt"], check=True, cwd=ROOT
    )
    # Of a checkout, `render` reads every source of the agent to see whether its archive is still good.
    ddplaunch = ["env", f"PYTHONPATH={_wheel(folder)}", str(ROOT / ".venv/bin/ddplaunch")]
    torchx = str(PEER / "bin/torchx")
    script = folder / "train.py"
    script.write_text("")

    def ours(nodes: int, target: str) -> list[str]:
        job = folder / f"job-{nodes}.yaml"
        job.write_text(JOB.format(nodes=nodes))
        return [*ddplaunch, "render", str(job), "--to", target]

    def theirs(nodes: int, target: str = "slurm") -> list[str]:
        words = ["run", "--scheduler", target, "--dryrun"]
        if target == "kubernetes":
            words += ["--scheduler_args", "queue=default", "--workspace", ""]  # no image is built
        return [torchx, *words, "dist.ddp", "--image", "trainer", "-j", f"{nodes}x8", "--script", str(script)]

    large, small = ours(1024, "slurm"), ours(2, "slurm")
    cluster = "kubernetes"
    return [
        ratio("--help, against torchx --help", [*ddplaunch, "--help"], [torchx, "--help"], 0.3, runs),
        ratio("render 4x8 (local), against torchx's dry run (slurm)", ours(4, "local"), theirs(4), 0.9, runs),
        ratio("render 4x8 (slurm), against torchx's dry run", ours(4, "slurm"), theirs(4), 0.9, runs),
        ratio("render 1024x8 (slurm), against torchx's dry run", large, theirs(1024), 0.9, runs),
        ratio("render 1024x8 (slurm), against 2x8", large, small, 1.1, runs),
        _growth("sbatch file", large, small),
        ratio(
            "render 4x8 (kubernetes), against torchx's dry run",
            ours(4, cluster),
            theirs(4, cluster),
            0.9,
            runs,
        ),
        ratio(
            "render 1024x8 (kubernetes), against torchx's dry run",
            ours(1024, cluster),
            theirs(1024, cluster),
            0.1,
            runs,
        ),
        _growth("manifest", ours(1024, cluster), ours(2, cluster)),
        _size(4, ours(4, cluster), theirs(4, cluster)),
        _size(1024, ours(1024, cluster), theirs(1024, cluster)),
    ]


def _wheel(folder: Path) -> Path:
    """Return the folder into which a wheel of this checkout, built now, is unpacked."""
    subprocess.run(
        [ROOT / ".venv/bin/hatchling", "build", "-t", "wheel", "-d", folder],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    unpacked = folder / "wheel"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(unpacked)
    return unpacked


def _growth(what: str, large: list[str], small: list[str]) -> Line:
    more, less = (len(_printed(command)) for command in (large, small))
    return Line(
        f"bytes of the {what} that 1022 more nodes add", more - less, 1000, "B", f"{more} against {less}"
    )


_CONFIG_MAP = 1 << 20
"""Bytes that a ConfigMap may hold: most of a manifest is the agent, which travels in one."""


def _size(nodes: int, ours: list[str], theirs: list[str]) -> Line:
    manifest = len(_printed(ours))
    request = len(_printed(theirs).partition(b"=== SCHEDULER REQUEST ===")[2])
    detail = f"torchx's: {request} bytes, without an agent"
    return Line(f"bytes for {nodes}x8 (kubernetes)", manifest, 0.5 * _CONFIG_MAP, "B", detail)


def _printed(command: list[str]) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout
