"""The prediction against the real libraries, on hosts made at random in network namespaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.agent.gate import hosts
from tests.agent.interfaces import libraries, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(name="real", scope="module")
def _real() -> list[Path]:
    reason = hosts.missing()
    if reason:
        pytest.skip(reason)
    return libraries.all_of_them()


def test_prediction_and_libraries_agree(real: list[Path]) -> None:
    """Every version of NCCL, Gloo and TensorPipe, on each host; `benchmarks/predictor.py` has more."""
    found = run.ask_all(real, layouts=16, settings=3, of_torch=1)

    assert [] == found.disagreements
    assert {16, 48} == set(found.counts.values())
    assert 2 * len(real) + 2 == len(found.counts), "each NCCL for its bootstrap and for data"
    assert len(found.rules) >= 12, "hardly anything was tried"


def test_a_rule_of_another_version_is_found_out(real: list[Path]) -> None:
    """What the test above rests on: where the rules are another version's, it fails."""
    found = run.ask_all(real[-1:], layouts=12, settings=3, judge_as="2.27.7")

    assert any("NCCL" in json.loads(each)["library"] for each in found.disagreements)
