"""Shows a message as the comment of a Slurm job. A comment of the user's own stays."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ddplaunch.agent.contract import Files, JobStatus, Occasion, codec
from ddplaunch.agent.system.delivery import UndeliveredError, run
from ddplaunch.agent.text.printable import printable

_COMMENT = 200
"""Characters."""
_SET = """\
there=$(squeue --noheader --jobs="$1" --format=%k) && case $there in
'' | '(null)' | ddplaunch:*) scontrol update JobId="$1" Comment="$2" ;;
esac"""


def set_comment(message: dict[str, Any]) -> None:
    """Make the message Slurm's comment. Raises UndeliveredError."""
    if message["occasion"] != Occasion.END:  # whose comment is the batch script's: it outlives the hub
        _set(comment(message))


def at_end(folder: str) -> int:
    """Make the job's verdict, if there is one, Slurm's comment. Returns 0: nothing depends on it."""
    with contextlib.suppress(OSError, codec.ContractError, UndeliveredError):
        for verdict in codec.read(JobStatus, os.path.join(folder, Files.STATUS)).verdicts[:1]:
            _set(_cut(f"{verdict.code}: {verdict.sentence}"))
    return 0


def comment(message: dict[str, Any]) -> str:
    """Return Slurm's comment."""
    texts = ["notice: {code}: {sentence}".format(**each) for each in message["verdicts"][:1]]
    return _cut((texts or ["the notice is withdrawn"])[0])


def _cut(text: str) -> str:
    return printable(f"ddplaunch: {text}")[:_COMMENT]


def _set(text: str) -> None:
    run(["sh", "-c", _SET, "sh", os.environ["SLURM_JOB_ID"], text], b"", "scontrol")
