"""Names what the modules here work on: the job file as plain data, and a place in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

Job = Mapping[str, Any]
"""The keys of a job file with plain data, times in seconds, amounts in bytes. What has a default is there."""

Path = tuple[Union[str, int], ...]
"""Where in the job file something stands: `("volumes", 0, "name")`."""

Problem = tuple[str, str, str, str]
"""Where, what was found, what is wanted, and a hint."""

SIGNALS = ("ALRM", "HUP", "INT", "QUIT", "TERM", "URG", "USR1", "USR2", "XCPU")
"""Those that a job file may name for its ranks: programs can handle them, and none tells of a crash."""

POD_GATE_TIMEOUT = 600.0
"""Seconds for the gate on Kubernetes by default: nodes pull their images at different speeds."""

_SECRET_WORDS = ("env", "file", "secret", "name", "key")
"""The keys of a secret, which may be repeated."""


def join(path: Path) -> str:
    """Return `("volumes", 0, "name")` as `volumes[0].name`.

    It omits what follows a `=` in a key, and below `secrets` what is neither a variable's name nor a known
    key: a value in a wrong place may be a secret.
    """
    text = ""
    for depth, step in enumerate(path):
        if path[0] == "secrets" and depth and not _known_in_secrets(step, depth):
            break
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step.partition("=")[0]
            text += f".{name}" if text else name
    return text


def _known_in_secrets(step: Union[str, int], depth: int) -> bool:
    name = str(step).partition("=")[0]
    return name in _SECRET_WORDS if depth > 1 else name.isidentifier()
