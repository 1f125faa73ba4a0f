"""From a handle to its backend, and from a job file to what would be sent: the first step of most verbs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.backends import Backend
    from ddplaunch.backends.job import Handle
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered
    from ddplaunch.spec.models import JobSpec


def find(text: str) -> tuple[Backend, Handle]:
    """The backend that knows the job of this handle. Raises UsageError."""
    from ddplaunch.backends import connect
    from ddplaunch.backends.job import Handle

    handle = Handle.parse(text)
    return connect(handle.target), handle


def planned(path: str, target: str) -> Plan:
    """The plan of the job file at `path` (`-`: standard input). Raises SpecError, UsageError."""
    from ddplaunch.spec.load import load

    return plan(load(path), target, path)


def plan(spec: JobSpec, target: str, path: str) -> Plan:
    """The plan of `spec`, which came from `path`: problems bear that name. Raises SpecError, UsageError."""
    from ddplaunch.plan.plan import make
    from ddplaunch.spec.load import STDIN
    from ddplaunch.spec.problems import SpecError

    try:
        return make(spec, target, Path(path).parent)
    except SpecError as error:
        raise error.of(STDIN if path == "-" else path) from error


def rendered(path: str, target: str) -> Rendered:
    """What `submit` sends for that job file. Raises SpecError, UsageError."""
    from ddplaunch.render import render

    return render(planned(path, target))
