"""Each layout of a training runs in pods as it lies, and `outputs` finds what it wrote, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import Cli
from tests.layouts.table import LAYOUTS, Layout, read, wrong


@pytest.mark.whole
@pytest.mark.parametrize("layout", [each for each in LAYOUTS if "kubernetes" in each.on], ids=str)
def test_what_a_layout_writes_is_found(
    cli: Cli, namespace: str, claim: str, tmp_path: Path, layout: Layout
) -> None:
    """On the claim that both pods see. Without torchrun, which has this table on Slurm."""
    job = layout.lay(
        tmp_path / "code",
        nodes=2,
        image=images.TRAINER,
        launch="none",
        python="python3",
        command=["python3", *layout.keys["command"]],
        volumes=[{"name": "runs", "mount_path": "/runs", "claim": claim}],
        outputs={"volume": "runs"},
        kubernetes={"namespace": namespace, "image_pull_policy": "IfNotPresent", "run_as_user": 0},
    )
    code, out, said = cli("submit", job, "--to", "kubernetes", "--wait")
    assert code == 0, said
    code, _, said = cli("outputs", out.strip(), "--copy", tmp_path / "copied")

    assert code == 0, said
    assert [] == wrong(layout, read(tmp_path / "copied"))
