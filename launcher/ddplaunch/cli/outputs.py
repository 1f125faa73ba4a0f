"""`ddplaunch outputs`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import count
from ddplaunch.cli import jobs, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.outputs import Outputs

_OUTPUTS_HELP = """
Lists what the ranks wrote below their working directory, and their checkpoints in DDPLAUNCH_RESUME_DIR. With
`source`, ranks run in a folder of the job's own; without, they run in the folder of the job file, and you see
the files written there since you submitted the job. On Kubernetes you see the folder on the volume that
`outputs` in the job file names: a pod of the job reads it, or a small one that is deleted afterwards.

examples:
  ddplaunch outputs
  ddplaunch outputs digits --copy results
"""
_LISTED = 20
"""Files that are listed of each folder, the newest first."""


def _add_outputs_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    parser.add_argument(
        "--copy", metavar="DIR", help="copy them there; a file that exists is never overwritten"
    )
    arguments.as_json(parser)


def _outputs(args: argparse.Namespace) -> int:
    handle = jobs.job_or_last(args.handle)
    found = api.outputs(handle) if args.copy is None else _copied(handle, Path(args.copy))
    if args.json:
        output.print_json([_data(each) for each in found])
        return ExitCode.SUCCEEDED
    if not any(each.files for each in found):
        where = "".join(f" in {each.where or each.folder}" for each in found[:1])
        sys.stderr.write(f"{handle} has written no file{where}\n")
    for each in found:
        if each.files and args.copy is None:
            _print(each)
    return ExitCode.SUCCEEDED


def _print(outputs: Outputs) -> None:
    from ddplaunch.report import words

    now = time.time()
    node = "" if outputs.node is None else f"node {outputs.node}: "
    more = "" if outputs.complete else " at least"
    since = "" if outputs.own else ", written since the job was submitted"
    folder = printable(outputs.where or str(outputs.folder))
    print(
        f"{node}{folder}:{more} {words.count(len(outputs.files), 'file')}, {words.size(outputs.size)}{since}"
    )
    newest = sorted(outputs.files, key=lambda each: each.modified, reverse=True)
    for each in newest[:_LISTED]:
        ago = words.duration(max(0.0, now - each.modified))
        print(f"  {words.size(each.size):>10}  {printable(each.path)}  ({ago} ago)")
    if len(newest) > _LISTED:
        print(f"  … and {len(newest) - _LISTED} more: --json lists all")


def _copied(handle: str, to: Path) -> list[Outputs]:
    """Copy all files and return them. Raises UsageError, before anything is copied."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".ddplaunch-", dir=to) as brought:
            found = api.bring_outputs(handle, Path(brought), lambda found: _refuse_taken(_targets(found, to)))
            _copy(found, to)
            for each in found:
                if not each.complete:
                    folder = printable(each.where or str(each.folder))
                    sys.stderr.write(f"not all files were copied: there are more in {folder}\n")
            return found
    except OSError as error:
        raise UsageError(
            f"{error.filename or to} cannot be written: {error.strerror}", hint="name another folder"
        ) from error


def _targets(found: Sequence[Outputs], to: Path) -> list[tuple[Path, Path]]:
    """Return where each file lies here, and where it is to be: each kind below its name."""
    return [
        ((each.copy or each.folder) / file.path, to / each.name / file.path)
        for each in found
        for file in each.files
    ]


def _refuse_taken(files: Sequence[tuple[Path, Path]]) -> None:
    taken = [target for _, target in files if os.path.lexists(target)]
    if taken:
        raise UsageError(
            f"{taken[0]} exists already" + (f", and {len(taken) - 1} more" if len(taken) > 1 else ""),
            hint="name a new folder; nothing was copied",
        )


def _copy(found: Sequence[Outputs], to: Path) -> None:
    files = _targets(found, to)
    _refuse_taken(files)
    try:
        for source, target in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():  # such as last.pt, which names the newest of several
                target.symlink_to(source.readlink())
                continue
            # Under another name until it is whole, so that a copy that is cut off is not taken for the file.
            descriptor, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            os.close(descriptor)
            shutil.copy2(source, partial)
            Path(partial).rename(target)
    except OSError as error:
        raise UsageError(
            f"{error.filename or to} cannot be copied: {error.strerror}",
            hint="files copied so far were kept; make room, or name another folder",
        ) from error
    sys.stderr.write(f"copied {count(len(files), 'file')} to {to}\n")


def _data(outputs: Outputs) -> dict[str, object]:
    return {
        "folder": str(outputs.folder),
        "where": outputs.where,
        "node": outputs.node,
        "complete": outputs.complete,
        "files": [asdict(each) for each in outputs.files],
    }


COMMANDS: Final = {
    "outputs": Command(_OUTPUTS_HELP, _add_outputs_arguments, _outputs),
}
