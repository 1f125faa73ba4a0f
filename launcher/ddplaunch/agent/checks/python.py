"""Asks the trainer's Python about itself, once for all checks, in one child process."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from typing import Any, Optional, Union

from ddplaunch.agent.checks.command_line import MODULE, PROGRAM, SCRIPT, Start, starts
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import JobPlan

OLDEST = (3, 9)
SECONDS = 12.0
"""Seconds for the child: a Python environment on a busy network file system is slow."""
_FROM_OUTSIDE = (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP)
"""Exit codes of a child that was killed, for example by the scheduler as it ends the job's step."""


class Lacks(Exception):  # noqa: N818 - it names the observation
    """A program, module or file is missing: what was observed, what was wanted, the remedy, and where the
    check has looked.
    """

    def __init__(self, observed: str, wanted: str, hint: str, where: str = "") -> None:
        super().__init__(observed)
        self.observed = observed
        self.wanted = wanted
        self.hint = hint
        self.where = where


class UnansweredError(Exception):
    """The Python is there but its answer is not known. The message has the reason."""


def facts(context: Context) -> dict[str, Any]:
    """Return the output of `python_facts`. Raises Lacks if there is no such Python, and UnansweredError."""
    answer = context.once("python", _facts)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _facts(context: Context) -> Union[dict[str, Any], Lacks, UnansweredError]:
    try:
        return _run(context, _interpreter(context))
    except subprocess.TimeoutExpired:
        return UnansweredError(f"{context.plan.python} did not answer in {SECONDS:.0f} s")
    except (Lacks, UnansweredError) as error:
        return error


def _run(context: Context, python: str) -> dict[str, Any]:
    code = pkgutil.get_data(__package__, "python_facts.py")  # from the archive as well as from a folder
    name = module(context.plan)
    done = subprocess.run(
        [python, "-", *([name] if name else [])],
        input=code,
        capture_output=True,
        timeout=SECONDS,
        env={**context.environment, **context.plan.env},
        cwd=context.workdir if os.path.isdir(context.workdir) else None,
    )
    if done.returncode in _FROM_OUTSIDE:
        raise UnansweredError(f"{python} was killed by {signal.Signals(-done.returncode).name}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    except (ValueError, IndexError):
        errors = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        hint = "start that interpreter by hand on that node"
        raise Lacks(f"{python} cannot run a script: {errors[-1]}", wanted_python(), hint) from None


def started(plan: JobPlan) -> list[Start]:
    """Return the programs, scripts and modules that the job's command is certain to start."""
    if plan.launch and plan.command[:1] == ["-m"]:
        return [Start(MODULE, plan.command[1])]
    by_python = "{python}" in plan.launch and "--no-python" not in plan.launch
    return starts(plan.command, SCRIPT if by_python else PROGRAM)


def module(plan: JobPlan) -> str:
    """Return the module that the job's own Python will run; "": none, or it is another Python's."""
    chain = started(plan)
    programs = [each for each in chain if each.kind == PROGRAM]
    own = not programs or ("{python}" not in plan.launch and len(programs) == 1)
    return chain[-1].word if chain and chain[-1].kind == MODULE and own else ""


def wanted_python() -> str:
    """Return 'Python >= 3.9'."""
    return f"Python >= {'.'.join(map(str, OLDEST))}"


def hint(plan: JobPlan) -> str:
    """Return how to choose another Python: a command line of the user's own has no job file."""
    if not plan.launch:
        return "put the Python that has torch first on PATH, or name it in the command"
    return "name the Python that has torch: `python:` in the job file"


def search_path(context: Context) -> str:
    """Return PATH as the ranks will have it."""
    return context.variable("PATH") or os.defpath


def _interpreter(context: Context) -> str:
    """Return the path of the plan's `python`, or of the user's own program's. Raises Lacks."""
    path, name = search_path(context), context.plan.python
    launch, command = context.plan.launch, context.plan.command
    # Files that travel with a job file are on no PATH.
    if command and "{python}" not in launch and not (launch and shutil.which(command[0], path=path) is None):
        own = _of_program(command[0], path)
        if own:
            return own
    program = shutil.which(name, path=path)
    if program is None:
        if os.sep in name:
            raise Lacks(f"there is no {name}", wanted_python(), hint(context.plan))
        raise Lacks(f"no {name} on PATH", wanted_python(), hint(context.plan), path)
    return program


def unexecutable(name: str) -> Lacks:
    """Return the error for a program that is there but may not be executed."""
    hint = f"`chmod +x {name}`, or put its interpreter before it: bash {name}"
    return Lacks(f"{name} may not be executed", f"an executable {name}", hint)


def _of_program(name: str, path: str) -> Optional[str]:
    """Return the Python that `name` is, or that its first line names; otherwise None. Raises Lacks and
    OSError.
    """
    program = shutil.which(name, path=path)
    if program is None and os.sep in name and os.path.isfile(name):
        raise unexecutable(name)
    if program is None:
        # In an environment that is not active, it is next to our own Python.
        beside = os.path.join(os.path.dirname(sys.executable), name)
        there = f", {beside}" if os.access(beside, os.X_OK) else ""
        raise Lacks(
            f"no program {name} on PATH", name, f"check the spelling, or give the full path{there}", path
        )
    if os.path.basename(program).startswith("python"):
        return program
    with open(program, "rb") as file:
        words = file.readline(512).decode(errors="replace").split()
    if words and words[0].startswith("#!") and os.path.basename(words[0]).startswith("python"):
        return words[0][2:]
    return None
