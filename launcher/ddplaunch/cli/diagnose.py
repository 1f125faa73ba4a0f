"""`ddplaunch diagnose`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.cli import handles, jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle
    from ddplaunch.report.diagnosis import Diagnosis

HELP = """
While the job runs, this collects stacks and counters of all its ranks, and the job goes on. After its end,
this reads the evidence that the job left. The cause to fix first is printed first.

In place of a job, name a bundle: the zip archive in which a job leaves its evidence, run/bundle.zip in the
job's folder, or a file of --bundle. That works anywhere, without the cluster, without torch.

A job that ddplaunch did not start is looked at from outside while it hangs, and is left as it is. `pid:1234`
names its torchrun, its mpirun or any of its ranks on this machine, `slurm://5678` its Slurm job, and
`kubernetes://team/pytorchjob/llm` what owns its pods (job, jobset, pytorchjob, trainjob, mpijob,
leaderworkerset, vcjob, statefulset, pod), or `'kubernetes://team?selector=app=llm'` their labels. Where
their image has no python3 or they may not trace, --debug-image IMAGE looks from an ephemeral container that
it adds to each pod, as `kubectl debug` does: it ends after the look, and stays in the pod's spec, for
Kubernetes removes none.

The exit code is 0 whatever is wrong with the job; that of `ddplaunch status` shows the job's result.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    arguments.handle(
        parser,
        ", the file of a bundle, pid:1234, a process, or kubernetes://namespace/kind/name, anybody's pods; "
        "by default the last job",
    )
    printed = parser.add_mutually_exclusive_group()
    arguments.as_json(printed)
    printed.add_argument("--markdown", action="store_true", help="print Markdown, for an issue or a chat")
    parser.add_argument("--html", metavar="FILE", help="also write all evidence as one HTML file")
    parser.add_argument(
        "--svg",
        metavar="DIR",
        help="also write each picture of the HTML file as an SVG file into this folder",
    )
    parser.add_argument(
        "--bundle", metavar="FILE", help="also write all evidence as one bundle, a zip archive"
    )
    parser.add_argument(
        "--attempt",
        type=arguments.attempt,
        default=(None, None),
        metavar="N",
        help="diagnose this attempt, 0 for the first; by default the last; 0.1 for the second start of "
        "the ranks by the launch command of attempt 0, as torchrun's first restart",
    )
    parser.add_argument(
        "--debug-image",
        default="",
        metavar="IMAGE",
        help="look at anybody's pods from a container of this image, with a python3 >= 3.9, that is added to "
        "each of them for good",
    )
    parser.add_argument("--again", action="store_true", help="judge a bundle by the rules of this version")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.cli import report_file
    from ddplaunch.report import verdict

    for path in filter(None, (args.html, args.bundle)):
        report_file.check(Path(path))
    if args.svg is not None:
        report_file.check_folder(Path(args.svg))
    job = handles.meant_or_file(args.handle)
    attempt, launch_attempt = args.attempt
    found = api.diagnose(
        job,
        attempt=attempt,
        launch_attempt=launch_attempt,
        again=args.again,
        debug_image=args.debug_image,
    )
    if args.bundle is not None:
        report_file.write(Path(args.bundle), _archive(job, found.bundle))
    if args.html is not None:
        from ddplaunch.report import html

        report_file.write(Path(args.html), html.page(found))
    if args.svg is not None:
        _write_pictures(found, Path(args.svg))
    if args.json:
        from ddplaunch.report.machine import diagnosis_data

        jobs.print_json(diagnosis_data(found))
    elif args.markdown:
        from ddplaunch.report import markdown

        print(markdown.text(found), end="")
    else:
        from ddplaunch.cli import terminal

        print(verdict.diagnosis_text(found, terminal.paint(sys.stdout), terminal.width(sys.stdout)))
    return ExitCode.SUCCEEDED


def _write_pictures(found: Diagnosis, folder: Path) -> None:
    from ddplaunch.cli import report_file
    from ddplaunch.report import gallery
    from ddplaunch.report.pictures import svg
    from ddplaunch.report.scene import Scene

    pictures = gallery.pictures(Scene(found))
    for picture in pictures:
        report_file.write(folder / f"{picture.name}.svg", svg.alone(picture.svg))
    if not pictures:
        sys.stderr.write(f"no picture was written: {found.job.handle} has left no evidence for one\n")


def _archive(text: str, bundle: Bundle | None) -> bytes:
    from ddplaunch.agent.contract import bundle_file

    if bundle is None:
        raise UsageError(f"{text} has left no evidence", hint="`ddplaunch logs` shows what it printed")
    return bundle_file.packed(bundle)
