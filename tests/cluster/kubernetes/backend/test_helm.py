"""Jobs that Helm has sent, as ddplaunch sees them, with the source that ddplaunch has packed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import SLEEP, Cli, Write, left
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.render.archive import agent_archive


@pytest.fixture(name="chart")
def _chart(tmp_path: Path) -> Path:
    """As it is packaged, agent included."""
    folder = tmp_path / "chart"
    shutil.copytree(images.ROOT / "charts" / "ddplaunch", folder)
    (folder / "files" / "agent.pyz").write_bytes(agent_archive())
    return folder


@pytest.fixture(name="here")
def _here(cluster: Cluster, cli: Cli, namespace: str, tmp_path: Path) -> None:
    """The test's namespace is the context's, as it is for those who work in one."""
    config = tmp_path / "kubeconfig"
    config.write_bytes(Path(cli.environment["KUBECONFIG"]).read_bytes())
    cluster.kubectl(
        "config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={config}"
    )
    cli.environment["KUBECONFIG"] = str(config)


@pytest.mark.usefixtures("here")
@pytest.mark.whole
def test_a_job_of_helm_is_listed_and_cancelled(
    cluster: Cluster, cli: Cli, write: Write, namespace: str, chart: Path, tmp_path: Path
) -> None:
    """Helm writes its own name into a label; the job is ddplaunch's still, and cancelled leaves nothing."""
    path, archive = write("digits", SLEEP), tmp_path / "source.b64"
    code, _, said = cli("render", path, "--to", "kubernetes", "--source-archive", archive)
    assert 0 == code, said
    words: list[str | Path] = [
        "--namespace",
        namespace,
        "--values",
        path,
        "--set-file",
        f"sourceArchive={archive}",
    ]
    cluster.run(["helm", "install", "run1", chart, *words])

    handle = f"kubernetes://{namespace}/digits"
    cluster.until(
        lambda: "[1/1] training\n" in cli("logs", handle)[1],
        "what was packed trains",
        120,
        lambda: cluster.describe(namespace),
    )
    code, listed, said = cli("list", "--to", "kubernetes")
    assert 0 == code, said
    assert [handle] == [line.split()[0] for line in listed.splitlines()[1:]]

    code, _, said = cli("cancel", handle)
    assert 0 == code, said
    assert f"Helm still lists its release: `helm uninstall run1 --namespace {namespace}`\n" in said
    assert [] == left(cluster, namespace)

    cluster.run(["helm", "uninstall", "run1", "--namespace", namespace])
    assert "cancelled" in cli("status", handle)[1]
