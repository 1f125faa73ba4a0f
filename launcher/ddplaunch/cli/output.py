"""What commands print and write: a terminal's colours and width, rendered files, reports, JSON."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job
    from ddplaunch.report.live import StateView
    from ddplaunch.report.words import Paint


def paint(stream: IO[str]) -> Paint:
    """Return colours for a terminal, unless its user has set NO_COLOR."""
    from ddplaunch.report.words import PLAIN, Paint

    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return PLAIN if plain else Paint(on=True)


def width(stream: IO[str]) -> int | None:
    """Return the number of columns to fold text to; None: the stream is no terminal, and lines stay whole."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


_ARCHIVE: Final = re.compile(
    r"[A-Za-z0-9+/]{1000,}={0,2}"  # in one line of a manifest
    r"|^(?P<mark>#\S+: )[A-Za-z0-9+/]+={0,2}\n(?:^(?P=mark)[A-Za-z0-9+/]+={0,2}\n){4,}",  # in a batch script
    re.MULTILINE,
)
_SHOWN: Final = 60
"""Characters of an archive that are still shown: enough to recognise it."""


def write_abridged(text: str) -> None:
    """Print the text on stdout. On a terminal, leave archives out and say on stderr how to get all of it."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    short, left_out = abridged(text)
    sys.stdout.write(short)
    sys.stdout.flush()
    if left_out:
        sys.stderr.write(
            f"note: {left_out:,} characters of packed files are not shown on a terminal; to see everything, "
            "use a pipe (`… | less`) or `ddplaunch render … -o DIR`\n"
        )


def abridged(text: str) -> tuple[str, int]:
    """Return the text with only the beginning of each archive, and how many characters that left out."""
    left_out = 0

    def cut(match: re.Match[str]) -> str:
        nonlocal left_out
        archive = match[0]
        rest = len(archive) - _SHOWN
        left_out += rest
        return f"{archive[:_SHOWN]}… ({rest:,} more characters of base64)" + "\n" * archive.endswith("\n")

    return _ARCHIVE.sub(cut, text), left_out


def check_file(path: Path) -> None:
    """Raise UsageError if `write` would do so, before minutes of work whose result would be lost."""
    temporary = _beside(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _not_written(path, error) from error


def check_folder(path: Path) -> None:
    """Make the folder if it is not there. Raises UsageError if no file can be written to it."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise _not_written(path, error) from error
    check_file(path / "picture.svg")


def write_file(path: Path, content: str | bytes) -> None:
    """Write the file whole or not at all, because somebody may have an old one open. Raises UsageError."""
    temporary = _beside(path)
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise _not_written(path, error) from error
    sys.stderr.write(f"wrote {path}\n")


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}"


def _not_written(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror}",
        hint="name a file in an existing folder that you can write to and that has room",
    )


_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _EndedError(BaseException):
    """A signal ends the command. No `except Exception` catches it."""


@contextlib.contextmanager
def drawn(view: StateView) -> Iterator[None]:
    """Inside, show the view, but hide it while the command is suspended by Ctrl-Z.

    SIGTERM and SIGHUP end the command as if it did not handle them, once the terminal is as it was before.
    Signals that the caller ignores stay ignored, and those that it handles stay handled.
    """
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise _EndedError

    def suspend(number: int, _: FrameType | None) -> None:
        view.__exit__(None, None, None)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # this returns when the command goes on
        signal.signal(number, suspend)
        view.__enter__()

    own = {signal.SIGTSTP: suspend, **dict.fromkeys(_ENDING, end)}
    kept = {number: signal.getsignal(number) for number in own}
    taken = [number for number, handler in kept.items() if handler is signal.SIG_DFL]
    try:
        with view:
            for number in taken:
                signal.signal(number, own[number])
            yield
    except _EndedError:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), received[0])
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def print_json(data: Any) -> None:
    """Print data for scripts on stdout, at once."""
    print(json.dumps(data, indent=2), flush=True)


def print_job(job: Job) -> None:
    """Print the state of a job as JSON."""
    from ddplaunch.report.machine import job_data

    print_json(job_data(job))
