"""Finds the job that a user means: by its handle, by its name, or the one submitted last."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ddplaunch.errors import DdplaunchError, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Known


def known() -> list[Known]:
    """Return the jobs that this user has submitted from here, of all targets, the newest first.

    No scheduler is asked. A target that cannot be used has none.
    """
    from ddplaunch.backends import connect
    from ddplaunch.targets import names

    found = []
    for target in names():
        with suppress(DdplaunchError):
            found += connect(target).known()
    return sorted(found, key=lambda each: each.at, reverse=True)


def last() -> Handle:
    """Return the job that this user has submitted last from here. Raises NotFoundError when there is none."""
    newest = next(iter(known()), None)
    if newest is None:
        raise NotFoundError(
            "no job has been submitted from here yet",
            hint="`ddplaunch submit job.yaml` starts one; `ddplaunch list --to slurm` or `--to kubernetes` "
            "asks a cluster for yours",
        )
    return newest.handle


def find(text: str, *, sure: bool = False) -> Handle:
    """Return the job that a handle names, or the name of a job that was submitted from here.

    A name means its newest submission, as in `local://digits`; so does one of several targets, unless the
    caller must be `sure`. Raises UsageError then, and NotFoundError when it means none.
    """
    from ddplaunch.backends.job import Handle

    if "://" in text:
        return Handle.parse(text)
    found = {each.handle: each for each in known() if text in _names(each)}
    exact = [handle for handle in found if handle.path == text]
    meant = exact or [*found]
    if not meant:
        raise _no_such_job(text)
    newest = {handle.target: handle for handle in reversed(meant)}
    if len(newest) > 1 and (sure or len(exact) > 1):
        from ddplaunch.report.words import clock

        named = [
            f"{handle} (submitted {clock(found[handle].at)})" for handle in meant if handle in newest.values()
        ]
        raise UsageError(
            f"{text} may be one of {len(named)} jobs: {', '.join(named)}",
            hint=f"name it by its handle, such as {meant[0]}",
        )
    return meant[0]


def _names(job: Known) -> tuple[str, ...]:
    """Return what names the job beside its whole handle: its number or its own name, and that of its file."""
    path = job.handle.path
    alone = () if job.handle.target == "local" else (path.rpartition("/")[2],)
    return path, *alone, job.name


def _no_such_job(text: str) -> NotFoundError:
    from difflib import get_close_matches

    names = dict.fromkeys(each.name for each in known() if each.name)
    near = get_close_matches(text, names, n=1)
    return NotFoundError(
        f"no job called {text!r} has been submitted from here",
        hint=f"did you mean {near[0]}?"
        if near
        else f"if it is a job of Slurm, slurm://{text}"
        if text.isdecimal()
        else "`ddplaunch list` shows the jobs here, `ddplaunch list --to slurm` those of a cluster",
    )
