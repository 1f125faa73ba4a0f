"""A job is sent whole or not at all, and never into another one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.backend.conftest import NEVER, Cli, Make, Write, left
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.errors import ClusterError
from ddplaunch.render import Rendered, RenderedFile


def changed(rendered: Rendered, old: str, new: str) -> Rendered:
    """As if the renderer had written that instead."""
    ((name, file),) = rendered.files.items()
    text = file.content.decode()
    assert old in text
    return dataclasses.replace(rendered, files={name: RenderedFile(text.replace(old, new).encode())})


def test_the_job_owns_the_rest(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """Whoever deletes the Job leaves nothing; all was applied as ddplaunch's."""
    backend.submit(job(resources=NEVER))
    uid = cluster.get("jobs", "digits", namespace=namespace)["metadata"]["uid"]
    parts = {"configmaps": "", "services": "", "networkpolicies": "", "secrets": "-key"}
    for kind, suffix in parts.items():
        found = cluster.get(kind, f"digits{suffix}", namespace=namespace)["metadata"]
        assert [uid] == [each["uid"] for each in found["ownerReferences"]]
        assert {"ddplaunch"} == {each["manager"] for each in found["managedFields"]}

    cluster.kubectl("delete", "job", "digits", "--namespace", namespace)
    cluster.until(
        lambda: not left(cluster, namespace), "nothing is left", 120, lambda: str(left(cluster, namespace))
    )


def test_a_service_of_somebody_else(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """It is neither taken over nor removed, and nothing else is made."""
    cluster.kubectl("create", "service", "clusterip", "digits", "--tcp=80", "--namespace", namespace)
    with pytest.raises(ClusterError) as error:
        backend.submit(job(resources=NEVER))

    assert "already, and ddplaunch did not create it" in error.value.message
    assert ["service/digits"] == left(cluster, namespace)


def test_pods_of_an_earlier_job_still_leave(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """They answer to the names that the new pods would have, so the new job gets another."""
    backend.submit(job(resources=NEVER))

    def find() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.get("pods", namespace=namespace)
        return found

    cluster.until(lambda: len(find()) == 2, "both pods are there", 120)
    pod = find()[0]["metadata"]["name"]
    held: dict[str, Any] = {"metadata": {"finalizers": ["ddplaunch.test/held"]}}
    patch = ["patch", "pod", pod, "--namespace", namespace, "--type=merge", "--patch"]
    cluster.kubectl(*patch, json.dumps(held))
    cluster.kubectl("delete", "job", "digits", "--namespace", namespace)
    cluster.until(lambda: [pod] == [each["metadata"]["name"] for each in find()], "one pod stays", 120)
    cluster.until(lambda: left(cluster, namespace) == [f"pod/{pod}"], "nothing else stays", 120)

    assert f"{namespace}/digits-2" == backend.submit(job(resources=NEVER)).path

    cluster.kubectl(*patch, json.dumps({"metadata": {"finalizers": None}}))
    cluster.until(lambda: pod not in [each["metadata"]["name"] for each in find()], "it is gone", 120)


@pytest.mark.whole
def test_a_job_is_deleted_with_all_its_objects(
    cluster: Cluster, cli: Cli, write: Write, namespace: str
) -> None:
    """And the next submission of its file is not; one that has not ended only when told so."""
    path = write("digits", "print('up')\n")
    for name in ("digits", "digits-2"):
        assert 0 == cli("submit", path, "--to", "kubernetes", "--wait")[0], name
    first = f"kubernetes://{namespace}/digits"
    code, out, said = cli("delete", first)
    assert (2, "") == (code, out)
    for part in ("jobs/digits", "services/digits", "configmaps/digits", "secrets/digits-key"):
        assert f"    {part} in namespace {namespace}\n" in said
    assert (0, f"{first}\n") == cli("delete", first, "--yes")[:2]
    assert all("digits-2" in each for each in left(cluster, namespace))
    assert 102 == cli("status", first)[0]

    standing = f"kubernetes://{namespace}/stands"
    assert 0 == cli("submit", write("stands", resources=NEVER), "--to", "kubernetes")[0]
    assert 2 == cli("delete", standing, "--yes")[0]
    assert f"{first}-2\n" == cli("delete", "--ended", "--to", "kubernetes", "--yes")[1]
    assert (0, f"{standing}\n") == cli("delete", standing, "--cancel", "--yes")[:2]
    assert [] == left(cluster, namespace)


def test_a_refused_job_leaves_nothing(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """What was made before it is taken back."""
    broken = changed(job(resources=NEVER), "completionMode: Indexed", "completionMode: Bogus")
    with pytest.raises(ClusterError) as error:
        backend.submit(broken)

    assert "the API server refused to create Job digits, because it is not valid" in error.value.message
    cluster.until(
        lambda: not left(cluster, namespace), "nothing is left", 60, lambda: str(left(cluster, namespace))
    )


@pytest.mark.parametrize("count", [1, 5])
def test_ctrl_c_in_the_middle_leaves_nothing(
    cluster: Cluster,
    backend: KubernetesBackend,
    job: Make,
    namespace: str,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However far it came: behind the first of five writes, and behind the last."""
    request, done = backend.api.request, []

    def interrupted(method: str, *arguments: Any, **keys: Any) -> Any:
        answer = request(method, *arguments, **keys)
        if method == "PATCH":
            done.append(method)
            if len(done) == count:
                raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(backend.api, "request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.submit(job(resources=NEVER))

    cluster.until(
        lambda: not left(cluster, namespace), "nothing is left", 120, lambda: str(left(cluster, namespace))
    )
    assert [] == backend.known()


def test_what_the_cluster_has_not(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """A namespace; a queue where Kueue is not, a JobSet where no controller is: a job would wait for ever."""
    with pytest.raises(ClusterError) as error:
        backend.submit(job(kubernetes={"namespace": "nosuch-namespace"}))
    assert "there is no namespace nosuch-namespace" == error.value.message

    known = cluster.kubectl("api-resources", "--output", "name").split()
    if "localqueues.kueue.x-k8s.io" not in known:
        with pytest.raises(ClusterError) as error:
            backend.submit(job(kubernetes={"queue": "lab"}))
        assert "the job asks for queue lab, but the cluster has no Kueue" in error.value.message
    if "jobsets.jobset.x-k8s.io" not in known:
        with pytest.raises(ClusterError) as error:
            backend.submit(job(kubernetes={"jobset": True}))
        assert "the cluster has no JobSet controller" in error.value.message
    assert [] == left(cluster, namespace)


def test_the_server_is_asked_and_gets_nothing(
    cluster: Cluster, cli: Cli, write: Write, namespace: str, tmp_path: Path
) -> None:
    """Also about a name that a job has: the next one counts up."""
    job = write("tiny", "print('hello')\n")
    nowhere = tmp_path / "nowhere.yaml"
    nowhere.write_text(job.read_text().replace(namespace, "nosuchnamespace"))
    (tmp_path / "train.py").touch()
    queued = write("queued", "print('hello')\n", kubernetes={"queue": "team-a"})

    good = cli("validate", job, "--to", "kubernetes")
    refused = cli("validate", nowhere, "--to", "kubernetes")
    without_queue = cli("validate", queued, "--to", "kubernetes")

    assert 0 == good[0], good[2]
    assert f"{job}: good for kubernetes; " in good[2]
    assert " would create it\n" in good[2]
    assert 106 == refused[0], refused[2]
    assert "nosuchnamespace" in refused[2]
    assert (106, True) == (without_queue[0], "queue" in without_queue[2])
    assert [] == cluster.get("jobs", namespace=namespace)
    assert 0 == cli("submit", write("tiny", resources=NEVER), "--to", "kubernetes")[0]
    assert 0 == cli("validate", job, "--to", "kubernetes")[0]
