"""The job file for a command line without one: `ddplaunch submit -- train.py`. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ddplaunch.spec import template


def text(values: Mapping[str, Any], head: str = "") -> str:
    """Return a job file of these values, and a comment at its head."""
    lines = [f"# {line}" for line in head.splitlines()]
    return "\n".join([*lines, *_lines(values, ""), ""])


def name(command: Sequence[str]) -> str:
    """Return a name for the job of a command: its script's, or that of the module after -m."""
    program = command[1].rpartition(".")[2] if command[0] == "-m" and len(command) > 1 else command[0]
    return template.name_of(PurePosixPath(program).stem) or "job"


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{_key(key)}:", *_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{_key(key)}: {_flow(value)}")
    return lines


def _key(key: str) -> str:
    return template.scalar(key)


def _flow(value: Any) -> str:
    """Return a value of YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return value if value == "ddplaunch/v1" else template.scalar(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return repr(value)
