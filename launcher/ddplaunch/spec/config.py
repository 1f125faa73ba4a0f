"""The user's configuration: profiles, each with a target and defaults for the job file. Pure.

It is read without the job file's model, so that a command that only needs a target stays fast. `changes`
checks what a profile says about jobs.
"""

import re
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from typing import Any, Final

from ddplaunch.spec import document, messages
from ddplaunch.spec.document import Entry, Mapping, Node, Scalar
from ddplaunch.spec.problems import Problem, SpecError

NONE: Final = "none"
"""The name with which `--profile` and `DDPLAUNCH_PROFILE` ask for no profile."""

NOT_DEFAULTS: Final = ("apiVersion", "name", "nodes", "min_nodes", "newcomers", "command", "source", "sweep")
"""Keys that say what one job is. They may only be in that job's file."""

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,49}")
_KEYS: Final = ("default", "profiles")
_OF_PROFILE: Final = ("target", "job")


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. `target` "": it has none; `job` None: it has no defaults."""

    name: str
    file: str
    target: str = ""
    job: Mapping | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration in one file. `default` "": it names no profile as the default."""

    file: str
    default: str = ""
    profiles: Map[str, Profile] = field(default_factory=dict)


def parse(text: str, file: str, targets: list[str]) -> Config:
    """Return the configuration in `text`. `targets`: those that exist. Raises SpecError."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return Config(file)
    root, problems = document.parse(text, file)
    top = _mapping(root, (), _KEYS, file, problems)
    below = top["profiles"].node if "profiles" in top else None
    named = _mapping(below, ("profiles",), None, file, problems) if below else {}
    profiles = {}
    for name, entry in named.items():
        path = ("profiles", name)
        if not _NAME.fullmatch(name) or name == NONE:
            wanted = "a name of letters, digits, '-', '_' and '.'"
            hint = "`--profile none` means no profile" if name == NONE else ""
            problems.append(document.problem(file, entry, path, "this key", wanted, hint))
        parts = _mapping(entry.node, path, _OF_PROFILE, file, problems)
        target = _word(parts.get("target"), (*path, "target"), targets, file, problems)
        job = parts["job"].node if "job" in parts else None
        if job is not None:
            _mapping(job, (*path, "job"), None, file, problems)
        placed = from_file(job, file) if isinstance(job, Mapping) else None
        profiles[name] = Profile(name, file, target, placed)
    default = _word(top.get("default"), ("default",), list(profiles), file, problems)
    if problems:
        raise SpecError(problems)
    return Config(file, default, profiles)


def json_schema() -> dict[str, Any]:
    """Return its JSON Schema, for editors."""
    from ddplaunch.spec import schema

    job = schema.json_schema()
    part = {key: value for key, value in job.items() if key not in ("$schema", "$id", "$defs")}
    part["properties"] = {key: value for key, value in part["properties"].items() if key not in NOT_DEFAULTS}
    part |= {"title": "Defaults", "required": [], "description": "Defaults for the keys of every job file."}
    profile = {
        "type": "object",
        "description": "Settings for one cluster.",
        "properties": {
            "target": {"type": "string", "description": "The target to use without `--to`."},
            "job": part,
        },
        "additionalProperties": False,
    }
    return {
        "$schema": schema.DIALECT,
        "$id": "urn:ddplaunch:config:v1",
        "$defs": job.get("$defs", {}),
        "title": "Config",
        "description": "The user's configuration, ~/.config/ddplaunch/config.yaml.",
        "type": "object",
        "properties": {
            "default": {"type": "string", "description": "The profile to use without `--profile`."},
            "profiles": {
                "type": "object",
                "propertyNames": {"pattern": f"^{_NAME.pattern}$", "not": {"const": NONE}},
                "additionalProperties": profile,
            },
        },
        "additionalProperties": False,
    }


def from_file(node: Mapping, file: str) -> Mapping:
    """Return the tree as one from `file`, so that problems of its values name that file."""
    from dataclasses import replace

    def placed(part: Node) -> Node:
        if isinstance(part, Mapping):
            entries = {
                key: replace(entry, node=placed(entry.node), file=file) for key, entry in part.entries.items()
            }
            return replace(part, entries=entries, file=file)
        if isinstance(part, document.Sequence):
            return replace(part, items=tuple(map(placed, part.items)), file=file)
        return replace(part, file=file)

    made = placed(node)
    assert isinstance(made, Mapping)
    return made


def _mapping(
    node: Node, path: tuple[str, ...], known: tuple[str, ...] | None, file: str, problems: list[Problem]
) -> dict[str, Entry]:
    """Return the entries of a mapping with `known` keys (None: any). Whatever is wrong becomes a problem."""
    if not isinstance(node, Mapping):
        wanted = f"a mapping with some of the keys {', '.join(known)}" if known else "a mapping"
        problems.append(document.problem(file, node, path, messages.found_text(node, path), wanted))
        return {}
    for key, entry in node.entries.items():
        if known is not None and key not in known:
            hint = messages.did_you_mean(key, list(known))
            if not hint and path:
                hint = "keys of the job file go below `job`"
            wanted = f"one of {', '.join(known)}"
            problems.append(document.problem(file, entry, (*path, key), "an unknown key", wanted, hint))
    return node.entries


def _word(
    entry: Entry | None, path: tuple[str, ...], known: list[str], file: str, problems: list[Problem]
) -> str:
    """Return the text of an entry, which must be one of `known`; "" if there is none, or if it is not."""
    if entry is None:
        return ""
    node = entry.node
    if isinstance(node, Scalar) and node.text in known:
        return node.text
    hint = messages.did_you_mean(node.text, known) if isinstance(node, Scalar) else ""
    wanted = f"one of {', '.join(known)}" if known else "no such key, because there are no profiles"
    problems.append(document.problem(file, node, path, messages.found_text(node, path), wanted, hint))
    return ""
