"""Pods that are looked at from a container which is added to them, by an API server of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.unit.backends.kubernetes.asked_pods import ABSENT, JOB, Cluster, Pod, add, evidence

from ddplaunch import api
from ddplaunch.backends.kubernetes import foreign_pods
from ddplaunch.errors import ClusterError, UsageError
from ddplaunch.render import archive
from ddplaunch.report import Diagnosis
from ddplaunch.report.verdict import diagnosis_text

IMAGE = "team/debug:1"
pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_pods, "_POLL", 0.01)


def look() -> Diagnosis:
    """At the job, with a debug image."""
    return api.diagnose(JOB, debug_image=IMAGE)


def added(cluster: type[Cluster], number: int = 0) -> list[dict[str, Any]]:
    """The containers that were added to a pod."""
    found: list[dict[str, Any]] = cluster.listed[number]["spec"].get("ephemeralContainers", [])
    return found


def waits(reason: str, message: str = "") -> dict[str, Any]:
    """The state of a container that is not there yet."""
    return {"waiting": {"reason": reason, "message": message}}


def test_a_container_is_added_to_each_pod(cluster: type[Cluster]) -> None:
    """It sees the processes of the ranks' container, and may trace; the agent comes into it when it runs."""
    first = add(cluster, "llm-0", Pod(evidence(0)), "istio-proxy", "pytorch")
    add(cluster, "llm-1", Pod(evidence(1)))
    cluster.states["llm-0"] = [{}, waits("ContainerCreating"), waits("ErrImagePull"), {"running": {}}]

    found = look()

    assert found.evidence is not None
    assert [0, 1] == [rank.rank for node in found.evidence.evidence for rank in node.ranks]
    (container,) = added(cluster)
    assert ("ddplaunch-debug-1", IMAGE, "pytorch") == (
        container["name"],
        container["image"],
        container["targetContainerName"],
    )
    assert 0 == container["securityContext"]["runAsUser"]
    assert "SYS_PTRACE" in container["securityContext"]["capabilities"]["add"]
    assert ("ddplaunch-debug-1", archive.agent_archive()) == (first.container, first.got)
    assert ["main"] == [each["targetContainerName"] for each in added(cluster, 1)]


def test_without_the_option_nothing_is_added(cluster: type[Cluster]) -> None:
    """Also where the look fails for want of it, which is said."""
    add(cluster, "llm-0", Pod(evidence(0)))
    add(cluster, "llm-1", Pod(fails=ABSENT))

    found = api.diagnose(JOB)

    assert ([], []) == (added(cluster), added(cluster, 1))
    assert "--debug-image IMAGE adds a container" in diagnosis_text(found)


def test_pods_that_do_not_run_get_none(cluster: type[Cluster]) -> None:
    add(cluster, "llm-0", Pod(evidence(0)))
    add(cluster, "llm-1", Pod(), phase="Pending")

    text = diagnosis_text(look())

    assert (1, []) == (len(added(cluster)), added(cluster, 1))
    assert "pod llm-1: pending" in text


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (waits("ImagePullBackOff", "no such\nimage"), "does not start: ImagePullBackOff: no such image"),
        ({"terminated": {"reason": "Error", "message": ""}}, f"of the image {IMAGE} has ended: Error"),
        (
            {"terminated": {"reason": "StartError", "message": 'exec: "python3": executable file not found'}},
            f"the image {IMAGE} has no python3, which is needed to look at the pod",
        ),
    ],
)
def test_a_container_that_does_not_start(cluster: type[Cluster], state: dict[str, Any], why: str) -> None:
    """The pod is named as unseen, with the reason; the others count."""
    add(cluster, "llm-0", Pod(evidence(0)))
    silent = add(cluster, "llm-1", Pod(evidence(1)))
    cluster.states["llm-1"] = [waits("ContainerCreating"), state]

    found = look()

    text = diagnosis_text(found)
    assert "pod llm-1: no answer: " in text
    assert why in text
    assert found.evidence is not None
    assert ([1], b"") == (found.evidence.silent, silent.got)


def test_an_image_that_takes_too_long(cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, but not for ever."""
    monkeypatch.setattr(foreign_pods, "_START", 0.2)
    add(cluster, "llm-0", Pod(evidence(0)))
    cluster.states["llm-0"] = [waits("ContainerCreating")] * 1000

    with pytest.raises(ClusterError, match=r"has not started in 0 s \(ContainerCreating\)"):
        look()


def test_a_user_who_may_add_none(cluster: type[Cluster]) -> None:
    """The rule that is missing is named."""
    add(cluster, "llm-0", Pod(evidence(0)))
    user = (
        'User "ann" cannot patch resource "pods/ephemeralcontainers" in API group "" in the namespace "team"'
    )
    cluster.refuses["llm-0"] = (403, f'pods "llm-0" is forbidden: {user}')

    with pytest.raises(ClusterError, match=r"you \(ann\) may not patch pods/ephemeralcontainers") as raised:
        look()

    assert '{apiGroups: [""], resources: [pods/ephemeralcontainers], verbs: [patch]}' in raised.value.hint


def test_pod_security_that_lets_nobody_trace(cluster: type[Cluster]) -> None:
    """It is said, with what else there is."""
    add(cluster, "llm-0", Pod(evidence(0)))
    why = 'violates PodSecurity "baseline:latest": non-default capabilities (container "ddplaunch-debug-1")'
    cluster.refuses["llm-0"] = (403, f'pods "llm-0" is forbidden: {why}')

    with pytest.raises(
        ClusterError, match=r"Pod Security of namespace team .* \"baseline:latest\""
    ) as raised:
        look()

    assert "`ddplaunch diagnose pid:PID`" in raised.value.hint


def test_a_pod_that_takes_no_container(cluster: type[Cluster]) -> None:
    """As one that stands in a kubelet's file: the server says why, and the others count."""
    add(cluster, "llm-0", Pod(evidence(0)))
    add(cluster, "llm-1", Pod(evidence(1)))
    cluster.refuses["llm-1"] = (422, "static pods do not support ephemeral containers")

    assert "static pods do not support ephemeral containers" in diagnosis_text(look())


@pytest.mark.parametrize(
    ("image", "state", "names"),
    [
        (IMAGE, {"running": {}}, ["ddplaunch-debug-1"]),
        (IMAGE, waits("ImagePullBackOff"), ["ddplaunch-debug-1"]),
        (IMAGE, {"terminated": {}}, ["ddplaunch-debug-1", "ddplaunch-debug-2"]),
        ("other", {"running": {}}, ["ddplaunch-debug-1", "ddplaunch-debug-2"]),
    ],
)
def test_a_second_look(cluster: type[Cluster], image: str, state: dict[str, Any], names: list[str]) -> None:
    """A container of this image that has not ended serves again: none can be removed."""
    pod = add(cluster, "llm-0", Pod(evidence(0)))
    its = {"name": "ddplaunch-debug-1", "image": image, "targetContainerName": "main"}
    cluster.listed[0]["spec"]["ephemeralContainers"] = [its]
    cluster.listed[0]["status"]["ephemeralContainerStatuses"] = [{"name": its["name"]}]
    cluster.states["llm-0"] = [state]

    look()

    assert names == [each["name"] for each in added(cluster)]
    assert names[-1] == pod.container


def test_a_container_that_ends_with_the_look_before(cluster: type[Cluster]) -> None:
    """Another one is added, once."""
    pod = add(cluster, "llm-0", Pod(fails="container not found"))
    its = {"name": "ddplaunch-debug-1", "image": IMAGE, "targetContainerName": "main"}
    cluster.listed[0]["spec"]["ephemeralContainers"] = [its]
    cluster.listed[0]["status"]["ephemeralContainerStatuses"] = [{"name": its["name"]}]

    with pytest.raises(ClusterError, match="container not found"):
        look()

    assert ["ddplaunch-debug-1", "ddplaunch-debug-2"] == [each["name"] for each in added(cluster)]
    assert "ddplaunch-debug-2" == pod.container


@pytest.mark.parametrize("job", ["pid:1", "kubernetes://team/digits", "digits"])
def test_only_pods_get_one(job: str) -> None:
    with pytest.raises(UsageError, match="only pods can get a debug container") as raised:
        api.diagnose(job, debug_image=IMAGE)

    assert "kubernetes://NAMESPACE/KIND/NAME" in raised.value.hint


# --- what it does meanwhile


def idle(first: float, most: float, *around: str) -> float:
    """Seconds for which it lasts, in a mount namespace of its own, as a container has one."""
    program = [sys.executable, "-I", "-S", "-c", foreign_pods._IDLES, f"{first}", f"{most}"]
    began = time.monotonic()
    subprocess.run(["unshare", "--mount", *around, *program], check=True, timeout=20)
    return time.monotonic() - began


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a mount namespace")


@needs_root
def test_it_ends_where_no_look_comes() -> None:
    assert 0.5 < idle(0.5, 60) < 10


@needs_root
def test_it_ends_after_the_look() -> None:
    """As soon as no other process of its container is left; the look is a command in it."""
    assert 2 < idle(60, 60, "sh", "-c", 'sleep 1 & exec "$@"', "sh") < 15


@needs_root
def test_it_ends_in_any_case() -> None:
    """Whatever hangs in it."""
    assert 1 < idle(60, 1, "sh", "-c", 'timeout 10 sleep 10 & exec "$@"', "sh") < 9
