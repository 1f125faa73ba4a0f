"""What torch's own tool reads in the bundle of a job that hung."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.corpus import harness
from tests.corpus.faults import FAULTS

from ddplaunch.agent.contract import Files

pytestmark = [pytest.mark.corpus, pytest.mark.timeout(600)]
_TOOL = "from torch.distributed.flight_recorder.fr_trace import main; main()"


def test_torchfrtrace_reads_the_flight_recorders_in_a_bundle(tmp_path: Path) -> None:
    """With Gloo, whose own dumps it cannot read, it names the collective that a rank has not called."""
    (fault,) = [each for each in FAULTS if each.name == "rank_in_user_code"]
    outcome = harness.run(fault, tmp_path / "job")
    with zipfile.ZipFile(tmp_path / "job" / Files.BUNDLE) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "x")
    ranks = fault.nodes * fault.nproc
    dumps = [tmp_path / f"x/flight/gloo/rank_{rank}" for rank in range(ranks)]
    recorders = [pickle.loads(dump.read_bytes()) for dump in dumps]

    words = [sys.executable, "-c", _TOOL, str(tmp_path / "x/flight/gloo"), "--prefix", "rank_"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    said = done.stdout + done.stderr
    (blamed,) = outcome.verdicts[0].ranks
    last = max(entry["collective_seq_id"] for each in recorders for entry in each["entries"])
    assert 0 == done.returncode, said
    assert f"sequence number: {last}" in said
    assert f"missing ranks: {{{blamed}}}" in said
