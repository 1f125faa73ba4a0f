"""A controller that is down, slow, or has forgotten; nothing is sent twice, and every wait has an end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.backend.conftest import FOREVER, RUNNING, Login, Make, ended, wait
from tests.cluster.slurm.cluster import Cluster

from ddplaunch.backends.job import EVERYTHING, Handle, State
from ddplaunch.backends.slurm.backend import SlurmBackend
from ddplaunch.backends.slurm.submission import UncertainError
from ddplaunch.errors import ClusterError, NotFoundError

pytestmark = pytest.mark.slurm


def known(cluster: Cluster) -> list[str]:
    """Ids of all jobs that the controller has."""
    return cluster.login(["squeue", "--noheader", "--states=all", "--format=%A"]).stdout.split()


def fresh(cluster: Cluster) -> SlurmBackend:
    """As another call of ddplaunch would begin."""
    return SlurmBackend(cluster.shared / "state")


@pytest.mark.whole
def test_a_job_that_was_taken_too_late_is_found(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login
) -> None:
    """sbatch gives up, the controller takes the job all the same: we find it, and send nothing again."""
    cluster.configure("MessageTimeout=2")
    before = known(cluster)
    [pid] = cluster._daemons("ctl", "slurmctld")
    later = f"(sleep 5; kill -CONT {pid}) >/dev/null 2>&1 &"
    login.write("sbatch", f"kill -STOP {pid}\n{later}\n{login.real('sbatch')}")

    handle = backend.submit(job("", ended=0))

    assert [handle.path] == [each for each in known(cluster) if each not in before]
    assert (1, [handle]) == (login.count("sbatch"), [each.handle for each in fresh(cluster).jobs()])


def test_a_job_of_which_nobody_knows_is_not_sent_again(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so; should the job appear later, it is in the list."""
    monkeypatch.setattr("ddplaunch.backends.slurm.submission.APPEARS", 1.0)
    words = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    login.write("sbatch", f"echo '{words}' >&2; exit 1;")
    with pytest.raises(UncertainError) as caught:
        backend.submit(job("", ended=0))
    nothing = fresh(cluster).jobs()
    [script] = (cluster.shared / "state").rglob("*.sbatch")
    late = cluster.login(["sbatch", "--parsable", script]).stdout.strip()

    assert "it is not known whether Slurm has the job" in caught.value.message
    assert "`ddplaunch list --to slurm` shows the job" in caught.value.hint
    assert (1, []) == (login.count("sbatch"), nothing)
    assert [f"slurm://{late}"] == [str(each.handle) for each in fresh(cluster).jobs()]


def test_a_controller_that_comes_back_gets_the_job_once(
    cluster: Cluster, backend: SlurmBackend, job: Make
) -> None:
    """Down when we began, up a moment later."""
    before = known(cluster)
    cluster.stop_controller()
    starter = threading.Timer(2, cluster.start_controller)
    starter.start()

    handle = backend.submit(job("", ended=0))
    starter.join()

    assert [handle.path] == [each for each in known(cluster) if each not in before]


@pytest.mark.whole
def test_a_controller_that_stays_down_is_told(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Bounded: what was tried, for how long, and what Slurm said."""
    backend.queries().commands.patience = 1.0
    cluster.stop_controller()
    started = time.monotonic()

    with pytest.raises(ClusterError) as caught:
        backend.submit(job(""))

    assert time.monotonic() - started < BUSY * 30
    assert "Slurm's controller does not answer: `scontrol` was tried for" in caught.value.message
    assert caught.value.message.endswith("Unable to contact slurm controller (connect failure)")
    assert "`scontrol ping` shows whether it is up" in caught.value.hint


def test_a_watched_job_outlasts_its_controller(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Lines go on while the controller is away, and the end is seen once it is back."""
    handle = backend.submit(
        job(f"{RUNNING}\nn=0; while ! [ -e go ]; do echo line $((n++)); sleep 0.2; done", ended=0)
    )
    following = backend.logs(handle, EVERYTHING, follow=True)
    assert "line 0" == next(line for line in following if line)
    cluster.stop_controller()
    silent = wait(cluster, backend, handle, lambda job: "not answered" in job.detail, 60)
    cluster.start_controller()
    Path("go").touch()
    rest = [line for line in following if line]

    assert (State.RUNNING, True) == (silent.state, silent.status is not None)
    assert [f"line {number}" for number in range(1, len(rest) + 1)] == rest
    assert State.SUCCEEDED is backend.job(handle).state


@pytest.mark.whole
def test_a_watch_does_not_last_for_ever(
    cluster: Cluster, backend: SlurmBackend, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that stays away ends it with an error."""
    monkeypatch.setattr("ddplaunch.backends.slurm.snapshot.SILENCE", 5.0)
    handle = backend.submit(job(FOREVER))
    following = backend.logs(handle, EVERYTHING, follow=True)
    next(following)
    cluster.stop_controller()

    with pytest.raises(ClusterError, match="does not answer"):
        list(following)


def forget(cluster: Cluster) -> None:
    """Start the controller as if it had never had a job."""
    cluster.stop_controller()
    for file in (cluster.folder / "state").glob("job_state*"):
        file.unlink()
    cluster.start_controller()
    cluster.idle()


@pytest.mark.whole
def test_a_forgotten_job_is_known_by_what_it_left(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """By the hub's last word; by what we saw of its end; and no longer, when nobody knows."""
    seen, unseen, lost, stranger = (
        backend.submit(job("echo '[0/0] x'", name=f"job{number}", ended=20)) for number in range(4)
    )
    ended(cluster, backend, seen)
    cluster.until(lambda: not cluster.login(["squeue", "--noheader"]).stdout, "all have ended", 30)
    for handle, name in ((seen, "job0"), (lost, "job2")):
        (Path(f"{name}-{handle.path}") / "run/status.json").unlink()
    for record in (cluster.shared / "state/slurm").glob("job3-*/job.json"):
        record.unlink()
    forget(cluster)
    later = fresh(cluster)

    assert (State.FAILED, 20) == (later.job(seen).state, later.job(seen).exit_code)
    assert (State.FAILED, 20) == (later.job(unseen).state, later.job(unseen).exit_code)
    found = later.job(lost)
    assert (State.LOST, "Slurm has forgotten it, and it left no exit code") == (found.state, found.detail)
    assert ["[0/0] x"] == list(later.logs(unseen, EVERYTHING, follow=False))
    with pytest.raises(NotFoundError, match="Slurm has no job"):
        later.job(stranger)


@pytest.mark.whole
def test_an_id_that_was_given_anew_is_another_job(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """A cluster that was set up anew counts from the beginning: the old job is not taken for the new one."""
    forget(cluster)
    old = backend.submit(job("", name="old", ended=40))
    ended(cluster, backend, old)
    forget(cluster)
    script = job(FOREVER, name="new").files["new.sbatch"].content.decode()

    assert int(old.path) == cluster.submit(script, cwd=Path.cwd())
    assert (State.FAILED, 40) == (fresh(cluster).job(old).state, fresh(cluster).job(old).exit_code)


def test_nonsense_is_an_error_that_shows_it(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login
) -> None:
    """Some other program called squeue is not believed."""
    handle = backend.submit(job("", "--hold"))
    login.write("squeue", "echo 'queue is empty, have a nice day' #")

    with pytest.raises(ClusterError) as caught:
        fresh(cluster).job(handle)

    assert "the output of `squeue` cannot be read" in caught.value.message
    assert "have a nice day" in caught.value.message
    assert "`type squeue`" in caught.value.hint


@pytest.mark.whole
def test_a_job_of_another_user_is_not_ours_to_cancel(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login
) -> None:
    """What Slurm says of it is passed on."""
    handle = backend.submit(job(FOREVER))
    wait(cluster, backend, handle, lambda job: job.status)
    login.write("scancel", "echo 'scancel: error: Kill job error: Access/permission denied' >&2; exit 1 #")

    with pytest.raises(ClusterError, match=r"Slurm does not cancel .* Access/permission denied"):
        backend.cancel(Handle("slurm", handle.path))
