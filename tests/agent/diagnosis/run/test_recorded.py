"""The rules on evidence of real faults, as `tests.corpus.record` has kept it: the table comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.corpus.faults import FAULTS, Fault
from tests.corpus.nccl import nccl_cases

from ddplaunch.agent.contract import JobEvidence, codec
from ddplaunch.agent.diagnosis.run.decide import judge, nothing_moves

RECORDED = Path(__file__).with_name("recorded")


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if not fault.asked], ids=lambda fault: fault.name
)
def test_recorded_fault(fault: Fault) -> None:
    """Cause, culprits, victims and nodes."""
    evidence = codec.read(JobEvidence, str(RECORDED / f"{fault.name}.json"))
    (verdict,) = judge(evidence)

    expected = (fault.code, [*fault.ranks], [*fault.victims])
    assert expected == (verdict.code, verdict.ranks, verdict.victims), verdict
    assert evidence.why == "death" or nothing_moves(evidence)


WITH_NCCL = {case.name: case.job for case in nccl_cases()}


@pytest.mark.parametrize("path", sorted((RECORDED / "nccl").iterdir()), ids=lambda path: path.stem)
def test_recorded_with_nccl(path: Path) -> None:
    """On an H100, with NCCL 2.28.9 and torch 2.11: `python -m tests.corpus --nccl --keep` has left it."""
    fault = WITH_NCCL[path.stem]
    assert isinstance(fault, Fault)
    evidence = codec.read(JobEvidence, str(path))
    (verdict,) = judge(evidence)

    expected = (fault.code, [*fault.ranks], [*fault.victims])
    assert expected == (verdict.code, verdict.ranks, verdict.victims), verdict
