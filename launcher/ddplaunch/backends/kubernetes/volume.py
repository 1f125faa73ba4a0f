"""Lists and brings what a job's ranks wrote to the volume that its job file names under `outputs`.

If a pod of the job is still running, it is asked. Otherwise this makes a Job of one small pod that mounts the
volume for reading, and deletes it afterwards. If this process is killed, the Job ends by itself and
Kubernetes deletes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from ddplaunch.agent.plan import work_folder
from ddplaunch.backends import interrupts
from ddplaunch.backends.kubernetes import objects, pod_exec, pods
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.objects import HUB, TRAINER, Json
from ddplaunch.backends.kubernetes.queries import ApiState
from ddplaunch.backends.outputs import OutputFile, Outputs
from ddplaunch.errors import ClusterError
from ddplaunch.plan.kubernetes import OUTPUTS, VOLUMES

_READER: Final = "reader"
_MOST: Final = 200_000
"""Files to list, at the most."""
_SILENCE: Final = 60.0
"""Seconds for which a look waits for the next bytes: a file system may be slow, or a network may be gone."""
_START: Final = 120.0
"""Seconds for the reader's pod to run: most machines have the image, but a volume must be attached."""
_POLL: Final = 0.3
_DELETE: Final = 20.0
"""Seconds within which the reader is deleted. It also ends by itself."""
_LONGEST_LINE: Final = 1 << 16
_LASTS: Final = 4 * 3600
"""Seconds after which Kubernetes ends a reader in any case."""
_KEPT: Final = 60
"""Seconds for which Kubernetes keeps a reader that has ended by itself."""
_IDLES: Final = """
import os, time
used = time.monotonic()
while time.monotonic() - used < 90:
    if any(pid.isdigit() and pid != str(os.getpid()) for pid in os.listdir("/proc")):
        used = time.monotonic()
    time.sleep(1)
"""
"""Ends when nobody has looked for so long, because its container has no other process."""


class Place(NamedTuple):
    """A job's folder as its pods see it, and the volume that it is on, in the form of a pod's spec."""

    folder: str
    volume: Json
    mount_path: str

    @property
    def of_machine(self) -> bool:
        """Whether the volume is a folder on each machine, which may or may not be the same for all."""
        return "hostPath" in self.volume

    @property
    def work(self) -> str:
        """Return the folder in which the ranks run."""
        return f"{self.folder}/{work_folder.WORK}"

    def __str__(self) -> str:
        claim = (self.volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim:
            where = f"on the claim {claim}"
        elif self.of_machine:
            where = f"on the machines' folder {self.volume['hostPath'].get('path')}"
        else:
            where = f"on the volume {self.volume.get('name')}"
        return f"{self.work}, {where}, which pods see at {self.mount_path}"


def place(owner: Json | None) -> Place | None:
    """Return where the job's ranks write; None if its job file names no volume under `outputs`."""
    template = objects.spec(objects.job(owner)).get("template") or {}
    annotations = objects.metadata(template).get("annotations") or {}
    name, _, path = (annotations.get(OUTPUTS) or "").partition("/")
    spec = objects.spec(template)
    named = [each for each in spec.get("containers") or [] if each.get("name") == TRAINER]
    trainer: Json = named[0] if named else {}
    mount = next((each for each in trainer.get("volumeMounts") or [] if each.get("name") == name), None)
    found = next((each for each in spec.get("volumes") or [] if each.get("name") == name), None)
    if owner is None or mount is None or found is None:
        return None
    mount_path = str(mount["mountPath"]).rstrip("/")
    root = f"{mount_path}/{path}".rstrip("/")
    return Place(work_folder.job_folder(root, objects.name(owner), objects.uid(owner)), found, mount_path)


def stays(where: Place) -> str:
    """Return one sentence saying that `delete` leaves the files where they are."""
    return f"what its ranks wrote stays in {where}"


def unseen(where: Place) -> Outputs:
    """Return that the ranks write there, without looking."""
    return Outputs(Path(where.work), (), where=str(where), listed=False)


def outputs(
    api: Api,
    state: ApiState,
    where: Place,
    to: Path | None = None,
    check: Callable[[Sequence[Outputs]], None] = lambda _: None,
) -> Iterator[Outputs]:
    """Yield what the ranks wrote, by folder. With `to`, bring its files there once `check` accepts them.

    A folder on the machines may be the same for several nodes. So we look for it on the machine of each node
    that has not been seen on an earlier one. Raises ClusterError, and what `check` raises.
    """
    placed = {objects.node(pod): str(objects.spec(pod).get("nodeName") or "") for pod in state.pods}
    machines = {node: machine for node, machine in placed.items() if node is not None and machine}
    if where.of_machine and not machines:
        raise ClusterError(
            f"the pods of {state.name} are gone, so it is not known on which machines its files are",
            hint=f"they are in {where}",
        )
    left = sorted(machines) if where.of_machine else [0]
    while left:
        node, copy = left[0], None if to is None else to / str(left[0])
        with _container(api, state, where, machines.get(node, "")) as reading:
            visible, found = reading.files(where, None)
            nodes = {*range(state.nodes)}
            # A node whose pod is gone may have written on a machine that nobody knows any more.
            is_whole = not where.of_machine or nodes <= {*machines, *visible}
            is_one = not where.of_machine or nodes <= {*visible}
            only = None if is_one else node
            text = str(where)
            each = Outputs(Path(where.work), found.files, only, found.complete and is_whole, where=text)
            if copy is not None:
                check([each])
                _, found = reading.files(where, copy)
                each = replace(each, files=found.files, complete=found.complete and is_whole, copy=copy)
        left = [other for other in left[1:] if other not in visible]
        yield each


class _Found(NamedTuple):
    files: tuple[OutputFile, ...]
    complete: bool


class _Reading(NamedTuple):
    """A container in which the volume can be read."""

    api: Api
    namespace: str
    pod: str
    container: str
    python: list[str]

    def files(self, where: Place, copy: Path | None) -> tuple[list[int], _Found]:
        """Return the nodes that see the folder, and its files, which are brought to `copy`."""
        text = Path(work_folder.__file__).read_text("utf-8")
        verb = "list" if copy is None else "read"
        words = [*self.python, "-c", text, verb, where.folder, str(_MOST)]
        pieces = pod_exec.stream(self.api, self.namespace, self.pod, self.container, words, _SILENCE)
        try:
            with contextlib.closing(pieces):
                return _received(_Bytes(pieces), copy)
        except pod_exec.NotAllowedError as error:
            raise ClusterError(
                f"you may not run commands in pods of namespace {self.namespace}, so ddplaunch cannot look "
                f"at the files: {error}",
                hint=f"they are in {where}; to look at them, mount that in a pod of your own",
            ) from error
        except (pod_exec.UnusableError, ValueError, LookupError, TypeError) as error:
            raise ClusterError(
                f"the files in {where} could not be read: {objects.line(error)}",
                hint="run the command again; files that are written already are kept",
            ) from error
        except OSError as error:
            raise ClusterError(
                f"{error.filename or copy} cannot be written: {error.strerror}",
                hint="make room, or name another folder; files that are written already are kept",
            ) from error


class _Bytes:
    """A stream of pieces that can be read by lines and by lengths. Raises ValueError if it ends too early."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, bytearray()

    def line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > _LONGEST_LINE:
                raise ValueError("a line of it has no end")
            self._more()
        found = bytes(self._held[:end])
        del self._held[: end + 1]
        return found

    def exactly(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        found = bytes(self._held[:count])
        del self._held[:count]
        return found

    def _more(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise ValueError("it was cut off")
        self._held += piece


def _received(stream: _Bytes, copy: Path | None) -> tuple[list[int], _Found]:
    nodes = [int(each) for each in json.loads(stream.line())["nodes"]]
    found = []
    links: dict[str, str] = {}
    while not isinstance(entry := json.loads(stream.line()), dict):
        name, size, modified, mode, link = entry
        if link is not None:
            links[name] = link
        elif copy is not None:
            _bring(stream, _below(copy, name), modified, mode)
        found.append(OutputFile(name, size, modified))
    if copy is not None:
        _link(copy, links)
    return nodes, _Found(tuple(sorted(found, key=lambda each: each.path)), bool(entry["end"]))


def _below(folder: Path, name: str) -> Path:
    """Return the path of a file. Raises ValueError for a path that a pod must not name."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not a path below the folder")
    return folder / name


def _link(folder: Path, links: dict[str, str]) -> None:
    """Make the links unchanged, once all files are there, so that nothing is written through a link."""
    for name, link in links.items():
        target = _below(folder, name)
        if any(above.as_posix() in links for above in PurePosixPath(name).parents):
            raise ValueError(f"{name!r} is reached through a link")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(link)


def _bring(stream: _Bytes, target: Path, modified: float, mode: int) -> None:
    """Write one file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("xb") as file:
        for piece in _pieces(stream):
            digest.update(piece)
            file.write(piece)
    end = json.loads(stream.line())
    if end["fault"]:
        raise ValueError(f"{target.name}: {end['fault']}")
    if end["sha256"] != digest.hexdigest():
        raise ValueError(f"{target.name} arrived with different bytes")
    target.chmod(mode & 0o777 | 0o600)
    os.utime(target, (modified, modified))


def _pieces(stream: _Bytes) -> Iterator[bytes]:
    while count := int(stream.line()):
        yield stream.exactly(count)


# --- where to look


@contextlib.contextmanager
def _container(api: Api, state: ApiState, where: Place, machine: str) -> Iterator[_Reading]:
    """Yield a running container that has the volume: the hub's in a pod of the job, or a reader's."""
    for pod in state.pods:
        is_there = not where.of_machine or objects.spec(pod).get("nodeName") == machine
        if is_there and objects.state(pod, HUB, "running") and not objects.is_being_deleted(pod):
            yield _Reading(api, state.namespace, objects.name(pod), HUB, _python(pod, HUB))
            return
    with _reader(api, state, where, machine) as name:
        yield _Reading(api, state.namespace, name, _READER, _python(objects.job(state.owner), TRAINER))


def _python(found: Json, container: str) -> list[str]:
    """Return the Python that runs the agent there, with its options."""
    spec = objects.spec(found)
    spec = objects.spec(spec["template"]) if "template" in spec else spec
    for each in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        if each.get("name") == container:
            return list(each.get("command") or [])[:3]
    return ["python3", "-I", "-S"]


@contextlib.contextmanager
def _reader(api: Api, state: ApiState, where: Place, machine: str) -> Iterator[str]:
    """Yield the name of a running pod that mounts the volume. Afterwards it is gone. Raises ClusterError."""
    name = f"{objects.name(state.owner or {})[:50]}-reader-{os.urandom(2).hex()}"
    path = objects.collection(objects.JOBS, "jobs", state.namespace)
    try:
        api.request("POST", path, "make a Job that reads the volume", body=_job(state, where, machine, name))
        yield _started(api, state.namespace, name, where)
    finally:
        with interrupts.held_off(), contextlib.suppress(ClusterError):
            body = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
            api.request("DELETE", f"{path}/{name}", f"delete Job {name}", body=body, patience=_DELETE)


def _started(api: Api, namespace: str, name: str, where: Place) -> str:
    """Return the name of the reader's pod as soon as it is running. Raises ClusterError."""
    path = objects.collection("v1", "pods", namespace)
    deadline = time.monotonic() + _START
    while True:
        found = api.get(path, "list pods", {"labelSelector": f"{objects.JOB_NAME}={name}"}).get("items") or []
        for pod in found:
            if objects.state(pod, _READER, "running"):
                return objects.name(pod)
        if time.monotonic() > deadline:
            problem = next(filter(None, map(pods.problem, found)), None)
            why = f": {problem.text}" if problem else ""
            raise ClusterError(
                f"the pod that reads the files has not started in {_START:.0f} s{why}",
                hint=f"they are in {where}; run the command again, or mount that in a pod of your own",
            )
        time.sleep(_POLL)


def _job(state: ApiState, where: Place, machine: str, name: str) -> Json:
    """Return a Job of one pod that may run wherever the job could, as the same user, and that only reads."""
    owner = state.owner or {}
    template = objects.spec(objects.job(owner)).get("template") or {}
    spec = objects.spec(template)
    trainer = next(each for each in spec["containers"] if each.get("name") == TRAINER)
    labels = {**objects.OURS, "app.kubernetes.io/component": "outputs", "sidecar.istio.io/inject": "false"}
    kept = ("securityContext", "imagePullSecrets", "tolerations", "serviceAccountName")
    pod: dict[str, Any] = {
        **{key: spec[key] for key in kept if spec.get(key)},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": _READER,
                "image": trainer["image"],
                **{key: trainer[key] for key in ("imagePullPolicy",) if trainer.get(key)},
                "command": [*_python(objects.job(owner), TRAINER), "-c", _IDLES],
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": _mounts(trainer),
            }
        ],
        "volumes": [each for each in spec["volumes"] if each["name"] in _names(trainer)],
    }
    if where.of_machine:
        pod["nodeName"] = machine
    elif machine:  # this machine has the image
        fields = [{"key": "metadata.name", "operator": "In", "values": [machine]}]
        term = {"weight": 100, "preference": {"matchFields": fields}}
        pod["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    uid = {key: owner.get(key) for key in ("apiVersion", "kind")} | {"name": objects.name(owner)}
    return {
        "apiVersion": objects.JOBS,
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [{**uid, "uid": objects.uid(owner)}]},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _LASTS,
            "ttlSecondsAfterFinished": _KEPT,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _mounts(trainer: Json) -> list[Json]:
    """Return the mounts of the job's volumes, because its Python may be on another one of them."""
    names = _names(trainer)
    return [{**each, "readOnly": True} for each in trainer["volumeMounts"] if each["name"] in names]


def _names(trainer: Json) -> set[str]:
    return {each["name"] for each in trainer["volumeMounts"]} - {*VOLUMES}
