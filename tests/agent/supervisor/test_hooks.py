"""The supervisor's end of the workers' lines."""

from __future__ import annotations

import socket
from contextlib import closing

from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks


def test_a_hello_is_heard_at_once() -> None:
    """One look takes a new line and what was said on it: output that follows is already somebody's."""
    heard: list[HookMessage] = []
    hooks = Hooks(lambda line, message: heard.append(message))
    with closing(hooks), socket.socket(socket.AF_UNIX) as program:
        program.connect("\0" + hooks.name)
        program.sendall(b'{"hello": "any"}\n')
        hooks.listen()

    assert [message["hello"] for message in heard] == ["any"]
