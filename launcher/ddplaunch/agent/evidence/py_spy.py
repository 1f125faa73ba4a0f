"""Takes stacks with py-spy, if it is installed and permitted. The process does not need the GIL for this."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import Env, Stack
from ddplaunch.agent.evidence import stacks

_VARIABLES = "-llllllll"
"""Prints each variable with up to 1,024 characters, 128 for each `l`: room for a list of 30 tensors."""


def find(python: str) -> Optional[str]:
    """Return the path of py-spy: on PATH, as brought, or beside the trainer's or the agent's Python; None:
    nowhere.
    """
    folders = [os.path.dirname(shutil.which(python) or python), os.path.dirname(sys.argv[0])]
    program = shutil.which("py-spy") or shutil.which(os.environ.get(Env.PY_SPY, ""))
    return program or shutil.which("py-spy", path=os.pathsep.join(filter(None, folders)))


def dump(program: str, pids: Sequence[int], deadline: float) -> tuple[dict[int, list[Stack]], dict[int, str]]:
    """Return stacks by pid, and reasons for pids without a stack. `deadline` is a moment of time.monotonic().

    py-spy does not stop the processes, because that could end collectives of their peers.
    """
    results: dict[int, list[Stack]] = {}
    texts, missing = _texts(program, pids, deadline)
    for pid, (output, errors) in texts.items():
        try:
            results[pid] = stacks.from_py_spy(output, pid)
        except (ValueError, KeyError, TypeError):
            missing[pid] = f"py-spy: {_reason(errors)}"
    return results, missing


def with_variables(program: str, pids: Sequence[int], deadline: float) -> dict[int, str]:
    """Return, by pid, py-spy's JSON of the stacks, with the variables of each function."""
    return {pid: output for pid, (output, _) in _texts(program, pids, deadline, _VARIABLES)[0].items()}


def spawned_indices(program: str, pids: Sequence[int], deadline: float) -> dict[int, int]:
    """Return, by pid, which of its parent's children a process is, if torch's mp.spawn has started it."""
    numbers = {}
    for pid, (output, _) in _texts(program, pids, deadline, "--locals")[0].items():
        number = stacks.spawned_number(output)
        if number is not None:
            numbers[pid] = number
    return numbers


def _texts(
    program: str, pids: Sequence[int], deadline: float, *more: str
) -> tuple[dict[int, tuple[str, str]], dict[int, str]]:
    """Return, by pid, what py-spy has written to stdout and stderr, and reasons for pids without an
    answer.
    """
    texts: dict[int, tuple[str, str]] = {}
    missing: dict[int, str] = {}
    running = {}
    for pid in pids:
        try:
            running[pid] = _start(program, pid, "--nonblocking", *more)
        except OSError as error:  # also if the program was brought: this machine may not run it from memory
            missing[pid] = f"py-spy: {error.strerror}"
    for pid, process in running.items():
        try:
            output, errors = process.communicate(timeout=max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            missing[pid] = "py-spy did not answer in time"
            continue
        texts[pid] = output.decode(errors="replace"), errors.decode(errors="replace")
    return texts, missing


def native(program: str, pid: int, deadline: float) -> tuple[int, str]:
    """Return the thread that owns the GIL and its native function, as `stacks.native_holder` does.

    It stops the process for a moment, so you may only ask for one that is stuck. (0, "") without an answer.
    """
    try:
        process = _start(program, pid, "--native")
    except OSError:  # the ranks have used up all processes
        return 0, ""
    try:
        output, _ = process.communicate(timeout=max(0.01, deadline - time.monotonic()))
        return stacks.native_holder(output.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        process.terminate()  # a tracer that is killed would leave the process stopped
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
    except (ValueError, KeyError, TypeError):
        pass
    return 0, ""


def _start(program: str, pid: int, *how: str) -> subprocess.Popen[bytes]:
    argv = [program, "dump", "--json", *how, "--pid", str(pid)]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


def _reason(errors: str) -> str:
    if "ermission" in errors or "EPERM" in errors:
        return "not permitted (ptrace)"
    lines = errors.strip().splitlines()
    # After its error come the causes and, if the environment has RUST_BACKTRACE, py-spy's own stack.
    error = next((line for line in lines if line.startswith("Error: ")), lines[-1] if lines else "")
    return error.removeprefix("Error: ")[:200] or "no output"
