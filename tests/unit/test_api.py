"""`ddplaunch.api`: every function but those that need torch, which tests/local/test_api.py has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pydantic
import pytest
from tests.unit.backends.conftest import Make, _job, status_json  # noqa: F401 - a fixture
from tests.unit.cli.conftest import JOB, Call, _call, _job_file  # noqa: F401 - fixtures
from tests.unit.cli.ended_jobs import ended

from ddplaunch import api, targets
from ddplaunch.agent.contract import Verdict
from ddplaunch.backends.folder import state_folder
from ddplaunch.backends.local.backend import LocalBackend
from ddplaunch.spec import models
from ddplaunch.spec import targets as spec_targets
from ddplaunch.spec.fields import Section

VERDICT = Verdict.of("rank-failed", "rank 1 raised ValueError", "run", ranks=[1], victims=[0], hint="mend it")


def spec(**keys: object) -> api.JobSpec:
    """A job that is built in Python."""
    return api.JobSpec.model_validate(
        {"apiVersion": "ddplaunch/v1", "name": "digits", "command": ("train.py",), **keys}
    )


@pytest.fixture(name="state")
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own, and a current folder; returns the folder of the jobs called `digits`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "ddplaunch" / "jobs" / "digits"


# --------------------------------------------------------------------------- the module


def test_every_name_is_there_and_no_other() -> None:
    """Also those that are imported when they are first used; a prompt completes them."""
    assert api.__all__ == dir(api)
    assert [] == [name for name in api.__all__ if not isinstance(getattr(api, name), Callable)]  # type: ignore[arg-type]
    assert sorted(api.__all__) == api.__all__
    with pytest.raises(AttributeError, match=r"^module 'ddplaunch.api' has no attribute 'lod'$"):
        getattr(api, "lod")  # noqa: B009 - mypy knows that it is not there


def test_each_section_of_a_job_file_can_be_built() -> None:
    """A job in Python needs the model of each, also of one that is added later."""
    sections = {
        each.__name__
        for module in (models, spec_targets)
        for each in vars(module).values()
        if is_section(each)
    }

    assert set() == sections - set(api.__all__)


def is_section(each: object) -> bool:
    """Whether it is the model of a section."""
    return isinstance(each, type) and issubclass(each, Section) and each is not Section


# --------------------------------------------------------------------------- a job, and what is made of it


def test_a_source_lies_beside_the_job_file_that_names_it(state: Path, tmp_path: Path) -> None:
    """Wherever the program runs, and also for a copy of the job with other keys."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "job.yaml").write_text(JOB)
    (tmp_path / "far" / "train.py").write_text("far")
    (tmp_path / "train.py").write_text("here")

    job = api.load("far/job.yaml")

    assert (2, "far/job.yaml") == (job.nodes, job.job_file)
    for each in (job, job.model_copy(update={"nodes": 3})):
        assert b"far" == api.plan(each).source["train.py"].data


def test_a_source_of_a_job_built_in_python_lies_in_the_current_folder(state: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("here")

    job = spec(source=("train.py",))

    assert ("", b"here") == (job.job_file, api.plan(job).source["train.py"].data)


def test_a_job_that_is_built_wrongly_is_refused_by_pydantic() -> None:
    """As any model is; rules across values count as well."""
    with pytest.raises(pydantic.ValidationError, match="nodes"):
        spec(nodes=0)
    with pytest.raises(pydantic.ValidationError, match=r"watchdog\.kill_after"):
        spec(watchdog=api.Watchdog(notice_after=60.0, kill_after=10.0))


def test_a_bad_job_file_raises_all_its_problems_and_validate_returns_them(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: ddplaunch/v1\nname: a\ncommand: [x]\nnodes: 0\nnods: 2\n")

    with pytest.raises(api.SpecError) as refused:
        api.load("bad.yaml")

    assert [(4, "nodes"), (5, "nods")] == [(each.line, each.path) for each in refused.value.problems]
    assert api.Validation(problems=refused.value.problems) == api.validate("bad.yaml")


@pytest.mark.parametrize("line", ["nodes: 0", "launch: srun"])
def test_validate_names_bad_keys_and_missing_files_at_once(state: Path, tmp_path: Path, line: str) -> None:
    """Whether a key is wrong by itself, or only the target cannot do it."""
    (tmp_path / "here.py").touch()
    text = JOB.replace("source: [train.py]", "source: [here.py, gone.py, lost]")
    (tmp_path / "job.yaml").write_text(text + line)

    found = api.validate("job.yaml")

    assert found.problems
    assert ["gone.py", "lost"] == [str(error).split()[2] for error in found.errors]


def test_a_job_file_is_loaded_with_other_values(state: Path, tmp_path: Path) -> None:
    """Written as for `--set`; a word that is none is named without its value."""
    (tmp_path / "job.yaml").write_text(JOB)

    job = api.load("job.yaml", ["nodes=4", "env.LR=0.1"])

    assert (4, {"LR": "0.1"}) == (job.nodes, job.env)
    assert ["nodes"] == [each.path for each in api.validate("job.yaml", ["nodes=0"]).problems]
    for function in (api.load, api.validate):
        with pytest.raises(api.UsageError, match=r"'\.TOKEN' does not change a job file") as refused:
            function("job.yaml", [".TOKEN=hunter2"])
        assert "hunter2" not in str(refused.value)


def test_what_a_target_cannot_do_names_the_job_file(state: Path, tmp_path: Path) -> None:
    """Or the job, when it was built in Python."""
    (tmp_path / "job.yaml").write_text(JOB)
    for job, name in ((api.load("job.yaml"), "job.yaml"), (spec(), "digits")):
        with pytest.raises(api.SpecError) as refused:
            api.render(job, to="kubernetes")
        assert [(name, "image")] == [(each.file, each.path) for each in refused.value.problems]


def test_render_returns_what_the_command_writes(call: Call, job_file: Path, tmp_path: Path) -> None:
    rendered = api.render(api.load("job.yaml"), to="slurm")
    call("render", "job.yaml", "--to", "slurm", "-o", "out")

    assert ("slurm", "digits", ("sbatch", "digits.sbatch")) == (
        rendered.target,
        rendered.job,
        rendered.command,
    )
    assert {name: file.content for name, file in rendered.files.items()} == {
        path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()
    }


# --------------------------------------------------------------------------- submitted jobs


def test_a_handle_is_an_object_or_its_text(state: Path) -> None:
    """The name alone means the newest submission."""
    for number in (1, 2):
        ended(state / str(number), 0)

    handle = api.Handle("local", "digits/1")
    found = [str(api.status(each).handle) for each in (handle, str(handle), "local://digits")]

    assert ["local://digits/1", "local://digits/1", "local://digits/2"] == found
    assert {api.State.SUCCEEDED} == {each.state for each in api.jobs()}
    assert 2 == len(api.jobs())


@pytest.mark.parametrize("function", [api.status, api.wait, api.cancel, api.diagnose])
def test_what_is_no_handle_and_no_job_is_refused(function: Callable[[str], object], state: Path) -> None:
    """By the errors that the commands print."""
    with pytest.raises(api.UsageError, match="'digits' is not a job handle"):
        function("digits")
    with pytest.raises(api.NotFoundError):
        function("local://digits")


def test_logs_yields_lines_and_nothing_else(state: Path) -> None:
    """Of the wanted nodes and ranks, also when it follows."""
    ended(state / "1", 0)
    handle = "local://digits/1"

    assert ["[0/0] a", "[0/1] b", "[1/2] c"] == list(api.logs(handle, follow=True))
    assert ["[0/1] b"] == list(api.logs(handle, ranks=[1, 2], nodes=range(1)))
    assert ["[0/1] b", "[1/2] c"] == list(api.logs(handle, tail=2))
    assert [] == list(api.logs(handle, nodes=()))


def test_diagnose_returns_verdicts_of_a_job_and_of_a_bundle(state: Path) -> None:
    """The file in which the job left its evidence says the same."""
    ended(state / "1", 40, [VERDICT])

    job = api.diagnose("local://digits/1")
    files = [api.diagnose(name) for name in (state / "1/run/bundle.zip", f"{state}/1/run/bundle.zip")]

    assert [[VERDICT]] * 3 == [each.verdicts for each in (job, *files)]
    assert (api.State.FAILED, 40) == (job.job.state, job.job.exit_code)
    assert files[0] == files[1]
    with pytest.raises(api.UsageError, match="only a bundle file can be judged again"):
        api.diagnose("local://digits/1", again=True)
    with pytest.raises(api.UsageError, match="cannot be read"):
        api.diagnose(state / "none.zip")


@pytest.fixture(name="running")
def _running(state: Path, job: Make) -> Iterator[api.Handle]:
    """A job whose host is a script that runs until it is stopped."""
    stopped = f"trap 'status '\"'\"'{status_json(exit_code=60)}'\"'\"'; exit 60' TERM"
    backend = LocalBackend(state_folder())
    yield backend.submit(
        job(f"{stopped}\nstatus '{status_json()}'\nsay '[0/0] up'\nwhile :; do sleep 0.1; done")
    )
    backend.cancel(backend.jobs()[0].handle)


def test_a_wait_ends_with_the_job_or_with_its_time(running: api.Handle) -> None:
    """What was not waited for goes on, until it is cancelled; then every wait is over."""
    with pytest.raises(api.NotFinishedError) as late:
        api.wait(running, timeout=0)
    seen = api.watch(running)
    first = next(seen)
    line = next(api.logs(running, follow=True))
    cancelled = api.cancel(running)

    assert "local://digits/1 has not ended after 0 s: it is running" == late.value.message
    assert 101 == late.value.exit_code
    assert (api.State.RUNNING, "[0/0] up") == (first.state, line)
    assert (api.State.CANCELLED, 60) == (cancelled.state, cancelled.exit_code)
    assert cancelled == api.wait(running) == list(seen)[-1] == api.cancel(running)


def test_threads_do_not_disturb_one_another(state: Path, tmp_path: Path) -> None:
    ended(state / "1", 0)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text("")

    def work(number: int) -> tuple[object, ...]:
        rendered = api.render(api.load("job.yaml"), to=("local", "slurm")[number % 2])
        return number % 2, rendered, api.status("local://digits"), list(api.logs("local://digits"))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(16)))

    assert found[:2] * 8 == found


# --------------------------------------------------------------------------- connections


class Recorded(LocalBackend):
    """The local backend, which counts how often it is closed, and may be interrupted."""

    closed = 0
    raises: BaseException | None = None

    def jobs(self) -> list[api.Job]:
        if Recorded.raises is not None:
            raise Recorded.raises
        return super().jobs()

    def close(self) -> None:
        Recorded.closed += 1


def connect() -> Recorded:
    """Return one on this user's state folder."""
    return Recorded(state_folder())


@pytest.mark.parametrize(
    ("error", "closed"), [(None, 1), (api.ClusterError("gone"), 1), (KeyboardInterrupt(), 0)], ids=repr
)
def test_a_connection_is_closed_whatever_happens_but_for_ctrl_c(
    state: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, closed: int
) -> None:
    """Closing may wait for a query of a cluster that does not answer, and Ctrl-C ends the wait at once."""
    target = targets.Target("recorded", "", "", "", "", connect=f"{__name__}:connect")
    monkeypatch.setitem(targets._OURS, "recorded", target)
    monkeypatch.setattr(Recorded, "raises", error)
    monkeypatch.setattr(Recorded, "closed", 0)

    if error is None:
        api.jobs("recorded")
    else:
        with pytest.raises(type(error)):
            api.jobs("recorded")

    assert closed == Recorded.closed


def test_a_follower_that_stops_reading_closes_its_connection(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, since the generator goes with the loop that is left."""
    ended(state / "1", 0)
    target = targets.Target("recorded", "", "", "", "", connect=f"{__name__}:connect")
    monkeypatch.setitem(targets._OURS, "recorded", target)
    monkeypatch.setattr(Recorded, "closed", 0)

    for line in api.logs("recorded://digits/1", follow=True):
        assert "[0/0] a" == line
        break

    assert 1 == Recorded.closed
