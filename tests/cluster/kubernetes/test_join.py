"""`run --join` in an Indexed Job that its user has written: the manifest is the one in the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import documented
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import Documents, with_torch
from tests.cluster.kubernetes.pods import ended

from ddplaunch.agent.contract import Exit
from ddplaunch.render.archive import agent_archive

TRAIN = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(6):
    while step == 3 and str(dist.get_rank()) in sys.argv[1:] and not os.path.exists("/tmp/go"):
        time.sleep(0.1)
    dist.all_reduce(torch.ones(4))
print("trained with", dist.get_world_size(), flush=True)
"""
"""Ranks that are named in the arguments wait for a file before their fourth step."""


class IndexedJob:
    """The Job `train` of the documentation, with our image and torch, on two machines."""

    def __init__(self, cluster: Cluster, namespace: str, work: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._torch = with_torch(cluster)
        (work / "agent.pyz").write_bytes(agent_archive())
        (work / "train.py").write_text(TRAIN)
        self._create(
            "configmap", "train", *(f"--from-file={work / name}" for name in ("agent.pyz", "train.py"))
        )
        self._create("secret", "generic", "train", "--from-literal=key=a secret of thirty-two characters")

    def start(self, *arguments: str) -> None:
        """`arguments`: of the script."""
        documents = documented.documents()
        spec = self._pod(documents)
        spec["containers"][0]["command"] += arguments
        self._cluster.apply(*documents, namespace=self._namespace)

    def start_stranger(self) -> None:
        """A pod that claims to be node 1, and has no access to the Secret."""
        spec = self._pod(documented.documents(), "--node-rank=1", "--master=train-0.train")
        del spec["affinity"]
        spec["containers"][0]["env"] = [{"name": "DDPLAUNCH_KEY", "value": "another secret of this length"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}
        self._cluster.apply(pod, namespace=self._namespace)

    def go_on(self, node: int) -> None:
        """What the ranks of this node wait for is there."""
        (pod,) = [name for name in self._exit_codes() if name.startswith(f"train-{node}-")]
        self._cluster.kubectl("exec", "--namespace", self._namespace, pod, "--", "touch", "/tmp/go")

    def ends(self) -> dict[str, tuple[int, str]]:
        """Exit code and log of each pod by its host name, once both have ended."""
        self._cluster.until(
            lambda: len(codes := self._exit_codes()) == 2 and None not in codes.values(),
            "both pods end",
            240,
            lambda: self._cluster.describe(self._namespace),
        )
        return {
            name.rpartition("-")[0]: (code or 0, self.log(name)) for name, code in self._exit_codes().items()
        }

    def log(self, name: str) -> str:
        """Of one pod."""
        return self._cluster.kubectl("logs", "--namespace", self._namespace, name)

    def _exit_codes(self) -> dict[str, int | None]:
        return documented.exit_codes(self._cluster, self._namespace)

    def _pod(self, documents: Documents, *options: str) -> dict[str, Any]:
        """What the Job's pods are made of, which now fits this cluster."""
        spec = documented.fitted(documents, self._torch)
        words = spec["containers"][0]["command"]
        words[words.index("torchrun")] = str(Path(sys.executable).with_name("torchrun"))
        words[words.index("--join") : words.index("--join")] = options
        return spec

    def _create(self, *words: str) -> None:
        self._cluster.kubectl("create", *words, "--namespace", self._namespace)


@pytest.fixture(name="job")
def _job(cluster: Cluster, namespace: str, tmp_path: Path) -> IndexedJob:
    return IndexedJob(cluster, namespace, tmp_path)


@pytest.mark.whole
@pytest.mark.fault("key-differs")
def test_pods_find_one_another(job: IndexedJob, cluster: Cluster, namespace: str) -> None:
    """Rank and names are Kubernetes', the key the Secret's; a pod with another key is not let in."""
    job.start("0")
    job.start_stranger()
    status = ended(cluster, namespace, "stranger")
    said = " ".join(job.log("stranger").split())
    job.go_on(0)

    assert Exit.MISCONFIGURED == status["containerStatuses"][0]["state"]["terminated"]["exitCode"], said
    assert re.search(r"key-differs: the hub at train-0\.train:\d+ .* does not know the key of node 1", said)
    for code, log in job.ends().values():
        assert (0, 2) == (code, log.count("trained with 4")), log
