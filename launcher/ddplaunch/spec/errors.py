"""The errors of pydantic as problems of the file: each with its line and column, in our own words. Pure."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ddplaunch.spec import messages, rules, schema
from ddplaunch.spec.document import Mapping, Node, Scalar, find
from ddplaunch.spec.models import API_VERSION, job_model
from ddplaunch.spec.problems import Path, Problem, join

_STAND_INS = {"apiVersion": API_VERSION, "name": "job", "command": ("train.py",)}
"""For required keys that are wrong; nothing is reported of what the rules say about them."""


def explain(error: ValidationError, root: Node, values: dict[str, Any], file: str) -> list[Problem]:
    """Return the problems of *root*, whose plain *values* the model refused with *error*; changes *values*.

    The rules only run once each value fits. So what does not fit is taken out, for its default to stand in,
    and no rule's finding about a value that was taken out is reported.
    """
    errors = error.errors(include_url=False, include_input=False)
    problems: dict[Path, Problem] = {}
    replaced: list[Path] = []
    while wrong := [each for each in errors if each["type"] != rules.RULE]:
        if not replaced:
            bad_keys = [each["loc"][:-1] for each in wrong if each["loc"][-1] == "[key]"]
            for each in wrong:
                below = any(each["loc"][: len(key)] == key for key in bad_keys)
                if not below or each["loc"][-1] == "[key]":
                    problem, path = _of_value(each, root, file)
                    problems.setdefault(path, problem)
        replaced += _take_out(values, [each["loc"] for each in wrong])
        errors = _errors(values)
    found = [rules.Finding(**each["ctx"]) for each in errors]
    return [
        *problems.values(),
        *(
            _of_rule(finding, root, file)
            for finding in found
            if not any(_touch(path, other) for path in finding.paths for other in replaced)
        ),
    ]


def _errors(values: dict[str, Any]) -> list[ErrorDetails]:
    try:
        job_model().model_validate(values)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)
    return []


def _take_out(values: dict[Any, Any], paths: list[Path]) -> list[Path]:
    """Remove what is at *paths*, a list as a whole and a section that lacks a key; returns what is gone."""
    gone = []
    for path in paths:
        holder, key, depth = values, path[0], 1
        while depth < len(path) and isinstance(below := holder.get(key), dict) and path[depth] in below:
            holder, key, depth = below, path[depth], depth + 1
        gone.append((holder, key, path[:depth]))
    for holder, key, _ in gone:
        holder.pop(key, None)
    values |= {key: value for key, value in _STAND_INS.items() if key not in values}
    return [*paths, *(path for *_, path in gone)]


def _of_value(error: ErrorDetails, root: Node, file: str) -> tuple[Problem, Path]:
    """One error of a value, and the path that it is about."""
    path = error["loc"]
    part = schema.at(path)
    if error["type"] == "missing":
        node = find(root, path[:-1])[0]
        place = (node.line, node.column)
        found, wanted, hint = "nothing", messages.wanted(part), f"add the key {path[-1]}"
    elif error["type"] == "extra_forbidden":
        place = _place_of_key(root, path)
        found, (wanted, hint) = "an unknown key", messages.unknown_key(path)
    elif path[-1] == "[key]":
        path = path[:-1]
        place = _place_of_key(root, path)
        found, wanted = "this key", messages.wanted(part)
        hint = "write NAME: value" if "=" in str(path[-1]) else ""
    else:
        node, path = find(root, path)
        place = (node.line, node.column)
        leaf = part.get("type") not in ("object", "array")
        if leaf and isinstance(node, Scalar) and isinstance(node.value, str) and "\0" in node.value:
            found, wanted, hint = "a NUL character", "text that a program can be given", ""
        else:
            reason = str(error.get("ctx", {}).get("error", ""))
            found, wanted = messages.found(node, path), messages.wanted(part)
            hint = messages.hint(node, part, path, reason)
    return _problem(file, place, path, found, wanted, hint), path


def _of_rule(finding: rules.Finding, root: Node, file: str) -> Problem:
    node, _ = find(root, finding.paths[0])
    place = (node.line, node.column)
    return _problem(file, place, finding.paths[0], finding.found, finding.wanted, finding.hint, finding.code)


def _place_of_key(root: Node, path: Path) -> tuple[int, int]:
    mapping, _ = find(root, path[:-1])
    assert isinstance(mapping, Mapping)
    entry = mapping.entries[str(path[-1])]
    return entry.line, entry.column


def _problem(
    file: str, place: tuple[int, int], path: Path, found: str, wanted: str, hint: str, code: str = ""
) -> Problem:
    line, column = place
    return Problem(
        file=file, line=line, column=column, path=join(path), found=found, wanted=wanted, hint=hint, code=code
    )


def _touch(one: Path, other: Path) -> bool:
    """Whether one of the two paths lies in the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
