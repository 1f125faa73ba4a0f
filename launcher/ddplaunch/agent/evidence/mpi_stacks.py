"""Finds a stack's MPI function by its source line, where the process cannot answer."""

from __future__ import annotations

import dataclasses
from typing import Optional

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.agent.hook import ddplaunch_mpi

LIBRARY = "libmpi"
"""Prefix of the file name of every MPI's library."""
_FILE = "mpi4py/MPI"
"""File of the added frame: the extension's real name is not known from outside."""


def with_function(stacks: list[Stack], ready: bool) -> list[Stack]:
    """Return the stacks of a process that has loaded MPI, with a frame for the main thread's MPI function.

    `ready`: MPI is initialized. An endless import before that is MPI_Init.
    """
    return [_completed(stack, ready) if stack.main and stack.frames else stack for stack in stacks]


def _completed(stack: Stack, ready: bool) -> Stack:
    innermost = stack.frames[0]
    if not ready and "importlib" in innermost.file:
        name: Optional[str] = "Init"
    else:
        name = ddplaunch_mpi.named_at(innermost.file, innermost.line)
    if name is None:
        return stack
    return dataclasses.replace(stack, frames=[Frame(name, _FILE, 0), *stack.frames])
