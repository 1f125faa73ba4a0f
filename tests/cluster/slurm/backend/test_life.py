"""Jobs from submission to their end on a real cluster, by what Slurm and their folders say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.cluster.slurm.backend.conftest import FOREVER, RUNNING, Login, Make, ended, wait
from tests.cluster.slurm.cluster import Cluster

from ddplaunch.backends.job import EVERYTHING, Handle, Selection, State
from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.backend import SlurmBackend
from ddplaunch.errors import ClusterError
from ddplaunch.render import Rendered

pytestmark = pytest.mark.slurm


def test_what_was_rendered_is_what_slurm_has(
    cluster: Cluster, backend: SlurmBackend, job: Make, work: Path
) -> None:
    """Slurm's copy of the script is the rendered file, byte for byte, and it runs where we stood."""
    rendered = job("pwd >where; printf '%s' \"$*\" >arguments", ended=0)
    handle = backend.submit(Rendered("slurm", "digits", rendered.files, (*rendered.command, "a b", "$c")))
    ended(cluster, backend, handle)
    copy = work / "copy"
    cluster.login(["scontrol", "write", "batch_script", handle.path, copy])

    assert rendered.files["digits.sbatch"].content == copy.read_bytes()
    assert (f"{work}\n", "a b $c") == ((work / "where").read_text(), (work / "arguments").read_text())


def test_a_job_is_pending_runs_and_succeeds(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Its state follows Slurm's and its hub's, and stays when it is over."""
    until = "while ! [ -e {} ]; do sleep 0.1; done"
    handle = backend.submit(job(f"{until.format('hub')}\n{RUNNING}\n{until.format('go')}", ended=0))
    before = wait(cluster, backend, handle, lambda job: job.state is State.RUNNING)
    Path("hub").touch()
    running = wait(cluster, backend, handle, lambda job: job.status)
    Path("go").touch()
    after = ended(cluster, backend, handle)

    assert "its state in Slurm is RUNNING on n1; its hub is not up yet" == before.detail
    assert (State.RUNNING, "", None) == (running.state, running.detail, running.ended)
    assert (State.SUCCEEDED, 0, "") == (after.state, after.exit_code, after.detail)
    assert after.submitted <= (after.ended or 0) < time.time() + 1
    assert (State.SUCCEEDED, 0) == (backend.job(handle).state, backend.job(handle).exit_code)


@pytest.mark.parametrize(("code", "state"), [(40, State.FAILED), (60, State.LOST)])
def test_the_agents_exit_code_is_the_jobs_state(
    cluster: Cluster, backend: SlurmBackend, job: Make, code: int, state: State
) -> None:
    """With the hub's word and without it, for the batch script ends with the same code.

    However short it was, it has not ended before it was submitted: Slurm's times are whole seconds.
    """
    handles = [backend.submit(job("", ended=code)), backend.submit(job(f"exit {code}"))]
    found = [ended(cluster, backend, handle) for handle in handles]

    assert [(state, code)] * 2 == [(each.state, each.exit_code) for each in found]
    assert all(each.submitted <= (each.ended or 0) for each in found)


def test_many_jobs_are_one_question(cluster: Cluster, backend: SlurmBackend, job: Make, login: Login) -> None:
    """`list` asks squeue once, however many jobs there are, and never again for those that have ended."""
    done = [backend.submit(job("", name=f"a{number}", ended=0)) for number in range(3)]
    for handle in done:
        ended(cluster, backend, handle)
    running = backend.submit(job(FOREVER, name="b"))
    # Not looked at by `backend`, which asks squeue from a thread: that call could fall into the count.
    told = Path.cwd() / f"b-{running.path}" / "run" / "status.json"
    cluster.until(told.exists, "the job runs", 30)
    fresh = SlurmBackend(cluster.shared / "state")
    before = login.count("squeue")

    found = fresh.jobs()

    assert 1 == login.count("squeue") - before
    assert [(str(running), State.RUNNING)] + [(str(handle), State.SUCCEEDED) for handle in done[::-1]] == [
        (str(each.handle), each.state) for each in found
    ]


def test_text_and_json_say_the_same(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Both languages of squeue give equal facts of jobs that wait, run and have ended."""
    first = [backend.submit(job("", ended=code)) for code in (0, 20)]
    for handle in first:
        ended(cluster, backend, handle)
    running = backend.submit(job(FOREVER, "--exclusive", "--time=1-02:03:00", nodes=3))
    wait(cluster, backend, running, lambda job: job.status)
    held = backend.submit(job("", "--hold"))
    wait(cluster, backend, held, lambda job: "held" in job.detail)
    commands = backend.queries().commands
    text = commands.ask("squeue", "--noheader", "--states=all", f"--Format={parse.SQUEUE_FORMAT}")
    json = commands.ask("squeue", "--states=all", "--json")

    in_text = {each.job_id: each for each in parse.squeue(text.out)}
    in_json = {each.job_id: each for each in parse.squeue_json(json.out)}
    ours = [int(handle.path) for handle in (*first, running, held)]
    assert [in_text[number] for number in ours] == [in_json[number] for number in ours]


@pytest.mark.whole
def test_an_answer_that_is_not_understood_is_asked_for_in_json(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login
) -> None:
    """A squeue of somebody's own, which prints what it likes, still speaks JSON."""
    handle = backend.submit(job("", ended=0))
    ended(cluster, backend, handle)
    real = login.real("squeue")
    login.write("squeue", f'case "$*" in *--json*) ;; *) echo "JOBID USER"; exit 0 ;; esac\n{real}')
    (cluster.shared / "state/slurm").rename(cluster.shared / "state/gone")

    assert State.SUCCEEDED is SlurmBackend(cluster.shared / "state").job(handle).state


def test_a_job_of_plain_sbatch_is_known_by_its_id(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Who called sbatch himself has the same commands."""
    script = job(f"{RUNNING}\necho '[0/0] hello'", ended=40).files["digits.sbatch"].content.decode()
    handle = Handle("slurm", str(cluster.submit(script, cwd=Path.cwd())))
    found = ended(cluster, backend, handle)

    assert (State.FAILED, 40) == (found.state, found.exit_code)
    assert ["[0/0] hello"] == list(backend.logs(handle, EVERYTHING, follow=False))
    assert [] == backend.jobs()


def test_lines_come_while_they_are_written(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Following waits for the job to start, sees each line once, to the last, and then ends by itself."""
    handle = backend.submit(
        job(f"{RUNNING}\nfor i in 1 2 3; do echo \"[1/2] $i\"; echo '[hub] x'; sleep 0.3; done", ended=0)
    )

    seen = [line for line in backend.logs(handle, EVERYTHING, follow=True) if line]
    wanted = Selection(ranks=frozenset({2}), tail=2)

    assert ["[1/2] 1", "[hub] x", "[1/2] 2", "[hub] x", "[1/2] 3", "[hub] x"] == seen
    assert ["[1/2] 2", "[1/2] 3"] == list(backend.logs(handle, wanted, follow=False))


def test_cancel_gives_time_for_the_evidence(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """SIGTERM comes first, and the job may speak before it ends; a second cancel changes nothing."""
    handle = backend.submit(job(f"trap 'echo evidence; sleep 1; echo safe; exit 60' TERM\n{FOREVER}"))
    wait(cluster, backend, handle, lambda job: job.status)

    first = backend.cancel(handle)

    assert (State.CANCELLED, "by `ddplaunch cancel`") == (first.state, first.detail)
    lines = list(backend.logs(handle, EVERYTHING, follow=False))
    assert ["evidence", "safe"] == [line for line in lines if " CANCELLED AT " not in line]
    assert first == backend.cancel(handle)


@pytest.mark.whole
def test_what_ignores_sigterm_is_killed(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Slurm kills it after KillWait, and cancel waits for that."""
    cluster.configure("KillWait=3")
    handle = backend.submit(job(f"trap '' TERM\n{FOREVER}"))
    wait(cluster, backend, handle, lambda job: job.status)

    assert State.CANCELLED is backend.cancel(handle).state
    assert "CANCELLED" == cluster.state(int(handle.path))


def test_a_job_that_waits_is_cancelled_at_once(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """It never started, so it has no folder."""
    handle = backend.submit(job("", "--hold"))

    assert State.CANCELLED is backend.cancel(handle).state
    assert not Path(f"digits-{handle.path}").exists()


def test_a_requeued_job_is_another_attempt(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """While it waits again, what the hub of the first attempt said does not count."""
    script = (
        f'echo attempt ${{SLURM_RESTART_COUNT:-0}}\nif [ -z "$SLURM_RESTART_COUNT" ]; then\n{FOREVER}\nfi'
    )
    handle = backend.submit(job(script, "--requeue", ended=0))
    wait(cluster, backend, handle, lambda job: job.status)
    cluster.login(["scontrol", "requeuehold", handle.path])
    held = wait(cluster, backend, handle, lambda job: "held" in job.detail)
    cluster.login(["scontrol", "release", handle.path])
    waiting = wait(cluster, backend, handle, lambda job: "before" in job.detail)
    # A node takes no job again whose leave to run was revoked in the same second.
    cluster.login(["scontrol", "update", f"JobId={handle.path}", "StartTime=now+2seconds"])
    after = ended(cluster, backend, handle)
    lines = list(backend.logs(handle, EVERYTHING, follow=False))

    assert (State.PENDING, None, 1, "it is held") == (held.state, held.status, held.attempt, held.detail)
    assert f"`scontrol release {handle.path}`" in held.hint
    assert waiting.detail.startswith("it may not start before ")
    assert State.SUCCEEDED is after.state
    assert ["attempt 0", "attempt 1"] == [line for line in lines if line.startswith("attempt")]


def test_memory_that_ran_out_is_told(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Slurm's state is OUT_OF_MEMORY; without a hub that is the verdict."""
    handle = backend.submit(job(f"{RUNNING}\nexec python3 -c 'bytearray(400 << 20)'", "--mem=40"))

    found = ended(cluster, backend, handle)

    assert (State.FAILED, 41) == (found.state, found.exit_code)
    assert ["rank-killed-memory"] == [verdict.code for verdict in found.verdicts]


def test_output_that_cannot_be_seen_is_told(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """A folder that only the nodes have, and whose it is."""
    handle = backend.submit(job("", "--hold", "--chdir=/only/there"))

    with pytest.raises(ClusterError) as caught:
        list(backend.logs(handle, EVERYTHING, follow=False))

    path = f"/only/there/digits-{handle.path}.out"
    assert f"the output of {handle} cannot be read on this machine: {path}" == caught.value.message
    assert "on a machine that shares this folder with the nodes" in caught.value.hint


def test_why_the_batch_script_gave_up_is_told(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """There was no hub yet; what the script said of it is the reason."""
    handle = backend.submit(job("echo '[slurm] 12:00:00 error: n1 has no Python 3.9'; exit 79"))

    found = ended(cluster, backend, handle)

    assert (State.FAILED, 79, "n1 has no Python 3.9") == (found.state, found.exit_code, found.detail)


@pytest.mark.whole
def test_a_suspended_job_is_told_as_such(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """Its hub last said that it runs, and cannot say anything else."""
    handle = backend.submit(job(FOREVER))
    wait(cluster, backend, handle, lambda job: job.status)
    cluster.login(["scontrol", "suspend", handle.path])
    found = wait(cluster, backend, handle, lambda job: job.detail)
    cluster.login(["scontrol", "resume", handle.path])

    assert (State.RUNNING, "its state in Slurm is SUSPENDED on n1") == (found.state, found.detail)
    assert "" == wait(cluster, backend, handle, lambda job: not job.detail).detail


@pytest.mark.whole
def test_a_job_that_is_put_back_after_its_end(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """What was remembered of its first end is no longer true."""
    handle = backend.submit(job("[ -e go ] || exit 40", "--requeue", ended=0))
    first = ended(cluster, backend, handle)
    Path("go").touch()
    cluster.login(["scontrol", "requeue", handle.path])
    later = SlurmBackend(cluster.shared / "state")
    waiting = wait(cluster, later, handle, lambda job: job.state is State.PENDING)
    listed = [each.state for each in later.jobs()]
    # A node takes no job again whose leave to run was revoked in the same second.
    cluster.login(["scontrol", "update", f"JobId={handle.path}", "StartTime=now+2seconds"])

    assert (State.FAILED, [State.PENDING]) == (first.state, listed)
    assert 1 == waiting.attempt
    assert State.SUCCEEDED is ended(cluster, later, handle).state
