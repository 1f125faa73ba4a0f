"""What a job's folder says of it: its attempts, how its hub saw it stand, the evidence it left.

And where this user's own state lies, which is kept for as long as somebody may ask.
"""

from __future__ import annotations

import os
from pathlib import Path

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Bundle, Files, JobStatus


def state_folder() -> Path:
    """`$XDG_STATE_HOME/ddplaunch`. The XDG rules say that a relative value counts as none."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "ddplaunch"


def attempts(folder: Path) -> list[Path]:
    """The `run` folders of a job, the oldest attempt first; all but the last have been moved aside."""
    earlier = [path for path in folder.glob(f"{Files.RUN}-*") if path.name.rpartition("-")[2].isdigit()]
    return [*sorted(earlier, key=lambda path: int(path.name.rpartition("-")[2])), folder / Files.RUN]


def status(folder: Path) -> JobStatus | None:
    """What the hub of the last attempt says; None before it stands."""
    try:
        return codec.read(JobStatus, str(folder / Files.STATUS))
    except (OSError, codec.ContractError):
        return None


def newest_bundle(folder: Path) -> Bundle | None:
    """That of the last attempt which left one."""
    for run in reversed(attempts(folder)):
        try:
            return codec.read(Bundle, str(run / Path(Files.BUNDLE).name))
        except (OSError, codec.ContractError):
            continue
    return None
