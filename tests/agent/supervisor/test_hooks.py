"""The supervisor's end of the workers' lines."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.busy import BUSY

from ddplaunch.agent.supervisor import heartbeats
from ddplaunch.agent.supervisor.heartbeats import Poller
from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler


@contextmanager
def connected() -> Iterator[tuple[Hooks, Line, socket.socket]]:
    """A program's end of a line that owes the answer to `count`."""
    hooks = Hooks(lambda line, message: None)
    with closing(hooks), socket.socket(socket.AF_UNIX) as program:
        program.connect("\0" + hooks.name)
        program.sendall(b'{"hello": "any"}\n')
        hooks.listen(BUSY * 5.0)
        (line,) = hooks.lines.values()
        line.ask(b"count")
        yield hooks, line, program


def answer(program: socket.socket) -> None:
    """Answer the word that is there, if one is."""
    with suppress(BlockingIOError):
        word = program.recv(100, socket.MSG_DONTWAIT).strip().decode()
        program.sendall(json.dumps({"is": word, "tid": 1}).encode() + b"\n")


def test_a_hello_is_heard_at_once() -> None:
    """One look takes a new line and what was said on it: output that follows is already somebody's."""
    heard: list[HookMessage] = []
    hooks = Hooks(lambda line, message: heard.append(message))
    with closing(hooks), socket.socket(socket.AF_UNIX) as program:
        program.connect("\0" + hooks.name)
        program.sendall(b'{"hello": "any"}\n')
        hooks.listen()

    assert [message["hello"] for message in heard] == ["any"]


def test_a_line_that_owes_another_answer_is_asked_once_that_has_come() -> None:
    """The counters of this second are on their way when the evidence is collected, which must not be lost."""
    with connected() as (hooks, line, program):
        hooks.ask_all([line], b"dump", time.monotonic() + BUSY * 5.0, lambda: answer(program))

    assert (line.answer or {}).get("is") == "dump"


@pytest.mark.parametrize(("after", "is_mute"), [(0.25, True), (5.0, False)])
def test_an_answer_that_our_own_signal_let_a_rank_give_does_not_end_its_silence(
    monkeypatch: pytest.MonkeyPatch, after: float, is_mute: bool
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with connected() as (hooks, line, program):
        now = line.woken_at = 103.0
        now += after
        answer(program)
        hooks.listen(0.0)
        line.ask(b"count")
        now += 1.0

        assert 1.0 == line.silent_for
        assert (after + 4.0 if is_mute else 1.0) == line.mute_for


def test_nobody_waits_for_a_line_that_has_long_been_silent() -> None:
    """Ranks that cannot answer must not cost each look its whole time."""
    waits: list[None] = []
    with connected() as (hooks, line, _):
        line.requested_at -= 1000.0
        hooks.ask_all([line], b"dump", time.monotonic() + 100.0, lambda: waits.append(None))

    assert ([], b"count") == (waits, line.request)


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
    program.poller.ask()
    program.end.close()
    program.hooks.listen(BUSY * 5.0)

    assert program.poller.is_sample_due()
