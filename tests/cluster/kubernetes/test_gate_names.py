"""Real faults of the names by which pods find each other: the verdict, the node, and that its hint helps."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import (
    CLEAR,
    Start,
    containers,
    document,
    first_told,
    gate,
    one_pod,
    passes,
    pod,
    told,
)
from tests.cluster.kubernetes.jobs import Documents, unplaced


def without_publishing(documents: Documents) -> None:
    """The Service as people write it at first."""
    document(documents, "Service")["spec"]["publishNotReadyAddresses"] = False


def without_service(documents: Documents) -> None:
    """None at all."""
    documents.remove(document(documents, "Service"))


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
def test_a_service_that_does_not_name_the_pods(start: Start) -> None:
    """No pod has a record. Whichever gives up first says so; the others are deleted over it."""
    changes = {"unpublished": without_publishing, "serviceless": without_service}
    jobs = [start(change, name=name, gate=gate(timeout="15s")) for name, change in changes.items()]
    for job in jobs:  # side by side: both end by their gates' timeouts
        found = first_told(job)
        assert {"dns-not-found"} == {verdict.code for verdict in found}
        for verdict in found:
            assert "NXDOMAIN" in " ".join([verdict.sentence, *verdict.facts])
            assert "publishNotReadyAddresses: true" in verdict.hint

    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.slow
def test_a_name_that_was_asked_for_too_early(faults: Faults, start: Start) -> None:
    """CoreDNS as older clusters have it denies it for 30 s more: the gate waits, and says what it was."""
    faults.cache_denials()
    held: Documents = []

    def later(documents: Documents) -> None:
        held.append(document(documents, "Service"))
        documents.remove(held[0])

    job = start(later, gate=gate(timeout="100s"))
    job.said(1, "gate", "waiting for the hub on node 0")
    faults.cluster.apply(*held, namespace=job.namespace)
    job.said(1, "gate", "gate passed")

    said = job.log(1, "gate")
    assert "node 0's name was not known for" in said
    assert "CoreDNS' cache of denials" in said


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.fault("dns-unanswered")
def test_a_name_server_that_does_not_answer(faults: Faults, start: Start) -> None:
    """CoreDNS has no pods, until somebody looks for them."""
    faults.scale_dns(0)
    job = start(gate=gate(timeout="15s"))

    for found in first_told(job):
        assert "dns-unanswered" == found.code
        assert " does not answer, asked for" in found.sentence
        assert "`kubectl --namespace kube-system get pods --selector k8s-app=kube-dns`" in found.hint
    selected = faults.cluster.get("pods", namespace="kube-system", selector="k8s-app=kube-dns")
    assert [] == selected

    faults.clear()
    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
def test_a_hosts_file_that_leads_every_pod_to_itself(start: Start, namespace: str) -> None:
    """Node 0 does find itself there, the others do not."""
    name = f"job-0.job.{namespace}.svc.cluster.local"

    def alias(documents: Documents) -> None:
        pod(documents)["hostAliases"] = [{"ip": "127.0.0.1", "hostnames": [name]}]

    code, nodes, found = told(start(alias), 1)
    assert ("master-is-loopback", [1]) == (code, nodes)
    sentence = f"node 1 (job-1) resolves {name} to 127.0.0.1, which is node 1 (job-1) itself"
    assert sentence == unplaced(found)
    assert "look for the name in /etc/hosts on that node" in found.hint

    passes(start(**CLEAR))


# --- a name that was used before


def stubborn(documents: Documents) -> None:
    """Its pods take their time to end."""
    pod(documents)["terminationGracePeriodSeconds"] = 25
    containers(documents)["gate"]["command"] = ["sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"]


@pytest.mark.whole
def test_a_name_that_is_used_again_while_the_old_pods_end(cluster: Cluster, start: Start) -> None:
    """It leads to two pods for a while, and the gate is not taken in by the one that ends."""
    old = start(stubborn)
    old.said(0, "hub", "listens on")
    before = old.address(0)
    words = ["--namespace", old.namespace, "--wait=false"]
    cluster.kubectl("delete", "job", "job", "--cascade=background", *words)
    cluster.kubectl("delete", "configmap,service", "--all", *words)
    job = start(gate=gate(timeout="100s"))
    cluster.until(lambda: job.address(0) != before, "the new pod has an address", 180)
    assert before in [pod["status"].get("podIP") for pod in job.all_pods()], "the old pod is gone too soon"
    job.said(1, "gate", "gate passed", seconds=100)


@pytest.mark.whole
@pytest.mark.fault("dns-disagrees")
def test_a_name_that_still_leads_to_an_earlier_jobs_pod(cluster: Cluster, start: Start) -> None:
    """Somebody deleted the Job and left its pods. Node 0 of the new one is not scheduled yet."""
    old = start(one_pod, gate=gate(timeout="10m"))
    old.said(0, "hub", "listens on")
    words = ["--namespace", old.namespace]
    before = old.address(0)
    cluster.kubectl("delete", "job", "job", "--cascade=orphan", *words)
    cluster.kubectl("delete", "configmap,service", "--all", *words)

    def held(documents: Documents) -> None:
        pod(documents)["schedulingGates"] = [{"name": "test/later"}]

    job = start(held, gate=gate(timeout="3m"))
    cluster.until(lambda: _gated(job.pods().get(1)), "node 1 waits for its gate", 60)
    ungate = '{"spec": {"schedulingGates": null}}'
    cluster.kubectl("patch", "pod", job.pod(1), *words, "--type=merge", "--patch", ungate)

    code, nodes, found = told(job, 1)
    assert ("dns-disagrees", [1]) == (code, nodes)
    assert f"to {before}, where the hub of an earlier job of this name" in found.sentence
    assert "wait until its pods are gone" in found.hint
    assert "`kubectl get pods --selector batch.kubernetes.io/job-name`" in found.hint
    shown = cluster.get("pods", namespace=old.namespace, selector="batch.kubernetes.io/job-name")
    assert before in [each["status"].get("podIP") for each in shown]

    cluster.kubectl("delete", "job", "job", *words)
    cluster.kubectl("delete", "configmap,service", "--all", *words)
    cluster.kubectl("delete", "pods", "--all", "--grace-period=1", *words)
    passes(start(**{**CLEAR, "name": "job"}))


def _gated(pod: dict[str, object] | None) -> bool:
    return pod is not None and "schedulingGates" in str(pod["spec"])
