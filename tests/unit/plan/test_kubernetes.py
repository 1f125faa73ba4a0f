"""What Kubernetes would refuse late is refused at once, and said with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.plan import plan
from ddplaunch.plan.plan import Plan
from ddplaunch.spec.load import parse
from ddplaunch.spec.problems import SpecError

JOB = {"apiVersion": "ddplaunch/v1", "name": "job", "image": "trainer", "command": ["train.py"]}


def made(**changes: Any) -> Plan:
    """The plan of a small job, changed as asked; None takes a key away."""
    job = {key: value for key, value in {**JOB, **changes}.items() if value is not None}
    return plan.make(parse(json.dumps(job).encode(), "job.yaml"), "kubernetes", Path(__file__).parent)


def problems(**changes: Any) -> list[tuple[str, str]]:
    """Path and finding of each problem of that job."""
    try:
        made(**changes)
    except SpecError as error:
        return [(problem.path, problem.found) for problem in error.problems]
    return []


def options(**changes: Any) -> dict[str, Any]:
    """Only the section of Kubernetes."""
    return {"kubernetes": changes}


def volume(**changes: Any) -> dict[str, Any]:
    """One volume."""
    return {"volumes": [{"name": "data", "mount_path": "/data", "claim": "data", **changes}]}


KEPT = {**volume(), "outputs": {"volume": "data"}}
SECRET = {"secret": {"name": "hf", "key": "token"}}
H100 = {"gpus": 1, "gpu_type": "h100"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RESTRICTED = {"restricted": True}
CLAIM = {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {}}}}}
CHECKPOINTS = {"resume": {"dir": "/data/job"}}
NFS = options(pod_template={"spec": {"volumes": [{"name": "a", "nfs": {"server": "nfs", "path": "/"}}]}})
STOP = {"spec": {"containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGTERM"}}]}}


@pytest.mark.parametrize(
    ("wrong", "right", "path", "found"),
    [
        ({"image": None}, {}, "image", "no image"),
        ({"image": "Trainer:1"}, {"image": "trainer:1"}, "image", '"Trainer:1"'),
        ({"image": "a/b:c/d"}, {"image": "a.io:5000/b_c/d@sha256:" + "0" * 64}, "image", '"a/b:c/d"'),
        ({"launch": "mpi"}, {"launch": "torchrun"}, "launch", "mpi"),
        ({"launch": "srun"}, {"launch": "none", "command": ["accelerate"]}, "launch", "srun"),
        ({"secrets": {"A": {"env": "A"}}}, {"secrets": {"A": SECRET}}, "secrets.A", "env or file"),
        ({"secrets": {"A": {"file": "a"}}}, {}, "secrets.A", "env or file"),
        (
            {"secrets": {"A": {"secret": {"name": "a", "key": "a/b"}}}},
            {"secrets": {"A": {"secret": {"name": "a", "key": "a.b_c-d"}}}},
            "secrets.A.secret.key",
            "no such key",
        ),
        (
            {"metrics": {"port": 29400}},
            {"metrics": {"port": 9400}},
            "metrics.port",
            "29400, which is the hub's",
        ),
        (
            {"notify": [{"webhook": {"env": "A"}}]},
            {"notify": [{"webhook": SECRET}, {"command": ["a"]}]},
            "notify[0].webhook",
            "env or file",
        ),
        (
            {"notify": [{"webhook": {"secret": {"name": "a", "key": "a/b"}}}]},
            {},
            "notify[0].webhook.secret.key",
            "no such key",
        ),
        ({"retries": 1}, {"retries": 1, **options(jobset=True)}, "retries", "1"),
        (CHECKPOINTS, {**CHECKPOINTS, **volume()}, "resume.dir", "/data/job"),
        ({**CHECKPOINTS, **volume(mount_path="/dat")}, CHECKPOINTS | NFS, "resume.dir", "/data/job"),
        ({**CHECKPOINTS, **volume(claim=None, empty_dir=True)}, {}, "resume.dir", "/data/job"),
        (
            {"resources": {"shm": "1Gi", "memory": "1Gi"}},
            {"resources": {"shm": "1Gi", "memory": "2Gi"}},
            "resources.shm",
            "1Gi",
        ),
        (
            {"resources": {"rdma": 1}},
            {"resources": {"rdma": 1}, **options(rdma_resource="rdma/hca")},
            "kubernetes.rdma_resource",
            "nothing",
        ),
        (volume(name="shm"), volume(name="shm-2"), "volumes[0].name", "shm"),
        (volume(mount_path="/dev/shm/"), volume(mount_path="/dev/shm2"), "volumes[0].mount_path", "/dev/shm"),
        (
            volume(mount_path="/ddplaunch/x"),
            volume(mount_path="/ddplaunch2"),
            "volumes[0].mount_path",
            "/ddplaunch/x",
        ),
        (volume(mount_path="/"), volume(mount_path="/a"), "volumes[0].mount_path", "/"),
        (volume(mount_path="/a:b"), volume(mount_path="/a,b"), "volumes[0].mount_path", "/a:b"),
        (
            volume(claim=None, host_path="/a/../b"),
            volume(claim=None, host_path="/a..b"),
            "volumes[0].host_path",
            "a path with '..'",
        ),
        (
            {**KEPT, "workdir": "/work", "source": ["test_kubernetes.py"]},
            {**KEPT, "source": ["test_kubernetes.py"]},
            "workdir",
            "workdir with outputs",
        ),
        (KEPT, {**KEPT, "command": ["/app/train.py"]}, "command[0]", '"train.py" with outputs'),
        (KEPT, {**KEPT, "command": ["-m", "train"]}, "command[0]", '"train.py" with outputs'),
        (KEPT, volume(), "command[0]", '"train.py" with outputs'),
        (
            options(labels={"app.kubernetes.io/name": "x"}),
            options(labels={"name": "x"}),
            "kubernetes.labels",
            "app.kubernetes.io/name, which is set already",
        ),
        (
            options(tolerations=[{"key": "a/b/c", "operator": "Exists"}]),
            options(tolerations=[{"key": "a", "operator": "Exists"}]),
            "kubernetes.tolerations[0].key",
            '"a/b/c"',
        ),
        (
            {"resources": H100, **options(node_selector={"nvidia.com/gpu.product": "x"})},
            {"resources": H100, **options(node_selector={"nvidia.com/gpu.count": "8"})},
            "kubernetes.node_selector",
            "nvidia.com/gpu.product",
        ),
        (
            options(affinity={"podAntiAffinity": {REQUIRED: {"topologyKey": "rack"}}}),
            options(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "rack"}]}}),
            f"kubernetes.affinity.podAntiAffinity.{REQUIRED}",
            "no list",
        ),
        (
            options(queue="team", topology={"required": "/rack"}),
            options(queue="team", topology={"required": "rack"}),
            "kubernetes.topology.required",
            '"/rack"',
        ),
        (
            options(queue="team", topology={}),
            options(queue="team", topology={"preferred": "rack"}),
            "kubernetes.topology",
            "both or none",
        ),
        (
            options(topology={"required": "rack"}),
            options(queue="team", topology={"required": "rack"}),
            "kubernetes.topology",
            "no queue",
        ),
        (
            options(queue_priority="high"),
            options(queue="team", queue_priority="high"),
            "kubernetes.queue_priority",
            "no queue",
        ),
        (
            options(labels={"kueue.x-k8s.io/priority-class": "high"}),
            options(labels={"kueue": "high"}),
            "kubernetes.labels",
            "kueue.x-k8s.io/priority-class, which is set already",
        ),
        (
            options(host_network=True, network_policy="pods"),
            options(network_policy="pods"),
            "kubernetes.network_policy",
            "pods with host_network",
        ),
        (
            {"watchdog": {"privileges": "ptrace"}, **options(**RESTRICTED)},
            {"watchdog": {"privileges": "ptrace"}},
            "watchdog.privileges",
            "ptrace, which is the capability SYS_PTRACE",
        ),
        (
            {"resources": {"rdma": 1}, **options(**RESTRICTED, rdma_resource="rdma/hca")},
            {"resources": {"rdma": 0}, **options(**RESTRICTED)},
            "resources.rdma",
            "RDMA, which needs the capability IPC_LOCK",
        ),
        (options(**RESTRICTED, host_network=True), options(**RESTRICTED), "kubernetes.host_network", "true"),
        (
            options(**RESTRICTED, run_as_user=0),
            options(**RESTRICTED, run_as_user=1),
            "kubernetes.run_as_user",
            "0, which is root",
        ),
        (
            {**volume(claim=None, host_path="/a"), **options(**RESTRICTED)},
            {**volume(), **options(**RESTRICTED)},
            "volumes[0].host_path",
            "a folder of the machine",
        ),
        (
            options(version="1.31", pod_template={"spec": {"resources": {"limits": {"cpu": 1}}}}),
            options(version="1.32", pod_template={"spec": {"resources": {"limits": {"cpu": 1}}}}),
            "kubernetes.pod_template.spec.resources",
            "a field that Kubernetes 1.31 lacks",
        ),
        (
            options(version="1.31", pod_template={"spec": {"resources": {}, "volumes": [CLAIM]}}),
            options(version="1.31", pod_template={"spec": {"volumes": [CLAIM]}}),
            "kubernetes.pod_template.spec.resources",
            "a field that Kubernetes 1.31 lacks",
        ),
        (
            options(version="1.32", pod_template=STOP),
            options(pod_template=STOP),
            "kubernetes.pod_template.spec.containers[a].lifecycle.stopSignal",
            "a field that Kubernetes 1.32 lacks",
        ),
    ],
)
def test_each_limit_is_said_where_it_is_passed(
    wrong: dict[str, Any], right: dict[str, Any], path: str, found: str
) -> None:
    """One step within the limit nothing is said."""
    assert ([(path, found)], []) == (problems(**wrong), problems(**right))


@pytest.mark.parametrize(
    ("key", "wrong", "right", "below", "found"),
    [
        ("gpu_resource", "gpu", "amd.com/gpu", "", '"gpu"'),
        ("labels", {"a/b/c": "c"}, {"a.b/c": "c"}, "", 'the key "a/b/c"'),
        ("labels", {"a": "b c"}, {"a": ""}, ".a", '"b c"'),
        ("labels", {"a": "b" * 64}, {"a": "b" * 63}, ".a", f'"{"b" * 64}"'),
        ("annotations", {"a/b/c": ""}, {"a/b": ""}, "", 'the key "a/b/c"'),
        ("node_selector", {"a": "!"}, {"a": "b"}, ".a", '"!"'),
        ("topology_spread", {"key": "/zone"}, {"key": "zone"}, ".key", '"/zone"'),
        ("gpu_type_label", "a/b/c", "a/b", "", '"a/b/c"'),
        ("affinity", {"nodeaffinity": {}}, {"nodeAffinity": {}}, ".nodeaffinity", "an unknown key"),
        ("affinity", {"podAffinity": []}, {"podAffinity": {}}, ".podAffinity", "no mapping"),
        ("networks", ["a/b/c"], ["a/b@c"], "[0]", '"a/b/c"'),
        ("queue", "q" * 64, "q" * 63, "", "64 characters"),
        ("active_deadline", "10m", "11m", "", "10m"),
        ("version", "1.28", "1.29", "", "1.28"),
    ],
)
def test_each_key_of_the_section_has_its_limit(
    key: str, wrong: object, right: object, below: str, found: str
) -> None:
    """One step within the limit nothing is said."""
    assert [(f"kubernetes.{key}{below}", found)] == problems(**options(**{key: wrong}))
    assert [] == problems(**options(**{key: right}))


@pytest.mark.parametrize(("nodes", "room"), [(1, 48), (10, 48), (11, 47), (1000, 46), (10_000, 45)])
def test_a_jobset_has_less_room_for_a_name(nodes: int, room: int) -> None:
    """Its pods are called NAME-node-0-INDEX-abcde, and JobSet refuses more than 63 characters."""
    longest = {"name": "n" * room, "nodes": nodes, **options(jobset=True)}
    longer = {"name": "n" * (room + 1), "nodes": nodes, **options(jobset=True)}

    assert ([], [("name", f"{room + 1} characters")]) == (problems(**longest), problems(**longer))
    assert 63 == len(f"{'n' * room}-node-0-{nodes - 1}-abcde")


def test_the_longest_name_of_a_job_has_room() -> None:
    """A node's host name is NAME-INDEX, with at most 63 characters; the model's bound leaves room for it."""
    assert [] == problems(name="n" * 50, nodes=10_000)
    assert 63 >= len(f"{'n' * 50}-9999")


@pytest.mark.parametrize("name", ["1demo", "My_Job", "a" * 51, "a-", "a.b"])
def test_a_name_that_a_service_or_a_label_cannot_have_is_no_name(name: str) -> None:
    """A Job might have it; the Service beside it would be refused when the Job already stands."""
    assert ["name"] == [path for path, _ in problems(name=name)]


def test_a_full_name_is_one_that_resolvers_take() -> None:
    """253 characters for name, Service, namespace and domain."""
    domain = ".".join(["d" * 60] * 4)

    assert [("kubernetes.cluster_domain", "a name of 260 characters for a node")] == problems(
        **options(namespace="ns", cluster_domain=domain)
    )
    assert [] == problems(**options(namespace="ns", cluster_domain=domain[:-7]))


@pytest.mark.parametrize(
    ("changes", "timeout", "port"),
    [
        ({}, 600.0, 29400),
        ({"gate": {"timeout": "1m", "port": 20000}}, 60.0, 20000),
        ({"rendezvous": {"port": 29400}}, 600.0, 29401),
        (options(host_network=True), 600.0, 0),
        ({"gate": {"port": 20000}, **options(host_network=True)}, 600.0, 20000),
    ],
)
def test_the_gate_has_more_time_and_a_known_port(changes: dict[str, Any], timeout: float, port: int) -> None:
    """Nodes pull their images at different speeds; on a machine's own network the port is derived."""
    gate = made(**changes).job.gate

    assert (timeout, port) == (gate.timeout, gate.port)


SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def fields(minor: int, known: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """(key above, key) of a pod template of that version, nothing below what is not known before."""
    schema = json.loads((SCHEMAS / f"v1.{minor}.0-local" / "_definitions.json").read_text())["$defs"]
    template = next(name for name in schema if name.endswith("v1.PodTemplateSpec"))

    def below(name: str, above: str, seen: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for key, part in schema[name].get("properties", {}).items():
            yield above, key
            for kind in (part, part.get("items", {})):
                reference = kind.get("$ref", "").rpartition("/")[2].removesuffix(".json")
                if reference and reference not in seen and ((above, key) in known or not known):
                    yield from below(
                        reference, "pod" if (above, key) == ("", "spec") else key, (*seen, reference)
                    )

    return {pair for pair in below(template, "", ()) if "ephemeralContainers" not in pair}


def test_the_table_of_new_fields_is_that_of_the_schemas() -> None:
    """Every field that came after the oldest version and is still there, with the version it came with."""
    newest = max(int(folder.name.split(".")[1]) for folder in SCHEMAS.glob("v1.*-local"))
    known = fields(29, set())
    came: dict[tuple[str, str], int] = {}
    for minor in range(30, newest + 1):
        came |= dict.fromkeys(fields(minor, known) - known, minor)
        known = fields(minor, set())

    assert {pair: since for pair, since in came.items() if pair in known} == kubernetes.SINCE


@pytest.mark.parametrize(
    ("volumes", "keeps"),
    [
        ({}, False),
        (volume(read_only=True), False),
        (volume(claim=None, empty_dir=True), False),
        (volume(), True),
    ],
)
def test_files_are_kept_on_a_volume_that_can_be_written_and_outlives_the_pods(
    volumes: dict[str, Any], keeps: bool
) -> None:
    assert keeps is not made(**volumes).keeps_no_files
