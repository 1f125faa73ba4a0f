"""Who may use the cluster now: everybody together, or one alone. Across processes, in the order of asking."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from tests.cluster.kubernetes.cache import CACHE


@contextlib.contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait for the turn, and have it. Whoever asks to be alone is not overtaken by those who come later."""
    folder = CACHE / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "turn").open("a") as room:
        with (folder / "turn-door").open("a") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
