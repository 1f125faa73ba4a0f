"""Checks: the trainer's Python, its torch and the script exist, and which versions they have."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import Any

from ddplaunch.agent.checks import python
from ddplaunch.agent.checks.command_line import MODULE, PROGRAM, SHELL_SCRIPT, Start
from ddplaunch.agent.checks.context import Context, failed, noted, passed, unknown
from ddplaunch.agent.checks.python import Lacks, UnansweredError
from ddplaunch.agent.contract import CheckResult, Files
from ddplaunch.agent.evidence import torch_versions
from ddplaunch.agent.system import processes

_SOURCE_HINT = "list it under `source:` so that it travels with the job, or say where it lies: `workdir:`"
_COMMAND_HINT = "start ddplaunch in the folder where it lies, or name it by its full path"


def check_interpreter(context: Context) -> CheckResult:
    """FAIL with image-lacks if the folder, the interpreter, torch, torchrun or the script is missing."""
    try:
        _folder(context)
        facts = python.facts(context)
        _require(context, facts)
        _launcher(context)
        program = _program(context, facts)
    except UnansweredError as error:
        return unknown("interpreter", str(error))
    except Lacks as lacks:
        where: dict[str, Any] = {"looked_in": lacks.where} if lacks.where else {}
        return failed("interpreter", "image-lacks", lacks.observed, lacks.wanted, lacks.hint, **where)
    return passed("interpreter", f"{facts['executable']}{program}")


def _folder(context: Context) -> None:
    """Raise Lacks if the ranks' folder is not on this node, or if it or its storage has been removed."""
    try:
        folder = context.workdir
    except OSError as error:
        observed = f"the current folder is gone: {error.strerror}"
        hint = "change to it again, or to another folder, and run the command once more"
        raise Lacks(observed, "a current folder that exists", hint) from error
    if context.plan.workdir and not os.path.isdir(folder):
        hint = "submit from a folder that all nodes share, or list the code under `source`"
        raise Lacks(f"the folder {folder} is not on this node", f"the folder {folder}", hint)


def _require(context: Context, facts: dict[str, Any]) -> None:
    executable = facts["executable"]
    if tuple(int(part) for part in facts["python"].split(".")[:2]) < python.OLDEST:
        raise Lacks(
            f"{executable} is Python {facts['python']}", python.wanted_python(), python.hint(context.plan)
        )
    if "torch.distributed.run" not in context.plan.launch:
        return
    if not facts.get("torch_folder"):
        hint = f"{python.hint(context.plan)}, or install torch there"
        raise Lacks(f"{executable} has no torch", "torch", hint)
    if not facts.get("torchrun"):
        raise Lacks(
            f"torch in {facts['torch_folder']} has no distributed/run.py",
            "torchrun",
            "install a torch >= 1.9 that was built with torch.distributed",
        )


def _launcher(context: Context) -> None:
    """Look for mpirun or srun, which node 0 runs for all nodes. Raises Lacks if it is not there."""
    if not context.plan.keepers or context.node != 0:
        return
    wanted, path = context.plan.launch[0], python.search_path(context)
    if shutil.which(wanted, path=path) is None:
        hint = "load the module that has it before you submit, or name its folder in `env: {PATH: …}`"
        raise Lacks(f"no {wanted} on PATH", wanted, hint, path)


def _program(context: Context, facts: dict[str, Any]) -> str:
    """Return ', train.py' if everything that the command starts is there; otherwise raise Lacks."""
    started = python.started(context.plan)
    for start in started:
        if start.kind == MODULE:
            _find_module(context, facts, start.word)
        elif start.kind == PROGRAM:
            _find_program(context, start.word)
        else:
            _find_script(context, start)
    if not started or (not context.plan.launch and len(started) == 1):
        return ""
    last = started[-1]
    return f", {last.kind} {last.word}" if last.kind in (PROGRAM, MODULE) else f", {last.word}"


def _find_module(context: Context, facts: dict[str, Any], name: str) -> None:
    """Raise Lacks if the module is not there. The interpreter itself is asked."""
    folders = dict.fromkeys(["", *context.plan.env.get("PYTHONPATH", "").split(os.pathsep)])
    file = name.replace(".", "/")
    there = facts.get("module", True) or any(_travels(context, os.path.join(each, file)) for each in folders)
    if python.module(context.plan) == name and not there:
        raise _lacks(context, f"module {name}")


def _find_program(context: Context, name: str) -> None:
    """Raise Lacks unless the program, and the interpreter that its first line names, can be executed."""
    path = python.search_path(context)
    if os.sep not in name:
        if shutil.which(name, path=path) is None:
            raise Lacks(f"no program {name} on PATH", f"program {name}", _place_hint(context), path)
        return
    file = os.path.join(context.workdir, name)
    if not os.path.isfile(file):
        if not _travels(context, name):
            raise _lacks(context, name)
    elif not os.access(file, os.X_OK):
        raise python.unexecutable(name)
    elif absent := processes.absent_interpreter(file, path):
        hint = "correct that line; where it ends with a carriage return, the file was saved on Windows"
        raise Lacks(f"the first line of {name} names {absent!r}, which is not there", absent, hint)


def _find_script(context: Context, start: Start) -> None:
    name = start.word
    folders = [context.workdir]
    if start.kind == SHELL_SCRIPT and os.sep not in name:
        folders += python.search_path(context).split(os.pathsep)  # where bash looks next
    if not (any(os.path.exists(os.path.join(each, name)) for each in folders) or _travels(context, name)):
        raise _lacks(context, name)


def _lacks(context: Context, wanted: str) -> Lacks:
    place = "the job's source" if os.path.exists(_archive(context)) else context.workdir
    return Lacks(f"no {wanted} in {place}", wanted, _place_hint(context))


def _place_hint(context: Context) -> str:
    """Return how to say where a script is: a command line of the user's own has no job file."""
    return _SOURCE_HINT if context.plan.launch else _COMMAND_HINT


def _travels(context: Context, name: str) -> bool:
    """Whether `name` is in the job's source: without a workdir, the ranks start in the folder where that is
    unpacked.
    """
    if context.plan.workdir or os.path.isabs(name):
        return False
    try:
        with tarfile.open(_archive(context)) as archive:
            names = {os.path.normpath(member) for member in archive.getnames()}
    except (OSError, tarfile.TarError):
        return False
    wanted = os.path.normpath(name)
    return bool({wanted, f"{wanted}.py", f"{wanted}/__init__.py", f"{wanted}/__main__.py"} & names)


def _archive(context: Context) -> str:
    return os.path.join(context.folder, Files.SOURCE)


def check_versions(context: Context) -> CheckResult:
    """Return the versions as facts: PASS, or UNKNOWN if the interpreter does not answer, or torch is too old.

    An older torch than we have tried may train well, so this refuses nothing.
    """
    try:
        facts = python.facts(context)
    except (Lacks, UnansweredError):
        return unknown("versions", "not known: the interpreter did not answer")
    shown = {key: facts[key] for key in ("python", "torch", "cuda", "nccl") if facts.get(key)}
    words = {"python": "Python", "cuda": "CUDA", "nccl": "NCCL"}
    observed = ", ".join(f"{words.get(k, k)} {v}" for k, v in shown.items())
    if torch_versions.is_before_all(str(shown.get("torch", ""))):
        oldest = torch_versions.TABLE[0].version
        hint = f"ddplaunch was never tried with a torch before {oldest}, and may know less of a hang"
        return noted("versions", "torch-untested", observed, hint, **shown)
    return passed("versions", observed, **shown)
