"""`ddplaunch outputs` and `ddplaunch delete`: what jobs have left."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import count
from ddplaunch.cli import jobs, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import DdplaunchError, ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job, Remains
    from ddplaunch.backends.outputs import Outputs

_OUTPUTS_HELP = """
Lists the files that the ranks wrote below their working directory, and their checkpoints in
DDPLAUNCH_RESUME_DIR. With `source`, the ranks run in the job's own folder. Without it, they run in the job
file's folder, and you see the files written there since you submitted the job. On Kubernetes, you see the
folder on the volume that the key `outputs` names. A pod of the job reads it, or a small pod that is deleted
afterwards.

examples:
  ddplaunch outputs
  ddplaunch outputs digits --copy results
"""
_LISTED = 20
"""Files to list for each folder, the newest first."""


def _add_outputs_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    parser.add_argument(
        "--copy", metavar="DIR", help="copy the files to this folder; an existing file is never overwritten"
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
        sys.stderr.write(f"{handle} has written no files{where}\n")
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
        print(f"  … and {len(newest) - _LISTED} more; --json lists all")


def _copied(handle: str, to: Path) -> list[Outputs]:
    """Copy all files and return them. Raises UsageError before anything is copied."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".ddplaunch-", dir=to) as brought:
            found = api.bring_outputs(handle, Path(brought), lambda found: _refuse_taken(_targets(found, to)))
            _copy(found, to)
            for each in found:
                if not each.complete:
                    folder = printable(each.where or str(each.folder))
                    sys.stderr.write(f"not all files were copied; there are more in {folder}\n")
            return found
    except OSError as error:
        raise UsageError(
            f"{error.filename or to} cannot be written: {error.strerror}", hint="name another folder"
        ) from error


def _targets(found: Sequence[Outputs], to: Path) -> list[tuple[Path, Path]]:
    """Return where each file is here, and where it will go: each kind goes below its name."""
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
            if source.is_symlink():  # such as last.pt, which points to the newest of several files
                target.symlink_to(source.readlink())
                continue
            # It has another name until it is whole, so that nobody takes a copy that was cut off for the
            # file.
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


_DELETE_HELP = """
Removes everything that a job has left behind: on this machine and on Slurm, its folder, with its output and
the files that its ranks wrote there; on Kubernetes, its Job or JobSet and all objects made for it;
everywhere, the evidence that was kept. You see what would be removed and are asked first. Without a terminal
to ask on, nothing is removed unless you give --yes.

Name the jobs, or choose them with --ended or --older; if you do both, a job must match both. A job that is
still running is left alone; with --cancel, it is stopped first. Folders that ddplaunch did not make are never
touched, links are not followed, and another user's folder is refused.

examples:
  ddplaunch delete local://digits/3
  ddplaunch delete slurm://1234 slurm://1235 --yes
  ddplaunch delete --older 7d --to slurm
  ddplaunch delete --ended --to kubernetes
"""


class _Doomed(NamedTuple):
    job: Job
    left: Remains


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "handles",
        nargs="*",
        metavar="HANDLE",
        help="the jobs: handles that submit printed, or names; a name means the newest job that has it",
    )
    parser.add_argument("--ended", action="store_true", help="all jobs of the target that have ended")
    parser.add_argument(
        "--older",
        type=arguments.seconds,
        metavar="TIME",
        help="only jobs that ended longer ago than this, such as 7d or 12h; all of the target's if you name "
        "none",
    )
    parser.add_argument(
        "--cancel", action="store_true", help="also jobs that have not ended: stop them first"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    default = "the profile's; else the last job's target; else local, this machine"
    arguments.target(parser, "the scheduler whose jobs to delete, if you name none", default)


def _delete(args: argparse.Namespace) -> int:
    doomed = list(_doomed(args))
    if not doomed:
        sys.stderr.write("nothing to delete\n")
        return ExitCode.SUCCEEDED
    for each in doomed:
        sys.stderr.write(_shown(each))
    if not args.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("nothing was deleted", hint="there is no terminal to ask on; use --yes")
        sys.stderr.write(f"delete {_sum(doomed)}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            sys.stderr.write("nothing was deleted\n")
            return ExitCode.CANCELLED
    return _deleted(doomed)


def _doomed(args: argparse.Namespace) -> Iterator[_Doomed]:
    """Yield the jobs that are meant, with what would go. Raises UsageError for one that is named in vain."""
    if not args.handles and not args.ended and args.older is None:
        raise UsageError(
            "name the jobs to delete",
            hint="`ddplaunch list` shows all; --ended chooses all that have ended, --older 7d the old ones",
        )
    for job in _named(args) if args.handles else _chosen(args):
        left = api.remains(job.handle)
        if left is not None:
            yield _Doomed(job, left)
        elif args.handles:
            raise UsageError(
                f"{job.handle} was not started by ddplaunch, which deletes only what it made",
                hint="nothing was deleted",
            )


def _named(args: argparse.Namespace) -> Iterator[Job]:
    found = [api.status(jobs.named_job(text)) for text in dict.fromkeys(args.handles)]
    for job in {job.handle: job for job in found}.values():
        if not (job.state.ended or args.cancel):
            raise UsageError(
                f"{job.handle} has not ended; nothing was deleted",
                hint="use --cancel to stop it first; `ddplaunch status` shows what it is doing",
            )
        if _is_old(job, args.older):
            yield job
        else:
            sys.stderr.write(f"{job.handle} is not that old, and was not deleted\n")


def _chosen(args: argparse.Namespace) -> Iterator[Job]:
    """Yield all jobs of the target that have ended, or with --cancel all, and are old enough."""
    sent = {each.handle for each in api.known()}
    others = 0
    for job in api.jobs(args.to or jobs.target_meant(args.profile)):
        if (job.state.ended or args.cancel) and _is_old(job, args.older):
            if job.handle in sent:
                yield job
            else:  # of a namespace that is shared, all jobs are listed
                others += 1
    if others:
        sys.stderr.write(f"{others} more jobs were not submitted from here; they stay unless you name them\n")


def _is_old(job: Job, seconds: float | None) -> bool:
    return seconds is None or time.time() - (job.ended or job.submitted) > seconds


def _shown(doomed: _Doomed) -> str:
    """Return a line on the job, and below it what would go."""
    from ddplaunch.report.progress import headline

    job, left = doomed
    lines = [f"{job.handle}  {headline(job, time.time())}"]
    lines += [f"    {printable(part)}" for part in left.parts]
    if left.files:
        lines.append(f"    {_files(left.files, left.size)}")
    if left.outputs:
        lines.append(f"    of these the ranks wrote {_files(left.outputs, left.outputs_size)}")
    lines += [f"    {printable(text)}" for text in left.stays]
    return "".join(f"{line}\n" for line in lines)


def _files(number: int, size: int) -> str:
    from ddplaunch.report.words import count
    from ddplaunch.report.words import size as sized

    return f"{count(number, 'file')}, {sized(size)}"


def _sum(doomed: Sequence[_Doomed]) -> str:
    from ddplaunch.report.words import count

    files, size = (sum(getattr(each.left, name) for each in doomed) for name in ("files", "size"))
    running = sum(not each.job.state.ended for each in doomed)
    stopped = f", {running} of which must be stopped first" if running else ""
    return f"{count(len(doomed), 'job')}{stopped}" + (f", with {_files(files, size)}" if files else "")


def _deleted(doomed: Sequence[_Doomed]) -> int:
    """Delete the jobs, and print the handle of each that is gone; return the first error's exit code."""
    code: int = ExitCode.SUCCEEDED
    for job, _ in doomed:
        try:
            if not job.state.ended:
                sys.stderr.write(f"stopping {job.handle} …\n")
                api.cancel(job.handle)
            api.delete(job.handle)
        except DdplaunchError as error:
            sys.stderr.write(f"{error}\n")
            code = code or error.exit_code
        else:
            print(job.handle, flush=True)
    return code


COMMANDS: Final = {
    "outputs": Command(_OUTPUTS_HELP, _add_outputs_arguments, _outputs),
    "delete": Command(_DELETE_HELP, _add_delete_arguments, _delete),
}
