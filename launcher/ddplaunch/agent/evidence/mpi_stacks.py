"""Finds the MPI function that a stack is in, by its source line, where the process itself cannot say."""

from __future__ import annotations

import dataclasses
from typing import Optional

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.agent.hook import ddplaunch_mpi

LIBRARY = "libmpi"
"""What the file of every MPI's library begins with."""
_FILE = "mpi4py/MPI"
"""In place of the extension's own name, which is not known from outside."""


def with_function(stacks: list[Stack], ready: bool) -> list[Stack]:
    """`stacks` of a process that has loaded MPI, the main one beginning with MPI's function if it is in one.

    `ready`: MPI is initialized. An import that goes on forever before that is MPI_Init.
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
