"""`ddplaunch inject`."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch.cli.parser import Command
from ddplaunch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.inject import Settings
    from ddplaunch.inject.change import Changed

_MAX_BYTES = 2**20

_INJECT_HELP = """
Adds ddplaunch's gate and supervisor to a file and prints the result. The controller that runs it stays the
same. The file may be an Indexed Job, a JobSet of one job, a PyTorchJob (training-operator v1), a Volcano Job,
or a batch script in which srun starts torchrun. Everything else in it stays the same, byte for byte,
including comments. If the command does not understand a file, it refuses it and prints nothing.

Each pod gets an init container that copies the agent from --agent-image, and `run --join --` in front of its
command. The nodes recognize one another by a Secret, which you create once per namespace:

  kubectl create secret generic ddplaunch --from-literal key="$(head -c 32 /dev/urandom | base64)"

A batch script gets `python3 -I -S agent.pyz run --join --` in front of torchrun. --write-agent writes that
file, which all nodes must see. The script needs no key: Slurm provides one.

examples:
  ddplaunch inject train.yaml --agent-image registry.example/ddplaunch-agent:1 | kubectl apply -f -
  ddplaunch inject train.sbatch --agent /shared/agent.pyz --write-agent | sbatch
  ddplaunch inject train.sbatch --agent /shared/agent.pyz --diff
  ddplaunch inject train.yaml --remove
"""


def _add_inject_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a manifest or a batch script, or - for standard input")
    parser.add_argument("--diff", action="store_true", help="print a unified diff instead of the file")
    parser.add_argument("--remove", action="store_true", help="remove what this command has added")
    parser.add_argument(
        "--agent-image", metavar="IMAGE", help="pods: the image that contains the agent (docker/agent)"
    )
    parser.add_argument(
        "--key-secret",
        default="ddplaunch",
        metavar="NAME",
        help="pods: the Secret that has the nodes' key under `key` (default: ddplaunch)",
    )
    parser.add_argument(
        "--container", metavar="NAME", help="pods: the container that trains, if there are several"
    )
    parser.add_argument(
        "--agent",
        default="agent.pyz",
        metavar="FILE",
        help="batch scripts: the agent's file, which all nodes must see (default: agent.pyz in the job's "
        "folder)",
    )
    parser.add_argument(
        "--write-agent", action="store_true", help="batch scripts: write the agent to the --agent file first"
    )
    parser.add_argument(
        "--python",
        default="python3",
        metavar="PYTHON",
        help="the Python that runs the agent, 3.9 or newer (default: python3)",
    )


def _inject(args: argparse.Namespace) -> int:
    from ddplaunch.inject import Settings, change

    name = "<stdin>" if args.file == "-" else args.file
    text = _read(args.file, name)
    settings = Settings(
        agent_image=args.agent_image,
        key_secret=args.key_secret,
        container=args.container,
        agent=args.agent,
        python=args.python,
    )
    changed = change.remove(text, name) if args.remove else change.inject(text, name, settings)
    if args.write_agent and not args.remove:
        if changed.namespaces:
            raise UsageError("--write-agent is for batch scripts: pods get the agent from --agent-image")
        _write_agent(Path(args.agent))
    sys.stdout.write("".join(_diff(text, changed.text, name)) if args.diff else changed.text)
    if not args.remove:
        sys.stderr.writelines(_notes(changed, settings))
        if not changed.namespaces and not Path(args.agent).exists():
            sys.stderr.write(f"note: there is no {args.agent} here; --write-agent writes it\n")
    return ExitCode.SUCCEEDED


def _write_agent(path: Path) -> None:
    """Replace the file as a whole: a job that starts now may read it. Raises UsageError."""
    from ddplaunch.render.archive import agent_archive

    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(agent_archive())
        new.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            "--agent names a file in a folder that all nodes see",
        ) from error


def _read(path: str, name: str) -> str:
    """Return the text with its line ends unchanged. Raises UsageError."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", "name a manifest or a batch script"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not a text file: it contains bytes that are not UTF-8") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"{name} is larger than {_MAX_BYTES:,} bytes: it is not a manifest or a batch script"
        )
    return text


def _diff(before: str, after: str, name: str) -> Iterator[str]:
    """Yield the lines of a diff that patch(1) can apply."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    for line in difflib.unified_diff(old, new, name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _notes(changed: Changed, settings: Settings) -> Iterator[str]:
    """Yield what the user needs to know, and what has to be done once in each namespace."""
    yield f"note: added gate and supervisor to {', '.join(changed.objects)}\n"
    for namespace in changed.namespaces:
        where = f" --namespace {namespace}" if namespace else ""
        yield (
            f"note: the pods need the Secret {settings.key_secret}; create it once: kubectl create secret "
            f'generic {settings.key_secret}{where} --from-literal key="$(head -c 32 /dev/urandom | base64)"\n'
        )


COMMANDS: Final = {
    "inject": Command(_INJECT_HELP, _add_inject_arguments, _inject),
}
