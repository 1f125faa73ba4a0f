"""Puts gate and supervisor into a manifest or batch script, and takes them out again. Pure.

A function for each kind of object tells which pods it starts; it raises UsageError for what it does not
understand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ddplaunch.agent.plan import Env
from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings, document, pod, sbatch
from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods, training_container

INDEXED = "Indexed, which gives each pod its number"
"""What a Job's completionMode has to be."""
_MASTERS = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_MASTER_WORDS = ("--master", "--rdzv-endpoint", "--rdzv_endpoint")


def count(spec: Value) -> int:
    """Return the number of pods in an Indexed Job's spec. Raises UsageError."""
    wanted = "as many completions as pods at once: one pod for each node"
    completions = spec.need("completions", wanted=wanted).number()
    parallelism = spec.need("parallelism", wanted=wanted)
    if parallelism.number() != completions:
        raise parallelism.refused(f"{parallelism.text()} of {completions} completions", wanted)
    return completions


def has_master(pod: Value, container: str | None) -> bool:
    """Whether the container is given node 0's address, in its environment or in torchrun's arguments."""
    trains = training_container(pod, container)
    env = trains.get("env")
    names = [item.name() for item in env.items()] if env else []
    lists = [value for key in ("command", "args") if (value := trains.get(key))]
    words = [item.text() for value in lists for item in value.items()]
    return any(name in _MASTERS for name in names) or any(word.startswith(_MASTER_WORDS) for word in words)


def is_true(value: Value | None) -> bool:
    """Whether the value is there and is true."""
    return value is not None and value.text() == "true"


def job_pods(document: Value, settings: Settings) -> list[Pods]:
    """Return the pods of an Indexed Job: rank from the pod's index, master from the headless Service."""
    spec = document.need("spec", wanted="a Job")
    mode = spec.need("completionMode", wanted=f"completionMode: {INDEXED}")
    if mode.text() != "Indexed":
        raise mode.refused(mode.text(), INDEXED)
    nodes = count(spec)
    pod = spec.need("template", "spec", wanted="a pod")
    named = pod.get("subdomain") and not is_true(pod.get("hostNetwork"))
    if nodes > 1 and not named and not has_master(pod, settings.container):
        raise pod.refused(
            "nothing that names node 0",
            "`subdomain`, with a headless Service of that name, or MASTER_ADDR",
            "docs/how-to/run-on-many-nodes.md has a Job with its Service",
        )
    return [Pods(pod, [f"--nodes={nodes}"])]


_ATTEMPT = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"


def jobset_pods(document: Value, settings: Settings) -> list[Pods]:
    """Return the pods of a JobSet with one Indexed Job: its controller names them and counts its restarts."""
    spec = document.need("spec", wanted="a JobSet")
    jobs = spec.need("replicatedJobs", wanted="one replicated job")
    only = jobs.items()[0]
    if len(jobs.items()) > 1:
        names = ", ".join(item.name() for item in jobs.items())
        raise jobs.refused(names, "one replicated job, whose pods are the nodes")
    replicas = only.get("replicas")
    if replicas and replicas.number() != 1:
        raise replicas.refused(replicas.text(), "1: the nodes are pods of one Job")
    job = only.need("template", "spec", wanted="a Job")
    mode = job.get("completionMode")
    if mode and mode.text() != "Indexed":
        raise mode.refused(mode.text(), INDEXED)
    nodes = count(job)
    pod = job.need("template", "spec", wanted="a pod")
    by_name = spec.get("network", "enableDNSHostnames")
    unnamed = (by_name is not None and not is_true(by_name)) or is_true(pod.get("hostNetwork"))
    if nodes > 1 and unnamed and not has_master(pod, settings.container):
        raise pod.refused("nothing that names node 0", "names of the pods by JobSet, or MASTER_ADDR")
    attempt = {"name": Env.ATTEMPT, "valueFrom": {"fieldRef": {"fieldPath": _ATTEMPT}}}
    return [Pods(pod, [f"--nodes={nodes}"], env=[attempt])]


_CONTAINER = "pytorch"
_PYTORCH_MASTER, _PYTORCH_WORKER = "Master", "Worker"


def pytorchjob_pods(document: Value, settings: Settings) -> list[Pods]:  # noqa: ARG001 - the operator names the container
    """Return the pods of a training-operator v1 PyTorchJob, which sets RANK and MASTER_ADDR in each of them.

    There WORLD_SIZE counts processes, not pods, so the number of nodes comes from the manifest.
    """
    spec = document.need("spec", wanted="a PyTorchJob")
    elastic = spec.get("elasticPolicy")
    if elastic:
        raise elastic.refused("an elastic job", "a job with a fixed number of nodes")
    replicas = spec.need("pytorchReplicaSpecs", wanted="Master and Worker")
    parts = {str(key.value): value for key, value in replicas.entries()}
    if _PYTORCH_MASTER not in parts or parts.keys() - {_PYTORCH_MASTER, _PYTORCH_WORKER}:
        raise replicas.refused(
            ", ".join(parts), f"{_PYTORCH_MASTER} and {_PYTORCH_WORKER}", "the master is node 0"
        )
    counts = {name: each.number() if (each := part.get("replicas")) else 1 for name, part in parts.items()}
    if counts[_PYTORCH_MASTER] != 1:
        raise parts[_PYTORCH_MASTER].refused(f"{counts[_PYTORCH_MASTER]} replicas", "one")
    options = [f"--nodes={sum(counts.values())}", "--node-rank=$(RANK)"]
    specs = [part.need("template", "spec", wanted="a pod") for part in parts.values()]
    return [Pods(spec, options, _CONTAINER) for spec in specs]


_VOLCANO_MASTER, _VOLCANO_WORKER = "master", "worker"
_PLUGINS = "the plugin pytorch, or svc and env, so that the pods find one another"


def volcano_pods(document: Value, settings: Settings) -> list[Pods]:  # noqa: ARG001 - as the other kinds
    """Return the pods of a Volcano Job: rank and master from its plugin `pytorch`, or from `svc` and
    `env`.
    """
    spec = document.need("spec", wanted="a Volcano Job")
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
        if any(word.lstrip("-").startswith((_VOLCANO_MASTER, _VOLCANO_WORKER)) for word in words):
            raise arguments.refused(" ".join(words), "tasks with the plugin's default names")
    names = [task.name() for task in tasks.items()]
    if sorted(names) not in ([_VOLCANO_MASTER], [_VOLCANO_MASTER, _VOLCANO_WORKER]):
        raise tasks.refused(", ".join(names), f"the tasks {_VOLCANO_MASTER} and {_VOLCANO_WORKER}")
    counts = dict(zip(names, map(_replicas, tasks.items()), strict=True))
    if counts[_VOLCANO_MASTER] != 1:
        raise tasks.refused(f"{counts[_VOLCANO_MASTER]} replicas of {_VOLCANO_MASTER}", "one")
    options = [f"--nodes={sum(counts.values())}", "--node-rank=$(RANK)"]
    return [Pods(task.need("template", "spec", wanted="a pod"), options) for task in tasks.items()]


def _replicas(task: Value) -> int:
    replicas = task.get("replicas")
    return replicas.number() if replicas else 1


KINDS: dict[tuple[str, str], Callable[[Value, Settings], list[Pods]]] = {
    ("batch/v1", "Job"): job_pods,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): jobset_pods,
    ("kubeflow.org/v1", "PyTorchJob"): pytorchjob_pods,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano_pods,
}
"""The function that finds the pods of an object, by the object's apiVersion and kind. Other kinds are
refused."""
_TRAINER = "trainer.kubeflow.org/"
_RUNTIME = (
    "a TrainJob has no pods of its own to change: install charts/ddplaunch-runtimes, and name its runtime in "
    "`runtimeRef` (docs/how-to/other-launchers.md)"
)
_KUBEFLOW, _MPI_KIND = "kubeflow.org/", "MPIJob"
_MPI = (
    "the ranks of an MPIJob are started by ssh in the pods of its workers, whose command is sshd: give these "
    "a readinessProbe of their ssh port, and the job `launcherCreationPolicy: WaitForWorkersReady`; while it "
    "hangs, `ddplaunch diagnose kubernetes://NAMESPACE/mpijob/NAME` tells why"
)
_BY_HAND = (
    "elsewhere put `python3 -I -S agent.pyz run --join --` before the command by hand: "
    "docs/how-to/run-on-many-nodes.md"
)
_IMAGE = (
    "build docker/agent once, push it, and give --agent-image registry.example/ddplaunch-agent:1 "
    "(docs/how-to/images.md)"
)


@dataclass(frozen=True)
class Changed:
    """The new text, and the objects in which something has changed, for the user: `Job train`.

    `namespaces`: those of the changed objects; "" if an object names none; empty for a batch script.
    """

    text: str
    objects: list[str]
    namespaces: list[str]


def inject(text: str, file: str, settings: Settings) -> Changed:
    """Return the text with gate and supervisor. Raises UsageError for anything that is not understood."""
    if sbatch.is_script(text):
        return Changed(sbatch.inject(text, file, settings), [f"script {file}"], [])
    found = _known(text, file)
    for value in found:
        own = pod.first_of_ours(value)
        if own:
            hint = "`ddplaunch inject --remove` removes what it has added"
            raise own.refused("a part of ddplaunch", "a manifest without it", hint)
    if settings.agent_image is None:
        raise UsageError(f"{file}: found no --agent-image, wanted the image that contains the agent", _IMAGE)
    changes = [
        edit
        for value in found
        for pods in KINDS[_key(value)](value, settings)
        for edit in pod.additions(text, pods, _name(value), settings)
    ]
    return _changed(document.apply(text, changes), found)


def remove(text: str, file: str) -> Changed:
    """Return the text without what `inject` has added. Raises UsageError."""
    if sbatch.is_script(text):
        return Changed(sbatch.remove(text, file), [f"script {file}"], [])
    by_document = [(value, pod.removals(value)) for value in _known(text, file)]
    found = [value for value, changes in by_document if changes]
    if not found:
        raise UsageError(f"{file}: found nothing of ddplaunch, wanted a file that `ddplaunch inject` printed")
    return _changed(document.apply(text, [edit for _, changes in by_document for edit in changes]), found)


def _known(text: str, file: str) -> list[Value]:
    """Return the documents of the kinds in KINDS; there must be at least one. Raises UsageError."""
    documents = document.read(text, file)
    found = [value for value in documents if _key(value) in KINDS]
    if not found:
        named = ", ".join(" ".join(filter(None, _key(value))) or "no kind" for value in documents)
        wanted = ", ".join(" ".join(key) for key in KINDS)
        hint = next((each for value in documents if (each := _instead(value))), _BY_HAND)
        raise UsageError(
            f"{file}: found {named or 'nothing'}, wanted one of {wanted}, or a Slurm batch script", hint
        )
    for value in found:
        document.refuse_aliases(value)
    return found


def _instead(value: Value) -> str:
    """Return what to do for an object of a kind that `inject` knows but does not change; "" for others."""
    version, kind = _key(value)
    if version.startswith(_TRAINER):
        return _RUNTIME
    return _MPI if version.startswith(_KUBEFLOW) and kind == _MPI_KIND else ""


def _key(value: Value) -> tuple[str, str]:
    version, kind = value.get("apiVersion"), value.get("kind")
    return (version.text() if version else "", kind.text() if kind else "")


def _name(value: Value) -> str:
    """Return the object's name, or the beginning of the name that the API server will give it."""
    name = value.get("metadata", "name") or value.get("metadata", "generateName")
    return re.sub(r"[-.]+$", "", name.text()) if name else ""


def _changed(text: str, values: list[Value]) -> Changed:
    spaces = [space.text() if (space := value.get("metadata", "namespace")) else "" for value in values]
    objects = [f"{_key(value)[1]} {_name(value)}".strip() for value in values]
    return Changed(text, objects, list(dict.fromkeys(spaces)))
