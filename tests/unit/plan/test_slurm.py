"""What a job file becomes in Slurm's words, and what it cannot become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ddplaunch.agent.contract import NotifyPlan
from ddplaunch.plan import plan, slurm
from ddplaunch.spec.models import JobSpec, Notify, Outputs, Resources, Resume, SecretKey, SecretRef, Volume
from ddplaunch.spec.problems import SpecError
from ddplaunch.spec.targets import Container, Slurm

TORCH = Container(runtime="pyxis", image="torch")
CHECKPOINTS = Resume(dir="/keep/job")


def mounting(folder: str) -> Container:
    """A container that sees this folder."""
    return TORCH.model_copy(update={"mounts": (folder,)})


def spec(**more: object) -> JobSpec:
    """A job file with these keys."""
    return JobSpec(apiVersion="ddplaunch/v1", name="job", command=("train.py",), **more)  # type: ignore[arg-type]


def settings(made: JobSpec) -> slurm.SlurmPlan:
    """What the renderer reads."""
    found = slurm.make(made).settings
    assert isinstance(found, slurm.SlurmPlan)
    return found


def options(made: JobSpec) -> dict[str, str]:
    """Option -> value."""
    return dict(option.partition("=")[::2] for option in settings(made).options)


@pytest.mark.parametrize(
    ("seconds", "time", "warning"),
    [
        (30.0, "00:01:00", 10),
        (300.0, "00:05:00", 30),
        (5400.0, "01:30:00", 60),
        (86400.0 * 3 + 61, "3-00:02:00", 60),
    ],
)
def test_time_and_its_warning(seconds: float, time: str, warning: int) -> None:
    """Whole minutes, rounded up; the warning comes late enough for a short job, early enough for evidence."""
    found = options(spec(slurm=Slurm.model_validate({"time": f"{seconds}s"})))

    assert (time, f"B:URG@{warning}") == (found["--time"], found["--signal"])


@pytest.mark.parametrize(("cpus", "expected"), [(None, "4"), (7.5, "8"), (16.0, "16")])
def test_a_core_for_each_rank_at_least(cpus: float | None, expected: str) -> None:
    """Where nothing is said, task affinity would put all ranks of a node on one core."""
    made = spec(nproc_per_node=4, resources=Resources(cpus=cpus))

    assert expected == options(made)["--cpus-per-task"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [NotifyPlan(events=True)]),
        ({"notify": (Notify(events=True, when=("notice",)),)}, [NotifyPlan(["notice"], events=True)]),
        ({"slurm": Slurm(comment="mine")}, None),
        ({"notify": (Notify(command=("mail",)),)}, [NotifyPlan(command=["mail"]), NotifyPlan(events=True)]),
    ],
)
def test_a_notice_becomes_the_comment(more: dict[str, Any], expected: list[NotifyPlan] | None) -> None:
    """Without being asked, where the job file has no comment."""
    assert expected == plan.make(spec(**more), "slurm", Path()).job.notify


def test_a_volume_is_a_mount_of_the_container() -> None:
    """The container's own mounts come first."""
    container = Container(runtime="pyxis", image="torch", mounts=("/a:/b",))
    volume = Volume(name="data", mount_path="/data", host_path="/lustre", read_only=True)
    made = settings(spec(slurm=Slurm(container=container), volumes=(volume,)))

    assert ("/a:/b", "/lustre:/data:ro") == made.mounts


@pytest.mark.parametrize(
    ("more", "paths"),
    [
        ({"volumes": (Volume(name="d", mount_path="/data", host_path="/data"),)}, []),
        ({"volumes": (Volume(name="d", mount_path="/data", host_path="/lustre"),)}, ["volumes[0]"]),
        ({"volumes": (Volume(name="d", mount_path="/data", claim="data"),)}, ["volumes[0]"]),
        (
            {
                "volumes": (Volume(name="d", mount_path="/data", host_path="/data"),),
                "outputs": Outputs(volume="d"),
            },
            ["outputs"],
        ),
        ({"secrets": {"T": SecretRef(secret=SecretKey(name="hf", key="token"))}}, ["secrets.T"]),
        (
            {"notify": (Notify(webhook=SecretRef(secret=SecretKey(name="hooks", key="slack"))),)},
            ["notify[0].webhook"],
        ),
        ({"slurm": Slurm(container=Container(runtime="pyxis"))}, ["slurm.container.image"]),
        ({"slurm": Slurm(container=Container(runtime="pyxis")), "image": "torch"}, []),
        ({"resources": Resources(gpus=1, gpu_type="h100")}, []),
        ({"resume": CHECKPOINTS}, []),
        ({"resume": CHECKPOINTS, "slurm": Slurm(container=TORCH)}, ["resume.dir"]),
        ({"resume": CHECKPOINTS, "slurm": Slurm(container=mounting("/lustre:/keep:ro"))}, ["resume.dir"]),
        ({"resume": CHECKPOINTS, "slurm": Slurm(container=mounting("/lustre:/kee"))}, ["resume.dir"]),
        ({"resume": CHECKPOINTS, "slurm": Slurm(container=mounting("/lustre:/keep"))}, []),
        ({"resume": CHECKPOINTS, "slurm": Slurm(container=mounting("/keep/job"))}, []),
        ({"slurm": Slurm(extra=("--array=0-9",))}, ["slurm.extra[0]"]),
        ({"slurm": Slurm(extra=("--mail-type=END", "-a 1-2"))}, ["slurm.extra[1]"]),
    ],
)
def test_what_slurm_cannot_do_is_refused(more: dict[str, object], paths: list[str]) -> None:
    """All of it at once, each with its place in the job file."""
    found = []
    try:
        plan.make(spec(**more), "slurm", Path())
    except SpecError as error:
        found = [problem.path for problem in error.problems]

    assert paths == found


@pytest.mark.parametrize(
    "good", ["afterok:1", "afterany:1:2_3:4_*", "after:1+10,singleton", "afterok:1?afternotok:2"]
)
def test_a_dependency_is_slurms_word(good: str) -> None:
    made = spec(slurm=Slurm(dependency=good))

    assert good == options(made)["--dependency"]
    assert [] == slurm.problems(made)
    for option in ("--dependency=afterok:2", "-dafterok:2", "-d afterok:2"):
        (problem,) = slurm.problems(spec(slurm=Slurm(dependency=good, extra=(option,))))
        assert "slurm.extra[0]" == problem.path


@pytest.mark.parametrize(
    "bad", ["1", "afterok", "afterok:", "afterok:x", "afterwards:1", "afterok:1,", "afterok:1 "]
)
def test_what_is_no_dependency_is_refused(bad: str) -> None:
    """By its form: whether there is such a job, Slurm knows."""
    with pytest.raises(ValidationError):
        Slurm(dependency=bad)


BUNDLE = Container(runtime="oci", image="/images/bundle")


@pytest.mark.parametrize(
    ("more", "path", "words"),
    [
        ({"image": "torch:2"}, "slurm.container.image", "absolute path of an OCI bundle"),
        ({"mounts": ("/a:/b",)}, "slurm.container.mounts", "the bundle's config.json"),
    ],
)
def test_slurms_own_container_is_a_bundle_with_mounts_of_its_own(
    more: dict[str, object], path: str, words: str
) -> None:
    """Both are refused with what to do instead."""
    (found,) = slurm.problems(spec(slurm=Slurm(container=BUNDLE.model_copy(update=more))))

    assert path in str(found)
    assert words in str(found)


def test_slurms_own_container_takes_no_volume() -> None:
    volume = Volume(name="data", mount_path="/data", host_path="/data")
    (found,) = slurm.problems(spec(slurm=Slurm(container=BUNDLE), volumes=(volume,)))

    assert "config.json" in str(found)
    assert [] == slurm.problems(spec(slurm=Slurm(container=BUNDLE), resume=CHECKPOINTS))
