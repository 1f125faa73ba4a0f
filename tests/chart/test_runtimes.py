"""charts/ddplaunch-runtimes: a runtime of Kubeflow Trainer, and what its pods need in their namespaces."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.chart.conftest import MARKS, ROOT, Helm

from ddplaunch.inject.pod import OURS

pytestmark = MARKS

CHART = ROOT / "charts/ddplaunch-runtimes"
IMAGES = ("--set", "agentImage=registry.example/ddplaunch-agent:1,image=registry.example/trainer:1")


def rendered(helm: Helm, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The objects by their kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in yaml.safe_load_all(helm("template", "runtimes", CHART, *IMAGES, *words).stdout):
        found.setdefault(each["kind"], []).append(each)
    return found


def pod_of(runtime: dict[str, Any]) -> dict[str, Any]:
    """The PodSpec of its only job."""
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    spec: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return spec


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    """As strictly as it can."""
    helm("lint", "--strict", CHART, *IMAGES)


@pytest.mark.parametrize(("absent", "said"), [("agentImage", "agentImage is not set"), ("image", "image is")])
def test_without_an_image_nothing_is_installed(helm: Helm, absent: str, said: str) -> None:
    """None is published, so that none is guessed."""
    done = helm("template", "runtimes", CHART, *IMAGES, "--set", f"{absent}=", check=False)

    assert (1, True) == (done.returncode, said in done.stderr), done.stderr


def test_the_token_is_the_sidecars_alone(helm: Helm) -> None:
    """The user's code has no access to the API server, and the sidecar the smallest one."""
    found = rendered(helm, "--set", "namespaces={a,b}")

    pod = pod_of(found["ClusterTrainingRuntime"][0])
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert [OURS, "ddplaunch-verdict"] == [each["name"] for each in container["volumeMounts"]]
    for kind in ("Secret", "ServiceAccount", "Role", "RoleBinding"):
        assert ["a", "b"] == [each["metadata"]["namespace"] for each in found[kind]]
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "resources": ["trainjobs/status"],
        "verbs": ["get", "patch"],
    }
    assert [[rule], [rule]] == [each["rules"] for each in found["Role"]]


def test_without_the_status_no_account_is_needed(helm: Helm) -> None:
    """Gate and supervisor stay as they are."""
    found = rendered(helm, "--set", "namespaces={a}", "--set", "status.enabled=false")

    pod = pod_of(found["ClusterTrainingRuntime"][0])
    assert {"ClusterTrainingRuntime", "Secret"} == found.keys()
    assert [OURS] == [each["name"] for each in pod["initContainers"]]
    assert not {"serviceAccountName", "automountServiceAccountToken"} & pod.keys()
    assert "--join" in pod["containers"][0]["command"]


def test_the_launch_command_follows_the_options(helm: Helm) -> None:
    """A TrainJob's arguments stand behind the `--` that ends the command."""
    found = rendered(helm, "--set", "options={--gate-timeout=300}", "--set", "python=/opt/python3")

    command = pod_of(found["ClusterTrainingRuntime"][0])["containers"][0]["command"]
    agent = ["/opt/python3", "-I", "-S", "/ddplaunch/agent.pyz", "run", "--join"]
    assert [*agent, "--name=$(DDPLAUNCH_JOB)", "--gate-timeout=300", "--"] == command
