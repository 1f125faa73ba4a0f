"""The key `signal`: what becomes of it for each target."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.agent.contract import Exit, SignalPlan
from ddplaunch.plan import plan, slurm
from ddplaunch.render import render
from ddplaunch.spec import load
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import SpecError

HEAD = "apiVersion: ddplaunch/v1\nname: job\ncommand: [train.py]\nworkdir: /here\nimage: torch\n"
SIGNAL = "signal: {name: USR1, before: 120s}\n"


def spec(text: str = SIGNAL) -> JobSpec:
    """A job file with these keys."""
    (made,) = (load.parse((HEAD + text).encode(), "job.yaml"),)
    return made


@pytest.mark.parametrize("name", ["USR1", "SIGUSR1", "usr1", "sigusr1"])
@pytest.mark.parametrize("target", ["local", "slurm", "kubernetes"])
def test_the_nodes_get_it_under_one_name(name: str, target: str, tmp_path: Path) -> None:
    made = plan.make(spec(f"signal: {{name: {name}, before: 2m}}\n"), target, tmp_path)

    assert SignalPlan("SIGUSR1", 120.0) == made.job.signal
    assert [Exit.OK, Exit.WORKER_FAILED, Exit.STOPPED, Exit.NODE_AT_FAULT] == made.job.retried_after_signal


@pytest.mark.parametrize("bad", ["KILL", "SEGV", "10", "Usr1", "CHLD"])
def test_what_no_handler_gets_is_refused(bad: str) -> None:
    """The message names those that are possible."""
    with pytest.raises(SpecError) as caught:
        spec(f"signal: {{name: '{bad}', before: 2m}}\n")

    assert ["signal.name"] == [each.path for each in caught.value.problems]
    assert "USR1" in caught.value.problems[0].wanted


def test_sbatch_signal_in_extra_names_the_key() -> None:
    """It would replace the one by which a job learns of its limit."""
    with pytest.raises(SpecError) as caught:
        spec("slurm: {extra: ['--signal=USR1@60']}\n")

    assert ["the key signal of the job file"] == [each.wanted for each in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "lead"), [(SIGNAL, 120), ("signal: {name: USR1, before: 20s}\n", 60), ("", 60)]
)
def test_slurm_says_early_enough_that_the_limit_is_near(text: str, lead: int) -> None:
    """And never later than for a job without the key."""
    made = slurm.make(spec(text)).settings
    assert isinstance(made, slurm.SlurmPlan)

    assert f"--signal=B:URG@{lead}" in made.options


@pytest.mark.parametrize(("text", "grace"), [(SIGNAL, 210), ("", 90)])
def test_a_pod_has_that_time_as_well(text: str, grace: int, tmp_path: Path) -> None:
    """Before what its end takes without the key."""
    made = render(plan.make(spec(text), "kubernetes", tmp_path))
    text = "".join(file.content.decode() for file in made.files.values())

    assert f"terminationGracePeriodSeconds: {grace}\n" in text


@pytest.mark.parametrize(("given", "paths"), [(179, 1), (180, 0)])
def test_a_pod_template_may_not_take_it_away(given: int, paths: int) -> None:
    """Its own grace period must hold both."""
    more = f"kubernetes: {{pod_template: {{spec: {{terminationGracePeriodSeconds: {given}}}}}}}\n"
    where = "kubernetes.pod_template.spec.terminationGracePeriodSeconds"

    assert [where] * paths == [each.path for each in plan.problems(spec(SIGNAL + more), "kubernetes")]


def test_a_limit_on_this_machine(tmp_path: Path) -> None:
    made = spec("local: {time: 2h}\n")

    assert 7200.0 == plan.make(made, "local", tmp_path).job.time_limit
    assert plan.make(made, "slurm", tmp_path).job.time_limit is None
    assert plan.make(spec(""), "local", tmp_path).job.time_limit is None
