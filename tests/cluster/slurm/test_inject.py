"""`ddplaunch inject`: somebody's batch script with gate and supervisor, on a real Slurm."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.training import SIX_STEPS, TORCHRUN

from ddplaunch.render.archive import agent_archive

PROGRAM = Path(sys.executable).with_name("ddplaunch")
SCRIPT = f"""\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --mem=2000
#SBATCH --output=out
cd "$SLURM_SUBMIT_DIR"  # where train.py is
srun --label --kill-on-bad-exit=0 \\
    {TORCHRUN} --nproc-per-node=2 \\
    train.py "$@"
"""


class Script:
    """The script and its files in a folder that all nodes see."""

    def __init__(self, cluster: Cluster, work: Path) -> None:
        self._cluster = cluster
        self._work = work
        (work / "train.py").write_text(SIX_STEPS)
        (work / "agent.pyz").write_bytes(agent_archive())
        (work / "train.sbatch").write_text(SCRIPT)

    def submit(self, *arguments: str, options: str = "") -> tuple[int, str]:
        """Inject, with these options of `run`, and submit it to its end. Returns exit code and output."""
        words = [str(PROGRAM), "inject", "train.sbatch", "--python", sys.executable]
        done = subprocess.run(words, cwd=self._work, capture_output=True, text=True, check=True)
        path = self._work / "injected.sbatch"
        path.write_text(done.stdout.replace(" run --join", f" run {options} --join"))
        batch = ["sbatch", "--wait", str(path), *arguments]
        ended = self._cluster.login(batch, cwd=self._work, check=False, timeout=240)
        return ended.returncode, (self._work / "out").read_text()


@pytest.fixture(name="script")
def _script(cluster: Cluster, work: Path) -> Script:
    return Script(cluster, work)


@pytest.mark.whole
def test_an_injected_script_trains(script: Script) -> None:
    """On both nodes, behind one gate, with no argument and no key of its user's."""
    code, output = script.submit()

    assert 0 == code, output
    assert 4 == output.count("trained with 4")
    assert {"0", "1"} == set(re.findall(r"^(\d): \S+ node \d of 2; node 0 is n1", output, re.MULTILINE))
