"""A scheduler that may be slow is queried in a thread, where there is room for one."""

from __future__ import annotations

import threading

import pytest
from tests.few_threads import refuse_threads

from ddplaunch.backends.poller import Poller


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
