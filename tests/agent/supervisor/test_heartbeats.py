"""When the supervisor samples its ranks."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.busy import BUSY

from ddplaunch.agent.supervisor import heartbeats
from ddplaunch.agent.supervisor.heartbeats import Poller
from ddplaunch.agent.supervisor.hooks import Hooks
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler


@pytest.fixture(name="program")
def _program(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A rank's end of its line, and the poller that asks it."""
    monkeypatch.setattr(heartbeats, "_MOMENT", 0.0)
    hooks = Hooks(lambda line, message: None)
    with closing(hooks), socket.socket(socket.AF_UNIX) as end:
        end.connect("\0" + hooks.name)
        end.sendall(b'{"hello": "rank"}\n')
        hooks.listen(BUSY * 5.0)
        rank = Rank(0, 0, os.getpid())
        (rank.line,) = hooks.lines.values()
        tracker = SimpleNamespace(alive=[rank], node=0, choose_to_ask=list)
        poller = Poller(cast(Any, tracker), hooks, Sampler(), cast(Any, None))
        yield SimpleNamespace(end=end, hooks=hooks, rank=rank, poller=poller)
        rank.close()


def test_a_sample_waits_for_an_answer_that_is_on_its_way(program: SimpleNamespace) -> None:
    """Else a large answer is never used, and is asked for each second."""
    program.poller.ask()
    assert not program.poller.is_sample_due()

    program.end.sendall(b'{"is": "count"}\n')
    program.hooks.listen(BUSY * 5.0)
    assert program.poller.is_sample_due()


def test_a_sample_does_not_wait_for_a_rank_that_owes_an_older_answer(program: SimpleNamespace) -> None:
    """Native code may hold its GIL for ever, and the other ranks are to be watched."""
    program.rank.line.ask(b"count")
    program.poller.ask()

    assert program.poller.is_sample_due()


def test_a_sample_does_not_wait_for_a_rank_that_is_gone(program: SimpleNamespace) -> None:
    """Its line closes with it."""
    program.poller.ask()
    program.end.close()
    program.hooks.listen(BUSY * 5.0)

    assert program.poller.is_sample_due()
