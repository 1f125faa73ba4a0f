"""The exit code of `run`: on every node its own command's, which is what a caller would get without us."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import OUTPUT_LOST, Exit, Files, LaunchEnd, codec
from ddplaunch.agent.system import programs
from ddplaunch.agent.system.signals import BySignal

WITH_OTHERS = 1
"""Exit code of a node whose command was ended since another node has failed. It is that of torchrun when it
loses the others, and never above the failing node's: srun ends with the highest one."""


def of_command(command: Sequence[str], folder: str, node: int, code: int) -> Optional[int]:
    """Return the exit code that the command of this node has brought about.

    `code`: the agent's for the job. None: it was not started, or did not end by itself.
    """
    if code == OUTPUT_LOST:
        return 1
    try:
        end = codec.read(LaunchEnd, os.path.join(folder, Files.NODE.format(node=node), Files.LAUNCH_END))
    except (OSError, codec.ContractError):
        return _unstarted(command) if code == Exit.MISCONFIGURED else None
    if end.killed or (end.dismissed and code in (Exit.HANG, Exit.STOPPED)):
        return None
    if end.dismissed:
        return WITH_OTHERS
    return end.code if end.code is not None else BySignal(end.signal or 0)


def _unstarted(command: Sequence[str]) -> Optional[int]:
    """Return what a shell, python or a launcher ends with that finds no part of the command."""
    from ddplaunch.agent.checks.command_line import MODULE, PROGRAM, SHELL_SCRIPT, starts

    path = os.environ.get("PATH", os.defpath)
    outer = ""
    for start in starts(command):
        if start.kind == PROGRAM and (refused := programs.refused(start.word, path)):
            return refused
        if start.kind not in (PROGRAM, MODULE) and not os.path.exists(start.word):
            if start.kind == SHELL_SCRIPT:
                return programs.ABSENT
            return 2 if os.path.basename(outer).startswith("python") else 1  # of its ranks
        outer = start.word
    return None
