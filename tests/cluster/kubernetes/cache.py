"""Locks by which processes share clusters and what is built for them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator

from tests.cache import CACHE


class ClusterError(Exception):
    """The cluster is not as it should be; the message shows what it says itself."""


def say(text: str) -> None:
    """Tell whoever waits what is going on."""
    print(f"kubernetes: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(name: str, what: str, seconds: float) -> Iterator[None]:
    """Hold the lock of this name, which ends with its process. Whoever waits for it is told for `what`."""
    folder = CACHE / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with (folder / name).open("a") as file:
        said = 0.0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                if now > deadline:
                    raise ClusterError(
                        f"not within {seconds:.0f} s: {what} (another process is at it)"
                    ) from None
                if now > said + 30:
                    said = now
                    say(f"waits while {what}")
                time.sleep(0.1)
        yield


def hold(name: str, alone: bool = False) -> int:
    """A descriptor with the lock of this name, shared with others unless `alone`; whoever has it holds it."""
    place = CACHE / "locks" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    return descriptor


def try_hold(name: str) -> int | None:
    """As `hold` alone; None when anybody has it."""
    place = CACHE / "locks" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(name: str) -> bool:
    """Whether anybody has it."""
    descriptor = try_hold(name)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None
