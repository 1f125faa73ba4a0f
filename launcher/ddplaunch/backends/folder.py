"""This user's state folder, and the folder of one job: its attempts, its hub, its evidence."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Self, TypeVar

from ddplaunch.agent.contract import Bundle, Files, JobPlan, JobStatus, Verdict, bundle_file, codec, messages
from ddplaunch.agent.contract.messages import Way
from ddplaunch.agent.transport.protocol import Channel, ProtocolError
from ddplaunch.backends import files
from ddplaunch.backends.job import Earlier, Job, Outcome, State
from ddplaunch.errors import ClusterError, UsageError

_FORMAT_1 = "bundle.json"
"""The bundle's name before it was an archive."""


def state_folder() -> Path:
    """Return `$XDG_STATE_HOME/ddplaunch`, which only this user can read. Make it if it is missing.

    A relative value is ignored, as the XDG rules say. Raises UsageError if the folder belongs to another
    user, because a job would run that user's files, and if a file is in its place.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    folder = base / "ddplaunch"
    with contextlib.suppress(OSError):  # whatever writes there will report it
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
        # Under `sudo`, HOME may still be the home of the user who called it.
        if owner not in (os.geteuid(), 0, Path.home().stat().st_uid):
            raise UsageError(
                f"the folder {folder} belongs to another user (uid {owner})",
                hint="ddplaunch keeps its jobs there: set XDG_STATE_HOME to a folder of your own",
            )
    _refuse_files(folder)
    return folder


def _refuse_files(folder: Path) -> None:
    """Raise UsageError if a file is in the place of the folder or of one above it.

    Without this error, it would look as if this user had no jobs.
    """
    for path in (folder, *folder.parents):
        with contextlib.suppress(OSError):  # "not a directory", for what is below a file
            if not stat.S_ISDIR(path.stat().st_mode):
                raise UsageError(
                    f"the state folder {folder} cannot be used: found a file at {path}, wanted a folder",
                    hint="ddplaunch keeps its jobs there: set XDG_STATE_HOME to a folder, or move the file "
                    "away",
                )


ROOM = 16 << 20
"""Bytes that a job's records take when it starts, and some more."""


def private_folder() -> Path | None:
    """Make a state folder for one job of a user who has none, on a disk with room; None: no disk has room.

    It is for `XDG_STATE_HOME`.
    """
    for place in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - as tempfile
        with contextlib.suppress(OSError):
            if place and has_room(Path(place)):
                return Path(tempfile.mkdtemp(prefix="ddplaunch-", dir=place))
    return None


def has_room(folder: Path) -> bool:
    """Whether the disk has room for a job's records and `ulimit -f` allows them. Raises OSError."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < ROOM:
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ROOM


@contextlib.contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder in `parent`. It is removed if filling it fails. Raises ClusterError for an OSError."""
    folder: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        yield folder
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # the disk may be full
        raise ClusterError(
            f"the job's folder cannot be written: {error.filename or parent}: {error.strerror}",
            hint="ddplaunch keeps its jobs below $XDG_STATE_HOME, by default ~/.local/state: "
            f"{'make room' if error.errno in (errno.ENOSPC, errno.EDQUOT) else 'make it writable'} there, "
            "or set XDG_STATE_HOME to a folder that you can write to",
        ) from error


def attempts(folder: Path) -> list[Path]:
    """Return a job's `run` folders, the oldest attempt first. All but the last have been renamed."""
    earlier = [path for path in folder.glob(f"{Files.RUN}-*") if path.name.rpartition("-")[2].isdecimal()]
    return [*sorted(earlier, key=lambda path: int(path.name.rpartition("-")[2])), folder / Files.RUN]


def earlier(folder: Path, attempt: int | None) -> tuple[Earlier, ...]:
    """Return the attempts that left a folder, the oldest first, up to the present `attempt` if that is known.

    A scheduler may start an attempt that makes no folder, so what a hub says counts more than the folder's
    name.
    """
    if attempt == 0:
        return ()  # no look at its files: most jobs in a list of a thousand are like this
    found = []
    for run in attempts(folder):
        status = files.read_if_valid(JobStatus, run / Path(Files.STATUS).name)
        name = run.name.rpartition("-")[2]
        number = status.attempt if status else int(name) if name.isdecimal() else None
        if number is not None and (run.name != Files.RUN if attempt is None else number < attempt):
            found.append(Earlier(number, run, status))
    return tuple(found)


def status(folder: Path) -> JobStatus | None:
    """Return the status that the last attempt's hub wrote; None before the hub is up."""
    return files.read_if_valid(JobStatus, folder / Files.STATUS)


def starts_again(folder: Path, status: JobStatus) -> bool:
    """Whether, by the job's plan, another attempt follows one that ended like this."""
    plan = files.read_if_valid(JobPlan, folder / Files.PLAN)
    return plan is not None and status.exit_code in plan.retried and status.attempt < plan.retries


def newest_bundle(folder: Path) -> Bundle | None:
    """Return the bundle of the last attempt that left one; None: none did.

    Raises UsageError if every bundle is broken.
    """
    return bundle_in(*reversed(attempts(folder)))


def bundle_in(*runs: Path) -> Bundle | None:
    """Return the bundle of the first of these attempts that left one; None: none did.

    Raises UsageError if every bundle is broken.
    """
    broken: codec.ContractError | None = None
    for run in runs:
        for name in (Path(Files.BUNDLE).name, _FORMAT_1):
            try:
                return files.read_bundle(run / name, bundle_file.MOST_DUMPS)
            except OSError:
                continue
            except codec.ContractError as error:
                broken = broken or error
    if broken is not None:
        raise UsageError(
            f"the job's evidence cannot be read: {broken}",
            hint="the file is broken, or ddplaunch did not write it; move it away to see what else is known",
        )
    return None


KEPT = 90 * 86400.0
"""Seconds for which a submission is remembered."""


@dataclass(frozen=True, kw_only=True)
class EndRecord:
    """How a job ended, as its record keeps it. `state` "": it has not ended."""

    state: str = ""
    exit_code: int | None = None
    ended: float | None = None
    detail: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    def with_end(self, job: Job) -> Self:
        """Return this record with the end of `job` in it."""
        return dataclasses.replace(
            self,
            state=str(job.state),
            exit_code=job.exit_code,
            ended=job.ended,
            detail=job.detail,
            verdicts=list(job.verdicts),
        )

    def without_end(self) -> Self:
        """Return this record as that of a job that is still going on."""
        return dataclasses.replace(self, **vars(EndRecord()))

    @property
    def outcome(self) -> Outcome:
        return Outcome(State(self.state), self.exit_code, self.detail, self.ended)


R = TypeVar("R", bound=EndRecord)


def newest_first(kind: type[R], paths: Iterable[Path]) -> list[R]:
    """Return the records in these files, ordered by their field `at`. Files that cannot be read are
    left out.
    """
    records = [record for path in paths if (record := files.read_if_valid(kind, path)) is not None]
    return sorted(records, key=attrgetter("at"), reverse=True)


def old(paths: Iterable[Path], seconds: float) -> Iterator[Path]:
    """Yield the paths that have not changed for so many seconds."""
    for path in paths:
        try:
            if time.time() - path.stat().st_mtime > seconds:
                yield path
        except FileNotFoundError:
            continue


# --- the hub of a running job, by the address and the key in the job's folder

ANSWER = 30.0
"""Seconds for new evidence of all ranks. The hub itself waits less for them."""
_REACH = 5.0
"""Seconds to connect to one of several addresses: from outside a cluster's network most cannot be reached."""

_SHORT = 1 << 16
"""The most bytes in a file with a key, or with a machine's addresses, of which there are few."""

Address = tuple[str, int]


def ask_hub(folder: Path, attempt: int) -> Bundle | None:
    """Return new evidence of all ranks; None if the hub does not answer or has ended."""
    try:
        key = files.contents(folder / Files.KEY, _SHORT).strip()
    except (OSError, ValueError):
        return None
    deadline = time.monotonic() + ANSWER
    channel = _connect(_addresses(folder), key, attempt, deadline)
    if channel is None:
        return None
    try:
        channel.send(*messages.AskDiagnosis().pack())
        while line := channel.receive(deadline - time.monotonic()):
            answer = messages.load(*line, Way.HUB_TO_COMMAND)
            if isinstance(answer, messages.BundleAnswer):
                return answer.bundle or files.bundle(answer.archive)
    except (ProtocolError, codec.ContractError):
        return None
    finally:
        channel.close()
    return None


def _connect(addresses: Iterable[Address], key: bytes, attempt: int, deadline: float) -> Channel | None:
    """Return a connection to the first address at which this job's hub answers; None if there is none."""
    for host, port in addresses:
        try:
            return Channel.connect(host, port, key, attempt, min(deadline, time.monotonic() + _REACH))
        except ProtocolError:
            continue
    return None


def _addresses(folder: Path) -> list[Address]:
    """Return the hub's addresses. On a cluster the hub writes a list of them, on one machine a single one."""
    try:
        text = files.contents(folder / Files.HUB_ADDRESS, _SHORT).decode("ascii")
        parts = [each.rpartition(":") for each in text.split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in parts]
    except (OSError, ValueError):
        pass
    try:
        address = files.parse(files.contents(folder / Files.HUB, _SHORT))
        return [(str(address["host"]), int(address["port"]))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
