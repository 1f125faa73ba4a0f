"""A second Ctrl-C does not break off what the first has begun to take back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ddplaunch.backends import interrupts


def test_a_second_ctrl_c_is_ignored_inside_and_heard_again_after() -> None:
    """The removal ends whole; afterwards Ctrl-C is what it was."""
    with interrupts.held_off():
        os.kill(os.getpid(), signal.SIGINT)
        whole = True

    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert whole


def test_a_thread_changes_no_signal() -> None:
    """Only the main thread may, and only it gets one."""
    seen = []

    def inside() -> None:
        with interrupts.held_off():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()

    assert [signal.getsignal(signal.SIGINT)] == seen
