"""Keeps a user's pod template from changing what the gate needs, or it would wait, or prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddplaunch.agent.contract import Env
from ddplaunch.agent.job_file.kubernetes import SHORTEST_GRACE, devices
from ddplaunch.plan.kubernetes import FOLDER, REQUIRED
from ddplaunch.render.kubernetes.overlay import OverlayError, merge
from ddplaunch.render.kubernetes.pod import GATE, TRAINER
from ddplaunch.spec.problems import Problem, SpecError

_KEY = "kubernetes.pod_template"
_Broken = Iterator[tuple[str, str, str]]
"""Path, what is wanted there, and why."""

VOLUMES = ("ddplaunch", "files")
"""The volumes in which the agent lies."""

POD = {
    "subdomain": "the nodes' names are below it",
    "restartPolicy": "a pod that starts again would meet an old attempt",
    "hostNetwork": "set kubernetes.host_network, which also keeps the nodes apart",
    "hostname": "the nodes' names are made of the job's name and their index",
    "hostnameOverride": "the nodes' names are made of the job's name and their index",
    "setHostnameAsFQDN": "a pod whose full name is longer than 64 characters would never start",
}
CONTAINER = {
    "image": "set image: the gate proves the image that trains",
    "command": "the agent starts the job's command; set command, python or launch",
    "args": "the agent starts the job's command; set command",
    "restartPolicy": "the hub must go on, and the gate must end",
    "terminationMessagePath": "the verdict is read from there",
}


def overlaid(template: dict[str, Any], overlay: dict[str, Any], job: str) -> dict[str, Any]:
    """`template` with `overlay` merged over it. Raises SpecError with every key that breaks the gate."""
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
            yield f"metadata.labels.{key}", f'"{value}"', "by its labels the job is found"
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
        why = "what runs after the gate lets the others wait: name yours before it, and hub before both"
        yield "spec.initContainers", "gate as the last", why
    if was.get("hostNetwork") and not _apart(was["affinity"], spec.get("affinity") or {}):
        yield "spec.affinity.podAntiAffinity", "the rendered term among yours", POD["hostNetwork"]
    volumes = _by(spec.get("volumes"), "name")
    for volume in was["volumes"]:
        if volume["name"] in VOLUMES and volumes.get(volume["name"]) != volume:
            yield f"spec.volumes[{volume['name']}]", "the volume as it is", "the agent lies in it"


def _container(at: str, was: dict[str, Any], now: dict[str, Any]) -> _Broken:
    yield from _same(at, was, now, CONTAINER)
    env = _by(now.get("env"), "name")
    for variable in was.get("env", ()):
        name = variable["name"]
        if name.startswith(Env.PREFIX) and env.get(name) != variable:
            yield f"{at}.env[{name}]", "the variable as it is", "it tells the node who it is"
    own = {each["mountPath"]: each for each in was["volumeMounts"]}
    mounts = _by(now.get("volumeMounts"), "mountPath")
    for path in {**own, **mounts}:
        if _is_own(path) and mounts.get(path) != own.get(path):
            yield f"{at}.volumeMounts[{path}]", "the mount as it is", "the agent's files lie there"


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
