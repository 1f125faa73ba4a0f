"""The API server takes what was rendered, as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster.kubernetes.cache import ClusterError
from tests.cluster.kubernetes.cluster import Cluster
from tests.unit.render.kubernetes_jobs import JOBS, LOOKS_LIKE, checkable, rendered

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "kubernetes"
CASES = sorted(path.name for path in GOLDEN.iterdir())


def golden(case: str) -> list[dict[str, Any]]:
    """Its objects; of a JobSet, which not every cluster knows, the Job within."""
    return checkable(yaml.safe_load((GOLDEN / case / "job.yaml").read_text()), GOLDEN / case)


def dry_run(cluster: Cluster, namespace: str, objects: list[dict[str, Any]], *words: str) -> list[str]:
    """What kubectl says of each object, which the server has checked and not kept."""
    for each in objects:
        each["metadata"] = {"name": "job", **each["metadata"], "namespace": namespace}
    text = "\n---\n".join(json.dumps(each, ensure_ascii=False) for each in objects)
    said = cluster.kubectl("apply", "--dry-run=server", *words, "--filename", "-", stdin=text)
    return [line.partition("/")[0] for line in said.splitlines()]


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The Job's pod, alone: a Job is taken even where its pods will be refused."""
    template = objects[-1]["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", **template["metadata"]},
        "spec": template["spec"],
    }


def test_the_server_takes_every_golden_case(cluster: Cluster, namespace: str) -> None:
    """By `--server-side`, every object of it: plain `apply` copies all into an annotation of 256 KiB."""
    kinds = {"Job": "job.batch", "NetworkPolicy": "networkpolicy.networking.k8s.io"}
    for case in CASES:
        objects = golden(case)
        wanted = [kinds.get(each["kind"], each["kind"].lower()) for each in objects]

        assert wanted == dry_run(cluster, namespace, objects, "--server-side"), case


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(JOBS, min_size=5, max_size=8))
def test_the_server_takes_any_job(cluster: Cluster, namespace: str, jobs: list[dict[str, Any]]) -> None:
    """What no schema knows is checked too: names, quantities, and what may not stand together."""
    objects = [each for job in jobs for each in checkable(job)]

    assert len(objects) == len(dry_run(cluster, namespace, objects, "--server-side"))


def test_kubectl_reads_every_word_as_it_was_written(cluster: Cluster) -> None:
    """Its parser knows more spellings of numbers and booleans than ours."""
    labels = {f"label-{index}": text for index, text in enumerate(LOOKS_LIKE)}
    job = {"apiVersion": "ddplaunch/v1", "name": "job", "image": "a", "command": ["a.py"]}
    service = rendered({**job, "kubernetes": {"labels": labels}}).split("---\n")[2]
    words = ["patch", "--local", "--type=merge", "--patch={}", "--output=json", "--filename=-"]
    read = json.loads(cluster.kubectl(*words, stdin=service))

    assert labels.items() <= read["metadata"]["labels"].items()
    assert yaml.safe_load(service) == read


def test_a_restricted_namespace_takes_the_pods(cluster: Cluster) -> None:
    """Those of a job file with `restricted: true`, and no others."""
    with cluster.namespace("restricted", **{"pod-security.kubernetes.io/enforce": "restricted"}) as name:
        assert ["pod"] == dry_run(cluster, name, [pod(golden("restricted"))])
        with pytest.raises(
            ClusterError, match='violates PodSecurity "restricted:latest": runAsNonRoot != true'
        ):
            dry_run(cluster, name, [pod(golden("digits"))])
