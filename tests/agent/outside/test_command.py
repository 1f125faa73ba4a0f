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
from tests.agent import pods

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
    return unpacked(done.stdout)


def unpacked(printed: bytes) -> NodeEvidence:
    """What it has printed."""
    text = zlib.decompress(base64.b64decode(b"".join(printed.split())))
    return codec.load(NodeEvidence, json.loads(text))


@pytest.mark.processes
def test_what_each_rank_of_a_job_does_is_seen_without_a_word_from_it() -> None:
    with sleeping(**NUMBERS) as pid:
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    (rank,) = evidence.ranks
    assert (3, 1, pid, 4, True) == (rank.rank, rank.local_rank, rank.pid, rank.world_size, rank.alive)
    assert rank.process is not None
    assert ("S", "sleep") == (rank.process.state, rank.process.command)
    assert rank.stuck_for >= 10


def test_on_a_machine_without_ranks_of_the_job_the_evidence_says_what_was_looked_for() -> None:
    with sleeping():
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    seen = evidence.ranks, evidence.missing
    assert ([], ["no process with RANK and LOCAL_RANK in its environment is seen"]) == seen


_OF_ANOTHER_USER = """
setpriv --reuid=1000 --regid=1000 --clear-groups env {numbers} sleep 100 &
until grep -q sleep /proc/$!/comm; do sleep 0.05; done
exec setpriv --inh-caps={without} --bounding-set={without} "$0" -m ddplaunch.agent look --all
"""


@pytest.mark.whole
@pytest.mark.processes
@pytest.mark.skipif(bool(pods.missing()), reason=pods.missing())
@pytest.mark.parametrize(("without", "hidden"), [("-all", True), ("-sys_nice", False)])
def test_a_container_that_may_not_look_into_its_ranks_says_why(without: str, hidden: bool) -> None:
    numbers = " ".join(f"{name}={value}" for name, value in NUMBERS.items())
    script = _OF_ANOTHER_USER.format(numbers=numbers, without=without)
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, sys.executable]
    evidence = unpacked(subprocess.check_output(words, env={**os.environ, "PYTHONPATH": str(SOURCE)}))

    assert hidden == (not evidence.ranks)
    assert hidden == any("processes may not be looked into (ptrace)" in each for each in evidence.missing)


def test_none_of_several_jobs_is_taken_for_the_other() -> None:
    with sleeping(**NUMBERS), sleeping(**{**NUMBERS, "MASTER_PORT": "29501"}):
        evidence = look(f"JOB_OF_TEST={os.getpid()}")

    assert ([], [f"JOB_OF_TEST={os.getpid()} has the ranks of 2 jobs"]) == (evidence.ranks, evidence.missing)
