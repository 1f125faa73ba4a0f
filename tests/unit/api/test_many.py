"""Several jobs by `ddplaunch.api`: those of a sweep, their plans, and what is refused before one is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import JOB

from ddplaunch import api

SWEEP = JOB + "sweep: {env.LR: [0.1, 1e-3]}\n"


@pytest.fixture(name="sweep", autouse=True)
def _sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job file with a sweep, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(SWEEP)
    Path("train.py").write_text("")


def test_each_job_of_a_sweep_remembers_its_values_and_its_file() -> None:
    """`load` has room for one job only, and says which function returns them."""
    jobs = api.load_all("job.yaml", ["nodes=3"])

    assert [("digits-0", {"env.LR": "0.1"}), ("digits-1", {"env.LR": "1e-3"})] == [
        (each.name, each.sweep_values) for each in jobs
    ]
    assert {("job.yaml", 3)} == {(each.job_file, each.nodes) for each in jobs}
    assert [({}, "digits")] == [
        (each.sweep_values, each.name) for each in api.load_all("job.yaml", ["sweep=null"])
    ]
    with pytest.raises(api.SpecError, match="found a sweep of 2 jobs") as refused:
        api.load("job.yaml")
    assert ["`ddplaunch.api.load_all` returns all of them"] == [each.hint for each in refused.value.problems]


def test_a_file_is_no_job_and_a_number_no_handle() -> None:
    with pytest.raises(api.UsageError, match=r'(?s)job\.yaml is a file.*load\("job\.yaml"\)'):
        api.submit("job.yaml")  # type: ignore[arg-type]
    with pytest.raises(api.UsageError, match="5 is not a job's handle"):
        api.status(5)  # type: ignore[arg-type]


def test_the_plans_of_a_sweep_share_the_source_that_was_read_once() -> None:
    """And carry what is a job's own into its files."""
    first, second = api.plan_all(api.load_all("job.yaml"), to="slurm")

    assert first.source is second.source
    assert ["train.py"] == list(first.source)
    assert [{"env.LR": "0.1"}, {"env.LR": "1e-3"}] == [api.render(each).sweep for each in (first, second)]


def test_a_plan_has_its_target_already() -> None:
    """Another is refused, and so are jobs of several targets at once, before anything is sent."""
    job, other = api.load_all("job.yaml")
    plan = api.plan(job, to="slurm")

    assert api.render(plan) == api.render(plan, to="slurm") == api.render(job, to="slurm")
    for function in (api.render, api.submit):
        with pytest.raises(api.UsageError, match="digits-0 is already planned for slurm"):
            function(plan, "local")
    with pytest.raises(api.UsageError, match="digits-0 is already planned"):
        api.submit(plan, after=["slurm://7"])
    with pytest.raises(api.UsageError, match="these jobs are planned for local and slurm"):
        api.submit_all([plan, other])
    assert [] == api.submit_all([])
    assert [] == api.jobs()


def test_a_job_after_one_that_nobody_knows_is_refused() -> None:
    with pytest.raises(api.NotFoundError, match="no job called '7' has been submitted from here"):
        api.submit_all([api.load_all("job.yaml")[0]], "slurm", after=["7"])


def test_a_check_up_takes_a_job_or_a_number_of_nodes() -> None:
    """Not both; Kubernetes needs an image, of a job or of a profile, since it runs in pods."""
    job = api.load_all("job.yaml")[0]

    with pytest.raises(api.UsageError, match="--nodes cannot be combined with a job file"):
        api.doctor(job, nodes=2)
    with pytest.raises(api.UsageError, match="the job already has its profile's defaults"):
        api.doctor(job, profile="none")
    with pytest.raises(api.UsageError, match="the doctor runs in pods on Kubernetes"):
        api.doctor(to="kubernetes")
