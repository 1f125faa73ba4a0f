"""Anybody's own job in pods, which hangs: one command tells why, and leaves nothing in them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.backend.conftest import As, Cli
from tests.cluster.kubernetes.backend.jobs_of_others import BEFORE, SLEEPS, Training, documented


def _diagnosed(cli: Cli, target: str) -> dict[str, Any]:
    code, out, said = cli("diagnose", target, "--json")
    assert 0 == code, said
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_rank_that_sleeps(as_user: As, cli: Cli, training: Training, tmp_path: Path) -> None:
    """Rank and pod are named, for one who may do what the page says; the job goes on as it was.

    Its output can be read; it is not cancelled, which would delete it.
    """
    training.start(SLEEPS)
    time.sleep(BEFORE)
    ann, pods, before = as_user(documented()), training.pods(), training.leftovers()

    code, text, said = ann(
        "diagnose", f"kubernetes://{training.namespace}?selector=app=llm", "--bundle", tmp_path / "bundle.zip"
    )

    assert 0 == code, said
    assert f"culprit     rank 1 on node 1 ({pods[1]})" in text
    found = _diagnosed(ann, str(tmp_path / "bundle.zip"))
    verdict = found["verdicts"][0]
    assert ("rank-in-user-code", [1], [0], [1]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
        verdict["nodes"],
    ), found
    assert "rank 1 has been in main (train.py:" in verdict["sentence"]
    assert [{"node": 0, "host": pods[0]}, {"node": 1, "host": pods[1]}] == found["nodes"]
    code, out, _ = cli("status", f"kubernetes://{training.namespace}/llm")
    assert (101, True) == (code, "not started by ddplaunch" in out), out
    code, out, said = cli("logs", f"kubernetes://{training.namespace}/llm")
    assert (0, [1, 1]) == (code, [out.count(f"[{pod}/pytorch] up") for pod in pods]), out + said
    code, _, said = cli("logs", f"kubernetes://{training.namespace}/llm", "--rank", "1")
    assert (2, True) == (code, "does not know which containers" in said), said
    code, _, said = cli("outputs", f"kubernetes://{training.namespace}/llm")
    assert (102, True) == (code, "does not know where it writes" in said), said
    code, _, said = cli("cancel", f"kubernetes://{training.namespace}/llm")
    assert (2, True) == (code, "was not started by ddplaunch" in said), said
    assert before == training.leftovers()
    print(text)


@pytest.mark.whole
def test_a_job_that_trains(cli: Cli, training: Training) -> None:
    """Nobody is accused; a plain Job may be named as those of ddplaunch are."""
    training.start("pass")

    found = _diagnosed(cli, f"kubernetes://{training.namespace}/job/llm")
    again = _diagnosed(cli, f"kubernetes://{training.namespace}/llm")

    assert ([], "2 ranks seen; nothing shows that they hang") == (found["verdicts"], found["detail"])
    assert ([], 2) == (again["verdicts"], again["evidence"]["ranks"])
