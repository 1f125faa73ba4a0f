"""The last checkpoint of a job that is ended from outside: whether one was written after the signal."""

from __future__ import annotations

import contextlib
import os
import time

from ddplaunch.agent.contract import Env, JobPlan

_PATIENCE = 2.0
"""Seconds to look through the folder. One with more files says nothing."""
_TICK = 0.01
"""Seconds by which a file's time may lag: Linux takes it from the last tick, of at least 100 in a second."""


def after(plan: JobPlan, signal: float) -> str:
    """Return a sentence on the newest file of the job's folder for checkpoints; empty where nothing is known.

    `signal`: time.time() when the ranks got SIGTERM. Files of a shared folder have its server's time.
    """
    folder = plan.resume_dir or os.environ.get(Env.RESUME_DIR, "")
    until = time.monotonic() + _PATIENCE
    newest, file = 0.0, ""
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with contextlib.suppress(OSError):
                newest, file = max((newest, file), (os.lstat(path).st_mtime, path))
            if time.monotonic() > until:
                return ""
    if newest >= signal - _TICK:
        seconds = max(0.0, newest - signal)
        return f"{os.path.relpath(file, folder)} was written {seconds:.1f} s after the signal"
    writes = file or (os.path.isdir(folder) and (plan.resume_args or plan.resume_dir))
    return f"nothing was written into {folder} after the signal" if writes else ""
