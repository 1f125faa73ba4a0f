"""Jobs that ddplaunch did not start, looked at while they run: torchrun alone has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.corpus import plain
from tests.corpus.faults import FAULTS, Fault
from tests.corpus.outside import telling

from ddplaunch.agent.system import processes

pytestmark = [pytest.mark.corpus, pytest.mark.timeout(300)]
_BEFORE = 12.0
"""Seconds for which the fault is there when somebody asks."""
FAULT = {case.name: case for case in FAULTS}
LOOKS = 3

SPAWNS = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def evaluate():
    open(os.path.join(sys.argv[1], "stopped-1"), "w").close()
    time.sleep(1000)

def train(rank, world):
    dist.init_process_group("gloo", f"file://{sys.argv[1]}/store", rank=rank, world_size=world)
    for step in range(10):
        if step == 3 and rank == 1:
            evaluate()
        dist.all_reduce(torch.ones(3))

if __name__ == "__main__":
    mp.spawn(train, (3,), nprocs=3)
"""

COMPUTES = """
import os, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
weights, enough = torch.rand(200, 200), torch.zeros(1)
while not enough:
    until = time.monotonic() + 3
    while time.monotonic() < until:
        weights = torch.tanh(weights @ weights) / 100
    enough.fill_(float(os.path.exists(os.path.join(sys.argv[1], "enough"))))
    dist.broadcast(enough, 0)
dist.destroy_process_group()
"""

EVALUATES = """
import os, queue, sys, time
import torch, torch.distributed as dist

def works(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.tanh(torch.rand(100, 100))

dist.init_process_group("gloo")
for step in range(6):
    works(1)
    if step == 5 and dist.get_rank() == 1:
        works(7)
        open(os.path.join(sys.argv[1], "stopped-1"), "w").close()
        queue.Queue().get()
    dist.all_reduce(torch.ones(3))
"""


@contextmanager
def started(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Python's, of which nothing is left at the end."""
    with subprocess.Popen([sys.executable, *words], start_new_session=True) as process:
        try:
            yield process
        finally:
            # torchrun's ranks have sessions of their own.
            for pid in [process.pid, *processes.descendants(process.pid)]:
                processes.send(pid, signal.SIGKILL)


@contextmanager
def hanging(case: Fault, folder: Path, **settings: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Its launchers, when progress has stopped for a while."""
    with plain.job(case, folder, settings) as launchers:
        _stopped(folder)
        time.sleep(_BEFORE)
        yield launchers
        assert [None] * case.nodes == [each.poll() for each in launchers], "the job was not left alone"


def _stopped(folder: Path) -> None:
    until = time.monotonic() + plain.STARTED
    while not list(folder.glob("stopped-*")):
        assert time.monotonic() < until, [each.read_text() for each in folder.glob("output-*")]
        time.sleep(0.1)


@pytest.mark.parametrize(
    "name",
    [
        "rank_in_dataloader",
        pytest.param("rank_stopped", marks=pytest.mark.whole),
        pytest.param("rank_late_to_init", marks=pytest.mark.whole),
    ],
)
def test_a_hang_is_told_from_outside(name: str, tmp_path: Path) -> None:
    """Cause, ranks and victims are those of a supervised job, also of two launchers on one machine."""
    case = FAULT[name]
    with hanging(case, tmp_path) as launchers:
        found = plain.diagnosed(launchers[-1].pid)

    verdict = found["verdicts"][0]
    assert (case.code, [*case.ranks], [*case.victims]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
    ), found


def test_no_rank_of_a_healthy_job_is_accused(tmp_path: Path) -> None:
    """Whenever it is looked at, while it starts as well as later; and it ends as if nobody had looked.

    That all ranks compute for long is nothing at all.
    """
    script = tmp_path / "computes.py"
    script.write_text(COMPUTES)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    seen: list[dict[str, Any]] = []
    with started(*torchrun, script, tmp_path) as launcher:
        while len(seen) < LOOKS:
            assert launcher.poll() is None
            found = plain.diagnosed(launcher.pid)
            seen += [found] if found.get("evidence") else []
        (tmp_path / "enough").touch()
        assert 0 == launcher.wait(120)

    verdicts = [verdict for each in seen for verdict in each["verdicts"]]
    assert [] == verdicts


@pytest.mark.whole
def test_ranks_of_mp_spawn_are_known_by_their_stacks(tmp_path: Path) -> None:
    """Their numbers are on their stacks alone; the one that sleeps is told, and goes on to sleep."""
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    with started(script, tmp_path) as parent:
        _stopped(tmp_path)
        time.sleep(_BEFORE)
        found = plain.diagnosed(parent.pid)
        assert parent.poll() is None

    verdict = found["verdicts"][0]
    assert ("rank-in-user-code", [1], [0, 2]) == (verdict["code"], verdict["ranks"], verdict["victims"]), (
        found
    )


@pytest.mark.whole
@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide py-spy")
@pytest.mark.parametrize(("name", "ranks"), [("lock_deadlock", [2]), ("p2p_all_receive", [])])
def test_a_rank_is_told_where_no_stack_can_be_seen(name: str, ranks: list[int], tmp_path: Path) -> None:
    """A rank that is in no collective is told, and nobody where all wait for one another.

    What may not be seen is named.
    """
    with hanging(FAULT[name], tmp_path) as launchers:
        found = plain.diagnosed(launchers[0].pid, "none")

    assert ranks == [rank for verdict in found["verdicts"] for rank in verdict["ranks"]], found
    assert ["stacks of ranks 0-2: py-spy: not found (node 0)"] == found["evidence"]["missing"]
    assert "stacks need py-spy" in found["hint"]


@pytest.mark.whole
@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide py-spy")
@pytest.mark.parametrize("way", ["server", "files"])
def test_ranks_tell_who_may_not_trace(way: str, tmp_path: Path) -> None:
    """All wait in a collective: only the recorder of each rank shows that one has called another."""
    case = FAULT["collective_mismatch"]
    with hanging(telling(case, way), tmp_path, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_") as launchers:
        found = plain.diagnosed(launchers[0].pid, "forbidden")

    verdict = found["verdicts"][0]
    assert (case.code, [*case.ranks]) == (verdict["code"], verdict["ranks"]), found
    assert "called broadcast" in verdict["sentence"]


@pytest.mark.whole
@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide py-spy")
def test_connections_tell_where_nobody_may_trace(tmp_path: Path) -> None:
    """Connections tell who has run for long since its last message, which the others sent later."""
    script = tmp_path / "evaluates.py"
    script.write_text(EVALUATES)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    with started(*torchrun, script, tmp_path) as launcher:
        _stopped(tmp_path)
        time.sleep(_BEFORE)
        found = plain.diagnosed(launcher.pid, "forbidden")

    verdict = found["verdicts"][0]
    assert ("rank-in-user-code", [1], [0, 2]) == (verdict["code"], verdict["ranks"], verdict["victims"]), (
        found
    )
    assert "rank 1 has sent nothing to another rank for" in verdict["sentence"]
