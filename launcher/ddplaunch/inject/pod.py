"""Adds the agent to a pod, and takes it out: an init container, a volume, the key, and the command's prefix.

The init container copies the agent from its image into an emptyDir. The container that trains runs it from
there, with its own image's Python. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddplaunch.agent.plan import Env, Files
from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings, document
from ddplaunch.inject.document import Edit, Value, walk
from ddplaunch.plan.kubernetes import FOLDER

OURS = "ddplaunch"
"""The name of both the init container and the volume."""
_IMAGES_FOLDER = "/opt/agent/."
_SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,48}[a-z0-9])?")
_POD_LISTS = ("initContainers", "volumes")
_CONTAINER_LISTS = ("volumeMounts", "env")


@dataclass(frozen=True)
class Pods:
    """The pods of one template. `spec`: a PodSpec. `options`: those of `run --join`. `env`: besides the
    key.
    """

    spec: Value
    options: Sequence[str]
    container: str | None = None
    env: Sequence[dict[str, Any]] = field(default_factory=list)


def additions(text: str, pods: Pods, job: str, settings: Settings) -> list[Edit]:
    """Return the edits that add the agent to these pods of the object `job`. Raises UsageError."""
    container = training_container(pods.spec, pods.container or settings.container)
    hint = "ddplaunch does not know the image's own entry point: write it as `command`"
    command = container.need("command", wanted="the command that trains, as a list of words", hint=hint)
    named = [f"--name={job}"] if _NAME.fullmatch(job) else []
    agent = [settings.python, "-I", "-S", f"{FOLDER}/{Files.AGENT}"]
    words = [*agent, "run", "--join", *named, *pods.options, "--"]
    secret = {"secretKeyRef": {"name": settings.key_secret, "key": "key"}}
    env = [{"name": Env.KEY, "valueFrom": secret}, *pods.env]
    mount = {"name": OURS, "mountPath": FOLDER, "readOnly": True}
    return [
        *_extended(text, pods.spec, "containers", "initContainers", [_copies(settings)]),
        *_extended(text, pods.spec, "containers", "volumes", [{"name": OURS, "emptyDir": {}}]),
        *_extended(text, container, "command", "env", env),
        *_extended(text, container, "command", "volumeMounts", [mount]),
        document.add_words(text, command, words),
    ]


def _copies(settings: Settings) -> dict[str, Any]:
    return {
        "name": OURS,
        "image": settings.agent_image,
        "command": ["cp", "-r", _IMAGES_FOLDER, FOLDER],
        "resources": _SMALL,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": OURS, "mountPath": FOLDER}],
    }


def _extended(text: str, mapping: Value, before: str, key: str, values: list[Any]) -> list[Edit]:
    there = mapping.get(key)
    if there is None:
        return [document.add_key(mapping, before, key, values)]
    return [document.add_item(text, there, value) for value in values]


def training_container(spec: Value, name: str | None) -> Value:
    """Return the container that trains: the one with this name, or the only one. Raises UsageError."""
    containers = spec.need("containers", wanted="the pod's containers")
    items = containers.items()
    names = [item.name() for item in items]
    if name is None and len(items) > 1:
        raise containers.refused(
            ", ".join(names), "the name of the container that trains", "give --container NAME"
        )
    chosen = [item for item in items if name in (None, item.name())]
    if not chosen:
        raise containers.refused(", ".join(names), f"a container {name}")
    return chosen[0]


def first_of_ours(manifest: Value) -> Value | None:
    """Return a value that `ddplaunch inject` adds, or that would be in its way; None if there is none."""
    for value in walk(manifest):
        step = value.path.rpartition(".")[2].partition("[")[0]
        if value.path.endswith("]") and step in (*_POD_LISTS, *_CONTAINER_LISTS) and _is_ours(value):
            return value
        if step == "command" and not value.path.endswith("]") and _prefix(value):
            return value
    return None


def removals(manifest: Value) -> list[Edit]:
    """Return the edits that take the additions out of all pods in a manifest. Raises UsageError."""
    found: list[Edit] = []
    for value in walk(manifest):
        if not value.path.endswith(".spec") or value.get("containers") is None:
            continue
        for container in value.need("containers", wanted="containers").items():
            command = container.get("command")
            words = _prefix(command) if command else 0
            if command and words:
                found += [edit for key in _POD_LISTS for edit in _reduced(value, key)]
                found += [edit for key in _CONTAINER_LISTS for edit in _reduced(container, key)]
                found.append(document.remove_words(command, 0, words))
    return found


def _reduced(mapping: Value, key: str) -> list[Edit]:
    there = mapping.get(key)
    if there is None:
        return []
    ours = [_is_ours(item) for item in there.items()]
    if all(ours):
        return [document.remove_key(mapping, key)]
    return [document.remove_item(there, place) for place, own in enumerate(ours) if own]


def _is_ours(item: Value) -> bool:
    name = item.name()
    return name == OURS or name in (Env.KEY, Env.ATTEMPT)


def _prefix(command: Value) -> int:
    """Return how many words of a command are ours, which are those up to `--`; 0 if it does not begin with
    ours.
    """
    try:
        words = [item.text() for item in command.items()]
    except UsageError:
        return 0
    own = words[1:4] == ["-I", "-S", f"{FOLDER}/{Files.AGENT}"] and words[4:5] == ["run"]
    return words.index("--") + 1 if own and "--join" in words and "--" in words else 0
