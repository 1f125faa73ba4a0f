"""Job files for Kubernetes: right ones, and ones that are wrong in the ways in which people's are."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ddplaunch.agent.contract import CHECKS
from ddplaunch.agent.job_file.units import format_duration, format_quantity

Drawn = st.SearchStrategy[Any]


def section(**keys: Drawn) -> Drawn:
    """A mapping with some of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


# YAML forbids control characters and lone surrogates outright.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=12)
TRICKY = st.sampled_from(
    ["yes", "1e3", "0o7", "1:30", "null", "~", "=", "- a", "{x}", "$(A)", "<&>", "#", " a"]
)
WORDS = st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True)
VARIABLES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map(lambda name: f"MY_{name}")
VALUES = st.one_of(WORDS, st.sampled_from(["y", "1", "0x1F", "1.0", "true", "a_b.c", ""]))
KEYS = st.one_of(WORDS, WORDS.map(lambda word: f"example.com/{word}"))

SECONDS = st.one_of(
    st.integers(1, 31_000_000),
    st.integers(1, 31_000_000).map(lambda seconds: format_duration(float(seconds))),
    st.integers(1, 10**7).map(lambda thousandths: format_duration(thousandths / 1000)),
    st.sampled_from(
        ["1.5h", "0.1m", "1h30m", "1.1h", "2m30.5s", "2.5s", "3.5s", "500ms", 2.5, 90.0, "7d", "30m1h"]
    ),
)


OVERLAYS: list[Any] = [
    {"spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}, "hostname": None}},
    {"metadata": {"labels": {"a": "b"}, "annotations": {"karpenter.sh/do-not-disrupt": None}}},
    {"spec": {"containers": [{"name": "trainer", "env": [{"name": "A", "value": "1"}], "tty": True}]}},
    {"spec": {"initContainers": [{"name": "fetch", "image": "busybox"}, {"name": "hub", "stdin": True}]}},
    {"spec": {"volumes": [{"name": "shm", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
    {
        "spec": {
            "volumes": [{"name": "more", "emptyDir": {}}, {"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]
        }
    },
    {"spec": {"securityContext": {"$patch": "replace", "runAsUser": 7}, "priority": 5}},
    {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}], "topologySpreadConstraints": []}},
    {"spec": {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "$patch": "delete"}]}},
    {"spec": {"containers": [{"name": "side", "image": "x"}, {"name": "trainer", "workingDir": "/x"}]}},
    {"spec": {"containers": [{"name": "trainer", "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}]}},
    {"spec": {"dnsPolicy": "None", "terminationGracePeriodSeconds": 600}},
    {"spec": {"affinity": {"nodeAffinity": {"x": [{"$patch": "delete"}, {"a": None, "b": [1, None]}]}}}},
    {"spec": {"volumes": [{"name": "b", "emptyDir": {}}, {"name": "shm", "$patch": "delete"}]}},
    {
        "spec": {
            "containers": [{"name": "trainer", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]
        }
    },
    {
        "spec": {
            "containers": [
                {"name": "trainer", "$setElementOrder/env": [], "env": [{"name": "Z", "value": ""}]}
            ]
        }
    },
    {"$setElementOrder/x": [], "spec": {"$deleteFromPrimitiveList/none": [], "tolerations": [{"a": 1}]}},
    {"spec": {"nodeSelector": {"a": "b"}, "imagePullSecrets": [{"name": "z"}, {"name": "a"}]}},
    {"spec": {"$patch": "merge", "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "x": 12345678}},
    {"spec": {"imagePullSecrets": [{"$patch": "replace"}, {"name": "only"}], "y": 1.5, "z": True}},
]

WRONG_OVERLAYS: list[Any] = [
    {"spec": {"subdomain": "other"}},
    {"spec": {"containers": [{"name": "trainer", "$patch": "delete"}]}},
    {"spec": {"containers": [{"name": "trainer", "image": "other"}]}},
    {"spec": {"initContainers": "none"}},
    {"spec": {"containers": [{"image": "x"}]}},
    {"spec": {"terminationGracePeriodSeconds": 5}},
    {"metadata": {"labels": None}},
    {"spec": {"volumes": [{"name": "files", "$patch": "delete"}]}},
    {"spec": {"$patch": "merg"}},
    {"spec": {"containers": [7, "x"]}},
    {"spec": {"securityContext": [1]}},
    {"spec": {"volumes": [{"name": "a", "$patch": "merge"}]}},
    {"spec": {"initContainers": [{"name": "late", "image": "x"}, {"name": "hub"}]}},
    {"spec": {"initContainers": [{"name": "gate"}, {"name": "late", "image": "x"}]}},
    {"spec": {"initContainers": [{"name": "gate", "command": ["true"]}]}},
    {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"a/b": 1}}}]}},
    {"spec": {"containers": [{"name": "trainer", "env": [{"name": "DDPLAUNCH_KEY", "value": "x"}]}]}},
    {
        "spec": {
            "containers": [{"name": "trainer", "volumeMounts": [{"mountPath": "/ddplaunch", "name": "x"}]}]
        }
    },
    {"spec": {"hostNetwork": True, "dnsPolicy": "Default"}},
]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITIES: list[Any] = [
    {},
    {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
    {"podAntiAffinity": {REQUIRED: [{"topologyKey": "rack"}], "other": [{"weight": 100}]}},
    {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
        "podAntiAffinity": {},
    },
]
WRONG_AFFINITIES: list[Any] = [
    {"nodeaffinity": {}},
    {"podAffinity": []},
    {"podAntiAffinity": {REQUIRED: {"topologyKey": "rack"}}},
]


def depending(holder: Drawn, on: str, *keys: str) -> Drawn:
    """The same mappings without `keys` where what they depend on is missing."""
    return holder.map(
        lambda found: found if found.get(on) else {k: v for k, v in found.items() if k not in keys}
    )


def jobs(*, slips: bool) -> Drawn:
    """Job files as mappings; with `slips`, each of their values is wrong once in a while."""

    def mostly(right: Drawn, wrong: Drawn) -> Drawn:
        return st.integers(0, 14).flatmap(lambda dice: right if dice else wrong) if slips else right

    durations = mostly(SECONDS, st.sampled_from(["0s", "1h2h", "400d", "1.5 h", "-3s", 0, -1]))
    sizes = mostly(
        st.one_of(
            st.integers(1, 2**50),
            st.integers(1, 2**50).map(format_quantity),
            st.sampled_from(["1.5Gi", "16Gi", "500M", "0.5Ti", "1000k", "1024Ki", "2048Mi", "010M"]),
        ),
        st.sampled_from(["0", "1.0001k", "9999999T", "2Gb", 0, "100m"]),
    )
    ports = mostly(
        st.sampled_from([29400, 29401, 29500, 1024, 61000, 65535]), st.sampled_from([80, 40000, 29400])
    )

    secrets = mostly(
        st.fixed_dictionaries(
            {"secret": st.fixed_dictionaries({"name": WORDS, "key": st.one_of(WORDS, VALUES)})}
        ),
        st.sampled_from([{"env": "A"}, {"file": "b"}, {}, {"env": "A", "file": "b"}]),
    )
    hooks = st.fixed_dictionaries(
        {"webhook": st.fixed_dictionaries({"secret": st.fixed_dictionaries({"name": WORDS, "key": WORDS})})},
        optional={"format": st.sampled_from(["json", "slack"]), "when": st.just(["end"])},
    )
    recipients = mostly(
        st.one_of(hooks, st.sampled_from([{"command": ["mail"]}, {"events": True}])),
        st.sampled_from([{"command": []}, {}, {"webhook": {"env": "A"}}, {"events": False}]),
    )
    volumes = st.lists(
        st.builds(
            lambda name, path, kind, rest: {"name": name, "mount_path": path, **kind, **rest},
            mostly(WORDS, st.sampled_from(["shm", "files", "a"])),
            mostly(
                WORDS.map(lambda word: f"/{word}"),
                st.sampled_from(["/dev/shm/", "/ddplaunch/x", "/", "/a:b"]),
            ),
            mostly(
                st.sampled_from([{"claim": "data"}, {"empty_dir": True}, {"host_path": "/srv/x y"}]),
                st.sampled_from([{}, {"claim": "data", "empty_dir": True}, {"host_path": "/a/../b"}]),
            ),
            section(read_only=st.booleans()),
        ),
        max_size=3,
    )
    tolerations = st.lists(
        mostly(
            st.sampled_from(
                [
                    {"operator": "Exists"},
                    {"key": "gpu", "value": "yes"},
                    {"key": "a/b", "operator": "Exists", "effect": "NoExecute", "toleration_seconds": 0},
                    {"key": "gpu", "value": "", "effect": "NoSchedule"},
                ]
            ),
            st.sampled_from(
                [
                    {},
                    {"operator": "Exists", "value": "x"},
                    {"key": "gpu", "toleration_seconds": 3},
                    {"key": "-"},
                ]
            ),
        ),
        max_size=2,
    )
    overlays = mostly(st.sampled_from(OVERLAYS), st.sampled_from(WRONG_OVERLAYS))

    commands = mostly(
        st.builds(
            lambda first, rest: [first, *rest],
            st.sampled_from(["train.py", "-m", "./run.sh", "src/a b.py"]),
            st.lists(st.one_of(TEXT, TRICKY), max_size=3),
        ),
        st.sampled_from(
            [["torchrun", "a.py"], ["python3", "a.py"], ["--nnodes=2", "a.py"], ["train.py --lr 1"], []]
        ),
    )
    kubernetes = section(
        namespace=WORDS,
        service_account=WORDS,
        queue=mostly(WORDS, st.just("q" * 64)),
        jobset=st.booleans(),
        queue_priority=WORDS,
        topology=mostly(
            st.sampled_from(
                [{"required": "cloud.example.com/rack"}, {"preferred": "block", "required": None}]
            ),
            st.sampled_from([{}, {"required": "a", "preferred": "b"}, {"preferred": "-x"}]),
        ),
        priority_class=WORDS,
        node_selector=st.dictionaries(KEYS, mostly(VALUES, TEXT), max_size=2),
        affinity=mostly(st.sampled_from(AFFINITIES), st.sampled_from(WRONG_AFFINITIES)),
        one_per_machine=st.booleans(),
        tolerations=tolerations,
        labels=st.dictionaries(
            mostly(KEYS, st.sampled_from(["app.kubernetes.io/x", "job-name", "-a"])),
            mostly(VALUES, TEXT),
            max_size=2,
        ),
        annotations=st.dictionaries(
            mostly(KEYS, st.sampled_from(["ddplaunch/spec", "k8s.v1.cni.cncf.io/networks"])), TEXT, max_size=2
        ),
        image_pull_secrets=st.lists(WORDS, max_size=2),
        image_pull_policy=st.sampled_from(["Always", "IfNotPresent", "Never"]),
        host_network=st.sampled_from([False] * 3 + [True]),
        network_policy=st.sampled_from(["ports", "pods", "none"]),
        topology_spread=st.builds(
            lambda key, rest: {"key": key, **rest},
            mostly(st.sampled_from(["topology.kubernetes.io/zone", "kubernetes.io/hostname"]), st.just("-x")),
            section(
                max_skew=st.integers(1, 9),
                when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
            ),
        ),
        networks=st.lists(
            mostly(st.sampled_from(["a", "ns/b", "c@net1", "ns/d@e"]), st.just("a/b/c")), max_size=2
        ),
        gpu_resource=mostly(st.just("amd.com/gpu"), st.just("gpu")),
        gpu_type_label=mostly(st.just("cloud.google.com/gke-accelerator"), st.sampled_from(["a b", "a"])),
        rdma_resource=mostly(st.just("rdma/hca"), st.just("kubernetes.io/x")),
        cluster_domain=mostly(st.just("cluster.test"), st.just(".".join(["d" * 60] * 4))),
        restricted=st.sampled_from([False] * 4 + [True]),
        run_as_user=st.integers(0, 2000),
        active_deadline=mostly(st.sampled_from(["300d", 31_000_000.5]), durations),
        ttl=durations,
        pod_template=overlays,
        version=mostly(st.sampled_from(["1.29", "1.31", "1.34"]), st.just("1.28")),
    )
    resources = section(
        gpus=mostly(st.integers(8, 64), st.integers(0, 3)),
        gpu_type=mostly(st.sampled_from(["h100", "NVIDIA-L4", "1e3"]), st.sampled_from(["h 100", ""])),
        cpus=st.one_of(
            st.sampled_from([2.007, 0.5]),
            st.integers(1, 256),
            st.integers(1, 99_999).map(lambda number: number / 1000),
        ),
        memory=sizes,
        shm=sizes,
        rdma=st.sampled_from([0, 0, 0, 1, 2]),
    )
    if not slips:
        kubernetes = depending(kubernetes, "queue", "queue_priority", "topology")
        resources = depending(resources, "gpus", "gpu_type")
    whole = st.fixed_dictionaries(
        {
            "apiVersion": st.just("ddplaunch/v1"),
            "name": mostly(WORDS, st.sampled_from(["a" * 50, "a" * 49, "1a", "My_Job"])),
            "command": commands,
            "image": mostly(
                st.sampled_from(
                    ["trainer", "registry.example.com:5000/team/trainer:1.0", f"a/b@sha256:{'0' * 64}"]
                ),
                st.sampled_from(["Trainer", "a b", None]),
            ),
        },
        optional={
            "nodes": mostly(st.integers(1, 10_000), st.sampled_from([0, 10_001, "2", 1.5])),
            "min_nodes": mostly(st.integers(1, 3), st.sampled_from([0, 10_001, "2"])),
            "nproc_per_node": st.integers(1, 8),
            "launch": mostly(st.just("torchrun"), st.just("mpi")),
            "python": st.sampled_from(["python3", "/opt/my python", "$(X)/python"]),
            "env": st.dictionaries(
                mostly(
                    VARIABLES, st.sampled_from(["RANK", "PET_X", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
                ),
                st.one_of(TEXT, TRICKY),
                max_size=3,
            ),
            "secrets": st.dictionaries(VARIABLES.map(lambda name: f"S_{name}"), secrets, max_size=2),
            "notify": st.lists(recipients, max_size=2),
            "volumes": volumes,
            "workdir": mostly(st.just("/srv/my project"), st.just(None)),
            "resources": resources,
            "rendezvous": section(
                backend=st.sampled_from(["static", "c10d"]),
                address=mostly(st.just("n0.example.com"), st.just("n0:29500")),
                port=ports,
                timeout=durations,
                max_restarts=mostly(st.just(0), st.integers(0, 3)),
            ),
            "gate": section(
                enabled=st.booleans(),
                timeout=durations,
                port=ports,
                interface=mostly(st.just("eth0"), st.just("a b")),
                skip=st.lists(st.sampled_from(CHECKS), max_size=3),
                smoke_test=mostly(st.just(False), st.just(True)),
            ),
            "watchdog": section(
                notice_after=durations,
                kill_after=st.one_of(st.just("never"), durations),
                privileges=st.sampled_from(["none", "ptrace"]),
            ),
            "resume": mostly(section(args=st.lists(WORDS, max_size=2)), st.just({"dir": "/elsewhere"})),
            "retry_hangs": st.booleans(),
            "retries": mostly(st.just(0), st.integers(0, 3)),
            "kubernetes": kubernetes,
            "slurm": section(
                extra=mostly(st.just(["--x"]), st.just(["-N 3"])),
                container=mostly(st.just({"runtime": "pyxis", "image": "a b"}), st.just({"image": "a"})),
            ),
            "local": st.just({}),
        },
    )
    return whole if slips else whole.map(_ranged)


def _ranged(job: dict[str, Any]) -> dict[str, Any]:
    """The same job, without a range of nodes where it cannot have one."""
    gate, meet = job.get("gate", {}), job.get("rendezvous", {})
    may = meet.get("backend") == "c10d" and gate.get("enabled", True) and not gate.get("smoke_test")
    if may and job.get("nodes", 1) > job.get("min_nodes", 0):
        return job
    return {key: value for key, value in job.items() if key != "min_nodes"}
