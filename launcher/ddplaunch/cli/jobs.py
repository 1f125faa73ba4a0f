"""The first step of most verbs: a handle's backend, or a job file's plan and files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.backends import Backend
    from ddplaunch.backends.job import Handle
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered
    from ddplaunch.spec.models import JobSpec

_NAMED = 5
"""Files left out that are named."""


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

    for text in notes(spec):
        sys.stderr.write(f"{text}\n")
    try:
        made = make(spec, target, Path(path).parent)
    except SpecError as error:
        raise error.of(STDIN if path == "-" else path) from error
    if made.left_out:
        sys.stderr.write(f"{_note(made.left_out)}\n")
    return made


def notes(spec: JobSpec) -> list[str]:
    """Return what is worth a look in a job file that is good."""
    from ddplaunch.spec import smells

    return [f"note: {smells.note(name)}" for name in smells.exposed(spec.env)]


def _note(left_out: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, left_out[:_NAMED])) + (", …" if len(left_out) > _NAMED else "")
    return (
        f"note: source: {names} looked private and will not travel with the job; "
        "to send it, name it under `source` itself, or write !NAME in .ddplaunchignore"
    )


def rendered(path: str, target: str) -> Rendered:
    """Return what `submit` sends for that job file. Raises SpecError, UsageError."""
    from ddplaunch.render import render

    return render(planned(path, target))
