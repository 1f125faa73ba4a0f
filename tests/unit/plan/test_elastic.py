"""What a range of nodes becomes on each target."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.plan import plan
from ddplaunch.plan.slurm import SlurmPlan
from ddplaunch.spec.models import JobSpec, Rendezvous
from ddplaunch.spec.problems import SpecError
from ddplaunch.spec.targets import Kubernetes

HERE = Path(__file__).parent


def made(target: str, **more: object) -> plan.Plan:
    """A job of two to four nodes."""
    values = {"nodes": {"min": 2, "max": 4}, "rendezvous": Rendezvous(backend="c10d"), **more}
    spec = JobSpec(apiVersion="ddplaunch/v1", name="job", command=("train.py",), **values)  # type: ignore[arg-type]
    return plan.make(spec, target, HERE)


def test_torchrun_gets_the_number_when_it_starts() -> None:
    """The gate settles it; of a range torchrun would wait half a minute for more."""
    job = made("local").job

    assert (4, 2, ["127.0.0.1"] * 4) == (job.nodes, job.min_nodes, job.names)
    assert "--nnodes={nnodes}" == job.launch[3]
    assert "--rdzv-conf=join_timeout=600,is_host={is_host}" == job.launch[-1]


def test_slurm_settles_the_number_when_it_starts_the_job() -> None:
    """It takes the range itself, and all nodes that it gives are needed: the gate lacks none of them."""
    there = made("slurm")
    slurm = there.settings(SlurmPlan)

    assert ("--nodes=2-4", 2) == (slurm.options[1], slurm.least_nodes)
    assert (4, None) == (there.job.nodes, there.job.min_nodes)


@pytest.mark.parametrize(("version", "fine"), [("1.30", False), ("1.31", True), (None, True)])
def test_an_older_kubernetes_takes_no_range(version: str | None, fine: bool) -> None:
    """A pod that never comes would keep its Job from its end; it takes a number."""
    image, options = "registry.example.com/trainer:1", Kubernetes(version=version)
    if fine:
        made("kubernetes", image=image, kubernetes=options)
    else:
        with pytest.raises(SpecError, match=r"wanted 1\.31 or newer for a range of nodes"):
            made("kubernetes", image=image, kubernetes=options)
    made("kubernetes", image=image, kubernetes=options, nodes=4)


@pytest.mark.parametrize(
    ("target", "more", "path"),
    [("slurm", {}, "newcomers"), ("kubernetes", {"kubernetes": Kubernetes(jobset=True)}, "newcomers")],
)
def test_newcomers_are_refused_where_they_cannot_join(
    target: str, more: dict[str, object], path: str
) -> None:
    """Slurm settles the number before the start, and a JobSet counts the attempts by itself."""
    with pytest.raises(SpecError) as caught:
        made(target, image="registry.example.com/trainer:1", newcomers="join", **more)

    assert [path] == [each.path for each in caught.value.problems]


@pytest.mark.parametrize("target", ["local", "kubernetes"])
def test_newcomers_are_in_the_plan(target: str) -> None:
    """On one machine all nodes start together: there it means nothing, and the same job file is good."""
    image = "registry.example.com/trainer:1"

    assert made(target, image=image, newcomers="join").job.newcomers
    assert made(target, image=image).job.newcomers is None
