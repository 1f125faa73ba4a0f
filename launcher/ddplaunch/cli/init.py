"""`ddplaunch init`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch.agent.text import shell
from ddplaunch.agent.text.printable import printable
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.plan.imports import Kept, Needs

_SCRIPT: Final = "train.py"
_NAMED: Final = 8

HELP = """
The job file runs a script that lies beside or below it: train.py, main.py, the only one that uses a process
group, or what --script names. `source` lists what the script needs of this folder: the modules that it
imports, these with their imports, and small files of settings that it names or that lie in conf, config or
configs. What is large is left out, and named. Without a script that is clearly meant, `command` is left for
you to fill in. The job is called after the folder.

With --example, a small training that runs on any machine with torch is written beside it as train.py.

An existing file is never overwritten.

examples:
  ddplaunch init
  ddplaunch init --script tools/train.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", nargs="?", default="job.yaml", metavar="FILE", help="default: job.yaml")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--script", metavar="SCRIPT", help="the training script, in the folder of FILE or below it"
    )
    which.add_argument(
        "--example", action="store_true", help="also write train.py, a small training to begin with"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    file = Path(args.file)
    if args.example:
        return _example(file)
    from ddplaunch.plan import imports, scripts
    from ddplaunch.spec import template

    script, candidates = scripts.find(file.parent)
    if args.script is not None:
        script = Path(args.script)
    if script is None:
        template.create(file, template.text(_name(file)))
        sys.stderr.write(_without_script(file, candidates))
        return ExitCode.SUCCEEDED
    needs = imports.find(script, file.parent)
    template.create(file, _text(file, needs))
    runs = printable(shell.line(needs.command))
    submit = ["submit", str(file), "--wait"]
    sys.stderr.write(
        f"wrote {printable(str(file))}, which runs {runs}; {_command('validate', str(file))}, "
        f"then {_command(*submit)}\n"
    )
    for remark in _remarks(needs.kept):
        sys.stderr.write(f"note: not in `source`: {printable(remark)}\n")
    return ExitCode.SUCCEEDED


def _text(file: Path, needs: Needs) -> str:
    from ddplaunch.spec import template

    kept = [printable(each) for each in _remarks(needs.kept)]
    return template.text(_name(file), needs.command, needs.paths, needs.python_path, kept)


def _name(file: Path) -> str:
    """Return a name for the job: its folder's, else its file's."""
    from ddplaunch.spec import template

    return template.name_of(file.absolute().parent.name) or template.name_of(file.stem) or "job"


def _remarks(kept: Sequence[Kept]) -> Iterator[str]:
    from ddplaunch.report import words

    for each in kept[:_NAMED]:
        yield f"{each.path} ({words.size(each.size)})"
    if len(kept) > _NAMED:
        yield f"and {len(kept) - _NAMED} more"


def _command(*words: str) -> str:
    return f"`{printable(shell.line(['ddplaunch', *words]))}`"


def _without_script(file: Path, candidates: Sequence[Path]) -> str:
    """Return the text for a folder in which it is not clear which script is meant."""
    folder = printable(str(file.parent.absolute()))
    names = [printable(str(each)) for each in candidates[:_NAMED]]
    several = f": {', '.join(names)}" + (", …" if len(candidates) > _NAMED else "") if names else ""
    first = str(candidates[0]) if candidates else "SCRIPT"
    again = _command("init", *([str(file)] if file.name != "job.yaml" else []), "--script", first)
    return (
        f"wrote {printable(str(file))} without a `command`: {folder} has no train.py, and no script that is "
        f"clearly meant{several}\n"
        "note: take the # off `command` and `source` and name your script, or remove the file and run "
        f"{again}; {_command('init', '--example')} writes a script to begin with\n"
    )


def _example(file: Path) -> int:
    """Write the job file and its script, or neither. Raises UsageError."""
    from ddplaunch.spec import template

    script = file.parent / _SCRIPT
    if file.exists():
        raise UsageError(f"{file} exists already", hint="name another file; nothing was written")
    if script.exists():
        raise UsageError(
            f"{script} exists already",
            hint=f"nothing was written; {_command('init', str(file))} writes a job file that runs it",
        )
    template.create(script, (files("ddplaunch.cli") / "example" / _SCRIPT).read_text("utf-8"))
    template.create(file, template.text(_name(file), [_SCRIPT], [_SCRIPT]))
    submit = ["ddplaunch", "submit", str(file), "--wait"]
    hangs = ["--set", "name=hangs", "--set", "command[1]=--hang", "--set", "watchdog.kill_after=20s"]
    sys.stderr.write(
        f"wrote {printable(str(file))} and {printable(str(script))}\n"
        f"  {printable(shell.line(submit))}\n"
        "      trains, on 2 nodes of 2 ranks: here, if no profile says otherwise\n"
        f"  {printable(shell.line([*submit, *hangs]))}\n"
        "      hangs, and is explained\n"
    )
    return ExitCode.SUCCEEDED
