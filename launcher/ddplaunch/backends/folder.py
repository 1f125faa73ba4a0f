"""Reads a job's folder: its attempts, how its hub saw it stand, the evidence it left.

And where this user's own state lies, which is kept for as long as somebody may ask.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files, JobPlan, JobStatus, codec
from ddplaunch.backends import files
from ddplaunch.errors import UsageError


def state_folder() -> Path:
    """`$XDG_STATE_HOME/ddplaunch`, made for this user alone where it is not there yet.

    The XDG rules say that a relative value counts as none. Raises UsageError when the folder is another
    user's: a job would run what its owner puts there.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    folder = base / "ddplaunch"
    with contextlib.suppress(OSError):  # who wants to write there will say it
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
        # `sudo` may leave root the home of the user who called it.
        if owner not in (os.geteuid(), 0, Path.home().stat().st_uid):
            raise UsageError(
                f"the folder {folder} is another user's ({owner})",
                hint="jobs are remembered there: let XDG_STATE_HOME name a folder of your own",
            )
    _refuse_files(folder)
    return folder


def _refuse_files(folder: Path) -> None:
    """A file in the place of the folder, or of one above it, would look like no jobs at all."""
    for path in (folder, *folder.parents):
        with contextlib.suppress(OSError):  # "not a directory" of what lies below a file
            if not stat.S_ISDIR(path.stat().st_mode):
                raise UsageError(
                    f"the state folder {folder} cannot be used: found a file at {path}, wanted a folder",
                    hint="jobs are remembered there: let XDG_STATE_HOME name a folder, or move the file away",
                )


def attempts(folder: Path) -> list[Path]:
    """The `run` folders of a job, the oldest attempt first; all but the last have been moved aside."""
    earlier = [path for path in folder.glob(f"{Files.RUN}-*") if path.name.rpartition("-")[2].isdecimal()]
    return [*sorted(earlier, key=lambda path: int(path.name.rpartition("-")[2])), folder / Files.RUN]


def status(folder: Path) -> JobStatus | None:
    """Return what the hub of the last attempt says; None before it stands."""
    try:
        return files.read(JobStatus, folder / Files.STATUS)
    except (OSError, codec.ContractError):
        return None


def retries(folder: Path) -> int:
    """Return how often the job may be started again after a node's fault."""
    try:
        return files.read(JobPlan, folder / Files.PLAN).retries
    except (OSError, codec.ContractError):
        return 0


def newest_bundle(folder: Path) -> Bundle | None:
    """Return the bundle of the last attempt that left one. Raises UsageError when all left are broken."""
    broken: codec.ContractError | None = None
    for run in reversed(attempts(folder)):
        try:
            return files.read(Bundle, run / Path(Files.BUNDLE).name)
        except OSError:
            continue
        except codec.ContractError as error:
            broken = broken or error
    if broken is not None:
        raise UsageError(
            f"the job's evidence cannot be read: {broken}",
            hint="it is broken, or was not written by ddplaunch; move it away to see what else is known",
        )
    return None
