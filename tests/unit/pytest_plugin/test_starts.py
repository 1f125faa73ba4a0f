"""`pytest --ddplaunch` under pytest-xdist, with ranks that are started in each way that the docs name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.pytest_plugin.inner_pytest import outcome

pytest_plugins = ("pytester",)

STARTS = """
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from pathlib import Path


def train(hangs):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 0 or not hangs:
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    if "raises" in sys.argv and dist.get_rank() == 1:
        raise ValueError("bad sample")
    dist.destroy_process_group()


def variables(rank):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def work(rank, port, hangs):
    os.environ.update(variables(rank), MASTER_PORT=port)
    train(hangs)


def by_multiprocessing(method, hangs):
    context, port = multiprocessing.get_context(method), free_port()
    ranks = [context.Process(target=work, args=(rank, port, hangs)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [0, 0] == [rank.exitcode for rank in ranks]


def by_torchrun():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, "-m", "starts", "hangs"], check=True)


def by_python(*words):
    port = free_port()
    words = [sys.executable, "-m", "starts", *words]
    ranks = [
        subprocess.Popen(words, env={**os.environ, **variables(rank), "MASTER_PORT": port})
        for rank in range(2)
    ]
    assert [0, 0] == [rank.wait() for rank in ranks]


def meet(own, other):
    Path(own).touch()
    while not Path(other).exists():  # the time limit of the outer test ends this, too
        time.sleep(0.05)


if __name__ == "__main__":
    train("hangs" in sys.argv)
"""
BY_PYTHON = """
import pytest
from starts import by_multiprocessing, meet


def test_forkserver_is_healthy():
    by_multiprocessing("forkserver", False)


@pytest.mark.ddplaunch(timeout=5)
def test_spawn_hangs():
    meet("spawn", "torchrun")
    by_multiprocessing("spawn", True)


@pytest.mark.ddplaunch(timeout=5)
def test_forkserver_hangs():
    by_multiprocessing("forkserver", True)
"""
BY_COMMAND = """
import pytest
from starts import by_python, by_torchrun, meet


@pytest.mark.ddplaunch(timeout=5)
def test_torchrun_hangs():
    meet("torchrun", "spawn")
    by_torchrun()


def test_python_is_healthy():
    by_python()


def test_python_raises():
    by_python("raises")
"""


@pytest.mark.whole  # twelve ranks, of which six hang
def test_each_hung_test_gets_its_own_verdict(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them hang at the same time, in two workers, and one below a forkserver that an earlier test has
    started. Healthy tests before and after them pass, a failure keeps its own text, and no rank that hung is
    left.
    """
    pytester.makepyfile(starts=STARTS, test_by_python=BY_PYTHON, test_by_command=BY_COMMAND)
    result = outcome(
        pytester, monkeypatch, "--ddplaunch", "-p", "xdist.plugin", "-n", "2", "--dist", "loadfile"
    )
    parts = re.split(r"_{3,} (test_\w+) _{3,}\n", result.stdout.str())
    hung = dict(zip(parts[1::2], parts[2::2], strict=True))
    raised = hung.pop("test_python_raises").partition("short test summary")[0]
    ranks = [pid for text in hung.values() for pid in re.findall(r"^rank \d \(process (\d+)\)", text, re.M)]

    result.assert_outcomes(passed=2, failed=4)
    assert {"test_spawn_hangs", "test_forkserver_hangs", "test_torchrun_hangs"} == set(hung)
    assert "ValueError: bad sample" in raised
    assert "ddplaunch verdict" not in raised
    for text in hung.values():
        said = " ".join(text.split())
        assert 1 == said.count(
            "collective-mismatch: at collective 1 rank 0 called all_reduce [1] (starts.py:"
        )
        assert re.search(r"rank 1 called barrier \(starts\.py:17\)", said)
    assert 6 == len(set(ranks)) == len(ranks)
    assert [] == [pid for pid in ranks if Path("/proc", pid).exists()]
