"""Evidence of a rank by more than one means. Rank and py-spy are real; its hook is the test's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.supervisor.reports import names
from tests.busy import BUSY

from ddplaunch.agent.evidence import py_spy
from ddplaunch.agent.supervisor.collector import Collector, Look
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler

PROGRAM = """import time
class Model:
    def stand(self):
        print(flush=True)
        time.sleep(60)
Model().stand()
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(py_spy.find(sys.executable) is None, reason="py-spy is not installed"),
]


class LateHooks:
    """The whole dump takes too long; the short look is in time."""

    def __init__(self, frames: list[list[Any]]) -> None:
        self.lines: dict[int, Line] = {}
        self._frames = frames

    def ask_all(
        self, lines: Iterable[Line], word: bytes, until: float, meanwhile: Callable[[], None]
    ) -> None:
        for line in lines:
            line.answer = {"main_stack": {"frames": self._frames}} if word == b"look" else None

    def listen(self, timeout: float) -> None:
        time.sleep(timeout)


def test_a_hook_that_answers_after_py_spy_shows_no_movement(tmp_path: Path) -> None:
    """To py-spy the same place is Model.stand, and to the hook it is stand."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    hooks = LateHooks([["stand", str(program), 5], ["<module>", str(program), 6]])
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        rank = Rank(0, 0, process.pid)
        # No word is sent by this line: the hooks answer for it.
        rank.line = Line(None, process.pid)  # type: ignore[arg-type]
        collector = Collector(0, sys.executable, hooks, Sampler(), lambda: None)  # type: ignore[arg-type]
        try:
            found = collector.collect([rank], "running", Look(time.monotonic() + BUSY * 5), None, []).ranks[0]
        finally:
            rank.close()
            process.kill()

    assert ("py-spy", False) == (found.stack_source, found.stack_moves)
    assert ["stand", "<module>"] == names(found)
