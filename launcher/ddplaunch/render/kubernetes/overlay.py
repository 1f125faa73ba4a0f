"""Merges a user's pod template over ours as the Kubernetes API server would, and refuses some changes. Pure.

A template must not change what the gate needs: the gate would wait, or would prove nothing.

This is a strategic merge patch:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ddplaunch.agent.job_file.kubernetes import SHORTEST_GRACE, devices
from ddplaunch.agent.plan import Env
from ddplaunch.plan.kubernetes import FOLDER, REQUIRED
from ddplaunch.render.kubernetes.pod import GATE, TRAINER
from ddplaunch.spec.problems import Problem, SpecError

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
"""The lists of a pod template whose items are merged, and the key that tells the items apart."""

_SETS = ("finalizers",)
"""Lists of plain values to which values are added. Every other list is replaced as a whole."""

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_VALUES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class OverlayError(ValueError):
    """The error for a patch that cannot be applied: at `path` there is `found`, where `wanted` is wanted."""

    def __init__(self, path: str, found: str, wanted: str, hint: str = "") -> None:
        super().__init__(f"{path}: found {found}, wanted {wanted}")
        self.path, self.found, self.wanted, self.hint = path, found, wanted, hint


def merge(original: dict[str, Any], patch: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return a new mapping; neither of the two is changed. Raises OverlayError."""
    directive = patch.get(_PATCH, "merge")
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if key != _PATCH and value is not None}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise OverlayError(_at(path, _PATCH), f"{directive!r}", "merge, replace or delete")
    merged = _retained(original, patch, path)
    for key, value in patch.items():
        if key in (_PATCH, _RETAIN) or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_VALUES):
            name = key.removeprefix(_DELETE_VALUES)
            merged[name] = [each for each in merged.get(name, []) if each not in _list(value, _at(path, key))]
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, key, path)
    return merged


def _retained(original: dict[str, Any], patch: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the keys that $retainKeys keeps. With it, one kind of volume can replace another."""
    if _RETAIN not in patch:
        return dict(original)
    at = _at(path, _RETAIN)
    keep = _list(patch[_RETAIN], at)
    if strange := [key for key in patch if not key.startswith("$") and key not in keep]:
        raise OverlayError(at, "a list without " + ", ".join(strange), "all keys that stand beside it")
    return {key: value for key, value in original.items() if key in keep}


def _merged(before: Any, value: Any, key: str, path: str) -> Any:
    at = _at(path, key)
    if isinstance(before, dict):
        if not isinstance(value, dict):
            raise OverlayError(at, _kind(value), "a mapping")
        return merge(before, value, at)
    if isinstance(before, list):
        patch = _list(value, at)
        if key in KEYS:
            return _items(before, patch, KEYS[key], at)
        if key in _SETS:
            return _ordered([*before, *(each for each in patch if each not in before)], patch, before, None)
    if key in KEYS and isinstance(value, list):
        return _items([], value, KEYS[key], at)
    return _plain(value)


def _items(before: list[Any], patch: list[Any], key: str, path: str) -> list[Any]:
    """Return the list with items of the same name merged. New items come first, where `kubectl patch` puts
    them.
    """
    for index, item in enumerate(patch):
        if not isinstance(item, dict):
            raise OverlayError(f"{path}[{index}]", _kind(item), f"a mapping with {key}")
        if item.get(_PATCH) != "replace":
            _check_key(item, key, f"{path}[{index}]")
        if item.get(_PATCH, "delete") not in ("delete", "replace"):
            raise OverlayError(f"{path}[{index}].{_PATCH}", f"{item[_PATCH]!r}", "replace or delete")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_plain(item) for item in patch if not _special(item)]
    deleted = [item[key] for item in patch if item.get(_PATCH) == "delete"]
    patch = [item for item in patch if item.get(_PATCH) != "delete"]
    merged = {item.get(key): item for item in before if item.get(key) not in deleted}
    for item in patch:
        merged[item[key]] = merge(merged.get(item[key], {}), item, f"{path}[{item[key]}]")
    return _ordered(list(merged.values()), patch, before, key)


def _check_key(item: dict[str, Any], key: str, at: str) -> None:
    """Refuse an item without its key, because Kubernetes could not tell which item is meant."""
    found = item.get(key)
    kind, wanted = (int, "a number") if key == "containerPort" else (str, "text")
    if type(found) is kind and found != "":
        return
    hint = f"write `{key}:` with the value of the item to change, or with a new value to add an item"
    if found is None or found == "":
        raise OverlayError(at, f"no {key}", f"{key}, by which the item is found", hint)
    raise OverlayError(f"{at}.{key}", _kind(found), wanted, hint)


def _ordered(merged: list[Any], patch: list[Any], before: list[Any], key: str | None) -> list[Any]:
    """Return the items of both lists, each list in its own order. The patch's come first if both orders allow
    it.
    """

    def places(items: Iterable[Any]) -> dict[Any, int]:
        return {item[key] if key else item: place for place, item in enumerate(items)}

    found = {(item[key] if key else item): item for item in merged}
    was, wanted = places(before), places(patch)
    theirs = sorted((name for name in found if name in wanted), key=wanted.__getitem__)
    ours = [name for name in was if name in found and name not in wanted]
    order: list[Any] = []
    for name in theirs:
        while ours and name in was and was[ours[0]] < was[name]:
            order.append(ours.pop(0))
        order.append(name)
    return [found[name] for name in [*order, *ours]]


def _plain(value: Any) -> Any:
    """Return what is new, without the directives that only a merge reads."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not key.startswith("$") and each is not None}
        return {key: _plain(each) for key, each in kept.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value if not _special(each)]
    return value


def _special(item: Any) -> bool:
    """Whether an item of a list is itself only a directive for the merge."""
    return isinstance(item, dict) and item.get(_PATCH) in ("delete", "replace")


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise OverlayError(path, _kind(value), "a list")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: f"{value}".lower(), type(None): "nothing"}
    return kinds.get(type(value), f"{value}")


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


_KEY = "kubernetes.pod_template"
_Broken = Iterator[tuple[str, str, str]]
"""The path, what is wanted there, and why."""

VOLUMES = ("ddplaunch", "files")
"""The volumes that contain the agent."""

POD = {
    "subdomain": "the nodes' names are below it",
    "restartPolicy": "a pod that restarts would meet an old attempt",
    "hostNetwork": "set kubernetes.host_network, which also keeps the nodes apart",
    "hostname": "the nodes' names are made of the job's name and their index",
    "hostnameOverride": "the nodes' names are made of the job's name and their index",
    "setHostnameAsFQDN": "a pod whose full name is longer than 64 characters would never start",
}
CONTAINER = {
    "image": "set image: the gate checks the image that trains",
    "command": "the agent starts the job's command; set command, python or launch",
    "args": "the agent starts the job's command; set command",
    "restartPolicy": "the hub must go on, and the gate must end",
    "terminationMessagePath": "the verdict is read from there",
}


def overlaid(template: dict[str, Any], overlay: dict[str, Any], job: str) -> dict[str, Any]:
    """Return `template` with `overlay` merged over it. Raises SpecError with every key that breaks the
    gate.
    """
    if not overlay:
        return template
    try:
        merged = merge(template, overlay)
    except OverlayError as error:
        raise SpecError([_problem(job, error.path, error.found, error.wanted, error.hint)]) from error
    problems = [
        _problem(job, path, "a change that breaks the gate", wanted, why)
        for path, wanted, why in _broken(template, merged)
    ]
    if problems:
        raise SpecError(problems)
    return merged


def _problem(job: str, path: str, found: str, wanted: str, hint: str) -> Problem:
    return Problem(file=job, path=f"{_KEY}.{path}", found=found, wanted=wanted, hint=hint)


def _broken(before: dict[str, Any], after: dict[str, Any]) -> _Broken:
    labels, left = before["metadata"]["labels"], after.get("metadata", {}).get("labels") or {}
    for key, value in labels.items():
        if left.get(key) != value and key != "sidecar.istio.io/inject":
            yield f"metadata.labels.{key}", f'"{value}"', "ddplaunch finds the job by its labels"
    was, spec = before["spec"], after.get("spec") or {}
    yield from _same("spec", was, spec, POD)
    yield from _pod(was, spec)
    for section in ("initContainers", "containers"):
        there = _by(spec.get(section), "name")
        for container in was[section]:
            name = container["name"]
            at = f"spec.{section}[{name}]"
            if name in there:
                yield from _container(at, container, there[name])
            else:
                yield at, f"the container {name}", "each of them has its part"
    there = {**_by(spec.get("initContainers"), "name"), **_by(spec.get("containers"), "name")}
    if GATE in there and TRAINER in there:
        yield from devices(*(there[name].get("resources") or {} for name in (GATE, TRAINER)))


def _pod(was: dict[str, Any], spec: dict[str, Any]) -> _Broken:
    policy = was.get("dnsPolicy", "ClusterFirst")
    if spec.get("dnsPolicy", "ClusterFirst") not in (policy, "None"):
        yield "spec.dnsPolicy", policy, "the nodes' names are the cluster's: no other server knows them"
    if spec.get("terminationGracePeriodSeconds", 0) < SHORTEST_GRACE:
        wanted = f"{SHORTEST_GRACE} or more"
        yield "spec.terminationGracePeriodSeconds", wanted, "evidence is taken before anything is killed"
    names = [each.get("name") for each in spec.get("initContainers") or []]
    if GATE in names and names[-1] != GATE:
        why = (
            "the others wait for everything that runs after the gate: put yours before it, and hub before "
            "both"
        )
        yield "spec.initContainers", "gate as the last", why
    if was.get("hostNetwork") and not _apart(was["affinity"], spec.get("affinity") or {}):
        yield "spec.affinity.podAntiAffinity", "the rendered term among yours", POD["hostNetwork"]
    volumes = _by(spec.get("volumes"), "name")
    for volume in was["volumes"]:
        if volume["name"] in VOLUMES and volumes.get(volume["name"]) != volume:
            yield f"spec.volumes[{volume['name']}]", "the volume as it is", "the agent is in it"


def _container(at: str, was: dict[str, Any], now: dict[str, Any]) -> _Broken:
    yield from _same(at, was, now, CONTAINER)
    env = _by(now.get("env"), "name")
    for variable in was.get("env", ()):
        name = variable["name"]
        if name.startswith(Env.PREFIX) and env.get(name) != variable:
            yield f"{at}.env[{name}]", "the variable as it is", "it tells the node which node it is"
    own = {each["mountPath"]: each for each in was["volumeMounts"]}
    mounts = _by(now.get("volumeMounts"), "mountPath")
    for path in {**own, **mounts}:
        if _is_own(path) and mounts.get(path) != own.get(path):
            yield f"{at}.volumeMounts[{path}]", "the mount as it is", "the agent's files are there"


def _apart(was: dict[str, Any], now: dict[str, Any]) -> bool:
    ours, *_ = was["podAntiAffinity"][REQUIRED]
    return ours in ((now.get("podAntiAffinity") or {}).get(REQUIRED) or [])


def _same(at: str, was: dict[str, Any], now: dict[str, Any], reasons: dict[str, str]) -> _Broken:
    for key, why in reasons.items():
        if (now.get(key) or None) != (was.get(key) or None):
            yield f"{at}.{key}", _shown(was.get(key)), why


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return " ".join(value) if isinstance(value, list) else str(value)


def _is_own(path: Any) -> bool:
    return path == FOLDER or str(path).startswith(f"{FOLDER}/")


def _by(items: Any, key: str) -> dict[Any, dict[str, Any]]:
    return {each.get(key): each for each in items or [] if isinstance(each, dict)}
