"""The main job on a real cluster, as a user starts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from tests.cluster.slurm.cluster import Cluster

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


CONFIGURATION = {"profiles": {"lab": {"target": "slurm", "job": {"resources": {"memory": "3Gi"}}}}}


def submitted(
    cluster: Cluster, work: Path, name: str, options: Sequence[str], own: Mapping[str, object]
) -> subprocess.CompletedProcess[str]:
    """`ddplaunch submit --wait` of one of the example's job files; `own`: further keys of it."""
    for program in EXAMPLE.glob("*.py"):
        shutil.copy(program, work)
    spec = yaml.safe_load((EXAMPLE / name).read_text())
    (work / "job.yaml").write_text(yaml.safe_dump({**spec, "python": sys.executable, **own}))
    (work / "ddplaunch").mkdir()
    (work / "ddplaunch" / "config.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    words = ["ddplaunch", "submit", "job.yaml", "--wait", *options]
    env = {"XDG_STATE_HOME": str(work / "state"), "XDG_CONFIG_HOME": str(work)}
    return cluster.login(words, cwd=work, env=env, check=False, timeout=240)


@pytest.mark.whole
def test_digits_are_learnt_on_two_nodes(cluster: Cluster, work: Path) -> None:
    """The handle on stdout and nothing else, progress on stderr, exit code 0. A profile names the cluster."""
    done = submitted(cluster, work, "job.yaml", ["--profile", "lab"], {})

    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"profile lab of {work}/ddplaunch/config.yaml\n")
    assert re.fullmatch(r"slurm://\d+\n", done.stdout)
    assert "gate passed in" in done.stderr
    assert re.search(r"\[0/0\] epoch 20 .* test accuracy 9[5-9]\.", done.stderr)
    assert any(line.startswith("ddplaunch: succeeded after") for line in done.stderr.splitlines()[-2:])


@pytest.mark.whole
def test_a_hang_is_explained_with_line_and_node(cluster: Cluster, work: Path) -> None:
    """Rank 0 calls a barrier that the others do not call; the job ends as a hang, with its verdict.

    The job file names its target by its only section.
    """
    own = {"resources": {"memory": "3Gi"}, "slurm": {"time": "10m"}}
    done = submitted(cluster, work, "broken.yaml", [], own)

    assert done.returncode == 105, done.stderr
    assert done.stderr.startswith("to slurm: sbatch is on PATH; the job file has a section slurm")
    assert re.search(
        r"at collective \d+ rank 0 called barrier \(broken.py:31\), the others all_reduce", done.stderr
    )
    assert "culprit     rank 0 on node 0 (n1)" in done.stderr
