"""Which pods a target means, in which container of each the ranks run, and why none can run there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.backends.kubernetes.api_server import Server, served
from tests.unit.backends.kubernetes.asked_pods import pod, statuses

from ddplaunch.agent.contract import Phase
from ddplaunch.backends.kubernetes import foreign_pods, objects
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.foreign_pods import container, obstacle, parse
from ddplaunch.errors import ClusterError, NotFoundError, UsageError

RECORDED = Path(__file__).parent / "recorded"


# --- what is named


@pytest.mark.parametrize(
    ("path", "word", "handle"),
    [
        ("team/job/llm", "Job llm in namespace team", "team/job/llm"),
        ("team/jobs.batch/llm", "Job llm in namespace team", "team/job/llm"),
        ("team/JobSet/llm", "JobSet llm in namespace team", "team/jobset/llm"),
        ("team/PyTorchJob/llm", "PyTorchJob llm in namespace team", "team/pytorchjob/llm"),
        ("team/trainjob/llm", "TrainJob llm in namespace team", "team/trainjob/llm"),
        ("team/mpijob/llm", "MPIJob llm in namespace team", "team/mpijob/llm"),
        ("team/leaderworkerset/llm", "LeaderWorkerSet llm in namespace team", "team/leaderworkerset/llm"),
        ("team/lws/llm", "LeaderWorkerSet llm in namespace team", "team/leaderworkerset/llm"),
        ("team/vcjob/llm", "Volcano Job llm in namespace team", "team/vcjob/llm"),
        ("team/job.batch.volcano.sh/llm", "Volcano Job llm in namespace team", "team/vcjob/llm"),
        ("team/sts/llm", "StatefulSet llm in namespace team", "team/statefulset/llm"),
        ("team/pod/llm-0.a", "Pod llm-0.a in namespace team", "team/pod/llm-0.a"),
        (
            "team?selector=app=llm,tier%20in%20(a)",
            "pods with app=llm,tier in (a) in namespace team",
            "team?selector=app=llm,tier in (a)",
        ),
        ("team/?selector=app=llm", "pods with app=llm in namespace team", "team?selector=app=llm"),
    ],
)
def test_kinds_are_taken_as_kubectl_takes_them(path: str, word: str, handle: str) -> None:
    """Singular, plural, short, with the group, in any case; the handle is the same for all of them."""
    assert (word, handle) == (str(parse(path)), parse(path).path)


def test_a_kind_that_is_not_known_is_refused_with_those_that_are() -> None:
    """The message lists those that are, and what else leads to the pods."""
    with pytest.raises(UsageError, match="deployment is not a kind of object whose pods") as raised:
        parse("team/deployment/llm")

    known = "job, jobset, pytorchjob, trainjob, mpijob, leaderworkerset, vcjob, statefulset, pod"
    assert f"one of {known};" in raised.value.hint
    assert "'kubernetes://team?selector=KEY=VALUE'" in raised.value.hint


@pytest.mark.parametrize(
    "path", ["team/job/llm/0", "team/../llm", "team?app=llm", "team?selector=", "te am/job/x", "team/job.x/l"]
)
def test_what_names_no_pods_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        parse(path)


# --- what the cluster has


class Cluster(Server):
    """Lists of pods by selector, objects by path; it notes what was asked."""

    pods: dict[str, list[dict[str, Any]]]
    objects: dict[str, dict[str, Any]]
    forbidden: tuple[str, ...]
    asked: list[str]

    def got(self) -> None:
        """Answer."""
        path, query = urlsplit(self.path)[2:4]
        selector = parse_qs(query).get("labelSelector", [""])[0]
        self.asked.append(f"{path}?{selector}" if selector else path)
        if any(each in path for each in self.forbidden):
            user = 'User "ann" cannot get resource "x" in API group "" in the namespace "team"'
            self.answer(403, {"message": user, "reason": "Forbidden"})
        elif "((" in selector:
            self.answer(400, {"message": "unable to parse requirement: found '(('"})
        elif selector or path.endswith("/pods"):
            self.answer(200, {"kind": "PodList", "items": self.pods.get(selector, [])})
        elif path in self.objects:
            self.answer(200, self.objects[path])
        else:
            self.answer(404, {"message": "not found", "reason": "NotFound"})


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cluster]]:
    """Without anything in it."""
    cluster = type("_Cluster", (Cluster,), {"pods": {}, "objects": {}, "forbidden": (), "asked": []})
    with served(cluster, tmp_path, monkeypatch):
        yield cluster


def found(path: str) -> list[str]:
    return [objects.name(each) for each in foreign_pods.find(Api(), parse(path))]


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        ("team/job/llm", "batch.kubernetes.io/job-name=llm"),
        ("team/jobset/llm", "jobset.sigs.k8s.io/jobset-name=llm"),
        ("team/trainjob/llm", "jobset.sigs.k8s.io/jobset-name=llm"),
        ("team/pytorchjob/llm", "training.kubeflow.org/job-name=llm"),
        ("team/mpijob/llm", "training.kubeflow.org/job-name=llm"),
        ("team/lws/llm", "leaderworkerset.sigs.k8s.io/name=llm"),
        ("team/vcjob/llm", "volcano.sh/job-name=llm"),
        ("team?selector=app=llm,tier=a", "app=llm,tier=a"),
    ],
)
def test_pods_by_the_label_of_their_owner(cluster: type[Cluster], path: str, selector: str) -> None:
    """One request, which a user who may not look at the owner may send as well; worker 2 before worker 10."""
    names = ["llm-worker-10", "llm-worker-2", "llm-master-0"]
    cluster.pods[selector] = [pod(each) for each in names]

    assert names[::-1] == found(path)
    assert [f"/api/v1/namespaces/team/pods?{selector}"] == cluster.asked


def test_pods_of_a_stateful_set_are_found_by_its_selector(cluster: type[Cluster]) -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    selector = {"matchLabels": {"app": "llm"}, "matchExpressions": expressions}
    cluster.objects["/apis/apps/v1/namespaces/team/statefulsets/llm"] = {"spec": {"selector": selector}}
    cluster.pods["app=llm,tier in (a,b),!old"] = [pod("llm-0")]

    assert ["llm-0"] == found("team/sts/llm")


def test_a_stateful_set_without_a_selector(cluster: type[Cluster]) -> None:
    """As a broken proxy may hand it on: not all pods of the namespace are meant."""
    cluster.objects["/apis/apps/v1/namespaces/team/statefulsets/llm"] = {"spec": {}}
    cluster.pods[""] = [pod("another")]

    with pytest.raises(NotFoundError, match="StatefulSet llm in namespace team has no pods"):
        found("team/sts/llm")


def test_a_pod_is_found_by_its_name(cluster: type[Cluster]) -> None:
    cluster.objects["/api/v1/namespaces/team/pods/llm-0"] = pod("llm-0")

    assert ["llm-0"] == found("team/pod/llm-0")


@pytest.mark.parametrize(
    ("path", "is_there", "forbidden", "message", "hint"),
    [
        ("team/job/x", False, (), "there is no Job x in namespace team", "`kubectl get jobs.batch -n team`"),
        ("team/job/x", True, (), "Job x in namespace team has no pods", "describe jobs.batch x -n team"),
        ("team/job/x", True, ("/jobs",), "there are no pods of Job x in namespace team", "get pods -n team"),
        ("team/pod/x", False, (), "there is no Pod x in namespace team", "`kubectl get pods -n team`"),
        ("team?selector=a=b", False, (), "there are no pods with a=b in namespace team", "--show-labels"),
    ],
)
def test_nothing_is_found(
    cluster: type[Cluster], path: str, is_there: bool, forbidden: tuple[str, ...], message: str, hint: str
) -> None:
    """Whether the owner is there, where this user may know it."""
    cluster.forbidden = forbidden
    if is_there:
        cluster.objects["/apis/batch/v1/namespaces/team/jobs/x"] = {"metadata": {"name": "x"}}

    with pytest.raises(NotFoundError) as raised:
        found(path)

    assert (message, True) == (raised.value.message, hint in raised.value.hint), raised.value


def test_pods_that_may_not_be_listed(cluster: type[Cluster]) -> None:
    """The rule that is missing is named."""
    cluster.forbidden = ("/pods",)

    with pytest.raises(ClusterError, match="may not") as raised:
        found("team/job/llm")

    assert "a Role needs" in raised.value.hint


def test_a_selector_that_is_none(cluster: type[Cluster]) -> None:
    with pytest.raises(UsageError, match=r"does not read the selector 'a in \(\('.*unable to parse"):
        found("team?selector=a in ((")


# --- one pod


@pytest.mark.parametrize(
    ("names", "annotation", "chosen"),
    [
        (("anything",), "", "anything"),
        (("istio-proxy", "pytorch"), "", "pytorch"),
        (("node", "pytorch"), "", "pytorch"),
        (("first", "second"), "", "first"),
        (("first", "second", "main"), "second", "second"),
        (("first", "second"), "gone", "first"),
    ],
)
def test_the_container_of_the_ranks(names: tuple[str, ...], annotation: str, chosen: str) -> None:
    """The only one; that of the annotation; one of a known name; the first."""
    annotations = {"kubectl.kubernetes.io/default-container": annotation} if annotation else {}

    assert (chosen, len(names)) == container(pod("llm-0", *names, metadata={"annotations": annotations}))


def test_the_container_of_an_mpijob() -> None:
    """mpi-operator makes the first one its worker, whatever the others are called."""
    labels = {"training.kubeflow.org/operator-name": "mpi-operator"}

    assert ("mpi-worker", 2) == container(pod("a", "mpi-worker", "main", metadata={"labels": labels}))
    assert ("main", 2) == container(pod("a", "mpi-worker", "main"))


@pytest.mark.parametrize(
    ("status", "phase", "text"),
    [
        ({"phase": "Succeeded"}, Phase.ENDED, "succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, Phase.ENDED, "failed (Evicted)"),
        (
            {"containerStatuses": statuses(terminated={"exitCode": 1, "reason": "Error"})},
            Phase.ENDED,
            "its container main has ended (exit code 1)",
        ),
        (
            {"containerStatuses": statuses(waiting={"reason": "CrashLoopBackOff"})},
            Phase.STARTING,
            "its container main waits (CrashLoopBackOff)",
        ),
        (
            {"phase": "Pending", "containerStatuses": statuses(waiting={"reason": "PodInitializing"})},
            Phase.STARTING,
            "pending",
        ),
        ({"phase": "Unknown"}, Phase.STARTING, "on a machine that does not answer"),
        ({"phase": "Pending"}, Phase.STARTING, "pending"),
    ],
)
def test_a_container_in_which_nothing_can_run(status: dict[str, Any], phase: str, text: str) -> None:
    """Why, and whether its ranks have begun."""
    assert (phase, text) == obstacle(pod("llm-0", **status), "main")


def test_a_pod_that_is_being_deleted() -> None:
    """Its place may have been taken by another."""
    leaving = pod("llm-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    assert (Phase.ENDED, "being deleted") == obstacle(leaving, "main")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpus", "pending (0/3 nodes are available"),
        ("noimage", "pending (ImagePullBackOff)"),
        ("oom", "failed (OOMKilled, exit code 40)"),
    ],
)
def test_pods_of_a_real_cluster(name: str, text: str) -> None:
    first = json.loads((RECORDED / f"{name}.json").read_text())["pods"][0]
    found = obstacle(first, "trainer")

    assert found is not None
    assert found.text.startswith(text), found
