"""The command line, called as the console script calls it, with a state folder of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ddplaunch.agent.system import signals
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.cli.main import main

SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"
"""The command line's own script."""
JOB = """\
apiVersion: ddplaunch/v1
name: digits
nodes: 2
nproc_per_node: 2
command: [train.py]
source: [train.py]
"""


class Answer(NamedTuple):
    """What a call of `ddplaunch` gave."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture(name="call")
def _call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Call]:
    """Calls the command line in this process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Answer:
        code = main(words)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    handlers = {number: signal.getsignal(number) for number in STOPPING}
    yield call
    signals.unblock()
    for number, handler in handlers.items():  # `run` keeps its own until its process ends
        signal.signal(number, handler)


@pytest.fixture(name="job_file")
def _job_file(tmp_path: Path) -> Path:
    """A job file with its source."""
    (tmp_path / "train.py").write_text("print('hello')\n")
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path
