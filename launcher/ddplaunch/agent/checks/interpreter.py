"""The trainer's Python, its torch, and the script: there or not, and which."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import Any

from ddplaunch.agent.checks import python
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.checks.python import Lacks
from ddplaunch.agent.contract import CheckResult, Files

_PYTHON_HINT = "name the Python that has torch: `python:` in the job file"
_SOURCE_HINT = "list it under `source:` so that it travels with the job, or say where it lies: `workdir:`"


def check(context: Context) -> CheckResult:
    """FAIL as image-lacks: the interpreter, torch, torchrun or the script."""
    try:
        facts = python.facts(context)
        if facts is None:
            return unknown("interpreter", f"{context.plan.python} did not answer in {python.SECONDS:.0f} s")
        _require(context, facts)
        _launcher(context)
        found = _program(context, facts)
    except Lacks as lacks:
        where: dict[str, Any] = {"looked_in": lacks.where} if lacks.where else {}
        return failed("interpreter", "image-lacks", lacks.observed, lacks.wanted, lacks.hint, **where)
    return passed("interpreter", f"{facts['executable']}{found}")


def versions(context: Context) -> CheckResult:
    """Facts alone: the hub compares the nodes."""
    try:
        facts = python.facts(context)
    except Lacks:
        facts = None
    if facts is None:
        return unknown("versions", "not known: the interpreter did not answer")
    shown = {key: facts[key] for key in ("python", "torch", "cuda", "nccl") if facts.get(key)}
    words = {"python": "Python", "cuda": "CUDA", "nccl": "NCCL"}
    return passed("versions", ", ".join(f"{words.get(k, k)} {v}" for k, v in shown.items()), **shown)


def _require(context: Context, facts: dict[str, Any]) -> None:
    executable = facts["executable"]
    if tuple(int(part) for part in facts["python"].split(".")[:2]) < python.OLDEST:
        raise Lacks(f"{executable} is Python {facts['python']}", python.wanted_python(), _PYTHON_HINT)
    if "torch.distributed.run" not in context.plan.launch:
        return
    if not facts.get("torch_folder"):
        raise Lacks(f"{executable} has no torch", "torch", f"{_PYTHON_HINT}, or install torch there")
    if not facts.get("torchrun"):
        raise Lacks(
            f"torch in {facts['torch_folder']} has no distributed/run.py",
            "torchrun",
            "install a torch >= 1.9 that was built with torch.distributed",
        )


def _launcher(context: Context) -> None:
    """MPI's launcher, which node 0 runs for all. Raises Lacks when it is not there."""
    if not context.plan.mpi or context.node != 0:
        return
    wanted, path = context.plan.launch[0], python.search_path(context)
    if shutil.which(wanted, path=path) is None:
        hint = "load the module of your MPI before you submit, or name its folder in `env: {PATH: …}`"
        raise Lacks(f"no {wanted} on PATH", wanted, hint, path)


def _program(context: Context, facts: dict[str, Any]) -> str:
    """', train.py' when what the launch command starts is there. Raises Lacks when it is not."""
    command, launch = context.plan.command, context.plan.launch
    if not launch or not command:
        return ""
    if command[0] == "-m":
        wanted = f"module {command[1]}"
        there = facts.get("module") or _travels(context, command[1].replace(".", "/"))
    elif _starts_a_program(context) and os.sep not in command[0]:
        wanted = f"program {command[0]}"
        path = python.search_path(context)
        if shutil.which(command[0], path=path) is None:
            raise Lacks(f"no {wanted} on PATH", wanted, _SOURCE_HINT, path)
        there = True
    else:
        wanted = command[0]
        there = os.path.isfile(os.path.join(context.workdir, wanted)) or _travels(context, wanted)
    if not there:
        place = "the job's source" if os.path.exists(_archive(context)) else context.workdir
        raise Lacks(f"no {wanted} in {place}", wanted, _SOURCE_HINT)
    return f", {wanted}"


def _starts_a_program(context: Context) -> bool:
    """Rather than a script for Python."""
    launch = context.plan.launch
    return "--no-python" in launch or (context.plan.mpi and "{python}" not in launch)


def _travels(context: Context, name: str) -> bool:
    """Whether the job brings `name` along: unless a workdir is set, the ranks start where it is unpacked."""
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
