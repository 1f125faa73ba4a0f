"""What `ddplaunch run` refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["job.yaml"], "to submit a job file: ddplaunch submit job.yaml"),
        (
            ["train.py", "--lr", "0.1"],
            "put one first: ddplaunch run -- torchrun --nproc-per-node=2 train.py --lr 0.1",
        ),
    ],
)
def test_a_file_is_no_command(call: Call, job_file: Path, words: list[str], hint: str) -> None:
    """Who starts a job file or a script by `run` reads which command does."""
    (job_file.parent / "train.py").touch()
    answer = call("run", *words)

    assert 2 == answer.code
    assert answer.err.startswith(f"error: {words[0]} is not a command")
    assert f"hint: {hint}" in answer.err
