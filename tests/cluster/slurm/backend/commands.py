"""The command line, called as a user of the cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.slurm.cluster import Cluster


def ddplaunch(
    cluster: Cluster, files: Path, *words: str, check: bool = True, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it on the login machine, in the folder `files` or in `cwd`."""
    environment = {"XDG_STATE_HOME": str(files / "state")}
    return cluster.login(["ddplaunch", *words], cwd=cwd or files, env=environment, check=check)


def start(cluster: Cluster, files: Path, *words: str) -> subprocess.Popen[str]:
    """Start it there; signals reach it."""
    return subprocess.Popen(
        cluster.words("ctl", ["ddplaunch", *words], cwd=files),
        env={**cluster.env, "XDG_STATE_HOME": str(files / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
