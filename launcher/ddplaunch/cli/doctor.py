"""`ddplaunch doctor`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.cli import parser as arguments
from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render.rendered import Rendered
    from ddplaunch.report.diagnosis import Diagnosis
    from ddplaunch.spec.models import JobSpec

HELP = """
Runs every check that a job runs before its training starts, on every node and between all of them, prints
what was found, and starts nothing else. With a job file, that job's own nodes, ports and settings are tried.

Ends with 0 when a job could start, else with 104.

examples:
  ddplaunch doctor --nodes 2
  ddplaunch doctor job.yaml
  ddplaunch doctor job.yaml --html doctor.html
  ddplaunch doctor job.yaml --smoke
"""


_CLEAR = "the way is clear: a job could start here"
_TTL = 600.0
"""Seconds for which a check-up that has ended stays in a cluster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a job file, or - for standard input")
    parser.add_argument(
        "--nodes", type=arguments.at_least(1), metavar="N", help="without FILE: how many nodes (default: 1)"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="also let all ranks import torch and add up, for real"
    )
    arguments.target(parser)
    arguments.as_json(parser)
    parser.add_argument(
        "--html", metavar="FILE", help="write what was found as one HTML file, with a map of who reaches whom"
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.backends import connect, interrupts
    from ddplaunch.cli import exits, jobs, report_file, watch

    if args.html is not None:
        report_file.check(Path(args.html))
    spec = _spec(args)
    if args.to == "kubernetes":
        spec = _of_its_own(spec)
    if args.smoke:
        spec = spec.model_copy(update={"gate": spec.gate.model_copy(update={"smoke_test": True})})
    plan = jobs.plan(spec, args.to, args.file or "doctor")
    backend = connect(args.to)
    with interrupts.kept() as interrupt:
        handle = backend.submit(_gate_only(plan))
    try:
        if interrupt.came:
            raise KeyboardInterrupt
        job = watch.until_end(backend, handle)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopping {handle} …\n")
        with interrupts.held_off():
            job = backend.cancel(handle)  # a check-up that nobody waits for is of no use

    from ddplaunch.report import diagnosis

    found = diagnosis.diagnose(job, backend.collect(handle))
    if args.html is not None:
        from ddplaunch.report import html

        report_file.write(Path(args.html), html.page(found, _CLEAR))
    if args.json:
        from ddplaunch.report.machine import doctor_data

        print(json.dumps(doctor_data(found), indent=2))
    else:
        _print(found)
    return exits.of_job(job)


def _spec(args: argparse.Namespace) -> JobSpec:
    from ddplaunch.spec.load import load
    from ddplaunch.spec.models import job_model

    if args.file is None and args.to == "kubernetes":
        raise UsageError(
            "a check-up on Kubernetes needs a job file: it is made by pods, and they need an image",
            hint="`ddplaunch init` writes one; name your `image:` there, then "
            "`ddplaunch doctor job.yaml --to kubernetes`",
        )
    if args.file is None:
        return job_model()(apiVersion="ddplaunch/v1", name="doctor", nodes=args.nodes or 1, command=("true",))
    if args.nodes is not None:
        raise UsageError("--nodes and a job file exclude each other", hint="the job file says how many nodes")
    return load(args.file)


def _of_its_own(spec: JobSpec) -> JobSpec:
    """Return `spec` under a name of its own, to be deleted after a while: in a cluster names are unique."""
    options = spec.kubernetes.model_copy(update={"ttl": spec.kubernetes.ttl or _TTL})
    return spec.model_copy(update={"name": f"doctor-{os.urandom(3).hex()}", "kubernetes": options})


def _gate_only(plan: Plan) -> Rendered:
    from ddplaunch.render import render

    rendered = render(plan, gate_only=True)
    return rendered if plan.target == "kubernetes" else dataclasses.replace(rendered, job="doctor")


def _print(found: Diagnosis) -> None:
    from ddplaunch.backends.job import State
    from ddplaunch.cli import terminal
    from ddplaunch.report import checks, verdict

    paint, width = terminal.paint(sys.stdout), terminal.width(sys.stdout)
    if found.bundle is not None:
        print(checks.checks_text(found.bundle, paint, verdict.node_names(found)))
    if found.verdicts or found.job.state is not State.SUCCEEDED:
        print(f"\n{verdict.diagnosis_text(found, paint, width)}")
    else:
        print(paint.good(f"\n{_CLEAR}"))
