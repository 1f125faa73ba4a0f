"""Puts gate and supervisor into a manifest or batch script, and takes them out again. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings, document, kinds, pod, sbatch
from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods

KINDS: dict[tuple[str, str], Callable[[Value, Settings], list[Pods]]] = {
    ("batch/v1", "Job"): kinds.job_pods,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): kinds.jobset_pods,
    ("kubeflow.org/v1", "PyTorchJob"): kinds.pytorchjob_pods,
    ("batch.volcano.sh/v1alpha1", "Job"): kinds.volcano_pods,
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
            hint = "`ddplaunch inject --remove` takes out what it has put in"
            raise own.refused("a part of ddplaunch", "a manifest without it", hint)
    if settings.agent_image is None:
        raise UsageError(f"{file}: found no --agent-image, wanted the image that holds the agent", _IMAGE)
    changes = [
        edit
        for value in found
        for pods in _kind(value)(value, settings)
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
            f"{file}: found {named or 'nothing'}, wanted one of {wanted}, or a batch script of Slurm", hint
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


def _kind(value: Value) -> Callable[[Value, Settings], list[Pods]]:
    return KINDS[_key(value)]


def _name(value: Value) -> str:
    """Return the object's name, or the beginning of the name that the API server will give it."""
    name = value.get("metadata", "name") or value.get("metadata", "generateName")
    return re.sub(r"[-.]+$", "", name.text()) if name else ""


def _changed(text: str, values: list[Value]) -> Changed:
    spaces = [space.text() if (space := value.get("metadata", "namespace")) else "" for value in values]
    objects = [f"{_key(value)[1]} {_name(value)}".strip() for value in values]
    return Changed(text, objects, list(dict.fromkeys(spaces)))
