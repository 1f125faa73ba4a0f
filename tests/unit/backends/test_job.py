"""What every backend says of a job whose hub or scheduler is slow to answer."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from tests.few_threads import refuse_threads

from ddplaunch.agent.contract import JobStatus, Phase
from ddplaunch.backends.job import SILENT_AFTER_HERE, Handle, Job, State, with_silence
from ddplaunch.backends.poller import Poller

NOW = 1_700_000_000.0
STATUS = JobStatus("digits", 0, Phase.RUNNING, NOW, [], NOW, NOW - SILENT_AFTER_HERE - 1)
JOB = Job(Handle("local", "digits/1"), State.RUNNING, NOW, "digits", status=STATUS)


def test_of_a_hub_without_a_heartbeat_there_is_no_word() -> None:
    """Since its last one; and that it may pass, and what its nodes do without it, is the hint."""
    job = with_silence(JOB, SILENT_AFTER_HERE, NOW)

    since = time.strftime("%H:%M:%S", time.localtime(STATUS.updated))
    assert f"the hub has not been heard since {since}" == job.detail
    assert job.hint.startswith("this may be temporary")
    assert "`watchdog.kill_after`" in job.hint


def test_what_the_scheduler_says_comes_first() -> None:
    """A suspended job's hub is silent as well, and no node of it watches its ranks."""
    job = with_silence(
        dataclasses.replace(JOB, detail="its state in Slurm is SUSPENDED"), SILENT_AFTER_HERE, NOW
    )

    assert job.detail.startswith("its state in Slurm is SUSPENDED; the hub has not been heard since ")
    assert "" == job.hint


@pytest.mark.parametrize(
    "job",
    [
        dataclasses.replace(JOB, status=dataclasses.replace(STATUS, updated=NOW - 12)),
        dataclasses.replace(JOB, status=dataclasses.replace(STATUS, exit_code=0)),
        dataclasses.replace(JOB, state=State.SUCCEEDED),
        dataclasses.replace(JOB, status=None),
    ],
    ids=["it lives", "it has ended", "the job has ended", "it was never there"],
)
def test_else_nothing_is_said(job: Job) -> None:
    assert job is with_silence(job, SILENT_AFTER_HERE, NOW)


class Counter(Poller):
    """Notes which threads query."""

    def __init__(self) -> None:
        super().__init__(first=0.0, longest=0.0)
        self.threads: list[str] = []

    def query(self) -> None:
        self.threads.append(threading.current_thread().name)


def test_a_query_has_a_thread_of_its_own() -> None:
    """Who asks for the state does not wait for the scheduler."""
    poller = Counter()
    poller.refresh(fresh=False, ended=False)
    poller.join()

    assert 1 == len(poller.threads)
    assert "MainThread" not in poller.threads


def test_a_user_who_may_start_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -u` of a login node: the query is made at once, and nothing is left to be joined."""
    poller = Counter()
    refuse_threads(monkeypatch)
    for _ in range(2):
        poller.refresh(fresh=False, ended=False)
    poller.join()

    assert ["MainThread"] * 2 == poller.threads
