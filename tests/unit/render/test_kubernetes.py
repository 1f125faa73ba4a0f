"""The manifest for Kubernetes: what stands in it, and that it says the same to every reader."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch import __version__
from ddplaunch.backends.kubernetes import objects as kubernetes_objects
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.render.archive import agent_archive, source_archive
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


def test_the_archives_travel_as_they_are() -> None:
    folder = GOLDEN / "digits"
    made = plan.make(load(folder / "job.yaml"), "kubernetes", folder)

    assert {"agent.pyz": agent_archive(), "source.tar": source_archive(made.source)} == {
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


@pytest.mark.parametrize("case", CASES)
def test_a_later_submission_differs_by_its_name_alone(case: str) -> None:
    """All objects take it, and what refers to them; the label of its family stays."""
    folder = GOLDEN / case
    first = render(plan.make(load(folder / "job.yaml"), "kubernetes", folder))
    assert first.counted is not None
    second = first.counted(12)
    ((name, file),) = second.files.items()
    found = [each for each in yaml.load_all(file.content, yaml.CSafeLoader) if each]

    assert (f"{first.job}-12", f"{first.job}-12.yaml") == (second.job, name)
    assert second.command[-1] == name
    assert {second.job} == {each["metadata"]["name"] for each in found}
    for each in found:
        labels = each["metadata"]["labels"]
        own = "app.kubernetes.io/instance"
        if own in rendered(folder):
            assert (labels["app.kubernetes.io/name"], labels[own]) == (first.job, second.job)
    # The archives and the plan's digest apart, nothing else is another.
    digest = re.compile(r"^( *(agent\.pyz|source\.tar|ddplaunch/spec)): .*$", flags=re.M)
    texts = [each.files[f"{each.job}.yaml"].content.decode() for each in (first, second)]
    plain, later = (digest.sub("", text) for text in texts)
    name_label = re.compile(r"(app\.kubernetes\.io/name: ).*")
    assert name_label.sub(r"\1", later).replace(second.job, first.job) == name_label.sub(r"\1", plain)
    assert first.files == render(plan.make(load(folder / "job.yaml"), "kubernetes", folder)).files


@pytest.mark.parametrize(
    ("jobset", "label"),
    [(False, "batch.kubernetes.io/controller-uid"), (True, "jobset.sigs.k8s.io/jobset-uid")],
)
def test_the_folder_of_outputs_is_named_by_what_stays_the_same(
    tmp_path: Path, jobset: bool, label: str
) -> None:
    """Each Job of a JobSet has another uid, and an attempt must find what the one before has written."""
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: ddplaunch/v1\nname: kept\nimage: a\ncommand: [/a.py]\noutputs: {volume: runs}\n"
        "volumes: [{name: runs, mount_path: /runs, claim: runs}]\n"
        f"kubernetes: {{jobset: {str(jobset).lower()}}}\n"
    )
    text = rendered(tmp_path)

    assert 3 == text.count("name: DDPLAUNCH_SUBMISSION")
    assert 3 == len(re.findall(rf"DDPLAUNCH_SUBMISSION\n[^']*labels\['{re.escape(label)}'\]", text))
    assert "ddplaunch/outputs: runs/\n" in text
    assert not any("DDPLAUNCH_SUBMISSION" in rendered(GOLDEN / case) for case in ("digits", "jobset"))


def test_a_later_submission_has_room_for_its_number(tmp_path: Path) -> None:
    """A JobSet makes longer names of its pods, and a label holds 63 characters."""
    for jobset, longest in ((False, 50), (True, 63 - len("-node-0-99-xxxxx"))):
        path = tmp_path / "job.yaml"
        path.write_text(
            f"apiVersion: ddplaunch/v1\nname: {'x' * longest}\nimage: a\nnodes: 100\n"
            f"command: [a.py]\nkubernetes: {{jobset: {str(jobset).lower()}}}\n"
        )
        made = render(plan.make(load(path), "kubernetes", tmp_path))
        assert made.counted is not None
        assert "x" * (longest - 3) + "-12" == made.counted(12).job
        assert "x" * (longest - 2) + "-2" == made.counted(2).job
