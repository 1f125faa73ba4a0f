"""`ddplaunch render`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import Rendered, RenderedFile

HELP = """
Without -o, text files are printed, and of other files their size and SHA-256. A job that is one text file
is printed as it is, ready to be piped on. With -o, all files are written to a folder, from which the job can
be started by hand. The same job file gives the same bytes, whenever and wherever it is rendered.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("file", metavar="FILE", help="the job file, or - for standard input")
    arguments.target(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="write the files here instead of showing them")
    parser.add_argument("--force", action="store_true", help="with -o: overwrite files that are there")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    rendered = jobs.rendered(args.file, args.to)
    if args.output is None:
        sys.stdout.write(shown(rendered))
    else:
        _write(rendered, Path(args.output), force=args.force)
    return ExitCode.SUCCEEDED


def shown(rendered: Rendered) -> str:
    """All files as text, the command that starts them at the end; one text file alone, as it is."""
    texts = {name: _text(file) for name, file in rendered.files.items()}
    if len(texts) == 1:
        (only,) = texts.values()
        if only is not None:
            return only
    parts = [
        f"==> {name} ({_about(rendered.files[name])}) <==\n" + ("" if text is None else text)
        for name, text in texts.items()
    ]
    return "\n".join([*parts, f"==> start <==\n{' '.join(rendered.command)}\n"])


def _text(file: RenderedFile) -> str | None:
    try:
        text = file.content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _about(file: RenderedFile) -> str:
    kind = "executable, " if file.executable else ""
    size = f"{kind}{len(file.content):,} bytes"
    if _text(file) is not None:
        return size
    import hashlib

    return f"{size}, sha256 {hashlib.sha256(file.content).hexdigest()}"


def _write(rendered: Rendered, folder: Path, *, force: bool) -> None:
    there = [name for name in rendered.files if (folder / name).exists()]
    if there and not force:
        raise UsageError(
            f"{folder} already holds {', '.join(there)}",
            hint="choose another folder, or overwrite with --force",
        )
    try:
        for name, file in rendered.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(0o755 if file.executable else 0o644)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    names, command = ", ".join(rendered.files), " ".join(rendered.command)
    sys.stderr.write(f"wrote {names} to {folder}; `{command}` in it starts the job\n")
