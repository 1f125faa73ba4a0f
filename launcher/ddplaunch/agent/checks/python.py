"""Asks the trainer's Python about itself, once for all checks, in one child process."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import subprocess
from typing import Any, Optional, Union

from ddplaunch.agent.checks.command_line import MODULE, PROGRAM, SCRIPT, Start, starts
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import JobPlan

OLDEST = (3, 9)
SECONDS = 12.0
"""For the child: a Python environment on a busy network file system takes its time."""


class Lacks(Exception):  # noqa: N818 - it names what was found
    """Something is not there: what was observed, what is wanted, what to do, and where it was looked for."""

    def __init__(self, observed: str, wanted: str, hint: str, where: str = "") -> None:
        super().__init__(observed)
        self.observed = observed
        self.wanted = wanted
        self.hint = hint
        self.where = where


def facts(context: Context) -> Optional[dict[str, Any]]:
    """Return what `python_facts` printed; None when it took too long. Raises Lacks without such a Python."""
    found = context.once("python", _ask)
    if isinstance(found, Lacks):
        raise found
    return found


def _ask(context: Context) -> Union[dict[str, Any], Lacks, None]:
    try:
        return _run(context, _interpreter(context))
    except subprocess.TimeoutExpired:
        return None
    except Lacks as lacks:
        return lacks


def _run(context: Context, python: str) -> dict[str, Any]:
    code = pkgutil.get_data(__package__, "python_facts.py")  # from the archive as well as from a folder
    asked = module(context.plan)
    done = subprocess.run(
        [python, "-", *([asked] if asked else [])],
        input=code,
        capture_output=True,
        timeout=SECONDS,
        env={**context.environment, **context.plan.env},
        cwd=context.workdir if os.path.isdir(context.workdir) else None,
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (ValueError, IndexError):
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        hint = "start that interpreter by hand on that node"
        raise Lacks(f"{python} cannot run a script: {said[-1]}", wanted_python(), hint) from None


def started(plan: JobPlan) -> list[Start]:
    """The programs, scripts and modules that the job's command starts, as far as its words are certain."""
    if plan.launch and plan.command[:1] == ["-m"]:
        return [Start(MODULE, plan.command[1])]
    by_python = (
        plan.launch and "--no-python" not in plan.launch and (not plan.mpi or "{python}" in plan.launch)
    )
    return starts(plan.command, SCRIPT if by_python else PROGRAM)


def module(plan: JobPlan) -> str:
    """The module that the job's own Python shall run; empty: none, or it is another Python's."""
    found = started(plan)
    programs = [each for each in found if each.kind == PROGRAM]
    own = not programs or (not plan.launch and len(programs) == 1)
    return found[-1].word if found and found[-1].kind == MODULE and own else ""


def wanted_python() -> str:
    """'Python >= 3.9'."""
    return f"Python >= {'.'.join(map(str, OLDEST))}"


def search_path(context: Context) -> str:
    """PATH as the ranks will have it."""
    return context.variable("PATH") or os.defpath


def _interpreter(context: Context) -> str:
    """Full path of the plan's `python`. Without a launch command of ours, that of the user's own program."""
    path, name = search_path(context), context.plan.python
    if not context.plan.launch and context.plan.command:
        own = _of_program(context.plan.command[0], path)
        if own:
            return own
    found = shutil.which(name, path=path)
    if found is None:
        hint = "name the Python that has torch: `python:` in the job file"
        if os.sep in name:
            raise Lacks(f"there is no {name}", wanted_python(), hint)
        raise Lacks(f"no {name} on PATH", wanted_python(), hint, path)
    return found


def _of_program(name: str, path: str) -> Optional[str]:
    """The Python that `name` is, or that its first line names; None when it is no Python program."""
    found = shutil.which(name, path=path)
    if found is None:
        raise Lacks(f"no program {name} on PATH", name, "name it with its full path", path)
    if os.path.basename(found).startswith("python"):
        return found
    with open(found, "rb") as file:
        words = file.readline(512).decode(errors="replace").split()
    if words and words[0].startswith("#!") and os.path.basename(words[0]).startswith("python"):
        return words[0][2:]
    return None
