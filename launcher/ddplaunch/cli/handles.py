"""The job that a command is about: the one that its user names, or the last."""

from __future__ import annotations

import sys

from ddplaunch import api
from ddplaunch.errors import UsageError


def meant(text: str | None) -> str:
    """Return the handle of the job that `text` names; None: of the job submitted last, and say which.

    Raises as `api.find` and `api.last`.
    """
    if text is not None:
        return str(api.find(text))
    handle = api.last()
    sys.stderr.write(f"the last job is {handle}\n")
    return str(handle)


def meant_or_file(text: str | None) -> str:
    """Return the path of a bundle, a process, or anybody's pods, as it is, and else what `meant` returns."""
    from ddplaunch.backends import outside, saved

    if text is None:
        return meant(None)
    is_outside = outside.process_named(text) is not None or outside.pods_named(text) is not None
    return text if is_outside or saved.names_file(text) else meant(text)


def named(text: str | None) -> str:
    """Return the handle of the job that `text` names, for commands that never guess.

    Raises UsageError, with the last job in its hint, for None, and else as `api.find`.
    """
    if text is None:
        handle = api.last()
        raise UsageError(
            "`ddplaunch cancel` stops no job that you did not name",
            hint=f"the last one is `ddplaunch cancel {handle}`; `ddplaunch list` shows all",
        )
    return str(api.find(text, sure=True))
