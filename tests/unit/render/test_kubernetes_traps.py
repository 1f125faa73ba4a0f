"""What goes wrong with training on Kubernetes, trap by trap, as far as the manifest can keep out of it.

Names that come too long or begin with a digit are in tests/unit/plan/test_kubernetes.py, and so are times:
the gate's own, which outlasts a negative cache, and Kubernetes' deadline: the watchdog has to speak first.
How a container ends the job, which devices the gate has, the machines' own network and a closed namespace
are in tests/golden/kubernetes, whole. What only a running agent can do (exactly one address of a name, who
answers, which interface, reverse look-ups, evidence before the end) is in tests/agent and
tests/cluster/kubernetes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch.agent.contract import Env
from ddplaunch.plan import plan
from ddplaunch.render import kubernetes
from ddplaunch.spec.load import parse

DEVICES = {"gpus": 2, "rdma": 1, "memory": "8Gi"}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def manifest(*, gate_only: bool = False, **changes: Any) -> dict[str, Any]:
    """Objects by kind, in their order; `pod` is the pod's spec, `job` the Job's."""
    job = {
        "apiVersion": "ddplaunch/v1",
        "name": "job",
        "image": "a",
        "command": ["a.py"],
        "nodes": 2,
        **changes,
    }
    made = plan.make(parse(json.dumps(job).encode(), "job.yaml"), "kubernetes", Path())
    (file,) = kubernetes.render(made, gate_only=gate_only).files.values()
    found = {each["kind"]: each for each in yaml.load_all(file.content, yaml.CSafeLoader)}
    if "JobSet" in found:
        inner = found["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    else:
        inner = found["Job"]["spec"]
    return {**found, "job": inner, "template": inner["template"], "pod": inner["template"]["spec"]}


def containers(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """python, hub, gate and trainer by name, in the order in which they start."""
    pod = found["pod"]
    return {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """Value or source of each variable."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", ())}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "job-{node}.job.$(DDPLAUNCH_NAMESPACE).svc.{domain}"),
        ({"cluster_domain": "my.dns"}, "job-{node}.job.$(DDPLAUNCH_NAMESPACE).svc.my.dns"),
        ({"jobset": True}, "job-node-0-{node}.job.$(DDPLAUNCH_NAMESPACE).svc.{domain}"),
    ],
)
def test_nodes_are_called_by_their_full_names(options: dict[str, Any], name: str) -> None:
    """No search list is walked through, and the variable it takes stands before it."""
    found = containers(manifest(kubernetes=options))
    for container in ("hub", "gate", "trainer"):
        variables = environment(found[container])
        order = list(variables)

        assert (name, f"{name.replace('{node}', '0')}:29400") == (variables[Env.NAMES], variables[Env.HUB])
        assert order.index(Env.NAMESPACE) < order.index(Env.NAMES) < order.index(Env.HUB)
        assert {"fieldRef": {"fieldPath": "metadata.namespace"}} == variables[Env.NAMESPACE]


@pytest.mark.parametrize("rendezvous", [{}, {"port": 29400}, {"port": 29500}])
def test_the_hub_never_takes_the_port_of_the_store(rendezvous: dict[str, Any]) -> None:
    """A store that is probed stands still for seconds."""
    found = manifest(rendezvous=rendezvous)
    ports = {each["name"]: each["port"] for each in found["Service"]["spec"]["ports"]}
    told = json.loads(found["ConfigMap"]["data"]["plan.json"])

    assert rendezvous.get("port") == ports.get("store") == told.get("master_port")
    assert ports["hub"] == told["gate"]["port"] != ports.get("store")


def test_the_hub_outlives_the_gate_and_the_gate_can_fail() -> None:
    """A native sidecar is there before and after, but is always started again: the verdict is the gate's.

    What no agent could say, because the image has no Python for it, a container that can fail says before.
    """
    found = containers(manifest())

    assert ["python", "hub", "gate", "trainer"] == list(found)
    assert [None, "Always", None, None] == [each.get("restartPolicy") for each in found.values()]
    assert ["--version", "hub", "gate", "run"] == [each["command"][4] for each in found.values()]


def test_the_gate_waits_until_the_trainers_image_is_there() -> None:
    """An image of its own would pass in seconds, and the trainer's would still be minutes away."""
    found = containers(manifest(kubernetes={"image_pull_policy": "Always"}))

    assert {("a", "Always")} == {(each["image"], each["imagePullPolicy"]) for each in found.values()}


def test_no_node_is_ever_replaced_alone() -> None:
    """The others would hang in a collective with a rank that is no more; the gang starts again as a whole."""
    again = manifest(retries=2, kubernetes={"jobset": True})
    rules = again["job"]["podFailurePolicy"]["rules"]

    assert set() == {"backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"} & set(manifest()["job"])
    assert {"action": "Count", "onPodConditions": DISRUPTED} == rules[0]
    assert [[0, 20, 60], [0, 20, 60], [0, 20, 60]] == [rule["onExitCodes"]["values"] for rule in rules[1:]]
    assert {
        "maxRestarts": 2,
        "restartStrategy": "BlockingRecreate",
        "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"]}],
    } == again["JobSet"]["spec"]["failurePolicy"]
    assert {
        "fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}
    } == environment(containers(again)["gate"])[Env.ATTEMPT]


def test_a_hang_starts_the_gang_again_only_where_the_job_file_asks() -> None:
    """Most hangs are bugs, which come back; a plain Job starts nothing again."""
    found = manifest(retries=2, retry_hangs=True, kubernetes={"jobset": True})["job"]
    plain = manifest(retry_hangs=True)["job"]

    for job, codes in ((found, [0, 20, 50, 60]), (plain, [0])):
        rules = job["podFailurePolicy"]["rules"][1:]
        assert [codes] * 3 == [rule["onExitCodes"]["values"] for rule in rules]


@pytest.mark.parametrize("jobset", [False, True])
def test_a_queued_job_waits_for_its_turn(jobset: bool) -> None:
    """Suspended, with Kueue's label; nothing deletes it when it has ended."""
    found = manifest(kubernetes={"queue": "team-a", "jobset": jobset})
    workload = found["JobSet" if jobset else "Job"]

    assert (True, "team-a", None) == (
        workload["spec"]["suspend"],
        workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
        workload["spec"].get("ttlSecondsAfterFinished"),
    )
    assert "kueue.x-k8s.io/queue-name" not in found["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("job", "closed"),
    [
        ({}, {29400}),
        ({"gate": {"port": 1024}}, {1024}),
        ({"gate": {"port": 32767}}, {32767}),
        ({"rendezvous": {"port": 29500}}, {29400, 29500}),
        ({"rendezvous": {"port": 29401}}, {29400, 29401}),
    ],
)
def test_only_the_jobs_own_ports_are_closed_to_strangers(job: dict[str, Any], closed: set[int]) -> None:
    """All ports of UDP, and each other one of TCP, stay open to everybody; the job's pods reach all."""
    found = manifest(**job)["NetworkPolicy"]["spec"]
    pods, others = found["ingress"]
    open_ports: dict[str, set[int]] = {"TCP": set(), "UDP": set()}
    for each in others["ports"]:
        open_ports[each["protocol"]] |= set(range(each["port"], each["endPort"] + 1))
    every = set(range(1, 65536))

    assert (["Ingress"], {"batch.kubernetes.io/job-name": "job"}) == (
        found["policyTypes"],
        found["podSelector"]["matchLabels"],
    )
    assert {"from": [{"podSelector": found["podSelector"]}]} == pods
    assert ({"ports"}, every - closed, every) == (others.keys(), open_ports["TCP"], open_ports["UDP"])


@pytest.mark.parametrize("kubernetes", [{"network_policy": "none"}, {"host_network": True}])
def test_no_policy_where_none_is_wanted_or_heeded(kubernetes: dict[str, Any]) -> None:
    """By the switch; and on a machine's own network, of which a policy says nothing."""
    assert "NetworkPolicy" not in manifest(kubernetes=kubernetes)


def test_the_key_is_in_no_file() -> None:
    """The hub, the gate and the trainer take it from a Secret, and know what to do where there is none."""
    asked = [
        environment(container)["DDPLAUNCH_KEY"]
        for name, container in containers(manifest()).items()
        if name != "python"
    ]

    assert [{"secretKeyRef": {"name": "job-key", "key": "key", "optional": True}}] * 3 == asked
    assert "Secret" not in manifest()


def test_no_privilege_is_asked_for_unless_the_job_file_does() -> None:
    """All that `restricted` wants of a container; and what RDMA and py-spy need, where they need it."""
    plain = containers(manifest())
    asked = containers(
        manifest(
            resources=DEVICES, watchdog={"privileges": "ptrace"}, kubernetes={"rdma_resource": "rdma/hca"}
        )
    )

    assert [] == [name for name, each in plain.items() if "add" in each["securityContext"]["capabilities"]]
    assert {"gate": ["IPC_LOCK"], "trainer": ["IPC_LOCK", "SYS_PTRACE"]} == {
        name: added
        for name, each in asked.items()
        if (added := each["securityContext"]["capabilities"].get("add"))
    }
    assert {(False, ("ALL",))} == {
        (
            each["securityContext"]["allowPrivilegeEscalation"],
            tuple(each["securityContext"]["capabilities"]["drop"]),
        )
        for each in [*plain.values(), *asked.values()]
    }


def test_a_checkup_starts_no_training() -> None:
    plain, gate_only = containers(manifest()), containers(manifest(gate_only=True))

    assert plain["gate"] == gate_only["gate"]
    assert "--gate-only" == gate_only["hub"]["command"][-1]
    assert ["python3", "-I", "-S", "-c", "pass"] == gate_only["trainer"]["command"]


def test_a_path_with_a_dollar_is_no_variable() -> None:
    assert {"$$(HOME)/python"} == {
        each["command"][0] for each in containers(manifest(python="$(HOME)/python")).values()
    }
