"""Commands on job files: `init`, `validate`, `render`, `schema`."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ddplaunch import api
from ddplaunch.agent.text.printable import printable, shell_line, shell_word
from ddplaunch.cli import loading, output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import ClusterError, DdplaunchError, ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.plan.imports import Kept, Needs
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render import Rendered, RenderedFile

_SCRIPT: Final = "train.py"
_SHOWN_NAMES: Final = 8

_INIT_HELP = """
The job file runs a script in its own folder or below it: the script that --script names, else train.py or
main.py, else the only script that uses a process group. `source` lists the files that the script needs: the
modules that it imports, directly or not, and small configuration files that it mentions or that are in conf,
config or configs. Large files are left out, and you are told which. If it is not clear which script to run,
`command` is left for you to fill in. The job is named after the folder.

With --example, a small training script is written next to it as train.py. It runs on any machine with torch.

An existing file is never overwritten.

examples:
  ddplaunch init
  ddplaunch init --script tools/train.py
"""


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="job.yaml", metavar="FILE", help="default: job.yaml")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--script", metavar="SCRIPT", help="the training script, in the folder of FILE or below it"
    )
    which.add_argument(
        "--example", action="store_true", help="also write train.py, a small training script to start from"
    )


def _init(args: argparse.Namespace) -> int:
    file = Path(args.file)
    if file.suffix == ".py":
        raise UsageError(
            f"{file} is a script, and `init` writes a job file",
            hint=f"{_command('init', '--script', str(file))} writes one that runs it",
        )
    if args.example:
        return _example(file)
    from ddplaunch.plan import imports
    from ddplaunch.spec import template

    script, candidates = imports.find_script(file.parent)
    if args.script is not None:
        script = Path(args.script)
    if script is None:
        template.create(file, template.text(_name(file)))
        sys.stderr.write(_without_script(file, candidates))
        return ExitCode.SUCCEEDED
    needs = imports.find(script, file.parent)
    template.create(file, _job_file_text(file, needs))
    runs = printable(shell_line(needs.command))
    submit = ["submit", str(file), *(["--to", "slurm"] if shutil.which("sbatch") else []), "--wait"]
    sys.stderr.write(
        f"wrote {printable(str(file))}, which runs {runs}; next: {_command('validate', str(file))}, "
        f"then {_command(*submit)}\n"
    )
    for remark in _remarks(needs.kept):
        sys.stderr.write(f"note: not in `source`: {printable(remark)}\n")
    return ExitCode.SUCCEEDED


def _job_file_text(file: Path, needs: Needs) -> str:
    from ddplaunch.spec import template

    kept = [printable(each) for each in _remarks(needs.kept)]
    return template.text(_name(file), needs.command, needs.paths, needs.python_path, kept)


def _name(file: Path) -> str:
    """Return a name for the job: the name of its folder, otherwise of its file."""
    from ddplaunch.spec import template

    return template.name_of(file.absolute().parent.name) or template.name_of(file.stem) or "job"


def _remarks(kept: Sequence[Kept]) -> Iterator[str]:
    from ddplaunch.report import words

    for each in kept[:_SHOWN_NAMES]:
        yield f"{each.path} ({words.size(each.size)})"
    if len(kept) > _SHOWN_NAMES:
        yield f"and {len(kept) - _SHOWN_NAMES} more"


def _command(*words: str) -> str:
    return f"`{printable(shell_line(['ddplaunch', *words]))}`"


def _without_script(file: Path, candidates: Sequence[Path]) -> str:
    """Return the text for a folder in which it is not clear which script is meant."""
    folder = printable(str(file.parent.absolute()))
    names = [printable(str(each)) for each in candidates[:_SHOWN_NAMES]]
    several = f": {', '.join(names)}" + (", …" if len(candidates) > _SHOWN_NAMES else "") if names else ""
    first = str(candidates[0]) if candidates else "SCRIPT"
    again = _command("init", *([str(file)] if file.name != "job.yaml" else []), "--script", first)
    return (
        f"wrote {printable(str(file))} without a `command`: {folder} has no train.py, and it is not clear "
        f"which script you mean{several}\nnote: uncomment `command` and `source` and name your script, or "
        f"remove the file and run {again}; {_command('init', '--example')} writes a script to start from\n"
    )


def _example(file: Path) -> int:
    """Write the job file and its script, or neither of them. Raises UsageError."""
    from ddplaunch.spec import template

    script = file.parent / _SCRIPT
    if file.exists():
        raise UsageError(f"{file} exists already", hint="name another file; nothing was written")
    if script.exists():
        raise UsageError(
            f"{script} exists already",
            hint=f"nothing was written; {_command('init', str(file))} writes a job file that runs it",
        )
    from importlib.resources import files  # it imports much, and only an example needs it

    template.create(script, (files("ddplaunch.cli") / "example" / _SCRIPT).read_text("utf-8"))
    template.create(file, template.text(_name(file), [_SCRIPT], [_SCRIPT]))
    submit = ["ddplaunch", "submit", str(file), "--wait"]
    hangs = ["--set", "name=hangs", "--set", "command[1]=--hang", "--set", "watchdog.kill_after=20s"]
    sys.stderr.write(
        f"wrote {printable(str(file))} and {printable(str(script))}\n"
        f"  {printable(shell_line(submit))}\n"
        "      trains on 2 nodes of 2 ranks: on this machine, unless a profile says otherwise\n"
        f"  {printable(shell_line([*submit, *hangs]))}\n"
        "      hangs, and you see why\n"
    )
    return ExitCode.SUCCEEDED


_VALIDATE_HELP = """
Reads each job file as `submit` would, and reports all problems at once: file, line, what was found, what is
wanted, and a hint. `-` is standard input. It refuses everything that `submit` refuses: files of `source` that
are missing or too large, a missing script, everything that a target cannot do. Notes name each variable
under `env` that looks like a secret and belongs under `secrets`, and modules that the script imports from its
folder and that are not under `source`. Nothing is submitted.

Without --to, a file is checked for the target of the profile, else for each target that has a section in the
file, else for this machine, and no scheduler is asked. With --to, the scheduler is asked, too, but gets no
job: `sbatch --test-only`, or a dry run of the Kubernetes server.

The exit code is 0 if all files are valid, and 2 if not. It is 106 if all are valid but the scheduler would
refuse one of them or cannot be reached.

examples:
  ddplaunch validate job.yaml
  ddplaunch validate job.yaml --to slurm
"""


def _add_validate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a job file, or - for standard input")
    arguments.target(
        parser,
        "the scheduler to check for, and to ask",
        "the profile's, else the targets of the file's sections",
    )
    arguments.changes(parser)
    arguments.as_json(parser)


class _Checked(NamedTuple):
    file: str
    found: api.Validation
    answer: str = ""  # the scheduler's
    refused: ClusterError | None = None

    @property
    def errors(self) -> list[DdplaunchError]:
        problems = [api.SpecError(self.found.problems)] if self.found.problems else []
        return [*problems, *self.found.errors]


def _validate(args: argparse.Namespace) -> int:
    profile = api.profile(args.profile, args.to)
    checked = []
    for file in args.files:
        found = api.validate(file, args.changes, profile=profile, to=args.to)
        checked.append(_asked(_Checked(file, found)) if args.to else _Checked(file, found))
    if args.json:
        output.print_json([_checked_data(each) for each in checked])
    else:
        for each in checked:
            sys.stderr.write(_checked_text(each))
    if any(each.errors for each in checked):
        return ExitCode.USAGE
    return ExitCode.CLUSTER if any(each.refused for each in checked) else ExitCode.SUCCEEDED


def _asked(checked: _Checked) -> _Checked:
    """Return it with the scheduler's answer, if nothing else has to be corrected."""
    if not checked.found.plans:
        return checked
    try:
        answers = api.try_out(checked.found.plans)
    except ClusterError as error:
        return checked._replace(refused=error)
    return checked._replace(answer="; ".join(dict.fromkeys(answers)))


def _checked_text(checked: _Checked) -> str:
    found = checked.found
    if checked.errors:
        return "".join(f"{error}\n\n" for error in checked.errors)
    good = f"a sweep of {found.jobs} jobs, good" if found.jobs > 1 else "good"
    places = ["this machine" if target == "local" else target for target in found.targets]
    good += f" for {' and '.join(places)}"
    if checked.refused:
        good = f"the file is {good}, but:"
    elif checked.answer:
        good += f"; {checked.answer}"
    lines = [f"{checked.file}: {good}", *(f"note: {note}" for note in found.notes)]
    text = "".join(f"{printable(line)}\n" for line in lines)
    return text + (f"{checked.refused}\n\n" if checked.refused else "")


def _checked_data(checked: _Checked) -> dict[str, object]:
    more = [*checked.found.errors, *([checked.refused] if checked.refused else [])]
    return {
        "file": checked.file,
        "targets": list(checked.found.targets),
        "problems": [dataclasses.asdict(each) for each in checked.found.problems],
        "errors": [{"message": each.message, "hint": each.hint} for each in more],
        "notes": [f"note: {note}" for note in checked.found.notes],
    }


_PACKED = 5
"""Packed files to name in the message."""

_RENDER_HELP = """
Without -o, prints the text files, and the size and SHA-256 of other files. If the job is a single text file,
it is printed as it is, ready for a pipe; on a terminal the archives in it are left out. With -o, writes all
files to a folder, from which you can start the job by hand. Each job of a sweep gets its own folder there.
The same job file always gives the same bytes.

Helm cannot read files outside its chart. For Helm, --source-archive packs the files that `source` names, and
renders nothing else.

examples:
  ddplaunch render job.yaml --to kubernetes | kubectl apply --server-side -f -
  ddplaunch render job.yaml --to kubernetes --source-archive source.b64
  helm install run1 ddplaunch.tgz --values job.yaml --set-file sourceArchive=source.b64
"""


def _add_render_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the job file, or - for standard input")
    arguments.target(parser)
    arguments.changes(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "-o", "--output", metavar="DIR", help="write the files to this folder instead of printing them"
    )
    instead.add_argument(
        "--source-archive", metavar="FILE", help="write only the chart's value `sourceArchive` to this file"
    )
    parser.add_argument("--force", action="store_true", help="with -o: overwrite existing files")


def _render(args: argparse.Namespace) -> int:
    plans = loading.plan(args)
    if args.source_archive is not None:
        _write_source(loading.only(plans, args.file), args.source_archive)
        return ExitCode.SUCCEEDED
    if args.output is None:
        rendered = api.render(loading.only(plans, args.file))
        output.write_abridged(shown(rendered))
    else:
        folder = Path(args.output)
        for plan in plans:
            rendered = api.render(plan)
            _write_files(rendered, folder / plan.job.job if plan.sweep else folder, force=args.force)
    if rendered.by_hand:
        sys.stderr.write(f"note: {rendered.by_hand}\n")
    return ExitCode.SUCCEEDED


def shown(rendered: Rendered) -> str:
    """Return all files as text, and the command that starts the job. A single text file is returned
    unchanged.
    """
    texts = {name: _file_text(file) for name, file in rendered.files.items()}
    if len(texts) == 1:
        (only,) = texts.values()
        if only is not None:
            return only
    parts = [
        f"==> {name} ({_about(rendered.files[name])}) <==\n" + ("" if text is None else text)
        for name, text in texts.items()
    ]
    return "\n".join([*parts, f"==> start <==\n{shell_line(rendered.command)}\n"])


def _file_text(file: RenderedFile) -> str | None:
    try:
        text = file.content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _about(file: RenderedFile) -> str:
    kind = "executable, " if file.executable else ""
    size = f"{kind}{len(file.content):,} bytes"
    if _file_text(file) is not None:
        return size
    import hashlib

    return f"{size}, sha256 {hashlib.sha256(file.content).hexdigest()}"


def _write_files(rendered: Rendered, folder: Path, *, force: bool) -> None:
    there = [name for name in rendered.files if (folder / name).exists()]
    if there and not force:
        raise UsageError(
            f"{folder} already contains {', '.join(there)}",
            hint="choose another folder, or overwrite with --force",
        )
    try:
        for name, file in rendered.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(0o755 if file.executable else 0o644)
    except OSError as error:
        raise _not_written(error.filename or folder, error) from error
    names, command = ", ".join(rendered.files), shell_line(rendered.command)
    sys.stderr.write(f"wrote {names} to {folder}; run `{command}` there to start the job\n")


def _write_source(plan: Plan, path: str) -> None:
    """Write the archive of a rendered job as base64, because Helm's values are text. Raises UsageError."""
    import base64

    from ddplaunch.render.archive import source_archive

    if not plan.source:
        raise UsageError(
            f"{plan.job.job} has no `source`, so there is nothing to pack",
            hint="without `source`, the chart needs no sourceArchive",
        )
    try:
        Path(path).write_bytes(base64.encodebytes(source_archive(plan.source)))
    except OSError as error:
        raise _not_written(path, error) from error
    names = ", ".join(sorted(plan.source)[:_PACKED]) + (", …" if len(plan.source) > _PACKED else "")
    option = shell_word(f"sourceArchive={path}")
    sys.stderr.write(f"wrote {path} with {printable(names)}; give it to Helm with `--set-file {option}`\n")


def _not_written(path: str | Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror}",
        hint="name a path in a folder that you can write to and that has room",
    )


_SCHEMA_HELP = """
The schema is for editors and other programs. Editors with the YAML language server find the job file's schema
if the job file's first line is: # yaml-language-server: $schema=job.schema.json
"""


def _add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        nargs="?",
        choices=("job", "config", "diagnose"),
        default="job",
        metavar="OF",
        help="`job`, the default: the job file; `config`: your configuration; `diagnose`: the output of "
        "`diagnose --json`",
    )


def _schema(args: argparse.Namespace) -> int:
    if args.of == "diagnose":
        from ddplaunch.report.machine import json_schema
    elif args.of == "config":
        from ddplaunch.spec.config import json_schema
    else:
        from ddplaunch.spec.schema import json_schema
    output.print_json(json_schema())
    return ExitCode.SUCCEEDED


COMMANDS: Final = {
    "init": Command(_INIT_HELP, _add_init_arguments, _init),
    "validate": Command(_VALIDATE_HELP, _add_validate_arguments, _validate),
    "render": Command(_RENDER_HELP, _add_render_arguments, _render),
    "schema": Command(_SCHEMA_HELP, _add_schema_arguments, _schema),
}
