"""The real controllers of Kueue, JobSet and others, compiled from modules and installed from their manifests.

They look at the namespaces that carry LABEL alone, so that a cluster can be shared with tests that know
nothing of them, and with people. Other programs of these tests are compiled here as well.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cache import CACHE
from tests.cluster.kubernetes import docker, images
from tests.cluster.kubernetes.cache import ClusterError, locked, say
from tests.cluster.kubernetes.cluster import Cluster

LABEL = "ddplaunch-controllers"
COMPILE_SECONDS = 1800.0


@dataclass(frozen=True)
class Controller:
    """One of them, in the version that is tested."""

    name: str
    version: str
    package: str
    values: str
    """Where the chart takes its image from; "" for one without a chart."""
    probe: dict[str, Any]
    """What the API server accepts only when the controller answers it."""
    home: str = "sigs.k8s.io"
    base: str = "scratch"
    """The image to which its program is added."""
    user: str = "65532:65532"
    path: str = ""
    """Of its module, where that is not `home` and `name`."""
    settings: tuple[str, ...] = ()
    """Further values of its chart, or arguments of its program where it has none."""
    manifests: str = ""
    """The folder of its module with its kustomization, where it has no chart."""
    space: str = ""
    """The namespace that these manifests name."""

    @property
    def module(self) -> str:
        return self.path or f"{self.home}/{self.name}"

    @property
    def image(self) -> str:
        return f"ddplaunch-test/{self.name}:{self.version}"

    @property
    def namespace(self) -> str:
        return self.space or f"{self.name}-system"


_POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
_JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "probe"}, "spec": {"template": _POD}}
_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe"},
    "spec": {"replicatedJobs": [{"name": "job", "template": {"spec": _JOB["spec"]}}]},
}
JOBSET = Controller("jobset", "v0.10.1", ".", "image", _SET)
KUEUE = Controller("kueue", "v0.14.0", "./cmd/kueue", "controllerManager.manager.image", _JOB)
_RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "probe"},
    "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": _SET["spec"]}},
}
TRAINER = Controller(
    "kubeflow-trainer",
    "v2.3.0",
    "./cmd/trainer-controller-manager",
    "image",
    _RUNTIME,
    path="github.com/kubeflow/trainer/v2",
    settings=("image.registry=docker.io", "jobset.install=false"),
)
"""It makes JobSets, which JOBSET's controller runs."""
_PYTORCH = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "probe"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}},
            }
        }
    },
}
LOOKUP = "ddplaunch-test/nslookup:local"
TRAINING_OPERATOR = Controller(
    "training-operator",
    "v1.9.3",
    "./cmd/training-operator.v1",
    "",
    _PYTORCH,
    home="github.com/kubeflow",
    settings=("--enable-scheme=pytorchjob", f"--pytorch-init-container-image={LOOKUP}"),
    manifests="manifests/overlays/standalone",
    space="kubeflow",
)
"""Its pods of workers begin with `nslookup` in LOOKUP."""
_MPI_POD = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
_MPI = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "probe"},
    "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": _MPI_POD}}},
}
MPI_OPERATOR = Controller(
    "mpi-operator",
    "v0.6.0",
    "./cmd/mpi-operator",
    "",
    _MPI,
    home="github.com/kubeflow",
    manifests="manifests/overlays/standalone",
    space="mpi-operator",
)
_LWS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "probe"},
    "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": _MPI_POD}},
}
LWS = Controller(
    "lws", "v0.7.0", "./cmd", "image.manager", _LWS, settings=("resources.requests.cpu=50m",)
)  # fmt: skip


def installed(cluster: Cluster, controller: Controller) -> Iterator[None]:
    """Have it for as long as a fixture lives."""
    if not cluster.ours:
        pytest.skip(f"installs {controller.name} into our own cluster alone; unset KUBECONFIG")
    try:
        install(cluster, controller)
        yield
    finally:
        uninstall(cluster, controller)


def install(cluster: Cluster, controller: Controller) -> None:
    """Install it, and wait until it works."""
    with locked(f"controller-{controller.name}", f"{controller.name} is compiled", COMPILE_SECONDS):
        image(controller)
    for node in cluster.workers:
        images.load(node, controller.image)
    objects = _objects(cluster, controller)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": controller.namespace}})
    _apply(cluster, controller, [each for each in objects if each["kind"] == "CustomResourceDefinition"])
    _apply(cluster, controller, objects)
    words = ["wait", "deployments", "--all", "-n", controller.namespace, "--for=condition=Available"]
    cluster.kubectl(*words, "--timeout=180s", timeout=200)
    # Its certificate is made, and told to the API server, when it runs.
    with cluster.namespace(**{LABEL: "true"}) as namespace:
        words = ["apply", "--dry-run=server", "-n", namespace, "--filename", "-"]
        text = json.dumps(controller.probe)

        def answer() -> str:
            done = cluster.run(["kubectl", *words], stdin=text, check=False)
            return done.stderr if done.returncode else ""

        cluster.until(lambda: answer() == "", f"{controller.name} answers the API server", 90, answer)


def uninstall(cluster: Cluster, controller: Controller) -> None:
    """Take it away; first what intercepts requests, which would fail without it."""
    objects = _objects(cluster, controller)
    hooks = [each for each in objects if "Webhook" in each["kind"]]
    rest = [each for each in objects if each not in hooks and each["kind"] != "CustomResourceDefinition"]
    for part in (hooks, rest):
        _send(cluster, controller, part, "delete", "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "namespace", controller.namespace, "--ignore-not-found", "--wait=false")


def _apply(cluster: Cluster, controller: Controller, objects: list[dict[str, Any]]) -> None:
    _send(cluster, controller, objects, "apply", "--server-side", "--force-conflicts")


def _send(cluster: Cluster, controller: Controller, objects: list[dict[str, Any]], *words: str) -> None:
    """As helm does: what names no namespace goes to the release's."""
    homeless = [each for each in objects if "namespace" not in each["metadata"]]
    placed = [each for each in objects if each not in homeless]
    for some, where in ((homeless, ["--namespace", controller.namespace]), (placed, [])):
        if some:
            cluster.kubectl(*words, *where, "--filename", "-", stdin=_text(some), timeout=120)


@contextlib.contextmanager
def _chart(controller: Controller) -> Iterator[Path]:
    """A copy of its chart without the charts on which it depends: helm wants them even where they are off."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / controller.name
        # The files of Go's cache are read-only.
        shutil.copytree(
            module(controller) / f"charts/{controller.name}", chart, copy_function=shutil.copyfile
        )
        chart.chmod(0o755)
        about = yaml.safe_load((chart / "Chart.yaml").read_text())
        about.pop("dependencies", None)
        (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
        yield chart


def _text(objects: list[dict[str, Any]]) -> str:
    return "\n---\n".join(json.dumps(each) for each in objects)


def _objects(cluster: Cluster, controller: Controller) -> list[dict[str, Any]]:
    make = _of_manifests if controller.manifests else _of_chart
    # While an API behind another server does not answer, no namespace can be deleted. It is not needed here.
    objects = [each for each in make(cluster, controller) if each["kind"] != "APIService"]
    for each in objects:
        for hook in each.get("webhooks", []):
            hook["namespaceSelector"] = {"matchLabels": {LABEL: "true"}}
    return objects


def _of_manifests(cluster: Cluster, controller: Controller) -> list[dict[str, Any]]:
    """Its kustomization, with our image; of its kinds the one that is tested.

    Several controllers bring a definition of MPIJob, in several versions.
    """
    text = cluster.kubectl("kustomize", module(controller) / controller.manifests)
    objects = []
    for each in yaml.safe_load_all(text):
        defines = each["spec"]["names"]["kind"] if each["kind"] == "CustomResourceDefinition" else ""
        if defines not in ("", controller.probe["kind"]):
            continue
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            arguments = [*container.get("args", []), *controller.settings]
            container |= {"image": controller.image, "imagePullPolicy": "Never", "args": arguments}
        objects.append(each)
    return objects


def _of_chart(cluster: Cluster, controller: Controller) -> list[dict[str, Any]]:
    repository, _, tag = controller.image.partition(":")
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    settings = [f"{controller.values}.{key}={value}" for key, value in image.items()]
    with _chart(controller) as chart:
        words: list[str | Path] = ["helm", "template", controller.name, chart]
        words += ["--namespace", controller.namespace, "--include-crds"]
        for setting in (*settings, *controller.settings):
            words += ["--set", setting]
        text = cluster.run(words).stdout
    return [each for each in yaml.safe_load_all(text) if each]


def image(controller: Controller) -> None:
    """Build it, with the program as its entry point."""
    manager = compiled(controller)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(manager, Path(folder) / "manager")
        (Path(folder) / "Dockerfile").write_text(
            f"FROM {controller.base}\nCOPY manager /manager\nUSER {controller.user}\n"
            'ENTRYPOINT ["/manager"]\n'
        )
        words = ["docker", "build", "--quiet", "--tag", controller.image, folder]
        docker.run(words, timeout=300, extra={"DOCKER_BUILDKIT": "0"})


def compiled(controller: Controller) -> Path:
    """Its program."""
    program = CACHE / f"controllers/{controller.name}-{controller.version}"
    if program.exists():
        return program
    say(f"compiles {controller.name}")
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(".new")
    words = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(fresh), controller.package]
    environment = {**docker.environment(), "CGO_ENABLED": "0"}
    done = subprocess.run(
        words, cwd=module(controller), env=environment, capture_output=True, text=True,
        timeout=COMPILE_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ClusterError(f"{controller.name} is not compiled: {done.stderr}")
    fresh.rename(program)
    return program


def module(controller: Controller) -> Path:
    """The folder of its module, charts included, in Go's own cache."""
    words = ["go", "mod", "download", "-json", f"{controller.module}@{controller.version}"]
    done = subprocess.run(
        words, cwd="/", env=docker.environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
