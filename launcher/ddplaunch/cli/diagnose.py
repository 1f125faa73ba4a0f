"""`ddplaunch diagnose` and `ddplaunch explain`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from ddplaunch import api
from ddplaunch.cli import jobs, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle
    from ddplaunch.report import Diagnosis

_DIAGNOSE_HELP = """
While the job runs, this command collects stacks and counters of all its ranks, and the job goes on. After the
job has ended, it reads the evidence that the job left. The cause to fix first is printed first.

Instead of a job, you can name a bundle, a zip archive with the evidence of a job: run/bundle.zip in the job's
folder, or a file that --bundle wrote. To read it, you need neither the cluster nor torch.

A job that ddplaunch did not start is examined from outside while it hangs, and is not changed. Name it by
`pid:1234`, its torchrun, its mpirun or any of its ranks on this machine; by `slurm://5678`, its Slurm job; by
`kubernetes://team/pytorchjob/llm`, the owner of its pods (job, jobset, pytorchjob, trainjob, mpijob,
leaderworkerset, vcjob, statefulset, pod); or by the pods' labels: `'kubernetes://team?selector=app=llm'`. If
the pods' image has no python3, or the pods may not trace, --debug-image IMAGE adds an ephemeral container to
each pod, as `kubectl debug` does, and looks from there. That container ends afterwards, but Kubernetes never
removes it from the pod's spec.

The exit code is 0, no matter what is wrong with the job. For the job's result, use `ddplaunch status`.
"""


def _add_diagnose_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(
        parser,
        "; or a bundle's file, a process (pid:1234), or anybody's pods (kubernetes://namespace/kind/name); "
        "by default the last job",
    )
    printed = parser.add_mutually_exclusive_group()
    arguments.as_json(printed)
    printed.add_argument("--markdown", action="store_true", help="print Markdown, for an issue or a chat")
    parser.add_argument("--html", metavar="FILE", help="also write all evidence as one HTML file")
    parser.add_argument(
        "--svg",
        metavar="DIR",
        help="also write each picture of the HTML file to this folder, as SVG",
    )
    parser.add_argument(
        "--bundle", metavar="FILE", help="also write all evidence as one bundle, a zip archive"
    )
    parser.add_argument(
        "--attempt",
        type=arguments.attempt,
        default=(None, None),
        metavar="N",
        help="diagnose this attempt, by default the last; 0 is the first, and 0.1 is its second start of the "
        "ranks, such as torchrun's first restart",
    )
    parser.add_argument(
        "--debug-image",
        default="",
        metavar="IMAGE",
        help="look at anybody's pods from a container with this image, which needs python3 >= 3.9; the "
        "container is added to each pod permanently",
    )
    parser.add_argument(
        "--again", action="store_true", help="judge a bundle again by the rules of this version"
    )


def _diagnose(args: argparse.Namespace) -> int:
    from ddplaunch.report import verdict

    for path in filter(None, (args.html, args.bundle)):
        output.check_file(Path(path))
    if args.svg is not None:
        output.check_folder(Path(args.svg))
    job = jobs.job_or_evidence(args.handle)
    attempt, launch_attempt = args.attempt
    found = api.diagnose(
        job,
        attempt=attempt,
        launch_attempt=launch_attempt,
        again=args.again,
        debug_image=args.debug_image,
    )
    if args.bundle is not None:
        output.write_file(Path(args.bundle), _archive(job, found.bundle))
    if args.html is not None:
        from ddplaunch.report import html

        output.write_file(Path(args.html), html.page(found))
    if args.svg is not None:
        _write_pictures(found, Path(args.svg))
    if args.json:
        from ddplaunch.report.machine import diagnosis_data

        output.print_json(diagnosis_data(found))
    elif args.markdown:
        from ddplaunch.report import markdown

        print(markdown.text(found), end="")
    else:
        print(verdict.diagnosis_text(found, output.paint(sys.stdout), output.width(sys.stdout)))
    return ExitCode.SUCCEEDED


def _write_pictures(found: Diagnosis, folder: Path) -> None:
    from ddplaunch.report.pictures import Scene, make_pictures, svg

    pictures = make_pictures(Scene(found))
    for picture in pictures:
        output.write_file(folder / f"{picture.name}.svg", svg.alone(picture.svg))
    if not pictures:
        sys.stderr.write(f"no picture was written, because {found.job.handle} has left no evidence for one\n")


def _archive(text: str, bundle: Bundle | None) -> bytes:
    from ddplaunch.agent.contract import bundle_file

    if bundle is None:
        raise UsageError(f"{text} has left no evidence", hint="`ddplaunch logs` shows what it printed")
    return bundle_file.packed(bundle)


_EXPLAIN_HELP = """
Prints what the verdict means, what you see, how to confirm it by hand, and how to fix it. Without CODE, lists
all codes.
"""


def _add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", metavar="CODE", help="a verdict code, such as rank-in-dataloader")


def _explain(args: argparse.Namespace) -> int:
    from ddplaunch.report import explain

    if args.code is None:
        width = max(map(len, explain.meanings()))
        print("\n".join(f"{code:<{width}}  {meaning}" for code, meaning in explain.meanings().items()))
    elif explain.has_page(args.code):
        text = explain.page(args.code).rstrip()
        print(explain.folded(text, get_terminal_size().columns) if sys.stdout.isatty() else text)
    else:
        raise _unknown(args.code, list(explain.meanings()))
    return ExitCode.SUCCEEDED


def _unknown(code: str, known: list[str]) -> NotFoundError:
    from difflib import get_close_matches

    near = get_close_matches(code, known, n=1)
    return NotFoundError(
        f"there is no verdict {code!r}",
        hint=f"did you mean `ddplaunch explain {near[0]}`?"
        if near
        else "`ddplaunch explain` lists all codes",
    )


COMMANDS: Final = {
    "diagnose": Command(_DIAGNOSE_HELP, _add_diagnose_arguments, _diagnose),
    "explain": Command(_EXPLAIN_HELP, _add_explain_arguments, _explain),
}
