"""Each layout of a training runs in pods as it lies, and `outputs` finds what it wrote, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import Cli
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import with_torch
from tests.layouts.table import LAYOUTS, Layout, read, wrong

HERE = pytest.mark.parametrize("layout", [each for each in LAYOUTS if "kubernetes" in each.on], ids=str)

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("claim")]


def job(cluster: Cluster, namespace: str, folder: Path, layout: Layout, **env: str) -> Path:
    """The job file of a layout, whose ranks stand on a claim."""
    torch = with_torch(cluster)
    keys: dict[str, Any] = {
        "nodes": 2,
        "image": images.TRAINER,
        "python": torch["python"],
        "volumes": [*torch["volumes"], {"name": "runs", "mount_path": "/runs", "claim": "runs"}],
        "outputs": {"volume": "runs"},
        "env": {**layout.keys.get("env", {}), **env},
        "gate": {"skip": ["interpreter", "versions"]},  # other tests have them; they import torch
        "kubernetes": {"namespace": namespace, "image_pull_policy": "IfNotPresent", "run_as_user": 0},
    }
    return layout.lay(folder, **keys)


@HERE
def test_what_a_layout_writes_is_found(
    cluster: Cluster, cli: Cli, namespace: str, tmp_path: Path, layout: Layout
) -> None:
    """On the claim that both pods see."""
    code, out, said = cli(
        "submit", job(cluster, namespace, tmp_path / "code", layout), "--to", "kubernetes", "--wait"
    )
    assert code == 0, said
    code, _, said = cli("outputs", out.strip(), "--copy", tmp_path / "copied")

    assert code == 0, said
    assert [] == wrong(layout, read(tmp_path / "copied"))


@HERE
def test_what_a_layout_writes_outlives_its_pods(
    cluster: Cluster, cli: Cli, namespace: str, tmp_path: Path, layout: Layout
) -> None:
    """They are deleted while the ranks stand."""
    file = job(cluster, namespace, tmp_path / "code", layout, STANDS="1", WRITER="1")
    code, out, said = cli("submit", file, "--to", "kubernetes")
    assert code == 0, said
    handle = out.strip()

    def up() -> bool:
        return cli("logs", handle)[1].count("] up") == 2

    cluster.until(up, "both ranks stand", 240, lambda: cli("logs", handle)[1])
    names = [each["metadata"]["name"] for each in cluster.get("pods", namespace=namespace)]
    cluster.kubectl("delete", "pod", *names, "--namespace", namespace, "--wait=false")
    cluster.until(
        lambda: cli("status", handle)[1].split()[1:2] not in (["running"], ["pending"]), "the job ends", 240
    )
    code, _, said = cli("outputs", handle, "--copy", tmp_path / "copied")

    assert code == 0, said
    assert [] == wrong(layout, read(tmp_path / "copied"))
