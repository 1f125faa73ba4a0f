"""The torchruns of a node: found below scripts, by their words, and what each takes for its own machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.supervisor.conftest import wait_for

from ddplaunch.agent.contract import Torchrun
from ddplaunch.agent.supervisor.rendezvous import Torchruns
from ddplaunch.agent.system import proc, torchrun

WAITS = "import sys, time\nsys.stdin.read()\n"


@pytest.fixture(name="script")
def _script(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that has started a program with torchrun's name, which waits for the end of its input."""
    program = tmp_path / "torchrun"
    program.write_text(WAITS)
    words = f"{sys.executable} {program} --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost train.py"
    with subprocess.Popen(["sh", "-c", f"{words}; true"], stdin=subprocess.PIPE) as shell:
        yield shell
        assert shell.stdin is not None
        shell.stdin.close()


def test_one_below_a_script_is_found_with_what_it_takes_for_its_own(
    script: subprocess.Popen[bytes],
) -> None:
    torchruns = Torchruns()
    found: list[Torchrun] = []

    def look() -> bool:
        torchruns.find()
        found.extend(torchruns.finished())
        return bool(found)

    wait_for(look)
    (run,) = found
    rank = SimpleNamespace(parent=run.pid, placeholder=False)

    assert ("2", "localhost", True) == (run.nnodes, run.endpoint, run.opens_store)
    assert torchrun.is_process(proc.words(run.pid))
    assert not torchrun.is_process(proc.words(script.pid))
    assert [False] == [each.has_started for each in torchruns.living([])]
    assert [True] == [each.has_started for each in torchruns.living([rank])]  # type: ignore[list-item]


def test_one_that_has_ended_is_forgotten(script: subprocess.Popen[bytes]) -> None:
    torchruns = Torchruns()

    def is_there() -> bool:
        torchruns.find()
        return bool(torchruns.living([]))

    wait_for(is_there)

    assert script.stdin is not None
    script.stdin.close()
    script.wait()
    torchruns.find()

    assert [] == torchruns.living([])
