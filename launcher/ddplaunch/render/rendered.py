"""Files that a renderer makes and a backend submits: all of them can be looked at first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


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
