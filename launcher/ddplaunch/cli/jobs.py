"""From a handle to its backend, and from a job file to what would be sent: the first step of most verbs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.backends import Backend
    from ddplaunch.backends.job import Handle
    from ddplaunch.render.rendered import Rendered


def find(text: str) -> tuple[Backend, Handle]:
    """The backend that knows the job of this handle. Raises UsageError."""
    from ddplaunch.backends import connect
    from ddplaunch.backends.job import Handle

    handle = Handle.parse(text)
    return connect(handle.target), handle


def rendered(path: str, target: str) -> Rendered:
    """What `submit` sends for the job file at `path` (`-`: standard input). Raises SpecError, UsageError."""
    from ddplaunch.plan.plan import make
    from ddplaunch.render import render
    from ddplaunch.spec.load import load

    base = Path.cwd() if path == "-" else Path(path).parent
    return render(make(load(path), target, base))
