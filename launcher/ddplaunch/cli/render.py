"""`ddplaunch render`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.agent.text import shell
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import abridged, jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered, RenderedFile

_NAMED = 5
"""Packed files that the message names."""

HELP = """
Without -o, prints text files, and the size and SHA-256 of other files. A job that is one text file is printed
as it is, ready for a pipe; to a terminal, without the archives in it. With -o, writes all files to a folder,
from which the job can be started by hand. Of a sweep each job gets a folder below it. The same job file
always gives the same bytes.

Helm reads no file outside its chart: for Helm, --source-archive packs the files that `source` names, and
renders nothing.

examples:
  ddplaunch render job.yaml --to kubernetes | kubectl apply --server-side -f -
  ddplaunch render job.yaml --to kubernetes --source-archive source.b64
  helm install run1 ddplaunch.tgz --values job.yaml --set-file sourceArchive=source.b64
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="the job file, or - for standard input")
    arguments.target(parser)
    arguments.changes(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "-o", "--output", metavar="DIR", help="write the files to this folder instead of printing them"
    )
    instead.add_argument(
        "--source-archive", metavar="FILE", help="write only the chart's value `sourceArchive`, to this file"
    )
    parser.add_argument("--force", action="store_true", help="with -o: overwrite existing files")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    plans = jobs.plan(args)
    if args.source_archive is not None:
        _write_source(jobs.only(plans, args.file), args.source_archive)
        return ExitCode.SUCCEEDED
    if args.output is None:
        rendered = api.render(jobs.only(plans, args.file))
        abridged.write(shown(rendered))
    else:
        folder = Path(args.output)
        for plan in plans:
            rendered = api.render(plan)
            _write(rendered, folder / plan.job.job if plan.sweep else folder, force=args.force)
    if rendered.by_hand:
        sys.stderr.write(f"note: {rendered.by_hand}\n")
    return ExitCode.SUCCEEDED


def shown(rendered: Rendered) -> str:
    """Return all files as text, and the command that starts the job; a single text file as it is."""
    texts = {name: _text(file) for name, file in rendered.files.items()}
    if len(texts) == 1:
        (only,) = texts.values()
        if only is not None:
            return only
    parts = [
        f"==> {name} ({_about(rendered.files[name])}) <==\n" + ("" if text is None else text)
        for name, text in texts.items()
    ]
    return "\n".join([*parts, f"==> start <==\n{shell.line(rendered.command)}\n"])


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
        raise _refused(error.filename or folder, error) from error
    names, command = ", ".join(rendered.files), shell.line(rendered.command)
    sys.stderr.write(f"wrote {names} to {folder}; `{command}` there starts the job\n")


def _write_source(plan: Plan, path: str) -> None:
    """Write the archive of a rendered job in base64, since Helm's values are text. Raises UsageError."""
    import base64

    from ddplaunch.render.archive import source_archive

    if not plan.source:
        raise UsageError(
            f"{plan.job.job} has no `source`, so there is nothing to pack",
            hint="without `source` the chart needs no sourceArchive",
        )
    try:
        Path(path).write_bytes(base64.encodebytes(source_archive(plan.source)))
    except OSError as error:
        raise _refused(path, error) from error
    names = ", ".join(sorted(plan.source)[:_NAMED]) + (", …" if len(plan.source) > _NAMED else "")
    option = shell.word(f"sourceArchive={path}")
    sys.stderr.write(f"wrote {path} with {printable(names)}; for Helm: `--set-file {option}`\n")


def _refused(path: str | Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror}",
        hint="name a path in a folder with room that you may write to",
    )
