"""Real faults between the pods of a job, before it starts: the verdict, the node, and how soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import STEPS, Documents, Job

from ddplaunch.agent.contract import Exit, Verdict

GATE = 29400
MASTER = 29500
PLAIN: dict[str, Any] = {
    "python": "python3",
    "rendezvous": {"port": MASTER},
    "gate": {"timeout": "40s", "port": GATE, "skip": ["interpreter", "versions"]},
}
"""Rules of a firewall name ports. Nobody comes to train, so nobody needs torch."""
SERVE_HTTP = [
    "python3",
    "-c",
    f"from http.server import *; HTTPServer(('', {GATE}), SimpleHTTPRequestHandler).serve_forever()",
]
Start = Callable[..., Job]


@pytest.fixture(name="start")
def _start(cluster: Cluster, namespace: str, tmp_path: Path) -> Start:
    """A function that submits a job of two nodes whose ranks do next to nothing, and need no torch."""

    def start(change: Callable[[Documents], None] = lambda documents: None, **keys: Any) -> Job:
        values = {**PLAIN, **keys}
        return Job.submit(cluster, namespace, tmp_path, STEPS, change, **values)

    return start


def told(
    job: Job, node: int, container: str = "gate", seconds: float = 180.0
) -> tuple[str, list[int], Verdict]:
    """(code, culprits, all of it): the only verdict that this container left for the kubelet."""
    job.cluster.until(
        lambda: bool(job.pods().get(node)) and job.last_words(node, container)["exit"] is not None,
        f"{container} of node {node} ends",
        seconds,
        job.logs,
    )
    words = job.last_words(node, container)
    print(job.logs())
    assert words["exit"] == words["exit_code"]
    (found,) = words["verdicts"]
    verdict = Verdict(**found)
    return verdict.code, verdict.nodes, verdict


def document(documents: Documents, kind: str) -> dict[str, Any]:
    """The only one of this kind."""
    (found,) = [each for each in documents if each["kind"] == kind]
    return found


def containers(documents: Documents) -> dict[str, Any]:
    """Of the pod template, by name."""
    pod = document(documents, "Job")["spec"]["template"]["spec"]
    return {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}


def placed(faults: Faults, start: Start, **keys: Any) -> Job:
    """A job whose node 0 waits on the first machine for node 1, which `comes` to the second."""

    def one_pod(documents: Documents) -> None:
        document(documents, "Job")["spec"]["parallelism"] = 1

    first, second = faults.cluster.workers
    faults.cordon(second)
    job = start(one_pod, **keys)
    job.said(0, "gate", "waiting for node 1")
    faults.cluster.kubectl("uncordon", second)
    faults.cordon(first)
    return job


def comes(job: Job) -> None:
    """Node 1."""
    words = ["--namespace", job.namespace, "--type=merge", "--patch", '{"spec": {"parallelism": 2}}']
    job.cluster.kubectl("patch", "job", job.name, *words)


def without_publishing(documents: Documents) -> None:
    """The Service as people write it at first."""
    document(documents, "Service")["spec"]["publishNotReadyAddresses"] = False


def without_service(documents: Documents) -> None:
    """None at all."""
    documents.remove(document(documents, "Service"))


# --- names


def test_a_service_that_does_not_name_the_pods(start: Start) -> None:
    """No pod has a record. Whichever gives up first says so; the others are deleted over it."""
    changes = {"unpublished": without_publishing, "serviceless": without_service}
    jobs = [start(change, name=name) for name, change in changes.items()]
    for job in jobs:  # side by side: each takes a minute
        assert "PodFailurePolicy" == job.ended(240)
        print(job.logs())
        words = [job.last_words(node, "gate") for node in job.pods()]
        found = [Verdict(**each) for end in words for each in end.get("verdicts", [])]
        assert {"dns-not-found"} == {verdict.code for verdict in found}
        for verdict in found:
            assert "NXDOMAIN" in " ".join([verdict.sentence, *verdict.facts])
            assert "publishNotReadyAddresses: true" in verdict.hint


@pytest.mark.slow
def test_a_name_that_was_asked_for_too_early(faults: Faults, start: Start) -> None:
    """CoreDNS as older clusters have it denies it for 30 s more: the gate waits, and says what it was."""
    faults.cache_denials()
    held: Documents = []

    def later(documents: Documents) -> None:
        held.append(document(documents, "Service"))
        documents.remove(held[0])

    job = start(later, gate={**PLAIN["gate"], "timeout": "100s"})
    job.said(1, "gate", "waiting for the hub on node 0")
    faults.cluster.apply(*held, namespace=job.namespace)
    job.said(1, "gate", "gate passed")

    said = job.log(1, "gate")
    assert "node 0's name was not known for" in said
    assert "CoreDNS' cache of denials" in said


@pytest.mark.slow
def test_a_name_server_that_does_not_answer(faults: Faults, start: Start) -> None:
    """CoreDNS has no pods."""
    faults.scale_dns(0)
    job = start(gate={**PLAIN["gate"], "timeout": "15s"})

    code, nodes, found = told(job, 1)
    assert ("dns-unanswered", [1]) == (code, nodes)
    assert "the name server does not answer" in found.sentence
    assert "k8s-app=kube-dns" in found.hint


def test_a_node_that_never_comes(start: Start) -> None:
    """Its name is unknown because its pod has no address yet, and that is what is said."""

    def one_pod(documents: Documents) -> None:
        # As by a quota that lets one pod pass.
        document(documents, "Job")["spec"]["parallelism"] = 1

    job = start(one_pod, gate={**PLAIN["gate"], "timeout": "8s"})

    code, nodes, found = told(job, 0)
    assert ("node-missing", [1]) == (code, nodes)
    assert "node 1 (job-1) never came: waited 8 s; node 0 (job-0) is here" == found.sentence
    assert "kubectl get pods" in found.hint
    assert "PodFailurePolicy" == job.ended()
    assert ("node-missing", [1]) == (job.verdict.code, job.verdict.nodes)


# --- ports and packets


def test_packets_between_pods_are_dropped(faults: Faults, start: Start) -> None:
    """As by a NetworkPolicy that denies all: node 1 has node 0's address, and gets no answer."""
    faults.nft(faults.cluster.workers[0], "meta l4proto tcp drop")
    job = start(gate={**PLAIN["gate"], "timeout": "90s"})  # of which a new pod's network is given 35 s

    code, nodes, found = told(job, 1)
    assert ("port-filtered", [1]) == (code, nodes)
    assert "node 1 (job-1) -> the hub at job-0.job." in found.sentence
    assert "NetworkPolicy" in found.hint


def test_the_hubs_port_is_dropped(faults: Faults, start: Start) -> None:
    """Other ports of its pod answer, so that nobody waits for a network that is not ready yet."""
    faults.nft(faults.cluster.workers[0], f"tcp dport {GATE} drop")
    job = start(gate={**PLAIN["gate"], "timeout": "90s"})

    code, nodes, found = told(job, 1)
    assert ("port-filtered", [1]) == (code, nodes)
    assert "while other ports there answer: a firewall drops this one" in found.sentence


def test_the_master_port_is_dropped(faults: Faults, start: Start) -> None:
    """All but one port is open: the node on which it is, and a port that answers."""
    for machine in faults.cluster.workers:
        faults.nft(machine, f"tcp dport {MASTER} drop")
    job = start()

    code, nodes, found = told(job, 0)
    assert ("port-filtered", [0]) == (code, nodes)
    assert "port 29500: no answer in" in found.sentence
    assert "answers: a firewall drops this port" in found.sentence
    assert "PodFailurePolicy" == job.ended()
    assert ("port-filtered", [0]) == (job.verdict.code, job.verdict.nodes)


def test_connections_in_one_direction_only(faults: Faults, start: Start) -> None:
    """The pod of node 1 makes connections and takes none."""
    job = placed(faults, start)
    syn = "tcp flags & (syn | ack) == syn"
    faults.nft(faults.cluster.workers[1], f'iifname "eth0" {syn} drop')
    comes(job)

    code, nodes, found = told(job, 0)
    assert ("network-one-way", [0, 1]) == (code, nodes)  # of two nodes, either may be at fault
    assert "node 0 (job-0) cannot open connections to node 1 (job-1, " in found.sentence
    assert "lets connections out and not in" in found.hint


def test_large_packets_vanish(faults: Faults, start: Start) -> None:
    """Between the two machines, as by a tunnel with an MTU too large."""
    for machine in faults.cluster.workers:
        faults.nft(machine, "meta length gt 1000 drop")
    job = start()

    code, _, _ = told(job, 0)
    assert "mtu-black-hole" == code
    assert "PodFailurePolicy" == job.ended()


def test_a_stranger_has_the_port(start: Start) -> None:
    """A program of the image answers in HTTP where the hub of node 0 should."""

    def instead(documents: Documents) -> None:
        containers(documents)["hub"]["command"] = SERVE_HTTP

    job = start(instead)

    code, nodes, found = told(job, 1)
    assert ("stranger-listens", [0]) == (code, nodes)
    assert "HTTP" in found.sentence


# --- what the containers have


def test_an_image_without_torch(start: Start) -> None:
    """The image's own Python has none."""
    job = start(gate={"port": GATE})

    code, nodes, found = told(job, 0)
    assert ("image-lacks", [0, 1]) == (code, nodes)
    assert "/usr/bin/python3 has no torch" in found.sentence
    assert Exit.MISCONFIGURED == job.last_words(0, "gate")["exit"]
    assert "PodFailurePolicy" == job.ended()


def test_shared_memory_of_a_container(start: Start) -> None:
    """64 MiB, as it is where nobody mounts anything there, and the job asks for 1 GiB."""

    def without_mount(documents: Documents) -> None:
        for each in containers(documents).values():
            each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] != "shm"]

    job = start(without_mount, resources={"shm": "1Gi"})

    code, nodes, found = told(job, 0)
    assert ("shm-too-small", [0, 1]) == (code, nodes)
    assert "/dev/shm is 64 MiB; wanted: 1.0 GiB" in found.sentence
    assert "`resources.shm`" in found.hint


def test_gpus_that_only_the_scheduler_sees(faults: Faults, start: Start) -> None:
    """The nodes say that they have some, the pods are scheduled by that, and no container has a device."""
    for machine in faults.cluster.workers:
        faults.add_resource(machine, 2)
    job = start(resources={"gpus": 2})

    code, nodes, found = told(job, 0)
    assert ("gpu-missing", [0, 1]) == (code, nodes)
    assert "no device of a GPU is here; wanted: 2" in found.sentence
    assert "PodFailurePolicy" == job.ended()


def test_nodes_with_different_software(cluster: Cluster, start: Start) -> None:
    """Node 1 finds another torch than node 0: an environment of its machine, say, comes first on its path."""
    lines = (
        "mkdir -p /ddplaunch/torch/distributed; touch /ddplaunch/torch/__init__.py; "
        "echo \"__version__ = '2.$((13 + DDPLAUNCH_NODE)).0'\" > /ddplaunch/torch/version.py; "
        "touch /ddplaunch/torch/distributed/__init__.py /ddplaunch/torch/distributed/run.py; "
    )

    def another(documents: Documents) -> None:
        gate = containers(documents)["gate"]
        words = " ".join(gate["command"])
        gate["command"] = ["sh", "-c", f"{lines} export PYTHONPATH=/ddplaunch; exec {words}"]

    job = start(another, gate={"port": GATE})

    code, nodes, found = told(job, 0)
    assert ("version-differs", [1]) == (code, nodes)
    assert found.sentence.startswith("node 1 (job-1) has torch 2.14.0, node 0 (job-0) torch 2.13.0")
    assert Exit.MISCONFIGURED == job.last_words(0, "gate")["exit"]


# --- nodes


def test_a_machine_that_stops(faults: Faults, start: Start) -> None:
    """The kubelet of node 1's machine is frozen before it starts the pod that it was given."""
    job = placed(faults, start, gate={**PLAIN["gate"], "timeout": "15s"})
    faults.pause(faults.cluster.workers[1])
    comes(job)

    code, nodes, found = told(job, 0)
    assert ("node-missing", [1]) == (code, nodes)
    assert "node 1 (job-1) never came" in found.sentence


# --- a name that was used before


def test_a_name_that_is_used_again_while_the_old_pods_end(cluster: Cluster, start: Start) -> None:
    """It leads to two pods for a while, and the gate is not taken in by the one that ends."""

    def stubborn(documents: Documents) -> None:
        document(documents, "Job")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 25
        containers(documents)["gate"]["command"] = ["sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"]

    old = start(stubborn)
    old.said(0, "hub", "listens on")
    before = old.address(0)
    words = ["--namespace", old.namespace, "--wait=false"]
    cluster.kubectl("delete", "job", "job", "--cascade=background", *words)
    cluster.kubectl("delete", "configmap,service", "--all", *words)
    job = start(gate={**PLAIN["gate"], "timeout": "100s"})
    cluster.until(lambda: job.address(0) != before, "the new pod has an address", 180)
    assert before in [pod["status"].get("podIP") for pod in job.all_pods()], "the old pod is gone too soon"
    job.said(1, "gate", "gate passed", seconds=100)


# --- and how it looks from outside


def test_restricted(cluster: Cluster, tmp_path: Path) -> None:
    """Where Pod Security `restricted` is enforced the job runs, as a user that the image does not know."""
    with cluster.namespace(**{"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        keys: dict[str, Any] = {
            **PLAIN,
            "gate": {**PLAIN["gate"], "skip": []},
            "kubernetes": {"restricted": True, "run_as_user": 54321},
        }
        job = Job.submit(cluster, namespace, tmp_path, STEPS, **keys)

        code, nodes, _ = told(job, 0)  # there are no volumes of the machine, and so no torch
        assert ("image-lacks", [0, 1]) == (code, nodes)
        assert "PodFailurePolicy" == job.ended()
        assert ("image-lacks", [0, 1]) == (job.verdict.code, job.verdict.nodes)
