"""Plan to the exact files and commands of one target; what `submit` sends, byte for byte.

Pure and deterministic: the same plan and the same facts give the same bytes on every machine. It must not
start a process, open a socket, read the clock or the environment; what it needs to know of a cluster enters
as a value. Which module renders a target stands in its `Target` record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddplaunch.targets import find

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan


@dataclass(frozen=True)
class RenderedFile:
    """One file of a job, whole."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True)
class Rendered:
    """Files of a job by name, and the command that starts it by hand from the folder they lie in."""

    target: str
    job: str
    files: Mapping[str, RenderedFile]
    command: tuple[str, ...]
    by_hand: str = ""
    """What `submit` does besides, for somebody who runs the command."""
    sweep: Mapping[str, str] = field(default_factory=dict)
    """The job's own values in a sweep, as text by key; a backend keeps them with the job."""
    counted: Callable[[int], Rendered] | None = field(default=None, compare=False, repr=False)
    """The same job as the submission of that number, from 2 on, where a scheduler takes each name once."""


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the files and the command of `plan` on its target.

    With `gate_only` it ends with its gate, and tells nobody: who has asked for it waits for the answer.
    """
    if gate_only:
        plan = replace(plan, job=replace(plan.job, notify=None))
    target = find(plan.target)
    rendered: Rendered = target.load(target.render)(plan, gate_only=gate_only)
    return replace(rendered, sweep=plan.sweep)
