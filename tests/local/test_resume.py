"""A job that comes back: it loses a node for real, and goes on from its checkpoint."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.local.conftest import Desk, eventually

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "train.py"
EPOCHS = 30


def submitted(desk: Desk, *words: str, more: str = "") -> str:
    """The handle of examples/digits on two nodes, which may come back once."""
    (desk.folder / "train.py").write_bytes(DIGITS.read_bytes())
    resume = f"retries: 1\nresume: {{args: [--resume]}}\n{more}"
    path = Path(desk.job("--epochs", str(EPOCHS), *words, name="digits", nodes=2, nproc=1, more=resume))
    path.write_text(re.sub("^source: .*$", "source: train.py", path.read_text(), flags=re.MULTILINE))
    return desk.call("submit", str(path)).stdout.strip()


def folder(desk: Desk, handle: str) -> Path:
    """The job's own folder."""
    return desk.folder / "state" / "ddplaunch" / "jobs" / handle.removeprefix("local://")


def kill_node(desk: Desk, number: int) -> None:
    """The node's supervisor, its torchrun and its ranks die in the same moment, as with their machine."""
    name = f"DDPLAUNCH_NODE={number}".encode()
    found = [pid for pid in desk.processes() if name in _environment(pid)]
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def epochs(output: str) -> list[int]:
    """The epochs that rank 0 has finished, in the order in which it printed them."""
    return [int(number) for number in re.findall(r"^\[0/0\] epoch +(\d+) ", output, re.MULTILINE)]


@pytest.mark.whole
def test_a_lost_node_costs_the_steps_since_the_last_checkpoint(desk: Desk) -> None:
    handle = submitted(desk, "--require", "0.9")
    printed = folder(desk, handle) / "run" / "output.log"
    eventually(lambda: printed.exists() and 2 in epochs(printed.read_text()), "two epochs have been trained")
    kill_node(desk, 1)
    ended = desk.call("status", handle, "--watch", seconds=120)

    output = desk.call("logs", handle).stdout
    assert 0 == ended.returncode, output
    assert EPOCHS == epochs(output)[-1]
    (done,) = map(int, re.findall(r"^\[0/0\] resumed after epoch (\d+)$", output, re.MULTILINE))
    before, after = (epochs(part) for part in output.split(f"resumed after epoch {done}\n"))
    assert list(range(1, before[-1] + 1)) == before
    assert list(range(done + 1, EPOCHS + 1)) == after
    assert done in (before[-1] - 1, before[-1])  # killed before or after the write of the last one printed


@pytest.mark.whole
def test_a_hang_is_tried_again_only_where_the_job_file_asks(desk: Desk) -> None:
    more = "retries: 1\nretry_hangs: {}\nwatchdog: {{notice_after: 2s, kill_after: 6s}}\n"
    runs = {}
    for asked in ("true", "false"):
        job = desk.job("--hang-at", "1", name=f"hang-{asked}", more=more.format(asked))
        handle = desk.call("submit", job).stdout.strip()
        assert 105 == desk.call("status", handle, "--watch", seconds=120).returncode
        runs[asked] = sorted(path.name for path in folder(desk, handle).glob("run*"))

    assert {"true": ["run", "run-0"], "false": ["run"]} == {
        asked: [name for name in names if name != "run.sh"] for asked, names in runs.items()
    }
