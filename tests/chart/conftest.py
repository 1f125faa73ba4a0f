"""Helm, and what the chart and the launcher make of one job file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cache import CACHE
from tests.cluster.kubernetes.cache import locked
from tests.cluster.kubernetes.images import BIN

from ddplaunch.cli.main import main
from ddplaunch.plan import plan
from ddplaunch.render import archive, render
from ddplaunch.spec import load

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "ddplaunch"
AGENT = "files/agent.pyz"

MARKS = [pytest.mark.processes, pytest.mark.timeout(1200)]
"""Of all tests here; the first of them may have to wait for Helm to be built."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", name="helm")
def _helm() -> Helm:
    """Run helm, that of the test cluster's tools; where it is not there yet, it is built as they are."""
    program = _program()

    def run(*words: str | Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [program, *map(str, words)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


def _program() -> str:
    built = BIN / "helm"
    if not built.exists() and (found := shutil.which("helm")):
        return found
    with locked("helm", "helm is built", 900):
        if not built.exists():
            _build()
    return str(built)


def _build() -> None:
    # Where scripts/go-toolchain puts it, and Go's own instructions do, which not every PATH has.
    go = shutil.which("go", path=f"{CACHE / 'go/bin'}:{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        pytest.skip("there is neither helm nor go here (scripts/go-toolchain installs it)")
    recipe = (ROOT / "docker" / "kind-node" / "build").read_text()
    version = re.search(r"^helm=(\S+)$", recipe, re.MULTILINE)
    assert version is not None
    BIN.mkdir(parents=True, exist_ok=True)
    words = [go, "install", "-trimpath", "-ldflags", "-s -w", f"helm.sh/helm/v4/cmd/helm@{version[1]}"]
    environment = {**os.environ, "GOBIN": str(BIN), "CGO_ENABLED": "0"}
    subprocess.run(words, env=environment, check=True, timeout=900)
    (BIN / "helm.stamp").write_text(f"{version[1]}\n")


@pytest.fixture(scope="session", name="chart")
def _chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is packaged, agent included."""
    folder = tmp_path_factory.mktemp("chart") / "ddplaunch"
    shutil.copytree(CHART, folder)
    (folder / AGENT).parent.mkdir(exist_ok=True)
    (folder / AGENT).write_bytes(archive.agent_archive())
    return folder


@pytest.fixture(scope="session", name="light")
def _light(chart: Path) -> Path:
    """The same chart with a very small agent, for tests that render it hundreds of times."""
    folder = chart.with_name("light")
    shutil.copytree(chart, folder)
    (folder / AGENT).write_bytes(b"agent")
    return folder


def by_launcher(job: Path) -> list[dict[str, Any]]:
    """The objects that `ddplaunch render` makes of a job file. Raises SpecError."""
    made = render(plan.make(load.load(job), "kubernetes", job.parent))
    (file,) = made.files.values()
    return list(yaml.load_all(file.content, Loader=_LOADER))


def by_chart(text: str) -> list[dict[str, Any]]:
    """The objects in the output of `helm template`, in the order in which kubectl has to apply them.

    The key's Secret is the chart's alone: `render` makes none.
    """
    order = ("ConfigMap", "Service", "NetworkPolicy", "Job", "JobSet")
    found = [each for each in yaml.load_all(text, Loader=_LOADER) if each]
    own = [
        each
        for each in found
        if "helm.sh/hook" not in each["metadata"]["annotations"] and each["kind"] != "Secret"
    ]
    return sorted(own, key=lambda each: order.index(each["kind"]))


def source_words(job: Path, folder: Path) -> list[str]:
    """Words for helm that hand over the job's source, as the launcher packs it."""
    if not load.load(job).source:
        return []
    file = folder / "source.b64"
    assert 0 == main(["render", str(job), "--to", "kubernetes", "--source-archive", str(file)])
    return ["--set-file", f"sourceArchive={file}"]
