"""Keeps what the attempts of one job left: a cluster deletes the pods of each with their output and evidence.

There is a folder for each attempt, as a job on this machine has it, with its bundle and how it ended.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from ddplaunch.agent.contract import REGROUP, Bundle, Files, JobStatus, NodeStatus, Phase, bundle_file, codec
from ddplaunch.backends import files, folder
from ddplaunch.backends.job import Earlier

_UNSEEN = "nothing here followed its end, and its pods took their output and evidence with them"
_SHOWN = 100
"""The earlier attempts that are named; the number comes from a label, which may be any."""
_BUNDLE, _STATUS = Path(Files.BUNDLE).name, Path(Files.STATUS).name


class Attempts:
    """The attempts of one job, kept in `path`. An OSError while something is written is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def bundle(self, number: int) -> Bundle | None:
        """Return the bundle of that attempt; None where none was kept."""
        try:
            return files.read_bundle(self._run(number) / _BUNDLE, bundle_file.MOST_DUMPS)
        except (OSError, codec.ContractError):
            return None

    def end(self, number: int) -> JobStatus | None:
        """Return how that attempt ended; None where nothing here has seen it."""
        return files.read_if_valid(JobStatus, self._run(number) / _STATUS)

    def keep(self, bundle: Bundle) -> None:
        """Keep the last bundle of an attempt, and what it says of the attempt's end."""
        run = self._run(bundle.attempt)
        with contextlib.suppress(OSError):
            run.mkdir(parents=True, exist_ok=True)
            bundle_file.write(str(run / _BUNDLE), bundle, mode=0o600)
            codec.write(str(run / _STATUS), _end(bundle), mode=0o600)

    def note(self, status: JobStatus) -> None:
        """Keep how an attempt ended by its hub's status, until there is its bundle."""
        run = self._run(status.attempt)
        if not (run / _STATUS).exists():
            with contextlib.suppress(OSError):
                run.mkdir(parents=True, exist_ok=True)
                codec.write(str(run / _STATUS), status, mode=0o600)

    def earlier(self, present: int) -> tuple[Earlier, ...]:
        """Return the attempts before the `present` one, the oldest first, also those that left nothing."""
        kept = {each.number: each for each in folder.earlier(self._path, present)} if present else {}
        return tuple(kept.get(each.number, each) for each in unseen(present))

    @property
    def last(self) -> int:
        """Return the number of the last attempt that is known by what was kept; 0 where nothing was."""
        runs = [path.name.rpartition("-")[2] for path in folder.attempts(self._path)]
        last = max((int(name) for name in runs if name.isdecimal()), default=0)
        end = self.end(last)
        return last + (end is not None and end.exit_code == REGROUP)

    def forget(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _run(self, number: int) -> Path:
        return self._path / f"{Files.RUN}-{number}"


def unseen(present: int) -> tuple[Earlier, ...]:
    """Return the attempts before the `present` one, as those of which nothing was kept."""
    return tuple(
        Earlier(number, None, None, why_none=_UNSEEN) for number in range(max(0, present - _SHOWN), present)
    )


def _end(bundle: Bundle) -> JobStatus:
    """Return the last status of the attempt, as far as its bundle has it."""
    words = [
        NodeStatus(each.node, phase=Phase.ENDED, detail=each.text, exit_code=bundle.exit_code)
        for each in bundle.events
        if each.kind == "checkpoint" and each.node is not None
    ]
    return JobStatus(
        bundle.job,
        bundle.attempt,
        Phase.ENDED,
        bundle.written,
        words,
        bundle.started,
        bundle.written,
        verdicts=bundle.verdicts,
        exit_code=bundle.exit_code,
        gate_passed=bundle.agreed is not None,
        failed_attempts=[replace(each, evidence=None) for each in bundle.failed_attempts],
    )
