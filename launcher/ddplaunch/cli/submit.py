"""`ddplaunch submit`: a job file, the jobs of its sweep, or the words of a command line."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.api.files import read_changes, startable
from ddplaunch.cli import loading, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import DdplaunchError, ExitCode, NeverStartsError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.cli.parser import Parser
    from ddplaunch.plan.plan import Plan
    from ddplaunch.spec.models import JobSpec

_SUBMIT_HELP = """
Standard output is the job's handle and nothing else; pass it to the other commands. The job goes on when this
command ends, no matter why.

With --wait, you see the phase of every node and the output of the ranks, and the exit code is the job's
result: 0 succeeded, 100 the training failed, 103 cancelled, 104 the preflight check failed, 105 hang. Ctrl-C
leaves the job running and prints how to come back to it. If the job can never start, for example because a
job that it waits for has failed, --wait gives up after 10 s with exit code 104. The job stays in the queue.

For a job file with a `sweep`, all jobs are submitted or none: if one is refused, the ones before it are
cancelled. Each handle is on its own line. With --wait, this command waits for all jobs and shows how each
ended. The exit code is that of the first job in the sweep that did not succeed.

Without a job file, the words after -- are the script and its arguments. The options take the place of the
file's keys; --set and a profile set all others. The ranks run in this folder, as with sbatch. Pods cannot see
this folder, so on Kubernetes the files that the script needs travel with the job, as `init` would list them,
unless you name others with `--set source=[…]`, or the script is in the image and not here. --save writes the
job file that this command line stands for, before the job is submitted.

examples:
  ddplaunch submit job.yaml --wait
  ddplaunch submit --to slurm --nodes 2 --nproc-per-node 8 --gpus 8 --time 2h -- train.py --epochs 3
  ddplaunch submit --to kubernetes --image registry.example.com/trainer:1.0 --save job.yaml -- train.py
  ddplaunch submit job.yaml --to slurm
  ddplaunch submit eval.yaml --to slurm --after slurm://1234
  ddplaunch submit job.yaml --set nodes=4 --set env.LR=0.1
  ddplaunch logs -f "$(ddplaunch submit job.yaml)"
  generate-job | ddplaunch submit -
"""


def _add_submit_arguments(parser: Parser) -> None:
    parser.after_dashes = "command"
    parser.usage = "%(prog)s [options] FILE\n       %(prog)s [options] -- SCRIPT ..."
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="the job file, or - for standard input; or, after --, a script and its arguments",
    )
    arguments.target(parser)
    _add_options_without_file(parser)
    arguments.changes(parser)
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="HANDLE",
        help="start only after this job has succeeded (Slurm); give its handle, number or name; may be given "
        "several times",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the job has ended")
    parser.add_argument("--dry-run", action="store_true", help="submit nothing; print what `render` prints")
    arguments.as_json(parser)


def _submit(args: argparse.Namespace) -> int:
    asked = args.to
    plans = _plans(args)
    if args.dry_run:
        from ddplaunch.cli.job_files import shown

        plan = loading.only(plans, args.file or "the command line")
        rendered = api.render(plan)
        startable(plan)
        output.write_abridged(shown(rendered))
        return ExitCode.SUCCEEDED
    if (
        asked is None and args.to == "local" and shutil.which("sbatch")
    ):  # a login node is seldom what is meant
        sys.stderr.write("note: the job runs on this machine; `--to slurm` sends it to Slurm\n")
    return _sweep(plans, args) if plans[0].sweep else _one(plans[0], args)


def _plans(args: argparse.Namespace) -> list[Plan]:
    """Return the plan of each job. Raises UsageError if there are both a file and a command, or neither."""
    if args.command is not None and args.file is not None:
        raise UsageError(
            f"both a job file, {args.file}, and a command after --",
            hint=f"{args.file} has a `command` already: change it with `--set`, or leave out the file",
        )
    if args.command is None and args.file is None:
        raise UsageError(
            "no job: neither a job file nor a command",
            hint="`ddplaunch submit job.yaml`, or `ddplaunch submit -- train.py --epochs 3`",
        )
    if args.command is None:
        _refuse_options(args)
        return loading.plan(args, args.after)
    job = load_command(args)
    plans = loading.planned(job.specs, args, args.after)
    if args.save is not None:
        for plan in plans:
            startable(plan)
        job.save(args.save)
    return plans


def _one(plan: Plan, args: argparse.Namespace) -> int:
    """Submit a job and return the exit code."""
    from ddplaunch.backends import interrupts

    handle = None
    try:
        with interrupts.kept() as interrupt:
            handle = api.submit(plan)
            if not args.json:
                # This is flushed at once, so that a script which is killed while it waits still has the
                # handle.
                print(handle, flush=True)
            elif not args.wait:
                output.print_job(api.status(handle))
        _note_new_name(handle, plan)
        if plan.keeps_no_files:
            sys.stderr.write(
                "note: the job has no volume that keeps what is written (`volumes`), so files that its ranks "
                "write are lost with their pods; set `outputs` to keep them\n"
            )
        if interrupt.came:
            raise KeyboardInterrupt
        if args.wait:
            return _wait_for(handle, as_json=args.json)
        sys.stderr.write(f"watch it with `ddplaunch logs -f {handle}`\n")
    except KeyboardInterrupt:
        if handle is None:
            raise
        from ddplaunch.cli import exits, follow

        follow.detach(handle)
        if args.wait:
            job = api.status(handle)
            if args.json:
                output.print_job(job)
            return exits.of_job(job)
    return ExitCode.SUCCEEDED


def _note_new_name(handle: Handle, plan: Plan) -> None:
    """Say that the job's own name was taken, by an earlier job that may still run, and use its GPUs."""
    name = handle.path.rpartition("/")[2]
    if handle.target == "kubernetes" and name != plan.job.job:
        sys.stderr.write(
            f"note: there is a job {plan.job.job} already, so this one is {name}; "
            "`ddplaunch list --to kubernetes` shows which of them run\n"
        )


def _wait_for(handle: Handle, *, as_json: bool) -> int:
    """Show the job until it ends, and return its exit code. Raises NeverStartsError."""
    from ddplaunch.cli import exits, follow

    try:
        found = follow.until_end(handle)
    except NeverStartsError:
        if as_json:
            output.print_job(api.status(handle))
        raise
    follow.conclude(found)
    if as_json:
        output.print_job(found.job)
    return exits.of_job(found.job)


def _sweep(plans: list[Plan], args: argparse.Namespace) -> int:
    """Submit all jobs of a sweep and return the exit code."""

    handles = _submit_all(plans, printed=not args.json)
    code = _wait_for_all(handles) if args.wait else ExitCode.SUCCEEDED
    if args.json:
        from ddplaunch.report.machine import job_data

        known = {job.handle: job for job in api.jobs(args.to)}
        output.print_json([job_data(known.get(handle) or api.status(handle)) for handle in handles])
    elif not args.wait:
        target = "" if args.to == "local" else f" --to {args.to}"
        sys.stderr.write(f"{len(handles)} jobs; `ddplaunch list{target}` shows them\n")
    return code


def _submit_all(plans: Sequence[Plan], *, printed: bool) -> list[Handle]:
    """Submit all jobs and return their handles. With `printed`, print each one once its job is accepted.

    After an error or a Ctrl-C, the jobs that were accepted are cancelled. Raises what `api.submit_all`
    raises.
    """
    from ddplaunch.backends import interrupts

    def accepted(handle: Handle) -> None:
        if printed:
            print(handle, flush=True)

    def cancelling(handles: list[Handle]) -> None:
        name = plans[min(len(handles), len(plans) - 1)].job.job
        sys.stderr.write(
            f"{name} was not submitted; a sweep is submitted as a whole, so the jobs before it are "
            f"cancelled: {', '.join(map(str, handles))}\n"
        )

    try:
        with interrupts.kept():
            return api.submit_all(plans, accepted=accepted, cancelling=cancelling)
    except (DdplaunchError, KeyboardInterrupt) as error:
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{printable(note)}\n")
        raise


def _wait_for_all(handles: Sequence[Handle]) -> int:
    """Print how each job ended. Returns the exit code of the first one, in their order, that did not succeed.

    A Ctrl-C leaves all jobs alone.
    """
    from ddplaunch.cli import exits, follow
    from ddplaunch.report.words import sweep_text

    over: dict[Handle, Job] = {}
    try:
        for found in api.wait_all(handles):
            over[found.job.handle] = found.job
            sys.stderr.write(f"{found.job.handle} {printable(sweep_text(found.job.sweep))}\n")
            follow.conclude(found)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\ndetached; {len(handles) - len(over)} jobs go on: `ddplaunch list` shows them, "
            "and `ddplaunch cancel HANDLE` stops one\n"
        )
    codes = [exits.of_wait(over[handle]) if handle in over else ExitCode.NOT_FINISHED for handle in handles]
    good = codes.count(ExitCode.SUCCEEDED)
    sys.stderr.write(f"ddplaunch: {good} of {len(handles)} jobs succeeded\n")
    return next((code for code in codes if code), ExitCode.SUCCEEDED)


_LIMITS: Final = {"slurm": "time", "kubernetes": "active_deadline", "local": "time"}
"""For each target, the key in its section for the time that a job may take."""
_OPTIONS: Final = {
    "name": "name",
    "nodes": "nodes",
    "nproc_per_node": "nproc_per_node",
    "gpus": "resources.gpus",
    "image": "image",
    "time": "slurm.time",
}
"""Options, and the keys of a job file that they set."""


class Commanded(NamedTuple):
    """The jobs of a command line, and the job file that would give the same jobs."""

    specs: list[JobSpec]
    text: str

    def save(self, path: str) -> None:
        """Write the job file. Raises UsageError if it exists, or if it is for a folder other than this
        one.
        """
        from ddplaunch.spec import template

        file = Path(path)
        if file.absolute().parent.resolve() != Path.cwd().resolve():
            raise UsageError(
                f"--save: {path} is in another folder, where the job file would mean another script",
                hint=f"paths in a job file are relative to it; use --save {file.name}",
            )
        template.create(file, self.text)
        sys.stderr.write(f"wrote {printable(path)}\n")


def _add_options_without_file(parser: argparse.ArgumentParser) -> None:
    """Add the options for a job without a file."""
    group = parser.add_argument_group("without a job file")
    group.add_argument(
        "--name",
        type=arguments.job_name,
        metavar="NAME",
        help="without a file: the job's name (default: the script's)",
    )
    group.add_argument(
        "--nodes", metavar="N", help="without a file: number of nodes, or a range such as 2:4 (default: 1)"
    )
    group.add_argument(
        "--nproc-per-node",
        type=arguments.at_least(1),
        metavar="N",
        help="without a file: ranks per node (default: one for each GPU, else 1)",
    )
    group.add_argument(
        "--gpus", type=arguments.at_least(0), metavar="N", help="without a file: GPUs per node"
    )
    group.add_argument("--image", metavar="IMAGE", help="without a file: the container image")
    group.add_argument(
        "--time",
        metavar="TIME",
        help="without a file: the job's time limit, such as 90m",
    )
    group.add_argument(
        "--save",
        metavar="FILE",
        help="without a file: also write the job file; an existing file is not overwritten",
    )


def _refuse_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that sets a key of the job file that is given."""
    for option, key in _OPTIONS.items():
        value = getattr(args, option)
        if value is not None:
            raise UsageError(
                f"--{option.replace('_', '-')} is for jobs without a job file, and {args.file} is one",
                hint=f"use `--set {key}={value}` to change the job file's value",
            )
    if args.save is not None:
        raise UsageError(f"--save: {args.file} is a job file already", hint="use `cp` to copy it")


def load_command(args: argparse.Namespace) -> Commanded:
    """Return the jobs of a command line. If no target is named, this chooses one and puts it into `args.to`.

    Raises SpecError and UsageError.
    """
    from ddplaunch.spec import load, template
    from ddplaunch.spec.load import COMMAND_LINE, changed, load_text

    if not args.command:
        raise UsageError("nothing to run after --", hint="`ddplaunch submit -- train.py --epochs 3`")
    its = loading.profile(args)
    changes = read_changes(args.changes)
    values = _values(args)
    if args.to is None:
        plain = load_text(template.job_file_text(values).encode(), COMMAND_LINE, changes, its)
        loading.choose(args, plain, its)
    named = {change.path[0] for change in changes} | set(its.job.entries if its and its.job else ())
    values |= _limit(args) | ({} if "source" in named else _source(args, named))
    text = template.job_file_text(values)
    found = load_text(text.encode(), COMMAND_LINE, changes, its)
    for note in load.notes(*(each.env for each in found)):
        sys.stderr.write(f"note: {note}\n")
    if changes:
        text = template.job_file_text(changed(text.encode(), changes))
    head = "# Written by `ddplaunch submit` for a command without a job file.\n"
    return Commanded(found, f"{head}{text}")


def _values(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keys of the job file that do not depend on the target."""
    from ddplaunch.spec import template

    nodes = args.nodes
    given = {
        "nodes": int(nodes) if nodes and nodes.isdecimal() else nodes,
        "nproc_per_node": args.nproc_per_node or args.gpus or None,
        "image": args.image,
        "resources": None if args.gpus is None else {"gpus": args.gpus},
    }
    return {
        "apiVersion": "ddplaunch/v1",
        "name": args.name or template.name_of_command(args.command),
        **{key: value for key, value in given.items() if value is not None},
        "command": list(args.command),
    }


def _limit(args: argparse.Namespace) -> dict[str, Any]:
    """Return the section with the time limit. Raises UsageError if the target has none."""
    if args.time is None:
        return {}
    if args.to not in _LIMITS:
        raise UsageError(
            f"--time: {args.to} has no time limit",
            hint="leave it out",
        )
    return {args.to: {_LIMITS[args.to]: args.time}}


def _source(args: argparse.Namespace, named: Collection[str | int]) -> dict[str, Any]:
    """Return what travels to nodes that do not see this folder: whatever a script in it needs."""
    from ddplaunch.plan import imports

    if args.to != "kubernetes":
        return {}
    script = Path(_script(args.command))
    if script.is_absolute() or ".." in script.parts or not script.is_file():
        return {}
    needs = imports.find(script, Path())
    carried: dict[str, Any] = {"source": list(needs.paths)}
    if needs.python_path and "env" not in named:
        carried["env"] = {"PYTHONPATH": ":".join(needs.python_path)}
    sys.stderr.write("".join(f"{line}\n" for line in _source_lines(needs.paths, needs.kept)))
    return carried


def _script(command: Sequence[str]) -> str:
    if command[0] == "-m" and len(command) > 1:
        return f"{command[1].replace('.', '/')}.py"
    return command[0] if command[0].endswith(".py") else ""


def _source_lines(paths: Sequence[str], kept: Sequence[Any]) -> Iterator[str]:
    from ddplaunch.report import words

    yield f"source: {printable(', '.join(paths))}"
    if kept:
        names = ", ".join(f"{each.path} ({words.size(each.size)})" for each in kept[:5])
        yield f"note: the code mentions {printable(names)}, which will not travel with the job"


COMMANDS: Final = {
    "submit": Command(_SUBMIT_HELP, _add_submit_arguments, _submit),
}
