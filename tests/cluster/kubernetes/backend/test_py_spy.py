"""py-spy from the agent's image, in pods whose own image has none."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import Make
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.backends.job import Selection
from ddplaunch.backends.kubernetes.backend import KubernetesBackend

PAGE = images.ROOT / "docs" / "how-to" / "kubernetes-pods.md"
HOLDS_THE_GIL = "import ctypes\nprint('up', flush=True)\nctypes.PyDLL(None).sleep(600)\n"


@pytest.fixture(name="agent", scope="module")
def _agent(cluster: Cluster) -> str:
    """The image, in the first worker."""
    tag = images.python_image("agent")
    images.load(cluster.workers[0], tag)
    return tag


def documented(image: str) -> dict[str, Any]:
    """What the page says, with this image."""
    (text,) = re.findall(r"```yaml\n(watchdog:.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text.replace("registry.example/ddplaunch-agent:1", image))
    return found


@pytest.mark.whole
def test_who_holds_the_gil_is_seen_all_the_same(
    cluster: Cluster, backend: KubernetesBackend, job: Make, agent: str
) -> None:
    """No hook answers, and the trainer's image has no py-spy; the stack names the line."""
    keys = documented(agent)
    keys["kubernetes"]["node_selector"] = {"kubernetes.io/hostname": cluster.workers[0]}
    handle = backend.submit(job("digits", HOLDS_THE_GIL, nodes=1, **keys))
    only = Selection(ranks=frozenset({0}))
    cluster.until(lambda: list(backend.logs(handle, only, follow=False)) == ["[0/0] up"], "it is up", 120)

    bundle = backend.collect(handle)
    assert bundle is not None
    assert bundle.evidence is not None
    (node,) = bundle.evidence.evidence
    (rank,) = node.ranks
    assert "py-spy" == rank.stack_source, node.missing
    (main,) = [stack for stack in rank.stacks if stack.main]
    assert ("train.py", 3) in [(frame.file.rpartition("/")[2], frame.line) for frame in main.frames]
