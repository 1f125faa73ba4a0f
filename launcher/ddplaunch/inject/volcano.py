"""A Job of Volcano: rank and master by its plugin `pytorch`, or by `svc` and `env`. Pure."""

from __future__ import annotations

from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods
from ddplaunch.inject.settings import Settings

_MASTER, _WORKER = "master", "worker"
_PLUGINS = "the plugin pytorch, or svc and env, by which the pods find one another"


def pods(document: Value, settings: Settings) -> list[Pods]:  # noqa: ARG001 - as the other kinds
    """Return the pods of all tasks. Raises UsageError."""
    spec = document.need("spec", wanted="a Job of Volcano")
    plugins = spec.need("plugins", wanted=_PLUGINS)
    tasks = spec.need("tasks", wanted="tasks")
    names = {str(key.value) for key, _ in plugins.entries()}
    if "pytorch" in names:
        return _by_pytorch(plugins, tasks)
    if not {"svc", "env"} <= names:
        raise plugins.refused(", ".join(sorted(names)) or "none", _PLUGINS)
    if len(tasks.items()) > 1:
        raise tasks.refused(
            ", ".join(task.name() for task in tasks.items()),
            "one task, whose pods are the nodes",
            "with the plugin pytorch, two tasks: master and worker",
        )
    (task,) = tasks.items()
    pod = task.need("template", "spec", wanted="a pod")
    for key in ("hostname", "subdomain"):
        own = pod.get(key)
        if own:
            raise own.refused(own.text(), f"no {key}, so that the plugin svc gives the pod its name")
    job = document.need("metadata", "name", wanted="the Job's name").text()
    master = f"{job}-{task.need('name', wanted='its name').text()}-0.{job}"
    options = [f"--nodes={_replicas(task)}", "--node-rank=$(VC_TASK_INDEX)", f"--master={master}"]
    return [Pods(pod, options)]


def _by_pytorch(plugins: Value, tasks: Value) -> list[Pods]:
    arguments = plugins.need("pytorch", wanted="the plugin")
    if arguments.node.value:
        words = [item.text() for item in arguments.items()]
        if any(word.lstrip("-").startswith((_MASTER, _WORKER)) for word in words):
            raise arguments.refused(" ".join(words), "tasks by the names that the plugin knows by itself")
    names = [task.name() for task in tasks.items()]
    if sorted(names) not in ([_MASTER], [_MASTER, _WORKER]):
        raise tasks.refused(", ".join(names), f"the tasks {_MASTER} and {_WORKER}")
    counts = dict(zip(names, map(_replicas, tasks.items()), strict=True))
    if counts[_MASTER] != 1:
        raise tasks.refused(f"{counts[_MASTER]} replicas of {_MASTER}", "one")
    options = [f"--nodes={sum(counts.values())}", "--node-rank=$(RANK)"]
    return [Pods(task.need("template", "spec", wanted="a pod"), options) for task in tasks.items()]


def _replicas(task: Value) -> int:
    replicas = task.get("replicas")
    return replicas.number() if replicas else 1
