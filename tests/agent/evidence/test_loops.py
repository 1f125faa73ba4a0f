"""The loops of a program's file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ddplaunch.agent.evidence import source_lines

PROGRAM = """
for epoch in range(3):
    for batch in batches:
        step(
            batch
        )
    else:
        report()

def wait():
    while True:
        if done(): break
values = [each for each in values]
"""


def test_each_loop_has_its_lines(tmp_path: Path) -> None:
    """The body counts, to the end of its last statement; a comprehension calls no collective."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)

    assert [[2, 8], [3, 6], [11, 12]] == source_lines.read_loops(str(path), time.time() + 1)


@pytest.mark.parametrize(
    "text",
    ["while:", "\0", "é".encode("latin-1").decode("latin-1") * (1 << 20)],
    ids=["broken", "nul", "long"],
)
def test_what_is_no_program_is_unknown(text: str, tmp_path: Path) -> None:
    """Also what is too long to be read in passing."""
    path = tmp_path / "train.py"
    path.write_text(text)

    assert source_lines.read_loops(str(path), time.time() + 1) is None


def test_a_file_that_was_changed_since_is_not_what_runs(tmp_path: Path) -> None:
    """Its lines may be others; and one that is not there has none."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    os.utime(path, (1000, 1000))

    assert (True, None, None) == (
        bool(source_lines.read_loops(str(path), 1001)),
        source_lines.read_loops(str(path), 999),
        source_lines.read_loops(str(tmp_path / "none.py"), 1001),
    )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A program may be read from one, and its supervisor must not hang with it."""
    path = tmp_path / "train.py"
    os.mkfifo(path)

    assert source_lines.read_loops(str(path), time.time() + 1) is None
