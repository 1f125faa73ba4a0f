"""`agent.pyz look`: what one machine prints of the ranks of a job."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddplaunch.agent.contract import NodeEvidence, codec

SOURCE = Path(__file__).parents[3] / "launcher"
JOB = {"JOB_OF_TEST": f"{os.getpid()}"}
NUMBERS = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}


@contextmanager
def sleeping(**environment: str) -> Iterator[int]:
    """A process with this environment."""
    with subprocess.Popen(["sleep", "100"], env={**JOB, **environment}) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def look(variable: str) -> NodeEvidence:
    """What the agent prints."""
    words = [sys.executable, "-m", "ddplaunch.agent", "look", "--of", variable]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, check=True
    )
    text = zlib.decompress(base64.b64decode(b"".join(done.stdout.split())))
    return codec.load(NodeEvidence, json.loads(text))


@pytest.mark.processes
def test_the_ranks_of_a_job() -> None:
    """Those that have its variable; what each does is seen without a word from it."""
    with sleeping(**NUMBERS) as pid:
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    (rank,) = evidence.ranks
    assert (3, 1, pid, 4, True) == (rank.rank, rank.local_rank, rank.pid, rank.world_size, rank.alive)
    assert rank.process is not None
    assert ("S", "sleep") == (rank.process.state, rank.process.command)
    assert rank.stuck_for >= 10


def test_a_machine_without_ranks_of_the_job() -> None:
    """The evidence says what was looked for."""
    with sleeping():
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    assert ([], ["no process with RANK and LOCAL_RANK in its environment is seen"]) == (
        evidence.ranks,
        evidence.missing,
    )


def test_several_jobs() -> None:
    """None of them is taken for the other."""
    with sleeping(**NUMBERS), sleeping(**{**NUMBERS, "MASTER_PORT": "29501"}):
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    assert ([], [f"JOB_OF_TEST={os.getpid()} has the ranks of 2 jobs"]) == (evidence.ranks, evidence.missing)
