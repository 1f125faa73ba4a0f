"""A job without a job file, from the words of a command line: `ddplaunch submit -- train.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ddplaunch.agent.text.printable import printable
from ddplaunch.api.files import read_changes
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

_LIMITS: Final = {"slurm": "time", "kubernetes": "active_deadline", "local": "time"}
"""The key of each target's section for the time that a job may take."""
_OPTIONS: Final = {
    "name": "name",
    "nodes": "nodes",
    "nproc_per_node": "nproc_per_node",
    "gpus": "resources.gpus",
    "image": "image",
    "time": "slurm.time",
}
"""Options, and the keys of a job file that they stand for."""


class Commanded(NamedTuple):
    """The jobs of a command line, and the job file that would give the same."""

    specs: list[JobSpec]
    text: str

    def save(self, path: str) -> None:
        """Write the job file. Raises UsageError for one that exists, and for another folder than this one."""
        from ddplaunch.spec import template

        file = Path(path)
        if file.absolute().parent.resolve() != Path.cwd().resolve():
            raise UsageError(
                f"--save: {path} would lie in another folder, and mean another script",
                hint=f"what a job file names lies beside it: --save {file.name}",
            )
        template.create(file, self.text)
        sys.stderr.write(f"wrote {printable(path)}\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        "--save", metavar="FILE", help="without a file: write the job file, too; never over another"
    )


def refuse_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that stands for a key of the job file that is given."""
    for option, key in _OPTIONS.items():
        value = getattr(args, option)
        if value is not None:
            raise UsageError(
                f"--{option.replace('_', '-')} is for a job without a file, and {args.file} is one",
                hint=f"`--set {key}={value}` changes the job file's own",
            )
    if args.save is not None:
        raise UsageError(f"--save: {args.file} is a job file already", hint="`cp` copies it")


def load(args: argparse.Namespace) -> Commanded:
    """Return the jobs of a command line. Where no target is named, one is chosen and stands in `args.to`.

    Raises SpecError, UsageError.
    """
    from ddplaunch.spec import command, smells
    from ddplaunch.spec.load import COMMAND_LINE, changed, load_text

    if not args.command:
        raise UsageError("nothing to run after --", hint="`ddplaunch submit -- train.py --epochs 3`")
    its = jobs.profile(args)
    changes = read_changes(args.changes)
    values = _values(args)
    if args.to is None:
        plain = load_text(command.text(values).encode(), COMMAND_LINE, changes, its)
        jobs.choose(args, plain, its)
    named = {change.path[0] for change in changes} | set(its.job.entries if its and its.job else ())
    values |= _limit(args) | ({} if "source" in named else _source(args, named))
    text = command.text(values)
    found = load_text(text.encode(), COMMAND_LINE, changes, its)
    for note in smells.notes(*(each.env for each in found)):
        sys.stderr.write(f"note: {note}\n")
    if changes:
        text = command.text(changed(text.encode(), changes))
    head = "# `ddplaunch submit` with a command and no file has written this job file.\n"
    return Commanded(found, f"{head}{text}")


def _values(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keys of the job file, without what depends on the target."""
    from ddplaunch.spec import command

    nodes = args.nodes
    given = {
        "nodes": int(nodes) if nodes and nodes.isdecimal() else nodes,
        "nproc_per_node": args.nproc_per_node or args.gpus or None,
        "image": args.image,
        "resources": None if args.gpus is None else {"gpus": args.gpus},
    }
    return {
        "apiVersion": "ddplaunch/v1",
        "name": args.name or command.name(args.command),
        **{key: value for key, value in given.items() if value is not None},
        "command": list(args.command),
    }


def _limit(args: argparse.Namespace) -> dict[str, Any]:
    """Return the section with the time limit. Raises UsageError for a target without one."""
    if args.time is None:
        return {}
    if args.to not in _LIMITS:
        raise UsageError(
            f"--time: there is no such limit for --to {args.to}",
            hint="leave it out",
        )
    return {args.to: {_LIMITS[args.to]: args.time}}


def _source(args: argparse.Namespace, named: Collection[str | int]) -> dict[str, Any]:
    """Return what travels to where this folder is not to be seen: what a script that lies here needs."""
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
    sys.stderr.write("".join(f"{line}\n" for line in _about(needs.paths, needs.kept)))
    return carried


def _script(command: Sequence[str]) -> str:
    if command[0] == "-m" and len(command) > 1:
        return f"{command[1].replace('.', '/')}.py"
    return command[0] if command[0].endswith(".py") else ""


def _about(paths: Sequence[str], kept: Sequence[Any]) -> Iterator[str]:
    from ddplaunch.report import words

    yield f"source: {printable(', '.join(paths))}"
    if kept:
        names = ", ".join(f"{each.path} ({words.size(each.size)})" for each in kept[:5])
        yield f"note: the code names {printable(names)}, which will not travel with the job"
