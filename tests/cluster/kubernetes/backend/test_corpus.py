"""Faults of the corpus in the pods of a real Kubernetes: the same verdicts as on one machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import corpus
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import Cli
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import with_torch
from tests.corpus.faults import Fault

pytestmark = [pytest.mark.slow, pytest.mark.whole, pytest.mark.timeout(900)]
MAY_MOUNT = {"privileged": True, "allowPrivilegeEscalation": True}


def options(fault: Fault, namespace: str) -> dict[str, Any]:
    """Of Kubernetes. The interpreter may lie below a home that is closed to all but root."""
    found = {"namespace": namespace, "image_pull_policy": "IfNotPresent", "run_as_user": 0}
    if not fault.root:
        return found
    trainer = {"name": "trainer", "securityContext": MAY_MOUNT}
    return {**found, "pod_template": {"spec": {"containers": [trainer]}}}


@pytest.mark.parametrize("fault", corpus.faults())
def test_a_fault_of_the_corpus_gets_the_same_verdict(
    fault: Fault, cluster: Cluster, cli: Cli, namespace: str, tmp_path: Path
) -> None:
    kubernetes = options(fault, namespace)
    keys = {**with_torch(cluster), "image": images.TRAINER, "env": {"CORPUS_SCENE": "/tmp"}}
    corpus.write(fault, tmp_path, kubernetes=kubernetes, **keys)
    corpus.check(fault, "kubernetes", tmp_path, partial(cli, seconds=600))
