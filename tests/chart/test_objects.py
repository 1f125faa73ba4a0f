"""The chart makes of a job file what the launcher makes of it, or it is refused as the launcher refuses it.

The launcher's pods get a plan, the chart's the job file, from which the agent derives the plan.
"""

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

from ddplaunch.agent.contract import JobPlan, codec
from ddplaunch.agent.job_file import read
from ddplaunch.agent.text.printable import printable
from ddplaunch.render.archive import agent_archive
from ddplaunch.spec.problems import SpecError

pytestmark = MARKS

GOLDEN = ROOT / "tests" / "golden" / "kubernetes"
SCHEMA = "values don't meet the specifications of the schema"
# Every try costs a process: a job that is told apart is shown as it was drawn, not made smaller for minutes.
MANY = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/job.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_every_golden_job_gives_the_same_objects(helm: Helm, chart: Path, case: str, tmp_path: Path) -> None:
    """All of them, with the source to the last byte, and the same plan in the end."""
    job = GOLDEN / case / "job.yaml"
    done = helm("template", "run1", chart, "--values", job, *source_words(job, tmp_path))
    found, expected = by_chart(done.stdout), by_launcher(job)

    assert (planned(expected), []) == derived(found)
    assert in_common(expected) == in_common(found)


def test_the_agent_is_the_one_that_reads_job_files(helm: Helm, chart: Path) -> None:
    """Byte for byte as the launcher has packed it."""
    job = GOLDEN / "jobset" / "job.yaml"
    config_map = by_chart(helm("template", "run1", chart, "--values", job).stdout)[0]

    assert agent_archive() == base64.b64decode(config_map["binaryData"]["agent.pyz"])


@pytest.mark.parametrize("overlay", [*strategies.OVERLAYS, *strategies.WRONG_OVERLAYS], ids=json.dumps)
def test_a_pod_template_is_merged_or_refused_alike(
    helm: Helm, light: Path, tmp_path: Path, overlay: dict[str, Any]
) -> None:
    """A strategic merge: keyed lists, their order, and what is deleted or replaced in them."""
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


@pytest.mark.whole
@MANY
@given(job=strategies.jobs(slips=True))
def test_any_job_that_the_launcher_refuses_is_refused(
    helm: Helm, light: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    """By the schema, by Helm, or by the agent, which has the launcher's own sentences."""
    compare(helm, light, tmp_path, job)


def compare(helm: Helm, chart: Path, folder: Path, job: dict[str, Any]) -> None:
    """The two make the same objects and the same plan, or the job file is refused.

    Helm refuses it by the schema or in the launcher's words, and the agent in those alone.
    """
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
    if SCHEMA in done.stderr:
        assert refused or uses_words(job.get("kubernetes")), done.stderr
        return
    plan, problems = derived(found) if found else ("", [done.stderr])
    said = "\n".join(problems)

    assert [] == [each for each in refused if each not in said]
    assert bool(refused) == bool(problems), said
    if not refused:
        assert (planned(expected), in_common(expected)) == (plan, in_common(found))


def planned(objects: list[dict[str, Any]]) -> str:
    """The plan that the launcher has written, spelled as `spelled` does."""
    return spelled(codec.load(JobPlan, json.loads(objects[0]["data"]["plan.json"])))


def derived(objects: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The plan that the agent derives from the chart's job file, and its verdicts against it."""
    found = read.parse(objects[0]["data"]["job.json"])
    return spelled(found.plan), [each.sentence for each in found.verdicts]


def spelled(plan: JobPlan) -> str:
    """To the last byte."""
    return json.dumps(codec.dump(plan))


def in_common(objects: list[dict[str, Any]]) -> Any:
    """The objects without what is the launcher's or the chart's alone: plan or job file, its hash, agent."""
    text = json.dumps(objects[1:], sort_keys=True).replace("/job.json", "/plan.json")
    text = text.replace('"job.json"', '"plan.json"')
    archives = {name: data for name, data in objects[0]["binaryData"].items() if name != "agent.pyz"}
    config_map = {**objects[0], "data": None, "binaryData": archives}
    hashes = {each["metadata"]["annotations"]["ddplaunch/spec"] for each in objects}
    assert 1 == len(hashes)
    whole = json.dumps(config_map, sort_keys=True) + text
    return whole.replace(hashes.pop(), "HASH")


def uses_words(value: Any, listed: bool = False) -> bool:
    """Whether a pod template speaks to the merge in words that the chart leaves to the launcher."""
    if isinstance(value, list):
        return any(uses_words(each, listed=True) for each in value)
    if not isinstance(value, dict):
        return False
    words = {key for key in value if key.startswith("$")}
    known = listed and (
        value == {"$patch": "replace"} or (value.get("$patch") == "delete" and len(value) > 1)
    )
    return bool(words - ({"$patch"} if known else set())) or any(map(uses_words, value.values()))


def sentences(error: SpecError) -> list[str]:
    """What is wrong, as it is printed, without the place in the file, which Helm does not know."""
    words = [printable(f"{each.path}: found {each.found}, wanted {each.wanted}") for each in error.problems]
    # What may be secret, the launcher does not show.
    return [
        each.split(" (not shown)")[0].rpartition(": found")[0] if "(not shown)" in each else each
        for each in words
    ]
