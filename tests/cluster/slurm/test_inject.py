"""`ddplaunch inject`: somebody's batch script with gate and supervisor, on a real Slurm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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

    def submit(self, *arguments: str) -> tuple[int, str]:
        """Inject and submit it to its end. Returns exit code and output."""
        batch = ["sbatch", "--wait", self._injected(), *arguments]
        ended = self._cluster.login(batch, cwd=self._work, check=False, timeout=240)
        return ended.returncode, (self._work / "out").read_text()

    def diagnose_once_it_hangs(self, *arguments: str) -> dict[str, Any]:
        """Inject and submit it, and ask about it once its own hub has given a notice. Returns the answer."""
        batch = ["sbatch", "--parsable", self._injected("--notice-after=5"), *arguments]
        job = self._cluster.login(batch, cwd=self._work).stdout.strip()
        try:
            out = self._work / "out"
            self._cluster.until(
                lambda: out.exists() and "ddplaunch notice" in out.read_text(),
                "a notice",
                90.0,
                out.read_text,
            )
            ask = [str(PROGRAM), "diagnose", f"slurm://{job}", "--json"]
            answer = self._cluster.login(ask, cwd=self._work, check=False, timeout=120).stdout
        finally:
            self._cluster.login(["scancel", job])
        found: dict[str, Any] = json.loads(answer)
        return found

    def _injected(self, options: str = "") -> str:
        """The path of the injected script, with these options of `run`."""
        words = [str(PROGRAM), "inject", "train.sbatch", "--python", sys.executable]
        done = subprocess.run(words, cwd=self._work, capture_output=True, text=True, check=True)
        path = self._work / "injected.sbatch"
        path.write_text(done.stdout.replace(" run --join", f" run {options} --join"))
        return str(path)


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


def test_diagnose_asks_the_hub_that_an_injected_script_has_started(script: Script) -> None:
    """It knows what the ranks have called; from outside, nothing counts calls."""
    found = script.diagnose_once_it_hangs("2")

    (verdict,) = found["verdicts"]
    assert ("rank-in-user-code", [2]) == (verdict["code"], verdict["ranks"])
    assert "rank 2 has called 3 collectives" in verdict["facts"]
