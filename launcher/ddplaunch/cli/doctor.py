"""`ddplaunch doctor`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch import api
from ddplaunch.cli import loading, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.report import Diagnosis
    from ddplaunch.spec.config import Profile
    from ddplaunch.spec.models import JobSpec

_DOCTOR_HELP = """
Runs every check that a job runs before its training starts, on every node and between the nodes, but starts
no training. You see which node reaches which, with round-trip time and path MTU; each node's address,
interface and MTU; and the result of each check, or n/a where there is nothing to check, as on a node without
GPUs. Nodes with the same results share a line. With a job file, the checks use that job's nodes, ports and
settings; without one, those of the profile.

The exit code is 0 if a job could start, and 104 if not.

examples:
  ddplaunch doctor --nodes 2
  ddplaunch doctor job.yaml
  ddplaunch doctor job.yaml --html doctor.html
  ddplaunch doctor job.yaml --smoke
"""


_CLEAR = "all checks passed: a job can start here"


def _add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a job file, or - for standard input")
    parser.add_argument(
        "--nodes", type=arguments.at_least(1), metavar="N", help="without FILE: how many nodes (default: 1)"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="also let all ranks import torch and run an all-reduce"
    )
    arguments.target(parser)
    arguments.changes(parser)
    arguments.as_json(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write the results as one HTML file, with a map of which node reaches which",
    )


def _doctor(args: argparse.Namespace) -> int:
    from ddplaunch.backends import interrupts
    from ddplaunch.cli import exits, follow

    if args.html is not None:
        output.check_file(Path(args.html))
    job, profile = _job(args)
    with interrupts.kept() as interrupt:
        handle = api.doctor(job, args.to, nodes=args.nodes, profile=profile, smoke_test=args.smoke)
    try:
        if interrupt.came:
            raise KeyboardInterrupt
        found = follow.until_end(handle)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopping {handle} …\n")
        with interrupts.held_off():
            api.cancel(handle)  # nobody would see its results
            found = api.diagnose(handle)

    if args.html is not None:
        from ddplaunch.report import html

        output.write_file(Path(args.html), html.page(found, _CLEAR))
    if args.json:
        from ddplaunch.report.machine import doctor_data

        output.print_json(doctor_data(found))
    else:
        _print(found)
    return exits.of_job(found.job)


def _job(args: argparse.Namespace) -> tuple[JobSpec | None, Profile | None]:
    """Return the job in the job file; without a file, None and the profile. Raises SpecError and
    UsageError.
    """
    if args.file is None:
        if args.changes:
            raise UsageError(
                "--set is for a job file", hint="name one, or set the number of nodes with --nodes"
            )
        profile = loading.profile(args)
        loading.choose(args, [], profile)
        return None, profile
    first, *more = loading.load(args)
    if more:
        sys.stderr.write(f"note: this checks the first of the sweep's {1 + len(more)} jobs\n")
    return first, None


def _print(found: Diagnosis) -> None:
    from ddplaunch.backends.job import State
    from ddplaunch.report import gate_results, verdict

    paint, width = output.paint(sys.stdout), output.width(sys.stdout)
    if found.bundle is not None:
        print(gate_results.checks_text(found.bundle, paint, verdict.node_names(found)))
    if found.verdicts or found.job.state is not State.SUCCEEDED:
        print(f"\n{verdict.diagnosis_text(found, paint, width)}")
    else:
        print(paint.good(f"\n{_CLEAR}"))


COMMANDS: Final = {
    "doctor": Command(_DOCTOR_HELP, _add_doctor_arguments, _doctor),
}
