"""Why a job does not start, as a real cluster has it."""

from __future__ import annotations

import json

import pytest
from tests.cluster.kubernetes.backend.conftest import Make, left, wait
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.backends.job import Job, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend

PAUSE = "registry.k8s.io/pause:3.10.1"
"""An image that every node has, which names no user and holds no Python."""


def told(backend: KubernetesBackend, job: Make, text: str, name: str, **keys: object) -> Job:
    """A job that was just submitted, once its detail holds this."""
    handle = backend.submit(job(name, **keys))
    return wait(backend, handle, lambda seen: text in seen.detail and seen.detail.startswith("nodes 0-1"))


def check(seen: Job, code: str, hint: str) -> None:
    """It waits, and what `diagnose` would say of it names both nodes."""
    assert State.PENDING is seen.state
    assert [(code, seen.detail, [0, 1])] == [(each.code, each.sentence, each.nodes) for each in seen.verdicts]
    assert hint in seen.hint


@pytest.mark.fault("node-missing")
def test_no_machine_takes_it(cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str) -> None:
    """GPUs that nobody has, labels that no machine carries, a claim that does not exist."""
    text = f"{len(cluster.workers)} Insufficient nvidia.com/gpu"
    seen = told(backend, job, text, "gpus", resources={"gpus": 8})
    check(seen, "node-missing", "lower `resources`")
    assert seen.detail.startswith("nodes 0-1 (pods gpus-0-")

    seen = told(backend, job, "affinity/selector", "zone", kubernetes={"node_selector": {"zone": "b"}})
    check(seen, "node-missing", "`kubernetes.node_selector`")

    data = {"name": "data", "claim": "nosuch", "mount_path": "/data"}
    seen = told(backend, job, 'persistentvolumeclaim "nosuch" not found', "claim", volumes=[data])
    check(seen, "node-missing", "`kubectl get pvc`")

    assert {"gpus", "zone", "claim"} == {
        each.handle.path.partition("/")[2] for each in _here(backend, namespace)
    }
    assert {"node-missing"} == {each.verdicts[0].code for each in _here(backend, namespace)}


def _here(backend: KubernetesBackend, namespace: str) -> list[Job]:
    return [each for each in backend.jobs() if each.handle.path.startswith(f"{namespace}/")]


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_the_image_is_not_there(backend: KubernetesBackend, job: Make) -> None:
    """A registry that does not exist; an image that may not be pulled; one that runs as root."""
    text = "the image registry.invalid/nosuch:1 cannot be pulled: the registry's name does not resolve"
    seen = told(backend, job, text, "pull", image="registry.invalid/nosuch:1")
    check(seen, "node-missing", "`kubernetes.image_pull_secrets`")

    never = {"image_pull_policy": "Never"}
    text = "has no image nosuch:1, and may not pull it"
    seen = told(backend, job, text, "never", image="nosuch:1", kubernetes=never)
    check(seen, "node-missing", "image_pull_policy")

    seen = told(backend, job, "the image runs as root", "root", image=PAUSE, kubernetes={"restricted": True})
    check(seen, "node-missing", "`kubernetes.run_as_user`")


def test_a_quota_is_used_up(cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str) -> None:
    """Nothing but events tells; when there is room, the job starts by itself."""
    cluster.kubectl("create", "quota", "small", "--hard=pods=0", "--namespace", namespace)
    text = "the namespace's quota small is used up: requested: pods=1, used: pods=0, limited: pods=0"
    seen = told(backend, job, text, "digits")
    check(seen, "node-missing", "`kubectl describe resourcequota`")

    cluster.kubectl("delete", "quota", "small", "--namespace", namespace)
    wait(backend, seen.handle, lambda each: each.state is not State.PENDING)


@pytest.mark.whole
def test_pod_security_and_other_rules(cluster: Cluster, backend: KubernetesBackend, job: Make) -> None:
    """The Job is accepted, and its pods are not: the rule is named, and the key that meets it."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    with cluster.namespace("closed", **enforced) as namespace:
        options = {"namespace": namespace, "run_as_user": 0}
        seen = told(
            backend, job, "enforces Pod Security restricted: runAsNonRoot", "rooted", kubernetes=options
        )
        check(seen, "node-missing", "`kubernetes.restricted: true`")

        options = {"namespace": namespace, "restricted": True, "service_account": "nosuch"}
        text = "there is no service account nosuch"
        seen = told(backend, job, text, "account", kubernetes=options)
        check(seen, "node-missing", "`kubernetes.service_account`")


@pytest.mark.whole
def test_a_policy_of_the_cluster(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """What it says is shown, with its name."""
    group, name = "admissionregistration.k8s.io/v1", f"images-{namespace}"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    rule = {"expression": "false", "message": "only images of registry.example.com"}
    policy = {"matchConstraints": {"resourceRules": [pods]}, "validations": [rule]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    objects = [
        {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in (
            ("ValidatingAdmissionPolicy", policy),
            ("ValidatingAdmissionPolicyBinding", binding),
        )
    ]
    cluster.kubectl("apply", "--filename", "-", stdin="\n---\n".join(map(json.dumps, objects)))
    try:
        attempt = 0
        while True:  # a policy takes a moment until it holds
            handle = backend.submit(job(f"digits-{attempt}"))
            seen = wait(backend, handle, lambda each: each.detail and "without a pod" not in each.detail)
            if "policy" in seen.detail:
                break
            attempt += 1
            assert attempt < 10, seen
        assert f"admission policy {name}: only images of registry.example.com" in seen.detail
    finally:
        cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)


@pytest.mark.whole
def test_secrets_that_are_missing(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """The gate does not need them, so it passes; then each node says what its trainer waits for."""
    secrets = {"TOKEN": {"secret": {"name": "hub", "key": "token"}}}
    handle = backend.submit(
        job("digits", nodes=1, secrets=secrets, gate={"skip": ["interpreter", "versions"]})
    )
    seen = wait(backend, handle, lambda each: "waiting for secret hub" in each.detail)
    assert State.RUNNING is seen.state
    assert "create it, and the pod starts" in seen.hint

    cluster.kubectl("create", "secret", "generic", "hub", "--from-literal=other=x", "--namespace", namespace)
    text = f"waiting for the key token of Secret {namespace}/hub"
    wait(backend, handle, lambda each: text in each.detail)


@pytest.mark.whole
def test_suspended_is_not_failed(
    cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str
) -> None:
    """It says so, and how to let it go on; cancelled, it leaves nothing either."""
    handle = backend.submit(job("digits", resources={"gpus": 8}))
    patch = json.dumps({"spec": {"suspend": True}})
    cluster.kubectl("patch", "job", "digits", "--namespace", namespace, "--type=merge", "--patch", patch)
    seen = wait(backend, handle, lambda each: each.detail == "it is suspended")

    assert (State.PENDING, ()) == (seen.state, seen.verdicts)
    assert "kubectl patch job digits" in seen.hint
    assert State.CANCELLED is backend.cancel(handle).state
    assert [] == left(cluster, namespace)
