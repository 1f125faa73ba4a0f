"""Where few processes and threads may be started, or none."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_V1 = Path("/sys/fs/cgroup/pids")
_GONE = 10.0
"""Seconds within which processes that were killed have left the group."""


@contextlib.contextmanager
def group_of(limit: int) -> Iterator[list[str]]:
    """The words before a command that shall run in it; it counts as the first. For root."""
    parent = _V1 if _V1.is_dir() else Path("/sys/fs/cgroup")
    try:
        group = Path(tempfile.mkdtemp(prefix="ddplaunch-threads-", dir=parent))
    except OSError as error:
        pytest.skip(f"needs root and a control group that can be written: {error}")
    try:
        (group / "pids.max").write_text(str(limit))
        yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        until = time.monotonic() + _GONE
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        group.rmdir()


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python start none, as at the limit."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
