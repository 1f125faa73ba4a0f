"""What a node collects of its ranks, and when it asks NCCL of one that listens as NCCL does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.ras_replies import reply
from tests.agent.supervisor.reports import names
from tests.busy import BUSY
from tests.ports import own_port

from ddplaunch.agent.contract import Exited, NodeEvidence
from ddplaunch.agent.evidence import py_spy
from ddplaunch.agent.supervisor.collector import Collector, Look, hook_wait
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_progress import Progress
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler

RANK = """import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])))
print(flush=True)
while True:
    connection, _ = listener.accept()
    while b"verbose status" not in connection.recv(4096):
        pass
    print("asked", flush=True)
    if len(sys.argv) > 2:
        open(sys.argv[2], "w").close()
        time.sleep(0.5)
    connection.sendall(open(sys.argv[1], "rb").read())
    connection.close()
"""


class NoHooks:
    """No rank has a hook."""

    def __init__(self) -> None:
        self.lines: dict[int, Any] = {}

    def ask_all(self, *_: object) -> None:
        pass

    def listen(self, timeout: float) -> None:
        time.sleep(timeout)


class Trial:
    """A rank with NCCL, for `still` seconds without progress, and its node's collector."""

    def __init__(self, answer: Path, port: int) -> None:
        self._answer, self._env = answer, {**os.environ, "NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
        self._rank: Rank

    def collect(
        self, why: str, node: int = 0, still: float = 60.0, dies: Path | None = None
    ) -> tuple[NodeEvidence, bytes]:
        """Return the node's evidence, and what the rank wrote. It ends when it makes the file `dies`."""
        words = [sys.executable, "-c", RANK, str(self._answer), *([str(dies)] if dies else [])]

        def meanwhile() -> None:
            if dies is not None and dies.exists():
                self._rank.exit = Exited(time.time(), None, signal.SIGSEGV)

        with subprocess.Popen(words, env=self._env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            self._rank = Rank(0, 0, process.pid)
            self._rank.progress = Progress(time.monotonic() - still)
            collector = Collector(node, sys.executable, NoHooks(), Sampler(), meanwhile)  # type: ignore[arg-type]
            look = Look(time.monotonic() + BUSY * 5, why=why)
            try:
                found = collector.collect([self._rank], "running", look, None, [])
            finally:
                self._rank.close()
                process.kill()
            return found, process.stdout.read()

    @property
    def ended(self) -> bool:
        return not self._rank.alive


@pytest.fixture(name="trial")
def _trial(tmp_path: Path, free_port: int) -> Trial:
    answer = tmp_path / "answer"
    answer.write_bytes(reply("behind-2.30.7.txt"))
    return Trial(answer, free_port)


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return own_port()


def test_at_the_end_of_a_hang_nccl_is_asked_once(trial: Trial) -> None:
    found, written = trial.collect("deadline")

    assert found.ras is not None
    assert (["78db921d1c117b4a"], b"asked\n") == ([each.name for each in found.ras.communicators], written)


@pytest.mark.parametrize(
    ("why", "node", "still"),
    [("still", 0, 60.0), ("death", 0, 60.0), ("deadline", 0, 0.0), ("deadline", 1, 60.0)],
    ids=["a notice", "a death", "a job that moves", "another node asks"],
)
def test_before_the_end_or_twice_nccl_is_not_asked(trial: Trial, why: str, node: int, still: float) -> None:
    """The question has crashed ranks: a job that may go on is not put at risk."""
    found, written = trial.collect(why, node, still)
    assert (None, b"") == (found.ras, written)


def test_an_end_during_the_question_is_not_in_its_evidence(trial: Trial, tmp_path: Path) -> None:
    """NCCL may have crashed of being asked, which is not why the job hangs."""
    found, _ = trial.collect("deadline", dies=tmp_path / "dies")

    assert trial.ended
    assert ([True], True) == ([each.alive for each in found.ranks], found.ras is not None)


PROGRAM = """import time
class Model:
    def stand(self):
        print(flush=True)
        time.sleep(60)
Model().stand()
"""


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


@pytest.mark.slow
@pytest.mark.skipif(py_spy.find(sys.executable) is None, reason="py-spy is not installed")
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


@pytest.mark.parametrize(
    ("per_cpu", "left", "seconds"),
    [(0.5, 3.0, 1.0), (4.0, 3.0, 1.5), (4.0, 10.0, 4.0), (90.0, 60.0, 5.0), (9.0, 0.5, 1.0)],
)
def test_hooks_have_longer_on_a_busy_machine_within_half_of_the_look(
    per_cpu: float, left: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * per_cpu, 0.0, 0.0))

    assert seconds == hook_wait(left)
