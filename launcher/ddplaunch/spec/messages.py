"""Turns what the model refuses into problems of the file: where, found, wanted, and a hint. Pure.

What is wanted comes from the value's schema, which `schema.at` returns.
"""

import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ddplaunch.agent.job_file import rules, units
from ddplaunch.agent.job_file.rules import Path, join
from ddplaunch.spec import schema
from ddplaunch.spec.document import Entry, Mapping, Node, Scalar, Sequence, find, problem
from ddplaunch.spec.models import API_VERSION, RULE, job_model
from ddplaunch.spec.problems import MISSING_KEY, UNKNOWN_KEY, Problem

_SMELLS = re.compile(r"TOKEN|KEY|SECRET|PASS|PWD|CREDENTIAL|AUTH", re.IGNORECASE)
"""Names of variables whose values no message repeats, although they are in `env`."""

_MAX_SHOWN = 60

_ELSEWHERE = {
    "job_name": "name",
    "cpus_per_task": "cpus",
    "requeue": "retries",
    "backoff_limit": "retries",
    "parallelism": "nodes",
    "completions": "nodes",
    "after": "dependency",
    "depends_on": "dependency",
    "singleton": "dependency",
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
    "gpus_per_node": "gpus",
    "gpu_kind": "gpu_type",
    "gpu_model": "gpu_type",
    "mem": "memory",
    "node_affinity": "affinity",
    "pod_affinity": "affinity",
    "anti_affinity": "affinity",
    "pod_anti_affinity": "affinity",
    "on": "when",
    "rdzv_backend": "backend",
    "rdzv_timeout": "timeout",
}
"""Names in torchrun, Slurm and Kubernetes -> the key in the job file."""

_SCHEDULER = "write pod_template: {spec: {schedulerName: …}}; whole jobs wait in Kueue's queue: `queue`"
_ARRAY = (
    "`sweep` makes one job of each value, as in sweep: {env.SEED: [1, 2, 3]}; `submit` prints the handles "
    "of all"
)
_ALONE = (
    "a Kubernetes Job cannot wait for another: `ddplaunch submit first.yaml --wait && ddplaunch submit …`"
)
_INSTEAD = {
    (
        "slurm",
        "gres",
    ): "for GPUs use resources.gpus and resources.gpu_type; for other devices write extra: [--gres=…]",
    ("slurm", "array"): _ARRAY,
    ("kubernetes", "array"): _ARRAY,
    ("array", "array"): _ARRAY,
    ("master_addr", "master_addr"): "it is called rendezvous.address",
    ("master_port", "master_port"): "it is called rendezvous.port",
    ("rendezvous", "master_addr"): "did you mean address?",
    ("rendezvous", "master_port"): "did you mean port?",
    ("slurm", "ntasks"): "the number of ranks is nodes times nproc_per_node",
    ("kubernetes", "depends_on"): _ALONE,
    ("kubernetes", "dependency"): _ALONE,
    ("kubernetes", "context"): "ddplaunch uses the current context: `kubectl config use-context …`",
    ("slurm", "singleton"): "write dependency: singleton",
    (
        "slurm",
        "priority",
    ): "`nice` lowers the priority, `qos` may raise it; administrators can write extra: [--priority=…]",
    ("slurm", "topology"): "see switches",
    ("slurm", "affinity"): "see constraint, nodelist and exclude",
    (
        "kubernetes",
        "exclusive",
    ): "see one_per_machine; a job that asks for all GPUs has its machines to itself",
    ("kubernetes", "volcano"): _SCHEDULER,
    ("kubernetes", "scheduler"): _SCHEDULER,
    ("kubernetes", "scheduler_name"): _SCHEDULER,
    ("kubernetes", "gang"): "see queue and jobset",
    ("kubernetes", "efa"): "see resources.rdma, with rdma_resource: vpc.amazonaws.com/efa",
}
"""Section and word that people look for -> a hint, if there is no key exactly for that."""

_CAPITALS = {"ipc": "IPC", "pid": "PID", "fqdn": "FQDN"}
"""Parts of a pod's fields that Kubernetes writes in capitals throughout."""

_PLAIN = {"boolean": r"(?i)true|false", "integer": r"-?\d+", "number": r"-?\d+(\.\d+)?"}


def wanted_text(part: dict[str, Any]) -> str:
    """Return what a valid value is."""
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
    """Whether the value at *path* may be secret, so that no message repeats it."""
    if path[:1] == ("secrets",) or (path[:1] == ("notify",) and "webhook" in path):
        return True
    return path[:1] == ("env",) and len(path) > 1 and bool(_SMELLS.search(str(path[1])))


def found_text(node: Node, path: Path) -> str:
    """Return the value, shortened; only its kind if it may be secret."""
    if isinstance(node, Mapping):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Sequence):
        return "a list" if node.items else "an empty list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "nothing"
    if hidden(path):
        kind = "text" if isinstance(node.value, str) and not node.reading else "a value that is not text"
        return f"{kind} (not shown)"
    text = node.text
    text = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
    if node.reading:
        return f"{text} (which YAML reads as {node.reading})"
    return f'"{text}"' if isinstance(node.value, str) else text


def hint_text(node: Node, part: dict[str, Any], path: Path, reason: str) -> str:
    """Return the hint for an invalid value. `reason`: its parser's message, if it has a parser."""
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
        return "it has no value: add one below it, or remove the key"
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
    """Return what is wanted instead of an unknown key, and a hint: the key's section, or a similar name."""
    known = list(schema.at(path[:-1])["properties"])
    word = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(path[-1]).replace("-", "_")).lower()
    advice = _INSTEAD.get((str(path[0]), word), "")
    word = _ELSEWHERE.get(word, word)
    if not advice and word in known:
        advice = f"did you mean {word}?"
    if not advice and (places := [join(place) for place in _places(word, ())]):
        advice = f"it is called {' or '.join(places)}"
    advice = advice or did_you_mean(str(path[-1]), known)
    wanted = "a known key" if advice else "one of " + ", ".join(known) if known else "no key"
    return wanted, advice or _rest(path)


def _rest(path: Path) -> str:
    """Return how to ask a scheduler for what has no key of its own; empty in other places."""
    words = str(path[-1]).replace("-", "_").split("_")
    if path[:-1] == ("slurm",):
        return f"if it is an option of sbatch, write extra: [--{'-'.join(words)}=…]"
    if path[:-1] == ("kubernetes",):
        field = words[0] + "".join(_CAPITALS.get(word, word.capitalize()) for word in words[1:])
        return f"if it is a field of a pod, write pod_template: {{spec: {{{field}: …}}}}"
    return ""


def _places(key: str, path: Path) -> list[Path]:
    """Return the paths of *key* in all sections that always exist."""
    keys = schema.at(path)["properties"]
    places = [(*path, key)] if key in keys else []
    for name, part in keys.items():
        if "$ref" in part:
            places += _places(key, (*path, name))
    return places


def did_you_mean(word: str, known: list[str]) -> str:
    """Return a hint with the known word that is most similar to *word*; empty if none is similar."""
    import difflib  # only a file with a problem needs it

    lower = {item.lower(): item for item in known}
    near = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"did you mean {lower[near[0]]}?" if near else ""


STAND_INS = {"apiVersion": API_VERSION, "name": "job", "command": ("train.py",)}
"""Values for required keys that are wrong or missing. What the rules find about them is not reported."""


def explain(
    error: ValidationError, root: Node, values: dict[str, Any], file: str, *, with_rules: bool = True
) -> list[Problem]:
    """Return the problems of *root*, whose plain *values* the model refused with *error*. Changes *values*.

    `with_rules`: also those of the rules, for a tree that is a whole job.

    The rules only run if every value is valid. So invalid values are removed, which leaves their defaults,
    and what the rules find about a removed value is not reported.
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
    """Remove the values at *paths* and return their paths. Lists and incomplete sections go as a whole."""
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
        found, wanted = MISSING_KEY, wanted_text(part)
        hint = f"begin the file with apiVersion: {wanted}" if path[-1] == "apiVersion" else ""
    elif error["type"] == "extra_forbidden":
        at = _entry(root, path)
        found, (wanted, hint) = UNKNOWN_KEY, unknown_key(path)
    elif path[-1] == "[key]":
        path = path[:-1]
        at = _entry(root, path)
        found, wanted = "this key", wanted_text(part)
        hint = "write NAME: value" if "=" in str(path[-1]) else ""
    else:
        node, path = find(root, path)
        at = node
        leaf = part.get("type") not in ("object", "array")
        if leaf and isinstance(node, Scalar) and isinstance(node.value, str) and "\0" in node.value:
            found, wanted, hint = "a NUL character", "text without it", ""
        else:
            reason = str(error.get("ctx", {}).get("error", ""))
            found, wanted = found_text(node, path), wanted_text(part)
            hint = hint_text(node, part, path, reason)
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
