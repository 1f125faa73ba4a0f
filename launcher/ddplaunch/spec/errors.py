"""Turns pydantic's errors into problems of the file, each with line, column and hint. Pure."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ddplaunch.agent.job_file import rules
from ddplaunch.agent.job_file.rules import Path
from ddplaunch.spec import messages, schema
from ddplaunch.spec.document import Entry, Mapping, Node, Scalar, find, problem
from ddplaunch.spec.models import API_VERSION, RULE, job_model
from ddplaunch.spec.problems import UNKNOWN_KEY, Problem

STAND_INS = {"apiVersion": API_VERSION, "name": "job", "command": ("train.py",)}
"""Values for required keys that are wrong, or not there; no finding of the rules about them is reported."""


def explain(
    error: ValidationError, root: Node, values: dict[str, Any], file: str, *, with_rules: bool = True
) -> list[Problem]:
    """Return the problems of *root*, whose plain *values* the model refused with *error*; changes *values*.

    `with_rules`: also those of the rules, for a tree that is a whole job.

    The rules only run when every value is valid. So invalid values are removed, which gives their defaults,
    and no rule's finding about a removed value is reported.
    """
    errors = error.errors(include_url=False, include_input=False)
    problems: dict[Path, Problem] = {}
    replaced: list[Path] = []
    while wrong := [each for each in errors if each["type"] != RULE]:
        if not replaced:
            bad_keys = [each["loc"][:-1] for each in wrong if each["loc"][-1] == "[key]"]
            for each in wrong:
                below = any(each["loc"][: len(key)] == key for key in bad_keys)
                if not below or each["loc"][-1] == "[key]":
                    found_problem, path = _of_value(each, root, file)
                    problems.setdefault(path, found_problem)
        replaced += _take_out(values, [each["loc"] for each in wrong])
        errors = _errors(values)
    found = [rules.Finding(**each["ctx"]) for each in errors]
    return [
        *problems.values(),
        *(
            _of_rule(finding, root, file)
            for finding in found
            if with_rules and not any(_touch(path, other) for path in finding.paths for other in replaced)
        ),
    ]


def _errors(values: dict[str, Any]) -> list[ErrorDetails]:
    try:
        job_model().model_validate(values)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)
    return []


def _take_out(values: dict[Any, Any], paths: list[Path]) -> list[Path]:
    """Remove the values at *paths*, and return their paths; lists and incomplete sections go as a whole."""
    gone = []
    for path in paths:
        holder, key, depth = values, path[0], 1
        while depth < len(path) and isinstance(below := holder.get(key), dict) and path[depth] in below:
            holder, key, depth = below, path[depth], depth + 1
        gone.append((holder, key, path[:depth]))
    for holder, key, _ in gone:
        holder.pop(key, None)
    values |= {key: value for key, value in STAND_INS.items() if key not in values}
    return [*paths, *(path for *_, path in gone)]


def _of_value(error: ErrorDetails, root: Node, file: str) -> tuple[Problem, Path]:
    """Return the problem of one value, and its path."""
    path = error["loc"]
    part = schema.at(path)
    if error["type"] == "missing":
        at: Node | Entry = find(root, path[:-1])[0]
        found, wanted, hint = "nothing", messages.wanted(part), f"add the key {path[-1]}"
    elif error["type"] == "extra_forbidden":
        at = _entry(root, path)
        found, (wanted, hint) = UNKNOWN_KEY, messages.unknown_key(path)
    elif path[-1] == "[key]":
        path = path[:-1]
        at = _entry(root, path)
        found, wanted = "this key", messages.wanted(part)
        hint = "write NAME: value" if "=" in str(path[-1]) else ""
    else:
        node, path = find(root, path)
        at = node
        leaf = part.get("type") not in ("object", "array")
        if leaf and isinstance(node, Scalar) and isinstance(node.value, str) and "\0" in node.value:
            found, wanted, hint = "a NUL character", "text without it", ""
        else:
            reason = str(error.get("ctx", {}).get("error", ""))
            found, wanted = messages.found(node, path), messages.wanted(part)
            hint = messages.hint(node, part, path, reason)
    return problem(file, at, path, found, wanted, hint), path


def _of_rule(finding: rules.Finding, root: Node, file: str) -> Problem:
    node, _ = find(root, finding.paths[0])
    return problem(file, node, finding.paths[0], finding.found, finding.wanted, finding.hint, finding.code)


def _entry(root: Node, path: Path) -> Entry:
    mapping, _ = find(root, path[:-1])
    assert isinstance(mapping, Mapping)
    return mapping.entries[str(path[-1])]


def _touch(one: Path, other: Path) -> bool:
    """Whether one of the two paths contains the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
