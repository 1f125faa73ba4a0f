"""The manifest for Kubernetes: what stands in it, and that it says the same to every reader."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch import __version__
from ddplaunch.agent.contract import JobPlan, codec
from ddplaunch.backends.kubernetes import objects as kubernetes_objects
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.render.archive import pod_agent_archive, source_archive
from ddplaunch.spec.load import load

GOLDEN = Path(__file__).parents[2] / "golden" / "kubernetes"
CASES = sorted(path.name for path in GOLDEN.iterdir())


def rendered(folder: Path) -> str:
    """The one file of the job file in `folder`."""
    made = render(plan.make(load(folder / "job.yaml"), "kubernetes", folder))
    ((name, file),) = made.files.items()
    assert ("kubectl", "apply", "--server-side", "--filename", name) == made.command
    return file.content.decode()


def objects(folder: Path) -> dict[str, Any]:
    """Its objects by kind, in their order."""
    return {each["kind"]: each for each in yaml.load_all(rendered(folder), yaml.CSafeLoader)}


@pytest.mark.parametrize("case", CASES)
def test_the_rendered_file_is_the_golden_one(case: str) -> None:
    """All that people read; the archives and the version have tests of their own."""
    text = re.sub(r"^(  (agent\.pyz|source\.tar)): .*$", r"\1: (base64)", rendered(GOLDEN / case), flags=re.M)

    assert (GOLDEN / case / "manifest.yaml").read_text() == text.replace(f'"{__version__}"', "(version)")


@pytest.mark.parametrize("case", CASES)
def test_rendering_twice_gives_the_same_bytes(case: str) -> None:
    """Same job file, same bytes, the archives included."""
    assert rendered(GOLDEN / case) == rendered(GOLDEN / case)


@pytest.mark.parametrize("case", CASES)
def test_the_agent_reads_the_plan_it_is_given(case: str, tmp_path: Path) -> None:
    """The rendered plan is the launcher's own, read back by the agent's codec."""
    folder = GOLDEN / case
    (tmp_path / "plan.json").write_text(objects(folder)["ConfigMap"]["data"]["plan.json"])
    made = plan.make(load(folder / "job.yaml"), "kubernetes", folder)

    assert made.job == codec.read(JobPlan, str(tmp_path / "plan.json"))


def test_the_archives_travel_as_they_are() -> None:
    """In base64, which is how a ConfigMap holds bytes."""
    folder = GOLDEN / "digits"
    made = plan.make(load(folder / "job.yaml"), "kubernetes", folder)

    assert {"agent.pyz": pod_agent_archive(), "source.tar": source_archive(made.source)} == {
        name: base64.b64decode(data) for name, data in objects(folder)["ConfigMap"]["binaryData"].items()
    }


def test_every_object_of_a_sweep_bears_its_values() -> None:
    """In an annotation, by which `list` tells the jobs apart; a job without sweep has none."""
    job = GOLDEN / "digits" / "job.yaml"
    spec = load(job).read_from(str(job), {"env.LR": "0.1"})
    made = plan.make(spec, "kubernetes", job.parent)
    ((_, file),) = render(made).files.items()
    found = list(yaml.load_all(file.content, yaml.CSafeLoader))

    assert [{"env.LR": "0.1"}] * len(found) == [kubernetes_objects.sweep(each) for each in found]
    assert {} == kubernetes_objects.sweep(objects(GOLDEN / "digits")["Job"])
    assert {} == kubernetes_objects.sweep({"metadata": {"annotations": {"ddplaunch/sweep": "[broken"}}})
