"""The chart makes of a job file what the launcher makes of it, or refuses it as the launcher does."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.chart import strategies
from tests.chart.conftest import MARKS, ROOT, Helm, by_chart, by_launcher, source_words
from tests.unit.render import kubernetes_jobs

from ddplaunch.render.archive import pod_agent_archive
from ddplaunch.spec.problems import SpecError

pytestmark = MARKS

GOLDEN = ROOT / "tests" / "golden" / "kubernetes"
SCHEMA = "values don't meet the specifications of the schema"
# Every try costs a process: a job that is told apart is shown as it was drawn, not made smaller for minutes.
MANY = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/job.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_every_golden_job_gives_the_same_objects(helm: Helm, chart: Path, case: str, tmp_path: Path) -> None:
    """All of them, to the last byte of the plan, its hash, the agent and the source."""
    job = GOLDEN / case / "job.yaml"
    done = helm("template", "run1", chart, "--values", job, *source_words(job, tmp_path))

    assert by_launcher(job) == by_chart(done.stdout)


def test_the_agent_is_the_launchers(helm: Helm, chart: Path) -> None:
    """Byte for byte: what a pod runs does not depend on who sent it."""
    job = GOLDEN / "jobset" / "job.yaml"
    config_map = by_chart(helm("template", "run1", chart, "--values", job).stdout)[0]

    assert pod_agent_archive() == base64.b64decode(config_map["binaryData"]["agent.pyz"])


@pytest.mark.parametrize("overlay", [*strategies.OVERLAYS, *strategies.WRONG_OVERLAYS], ids=json.dumps)
def test_a_pod_template_is_merged_or_refused_alike(
    helm: Helm, light: Path, tmp_path: Path, overlay: dict[str, Any]
) -> None:
    """A strategic merge: keyed lists, their order, and the words that begin with $."""
    job = {"apiVersion": "ddplaunch/v1", "name": "run", "command": ["a.py"], "image": "trainer"}
    kubernetes = {
        "pod_template": overlay,
        "image_pull_secrets": ["a", "b"],
        "host_network": "affinity" not in overlay.get("spec", {}),
    }
    compare(helm, light, tmp_path, {**job, "kubernetes": kubernetes})


def test_values_that_look_like_nothing_count(helm: Helm, light: Path, tmp_path: Path) -> None:
    """Zeros, empty texts, and what YAML or Kubernetes would read otherwise: templates are apt to lose it."""
    job = {
        "apiVersion": "ddplaunch/v1",
        "name": "odd",
        "command": ["run.sh", "", "$(A)", "1e3"],
        "image": "trainer",
        "python": "$(X)/python",
        "env": {"EMPTY": "", "YES": "yes", "MARK": "a\ufeffb", "LINES": "a\n\nb\n"},
        "resources": {"gpus": 0, "cpus": 0.5, "rdma": 0},
        "rendezvous": {"timeout": 2.5},
        "watchdog": {"kill_after": "never"},
        "volumes": [{"name": "v", "mount_path": "/a b", "host_path": "/srv/#1", "read_only": False}],
        "kubernetes": {
            "run_as_user": 0,
            "tolerations": [
                {"key": "k", "value": "", "effect": "NoExecute", "toleration_seconds": 0},
                {"operator": "Exists", "effect": "NoSchedule"},
            ],
            "labels": {"empty": "", "y": "0x1F"},
            "annotations": {"karpenter.sh/do-not-disrupt": "", "text": "a: b #"},
            "node_selector": {"n": "1e3"},
            "topology_spread": {"key": "kubernetes.io/hostname", "max_skew": 3},
        },
    }
    compare(helm, light, tmp_path, job)


@MANY
@given(job=st.one_of(strategies.jobs(slips=False), kubernetes_jobs.JOBS))
def test_any_job_gives_the_same_objects(helm: Helm, light: Path, tmp_path: Path, job: dict[str, Any]) -> None:
    """Hundreds of them; the agent alone is left out, which is the same in all."""
    compare(helm, light, tmp_path, job)


@MANY
@given(job=strategies.jobs(slips=True))
def test_any_job_that_the_launcher_refuses_is_refused(
    helm: Helm, light: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    """By the schema, or in the launcher's own sentences."""
    compare(helm, light, tmp_path, job)


def compare(helm: Helm, chart: Path, folder: Path, job: dict[str, Any]) -> None:
    """The two make the same objects, or say the same."""
    file = folder / "job.yaml"
    file.write_text(json.dumps(job, ensure_ascii=False))
    done = helm("template", "run1", chart, "--values", file, check=False)
    refused: list[str] = []
    expected: list[dict[str, Any]] = []
    try:
        expected = by_launcher(file)
    except SpecError as error:
        refused = sentences(error)
    found = by_chart(done.stdout)
    for objects in (expected, found):
        for each in objects:
            each.get("binaryData", {}).pop("agent.pyz", None)

    assert [] == [each for each in refused if SCHEMA not in done.stderr and each not in done.stderr]
    assert (bool(refused), expected) == (bool(done.returncode), found), done.stderr


def sentences(error: SpecError) -> list[str]:
    """What is wrong, without the place in the file, which Helm does not know."""
    words = [f"{each.path}: found {each.found}, wanted {each.wanted}" for each in error.problems]
    # What may be secret, the launcher does not show.
    return [
        each.split(" (not shown)")[0].rpartition(": found")[0] if "(not shown)" in each else each
        for each in words
    ]
