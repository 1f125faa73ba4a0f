"""Job files for Kubernetes, drawn by chance, and what they are rendered to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.spec.load import parse
from ddplaunch.spec.models import JobSpec

HERE = Path()

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=12)
WORD = st.from_regex(r"[a-z]([a-z0-9]{0,7}[a-z0-9])?", fullmatch=True)
KEY = st.one_of(WORD, WORD.map(lambda word: f"example.com/{word}"))
VALUE = st.one_of(st.from_regex(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,9}[A-Za-z0-9])?", fullmatch=True), st.just(""))
LOOKS_LIKE = (
    "yes",
    "1e3",
    "0o7",
    "y",
    "null",
    "0x1",
    "1_0",
    "on",
    "1.0",
    "1e1000",
    "NaN",
    "2026-01-01",
    "0b1",
)
TRICKY = st.sampled_from(LOOKS_LIKE)
VARIABLE = st.from_regex(r"MY_[A-Z0-9_]{0,8}", fullmatch=True)


def section(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


def pairs(values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    """A few keys with such values."""
    return st.dictionaries(KEY, values, max_size=3)


TOLERATIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"operator": st.just("Exists")}),
    st.fixed_dictionaries(
        {"key": KEY, "value": VALUE, "effect": st.just("NoExecute"), "toleration_seconds": st.just(9)}
    ),
)
STORAGE: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"claim": "data"}, {"empty_dir": True}, {"claim": "data", "read_only": True}]
)
VOLUMES = st.lists(
    st.tuples(WORD.filter(lambda name: name not in ("files", "shm", "ddplaunch")), STORAGE),
    max_size=3,
    unique_by=lambda each: each[0],
).map(lambda found: [{"name": name, "mount_path": f"/mnt/{name}", **storage} for name, storage in found])
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ELSEWHERE = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "other"}}}
JOBS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "apiVersion": st.just("ddplaunch/v1"),
        "name": st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True),
        "image": st.sampled_from(["trainer", "registry.example.com:5000/a/b_c:v1.0"]),
        "command": st.lists(TEXT, max_size=3).map(lambda rest: ["train.py", *rest]),
    },
    optional={
        "nodes": st.integers(1, 10_000),
        "nproc_per_node": st.integers(1, 4),
        "python": TEXT.map(lambda text: f"/opt/{text}/python"),
        "env": st.dictionaries(VARIABLE, TEXT, max_size=3),
        "secrets": st.dictionaries(
            VARIABLE.map(lambda name: f"S_{name}"),
            st.fixed_dictionaries({"secret": st.fixed_dictionaries({"name": WORD, "key": WORD})}),
            max_size=2,
        ),
        "volumes": VOLUMES,
        "resources": section(
            gpus=st.integers(4, 8),
            cpus=st.floats(0.1, 256),
            memory=st.integers(2**31, 2**40),
            shm=st.integers(1, 2**30),
        ),
        "rendezvous": section(backend=st.just("c10d"), port=st.integers(20_000, 29_500)),
        "gate": section(port=st.integers(1024, 19_999), interface=st.just("eth0")),
        "kubernetes": section(
            namespace=WORD,
            service_account=WORD,
            queue=WORD,
            jobset=st.booleans(),
            priority_class=WORD,
            affinity=st.sampled_from([{}, {"podAntiAffinity": {REQUIRED: [ELSEWHERE]}}]),
            one_per_machine=st.booleans(),
            node_selector=pairs(st.one_of(VALUE, TRICKY)),
            tolerations=st.lists(TOLERATIONS, max_size=2),
            labels=pairs(st.one_of(VALUE, TRICKY)),
            annotations=pairs(st.one_of(TEXT, TRICKY)),
            image_pull_secrets=st.lists(WORD, max_size=2, unique=True),
            image_pull_policy=st.sampled_from(["Always", "Never"]),
            network_policy=st.sampled_from(["ports", "pods", "none"]),
            topology_spread=st.fixed_dictionaries({"key": KEY, "max_skew": st.integers(1, 9)}),
            networks=st.lists(WORD, max_size=2),
            cluster_domain=st.just("cluster.local"),
            restricted=st.booleans(),
            run_as_user=st.integers(1, 70_000),
            active_deadline=st.integers(601, 10**6),
            ttl=st.floats(0.5, 10**6),
        ),
    },
)  # fmt: skip


def spec(job: dict[str, Any]) -> JobSpec:
    """What the loader makes of it."""
    return parse(json.dumps(job, ensure_ascii=False).encode(), "job.yaml")


def rendered(job: dict[str, Any], folder: Path = HERE) -> str:
    """Its manifest; `source` lies in `folder`."""
    (file,) = render(plan.make(spec(job), "kubernetes", folder)).files.values()
    return file.content.decode()


def checkable(job: dict[str, Any], folder: Path = HERE) -> list[dict[str, Any]]:
    """The objects of its manifest; of a JobSet, which Kubernetes' own schemas do not know, the Job within."""
    found = list(yaml.load_all(rendered(job, folder), yaml.CSafeLoader))
    if found[-1]["kind"] == "JobSet":
        inner = found[-1]["spec"]["replicatedJobs"][0]["template"]
        found[-1] = {"apiVersion": "batch/v1", "kind": "Job", **inner}
    return found
