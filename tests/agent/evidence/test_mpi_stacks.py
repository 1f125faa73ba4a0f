"""MPI's function, found from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.agent.evidence import stacks

SOURCE = """\
comm.Barrier()
total = comm.allreduce(
    number,
)
comm.send(comm.recv())
print(total)
"""


def function(path: str, line: int, ready: bool = True) -> str:
    """The innermost frame's name, of a main thread that stands there."""
    threads = [Stack("MainThread", True, [Frame("main", path, line)]), Stack("other", False, [])]
    (main, other) = stacks.with_mpi_function(threads, ready)
    assert Stack("other", False, []) == other
    return main.frames[0].name


@pytest.mark.parametrize(
    ("line", "expected"), [(1, "Barrier"), (2, "allreduce"), (3, "allreduce"), (5, "main"), (6, "main")]
)
def test_the_line_names_the_function(tmp_path: Path, line: int, expected: str) -> None:
    """Also over several lines; where two are called in one line, neither is taken."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)

    assert expected == function(str(path), line)


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is said, and nothing fails."""
    assert "main" == function(str(tmp_path / "gone.py"), 1)


def test_an_import_before_mpi_is_ready_is_its_init() -> None:
    """An extension shows in no stack; what is imported once MPI is ready is something else."""
    file = "<frozen importlib._bootstrap_external>"

    assert ("Init", "main") == (function(file, 1176, ready=False), function(file, 1176, ready=True))
