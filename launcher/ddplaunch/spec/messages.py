"""The words for a value that the model refuses: what was found, what is wanted, and a hint. Pure.

What is wanted comes from the value's schema, as `schema.at` gives it.
"""

import re
from typing import Any

from ddplaunch.spec import schema, units
from ddplaunch.spec.document import Mapping, Node, Scalar, Sequence
from ddplaunch.spec.problems import Path, join

_SMELLS = re.compile(r"TOKEN|KEY|SECRET|PASS|PWD|CREDENTIAL|AUTH", re.IGNORECASE)
"""Names of variables whose values are not repeated, although they stand in `env` in plain sight."""

_MAX_SHOWN = 60

_ELSEWHERE = {
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "replicas": "nodes",
    "nproc": "nproc_per_node",
    "ntasks_per_node": "nproc_per_node",
    "script": "command",
    "args": "command",
    "entrypoint": "command",
    "environment": "env",
    "working_dir": "workdir",
    "cpu": "cpus",
    "gpu": "gpus",
    "mem": "memory",
    "master_addr": "address",
    "master_port": "port",
    "rdzv_backend": "backend",
    "rdzv_timeout": "timeout",
}
"""Words of torchrun, Slurm and Kubernetes for keys that have another name here."""

_PLAIN = {"boolean": r"(?i)true|false", "integer": r"-?\d+", "number": r"-?\d+(\.\d+)?"}


def wanted(part: dict[str, Any]) -> str:
    """Return what stands here when it is right."""
    if words := part.get("x-wanted"):
        return str(words)
    if "properties" in part:
        keys = ", ".join(part["properties"])
        return f"a mapping with some of the keys {keys}" if keys else "an empty mapping"
    if words := _words(part):
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    kind = part.get("type")
    if kind == "array":
        return "a list" + (" that is not empty" if part.get("minItems") else "")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(part)
    return {"object": "a mapping", "boolean": "true or false", "string": "text"}.get(
        str(kind), "another value"
    )


def _words(part: dict[str, Any]) -> list[str]:
    return [part["const"]] if "const" in part else part.get("enum", [])


def _bounds(part: dict[str, Any]) -> str:
    low, high, above = (part.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if above is not None:
        return f" above {above}"
    return "" if low is None else f" of at least {low}"


def hidden(path: Path) -> bool:
    """Whether the value at *path* is, or may be, secret: it is never repeated."""
    if path[:1] == ("secrets",):
        return True
    return path[:1] == ("env",) and len(path) > 1 and bool(_SMELLS.search(str(path[1])))


def found(node: Node, path: Path) -> str:
    """Return what stands here, shortened; only its kind where it may be secret."""
    if isinstance(node, Mapping):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Sequence):
        return "a list" if node.items else "an empty list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "nothing"
    if hidden(path):
        kind = "text" if isinstance(node.value, str) and not node.reading else "a value that is no text"
        return f"{kind} (not shown)"
    text = node.text
    text = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
    if node.reading:
        return f"{text} (which YAML reads as {node.reading})"
    return f'"{text}"' if isinstance(node.value, str) else text


def hint(node: Node, part: dict[str, Any], path: Path, reason: str) -> str:
    """Return the hint for a value that does not fit; `reason` is what its parser says, if it has one."""
    if isinstance(node, Scalar):
        near = did_you_mean(node.text, part.get("x-words", []))
        if advice := near or (not node.reading and reason) or _scalar_hint(node, part, path):
            return advice
    if "x-hint" in part:
        return str(part["x-hint"])
    if isinstance(node, Sequence) and part.get("type") == "object" and "properties" not in part:
        return "write NAME: value, without dashes"
    return ""


def _scalar_hint(node: Scalar, part: dict[str, Any], path: Path) -> str:
    kind = part.get("type")
    if "x-unit" in part and node.value is not None:
        return _unit_hint(node, part) if node.reading else ""
    if kind in ("object", "array") or (isinstance(kind, list) and "array" in kind):
        return _container_hint(node, part, path)
    if node.value is None:
        empty = kind == "string" and "x-unit" not in part and not _words(part)
        return 'write "" for an empty text' if empty else "write a value, or remove the line"
    if words := _words(part):
        return did_you_mean(node.text, words) if not node.reading else _reading_hint(node)
    if kind == "string":
        return _text_hint(node, part, path)
    if node.reading:
        return _reading_hint(node)
    plain = _PLAIN.get(str(kind))
    return (
        "remove the quotes"
        if isinstance(node.value, str) and plain and re.fullmatch(plain, node.text)
        else ""
    )


def _reading_hint(node: Scalar) -> str:
    return "" if isinstance(node.value, str) else f"write {node.value}"


def _unit_hint(node: Scalar, part: dict[str, Any]) -> str:
    try:
        units.PARSERS[part["x-unit"]](node.text)
    except units.UnitError as error:
        return str(error)
    return f'quote it: "{node.text}"'


def _container_hint(node: Scalar, part: dict[str, Any], path: Path) -> str:
    if node.value is None:
        return "nothing stands below it: add something, or remove the key"
    if isinstance(node.value, bool) and "enabled" in part.get("properties", {}):
        return f"write {path[-1]}: {{enabled: {str(node.value).lower()}}}"
    if part["type"] != "object" and "x-hint" not in part and not hidden(path):
        return f"write it as a list: [{node.text}]"
    return ""


def _text_hint(node: Scalar, part: dict[str, Any], path: Path) -> str:
    if not isinstance(node.value, str) or node.reading:
        return "quote it" if hidden(path) else f'quote it: "{node.text}"'
    slug = re.sub(r"[^a-z0-9]+", "-", node.text.lower()).strip("-")[:50].strip("-")
    fits = part.get("x-slug") and re.fullmatch(part["pattern"], slug)
    return f"for example {slug}" if fits else ""


def unknown_key(path: Path) -> tuple[str, str]:
    """Return what is wanted in place of an unknown key, and a hint: its place, or the nearest name here."""
    known = list(schema.at(path[:-1])["properties"])
    word = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(path[-1]).replace("-", "_")).lower()
    word = _ELSEWHERE.get(word, word)
    advice = f"did you mean {word}?" if word in known else ""
    if not advice and (places := [join(place) for place in _places(word, ())]):
        advice = f"it is called {' or '.join(places)}"
    advice = advice or did_you_mean(str(path[-1]), known)
    return "a known key" if advice else "one of " + ", ".join(known) if known else "no key", advice


def _places(key: str, path: Path) -> list[Path]:
    """Return where else in the model *key* stands, in the sections that always exist."""
    keys = schema.at(path)["properties"]
    places = [(*path, key)] if key in keys else []
    for name, part in keys.items():
        if "$ref" in part:
            places += _places(key, (*path, name))
    return places


def did_you_mean(word: str, known: list[str]) -> str:
    """The known word nearest to *word*, as a hint; empty when none is near."""
    import difflib  # only a file with a problem needs it

    lower = {item.lower(): item for item in known}
    near = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"did you mean {lower[near[0]]}?" if near else ""
