"""A pod template of the user's may change much, but nothing without which the gate is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddplaunch.plan import plan
from ddplaunch.render.kubernetes import pod
from ddplaunch.render.kubernetes.overlay import overlaid
from ddplaunch.spec.models import JobSpec, Resources
from ddplaunch.spec.problems import SpecError
from ddplaunch.spec.targets import Kubernetes

GPU = "nvidia.com/gpu"
TWO = {"limits": {GPU: "2"}}


def template(**options: Any) -> dict[str, Any]:
    """The pod template of a small job."""
    spec = JobSpec(
        apiVersion="ddplaunch/v1",
        name="job",
        image="trainer",
        command=("train.py",),
        resources=Resources(gpus=1),
        kubernetes=Kubernetes(**options),
    )
    return pod.template(plan.make(spec, "kubernetes", Path()))


def gate(**changes: Any) -> dict[str, Any]:
    """A patch of the gate alone."""
    return {"spec": {"initContainers": [{"name": "gate", **changes}]}}


def trainer(**changes: Any) -> dict[str, Any]:
    """A patch of the trainer alone."""
    return {"spec": {"containers": [{"name": "trainer", **changes}]}}


@pytest.mark.parametrize(
    ("overlay", "path"),
    [
        (
            {"metadata": {"labels": {"app.kubernetes.io/instance": None}}},
            "metadata.labels.app.kubernetes.io/instance",
        ),
        ({"metadata": {"$patch": "delete"}}, "metadata.labels.app.kubernetes.io/component"),
        ({"spec": {"subdomain": "other"}}, "spec.subdomain"),
        ({"spec": {"hostname": "me"}}, "spec.hostname"),
        ({"spec": {"setHostnameAsFQDN": True}}, "spec.setHostnameAsFQDN"),
        ({"spec": {"restartPolicy": "OnFailure"}}, "spec.restartPolicy"),
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"dnsPolicy": "Default"}}, "spec.dnsPolicy"),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "spec.terminationGracePeriodSeconds"),
        ({"spec": {"volumes": [{"name": "files", "$patch": "delete"}]}}, "spec.volumes[files]"),
        (
            {"spec": {"volumes": [{"name": "ddplaunch", "emptyDir": {"medium": "Memory"}}]}},
            "spec.volumes[ddplaunch]",
        ),
        ({"spec": {"initContainers": [{"name": "gate", "$patch": "delete"}]}}, "spec.initContainers[gate]"),
        ({"spec": {"initContainers": [{"name": "hub", "$patch": "delete"}]}}, "spec.initContainers[hub]"),
        ({"spec": {"initContainers": [{"name": "gate"}, {"name": "late"}]}}, "spec.initContainers"),
        ({"spec": {"containers": [{"$patch": "replace"}, {"name": "mine"}]}}, "spec.containers[trainer]"),
        (gate(image="alpine"), "spec.initContainers[gate].image"),
        (gate(restartPolicy="Always"), "spec.initContainers[gate].restartPolicy"),
        (gate(args=["--help"]), "spec.initContainers[gate].args"),
        (gate(env=[{"name": "DDPLAUNCH_KEY", "value": "x"}]), "spec.initContainers[gate].env[DDPLAUNCH_KEY]"),
        (gate(resources={"limits": {GPU: None}}), f"spec.initContainers[gate].resources.limits.{GPU}"),
        (
            trainer(resources={"limits": {"rdma/hca": "1"}}),
            "spec.initContainers[gate].resources.limits.rdma/hca",
        ),
        (trainer(resources={"claims": [{"name": "gpu"}]}), "spec.initContainers[gate].resources.claims"),
        (trainer(command=["train"]), "spec.containers[trainer].command"),
        (trainer(terminationMessagePath="/tmp/end"), "spec.containers[trainer].terminationMessagePath"),
        (
            trainer(volumeMounts=[{"mountPath": "/ddplaunch/run", "name": "shm"}]),
            "spec.containers[trainer].volumeMounts[/ddplaunch/run]",
        ),
        (
            trainer(volumeMounts=[{"mountPath": "/ddplaunch/plan.json", "$patch": "delete"}]),
            "spec.containers[trainer].volumeMounts[/ddplaunch/plan.json]",
        ),
        ({"spec": {"volumes": {"name": "x"}}}, "spec.volumes"),
    ],
)
def test_what_breaks_the_gate_is_refused_by_its_key(overlay: dict[str, Any], path: str) -> None:
    """The first problem names the key, as it would be found in the job file."""
    with pytest.raises(SpecError) as caught:
        overlaid(template(), overlay, "job")

    assert f"kubernetes.pod_template.{path}" in [problem.path for problem in caught.value.problems]
    assert len(caught.value.problems) == 1 or overlay == {"metadata": {"$patch": "delete"}}


def test_on_a_machines_own_network_the_pods_stay_apart() -> None:
    """Two nodes of a job would meet on one set of ports."""
    overlay = {"spec": {"affinity": {"podAntiAffinity": None}}}

    with pytest.raises(
        SpecError, match=r"spec\.affinity\.podAntiAffinity: found a change that breaks the gate"
    ):
        overlaid(template(host_network=True), overlay, "job")


def test_another_affinity_may_be_replaced() -> None:
    """It is the user's own, and the gate does not rest on it."""
    given = template(one_per_machine=True, affinity={"nodeAffinity": {"a": {}}})
    overlay = {"spec": {"affinity": None}}

    assert "affinity" not in overlaid(given, overlay, "job")["spec"]


def test_all_that_breaks_it_is_said_at_once() -> None:
    overlay = {**trainer(image="other"), "metadata": {"labels": {"app.kubernetes.io/name": "x"}}}

    with pytest.raises(SpecError) as caught:
        overlaid(template(), overlay, "job")

    assert (
        "job: kubernetes.pod_template.spec.containers[trainer].image: found a change that breaks the gate, "
        "wanted trainer\n  hint: set image: the gate checks the image that trains"
    ) in str(caught.value)
    assert 2 == len(caught.value.problems)


@pytest.mark.parametrize(
    "overlay",
    [
        {"metadata": {"annotations": {"a": "b"}, "labels": {"sidecar.istio.io/inject": "true"}}},
        {"spec": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}}},
        {"spec": {"terminationGracePeriodSeconds": 600, "runtimeClassName": "nvidia", "hostIPC": True}},
        {"spec": {"initContainers": [{"name": "mine", "image": "x"}, {"name": "hub", "resources": None}]}},
        {"spec": {"containers": [{"name": "exporter", "image": "x"}]}},
        {"spec": {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "8Gi"}}]}},
        {"spec": gate(resources=TWO)["spec"] | trainer(resources=TWO)["spec"]},
        trainer(env=[{"name": "A", "value": "b"}], securityContext={"capabilities": {"add": ["SYS_NICE"]}}),
    ],
)  # fmt: skip
def test_everything_else_is_the_users(overlay: dict[str, Any]) -> None:
    """What the gate does not rest on is merged as it is."""
    assert template() != overlaid(template(), overlay, "job")
