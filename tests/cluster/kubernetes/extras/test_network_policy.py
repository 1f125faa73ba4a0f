"""NetworkPolicies that are enforced: whom the job's keeps out, and what the gate says of the namespace's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.extras import enforcer
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.gates import CLEAR, GATE, MASTER, Start, first_told, gate, passes
from tests.cluster.kubernetes.pods import pod

pytestmark = [pytest.mark.usefixtures("enforced"), pytest.mark.timeout(900)]

OTHER = 8000
"""A port of the training itself."""
TRAIN = f"""
import os, socket, time
import torch
import torch.distributed as dist

door = socket.create_server(("", {OTHER}))
dist.init_process_group("gloo")
over = torch.zeros(1)
while not over:
    over += os.path.exists("/tmp/over") and dist.get_rank() == 0
    dist.all_reduce(over)
    time.sleep(0.1)
    print("step", flush=True)
print("trained", flush=True)
"""
ASK = """
import json, socket, sys

open = []
for each in sys.argv[1:]:
    host, _, port = each.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        open.append(int(port))
    except OSError:
        pass
print(json.dumps(open))
"""
WAIT = f"import socket, time; door = socket.create_server(('', {OTHER})); time.sleep(3600)"
SECONDS = 90.0
"""For rules to reach the machines, and for a step of a training, where many share the cores."""


@pytest.fixture(name="enforced", scope="module")
def _enforced(cluster: Cluster) -> Iterator[None]:
    """NetworkPolicies are."""
    if not cluster.ours:
        pytest.skip("installs kube-router into our own cluster alone; unset KUBECONFIG")
    with enforcer.enforced(cluster):
        yield


class Stranger:
    """A pod that is none of the job's."""

    def __init__(self, cluster: Cluster, namespace: str, machine: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        cluster.apply(pod("stranger", machine, WAIT), namespace=namespace)
        ready = ["wait", "pod/stranger", "-n", namespace, "--for=condition=Ready", "--timeout=120s"]
        cluster.kubectl(*ready, timeout=130)

    @property
    def address(self) -> str:
        """Its own."""
        return str(self.cluster.get("pods", "stranger", namespace=self.namespace)["status"]["podIP"])

    def opens(self, address: str) -> list[int]:
        """To which of the job's ports there it can connect."""
        ports = [f"{address}:{port}" for port in (GATE, MASTER, OTHER)]
        return ask(self.cluster, self.namespace, "stranger", *ports)


def ask(cluster: Cluster, namespace: str, name: str, *where: str) -> list[int]:
    """Return those of these ports to which this pod can connect."""
    words = ["exec", "-n", namespace, name, "--", "python3", "-c", ASK, *where]
    found: list[int] = json.loads(cluster.kubectl(*words))
    return found


@pytest.fixture(name="strangers")
def _strangers(cluster: Cluster, namespace: str) -> Iterator[list[Stranger]]:
    """One in the job's namespace and one in another, on either machine."""
    here, there = cluster.workers
    with cluster.namespace("other") as other:
        yield [Stranger(cluster, namespace, here), Stranger(cluster, other, there)]


class Training:
    """A job of two nodes that trains until it is told that it is over."""

    def __init__(self, jobs: Jobs, policy: str) -> None:
        self._jobs = jobs
        options = {"network_policy": policy} if policy else {}
        ports = {"gate": {"port": GATE}, "rendezvous": {"port": MASTER}}
        self.handle = jobs.submit("job", TRAIN, kubernetes=options, **ports)
        jobs.becomes(self.handle, "running")
        self.steps()

    def steps(self) -> None:
        """Both nodes make another step."""
        before = self._jobs.log("job").count("step")
        self._jobs.cluster.until(
            lambda: self._jobs.log("job").count("step") > before + 2, "the job trains", SECONDS,
            lambda: self._jobs.log("job"),
        )  # fmt: skip

    @property
    def zero(self) -> Any:
        """Node 0's pod."""
        label = "batch.kubernetes.io/job-completion-index=0"
        (found,) = self._jobs.cluster.get("pods", namespace=self._jobs.namespace, selector=label)
        return found

    def closed_but(self, opened: list[int], stranger: Stranger) -> None:
        """The rules reach the machines, and these ports of node 0 stay open for this stranger."""
        address = self.zero["status"]["podIP"]
        self._jobs.cluster.until(
            lambda: opened == stranger.opens(address), f"{opened} alone are open", SECONDS,
            lambda: str(stranger.opens(address)),
        )  # fmt: skip

    def ends(self) -> None:
        """It is told so, and has trained on both nodes."""
        name = self.zero["metadata"]["name"]
        words = ["exec", "-n", self._jobs.namespace, name, "-c", "trainer", "--", "touch", "/tmp/over"]
        self._jobs.cluster.kubectl(*words)
        self._jobs.becomes(self.handle, "succeeded")
        assert 2 == self._jobs.log("job").count("trained")


def test_by_default_the_hubs_and_the_stores_ports_are_closed(jobs: Jobs, strangers: list[Stranger]) -> None:
    """No stranger of either namespace gets to them, all reach another port of the pod, and the job trains."""
    training = Training(jobs, "")

    for stranger in strangers:
        training.closed_but([OTHER], stranger)
    training.steps()
    training.ends()


def test_without_a_policy_they_are_open(jobs: Jobs, strangers: list[Stranger]) -> None:
    """So it is the policy that closes them."""
    training = Training(jobs, "none")

    address = training.zero["status"]["podIP"]
    assert [[GATE, MASTER, OTHER]] * 2 == [stranger.opens(address) for stranger in strangers]
    training.ends()


def test_a_job_may_shut_everybody_out(jobs: Jobs, strangers: list[Stranger]) -> None:
    """With `pods` no port is open to a stranger; the pods train, know names, and reach nobody else."""
    training = Training(jobs, "pods")
    for stranger in strangers:
        training.closed_but([], stranger)

    name = training.zero["metadata"]["name"]
    places = [f"{stranger.address}:{OTHER}" for stranger in strangers]
    assert [] == ask(jobs.cluster, jobs.namespace, name, *places)
    assert [53] == ask(jobs.cluster, jobs.namespace, name, "kube-dns.kube-system.svc.cluster.local:53")
    training.ends()


@pytest.fixture(name="deny")
def _deny(cluster: Cluster, namespace: str) -> Callable[..., None]:
    """A function that denies these directions to every pod of the namespace."""

    def deny(*directions: str) -> None:
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "deny"},
            "spec": {"podSelector": {}, "policyTypes": list(directions)},
        }
        cluster.apply(policy, namespace=namespace)

    return deny


def test_a_namespace_lets_nobody_in(deny: Callable[..., None], start: Start) -> None:
    """Node 1 says that a policy may be why, long before the gate's time is over; `pods` helps."""
    deny("Ingress")
    job = start(kubernetes={"network_policy": "none"}, gate=gate(timeout="120s"))

    verdicts = first_told(job)
    assert {("port-rejected", (1,))} == {(found.code, tuple(found.nodes)) for found in verdicts}
    for found in verdicts:
        assert "node 1 (job-1) -> the hub at job-0.job." in found.sentence
        assert "by an ICMP message, as a firewall sends it" in found.sentence
        assert "NetworkPolicy" in found.hint
        assert "`kubernetes.network_policy: pods`" in found.hint

    passes(start(**CLEAR, kubernetes={"network_policy": "pods"}))


def test_the_default_opens_what_the_namespace_closes(deny: Callable[..., None], start: Start) -> None:
    """Policies add up: the job's own lets its pods in."""
    deny("Ingress")

    passes(start(gate_only=True))


def test_a_namespace_lets_nothing_out(deny: Callable[..., None], start: Start) -> None:
    """Not even questions for names: the gate says so, and what to allow; `pods` allows it."""
    deny("Ingress", "Egress")
    job = start()

    verdicts = first_told(job)
    assert {"dns-unanswered"} == {found.code for found in verdicts}
    for found in verdicts:
        assert "does not answer" in found.sentence
        assert "a NetworkPolicy may keep the pods from it: egress to port 53, UDP and TCP" in found.hint
        assert "`kubernetes.network_policy: pods`" in found.hint

    passes(start(**CLEAR, kubernetes={"network_policy": "pods"}))


def test_a_policy_that_comes_later_ends_no_training(
    jobs: Jobs, deny: Callable[..., None], strangers: list[Stranger]
) -> None:
    """Connections that are there stay, so the job trains on, and nobody is accused."""
    training = Training(jobs, "none")
    deny("Ingress", "Egress")
    training.closed_but([], strangers[1])

    training.steps()
    training.ends()
