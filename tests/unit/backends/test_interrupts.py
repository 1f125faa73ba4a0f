"""A second Ctrl-C does not break off what the first has begun to take back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C is what it was, afterwards."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_is_kept_breaks_off_nothing_but_a_long_wait() -> None:
    """One that came before it, too; afterwards, and while it is undone, another one changes nothing."""
    done = []
    with interrupts.kept() as kept:
        os.kill(os.getpid(), signal.SIGINT)
        done.append("sent")
        with pytest.raises(KeyboardInterrupt), interrupts.let_through():
            done.append("waited")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("undone")
    os.kill(os.getpid(), signal.SIGINT)

    assert (True, ["sent", "undone"]) == (kept.came, done)


def test_a_long_wait_is_broken_off_at_once() -> None:
    """And where none comes, Ctrl-C is afterwards what it was."""
    with pytest.raises(KeyboardInterrupt), interrupts.kept(), interrupts.let_through():
        os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with interrupts.kept() as kept, interrupts.let_through():
        pass

    assert (False, signal.default_int_handler) == (kept.came, signal.getsignal(signal.SIGINT))


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
