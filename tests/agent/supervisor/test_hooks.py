"""The supervisor's end of the workers' lines."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from tests.busy import BUSY

from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line


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


def test_nobody_waits_for_a_line_that_has_long_been_silent() -> None:
    """Ranks that cannot answer must not cost each look its whole time."""
    waits: list[None] = []
    with connected() as (hooks, line, _):
        line.requested_at -= 1000.0
        hooks.ask_all([line], b"dump", time.monotonic() + 100.0, lambda: waits.append(None))

    assert ([], b"count") == (waits, line.request)
