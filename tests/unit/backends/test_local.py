"""A local job from submission to its end, told from its files and its process alone."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.disks import fill, small_disk
from tests.unit.backends.conftest import Make, status_json

from ddplaunch.agent.contract import Files, JobStatus, StopRequest, codec
from ddplaunch.backends.job import EVERYTHING, Handle, State
from ddplaunch.backends.local import host
from ddplaunch.backends.local.backend import CANCELLED, HOST, LocalBackend
from ddplaunch.errors import ClusterError, NotFoundError, UsageError
from ddplaunch.render import Rendered, RenderedFile

RUNNING = f"status '{status_json()}'"
FOREVER = f"{RUNNING}\nwhile :; do sleep 0.1; done"


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what must come about; fail when it does not."""
    assert host.wait_until(holds, BUSY * 10), f"it did not come about in {BUSY * 10} s"


def carrier(backend: LocalBackend, handle: Handle) -> host.Host:
    """The process of a job."""
    found = host.read(backend.store.find(handle.path) / HOST)
    assert found is not None
    return found


def test_submissions_of_one_name_are_counted(backend: LocalBackend, job: Make) -> None:
    """Each submission has a handle of its own, and the bare name means the newest."""
    handles = [str(backend.submit(job("", ended=0))) for _ in range(3)]

    assert ["local://digits/1", "local://digits/2", "local://digits/3"] == handles
    assert "local://digits/3" == str(backend.job(Handle.parse("local://digits")).handle)


def test_what_was_rendered_lies_there_unchanged(backend: LocalBackend, tmp_path: Path) -> None:
    """Submitting writes the bytes and modes of the rendered files, also in folders below."""
    script = RenderedFile(f"printf '%s' '{status_json(exit_code=0)}' >\"${{0%/*}}/run/status.json\"".encode())
    files = {"run.sh": script, "a/b.bin": RenderedFile(b"\0\xff\n", executable=True)}

    handle = backend.submit(Rendered("local", "digits", files, ("sh", "run.sh")))

    folder = tmp_path / "state" / "jobs" / handle.path
    assert script.content == (folder / "run.sh").read_bytes()
    assert b"\0\xff\n" == (folder / "a/b.bin").read_bytes()
    assert (False, True) == tuple(os.access(folder / name, os.X_OK) for name in files)


def test_a_host_that_has_ended_is_no_zombie(backend: LocalBackend, job: Make) -> None:
    """The program that submitted it may run for long, and submit many."""
    handle = backend.submit(job(f'{RUNNING}\nwhile [ ! -e "$here/go" ]; do sleep 0.05; done'))
    pid = carrier(backend, handle).pid
    (backend.store.find(handle.path) / "go").touch()

    eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (40, State.FAILED), (60, State.LOST)])
def test_the_agents_exit_code_is_the_jobs_state(
    backend: LocalBackend, job: Make, code: int, state: State
) -> None:
    """Told to stop, and not by `ddplaunch cancel`: that is said, and the job is lost."""
    handle = backend.submit(job("", ended=code))
    eventually(lambda: backend.job(handle).state.ended)

    found = backend.job(handle)
    assert (state, code) == (found.state, found.exit_code)
    assert (code == 60) == ("stopped from outside, not by `ddplaunch cancel`" in found.detail)


def test_an_exit_code_counts_once_the_host_has_gone(backend: LocalBackend, job: Make) -> None:
    """While the host still writes the ranks' last lines, the job is running."""
    handle = backend.submit(job(f"status '{status_json(exit_code=0)}'\nwhile :; do sleep 0.1; done"))

    found = backend.job(handle)
    assert (State.RUNNING, None) == (found.state, found.exit_code)


def test_a_job_that_was_killed_is_lost_not_cancelled(backend: LocalBackend, job: Make) -> None:
    """A host that somebody killed has left no exit code, and the state says so."""
    handle = backend.submit(job(FOREVER))
    os.kill(carrier(backend, handle).pid, signal.SIGKILL)
    eventually(lambda: backend.job(handle).state.ended)

    found = backend.job(handle)
    assert (State.LOST, None) == (found.state, found.exit_code)
    assert "is gone, and left no exit code" in found.detail


def test_a_signal_is_passed_on_and_may_be_no_cancelling(backend: LocalBackend, job: Make) -> None:
    """SIGUSR2 reaches the host and marks nothing; SIGINT marks."""
    script = f"trap 'say dumped' USR2\ntrap 'exit 3' INT\n{FOREVER}"
    handle = backend.submit(job(script))
    folder = backend.store.find(handle.path)

    backend.pass_on(handle, StopRequest(signal.SIGUSR2, "a test"))
    eventually(lambda: (folder / "run" / "output.log").exists())
    marked = (folder / CANCELLED).exists()
    backend.pass_on(handle, StopRequest(signal.SIGINT, "a test"))
    eventually(lambda: backend.job(handle).state.ended)

    assert (False, State.CANCELLED) == (marked, backend.job(handle).state)


def test_cancel_stops_and_marks(backend: LocalBackend, job: Make) -> None:
    """SIGTERM reaches the host, and what it says of its end counts; a second cancel changes nothing."""
    stopped = status_json(exit_code=60)
    handle = backend.submit(job(f"trap 'status '\"'\"'{stopped}'\"'\"'; exit 60' TERM\n{FOREVER}"))

    first = backend.cancel(handle)

    assert (State.CANCELLED, 60, "by `ddplaunch cancel`") == (first.state, first.exit_code, first.detail)
    assert first == backend.cancel(handle)


def test_a_host_that_will_not_stop_is_killed(
    backend: LocalBackend, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel is bounded: what ignores SIGTERM is killed, and is cancelled all the same."""
    monkeypatch.setattr("ddplaunch.backends.local.backend.STOP", 0.5)
    handle = backend.submit(job(f"trap '' TERM\n{FOREVER}"))

    found = backend.cancel(handle)

    assert (State.CANCELLED, None) == (found.state, found.exit_code)
    assert "was killed" in found.detail
    assert not carrier(backend, handle).alive()


def test_a_process_that_is_stopped_is_killed_with_its_host(
    backend: LocalBackend, job: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cancelled job leaves none: what is stopped does not notice that its host is gone."""
    monkeypatch.setattr("ddplaunch.backends.local.backend.STOP", 0.5)
    pid = tmp_path / "pid"
    stopped = f"sleep 300 & kill -STOP $!; echo $! >{pid}"
    handle = backend.submit(job(f"{stopped}\ntrap '' TERM\n{FOREVER}"))
    eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))

    backend.cancel(handle)

    eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def test_cancel_leaves_a_job_that_has_ended(backend: LocalBackend, job: Make) -> None:
    handle = backend.submit(job("", ended=0))
    eventually(lambda: backend.job(handle).state.ended)

    assert State.SUCCEEDED is backend.cancel(handle).state


def test_a_recycled_pid_is_not_ours(backend: LocalBackend, job: Make) -> None:
    """A living process with the recorded pid and another start is neither believed nor signalled."""
    handle = backend.submit(job("", ended=40))
    folder = backend.store.find(handle.path)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        found = carrier(backend, handle)
        eventually(lambda: not found.alive())
        codec.write(str(folder / HOST), host.Host(stranger.pid, found.started, found.boot, found.at))

        assert State.FAILED is backend.cancel(handle).state
        assert None is stranger.poll()
        stranger.kill()


def test_a_host_of_an_earlier_boot_is_gone(backend: LocalBackend, job: Make) -> None:
    """After the machine was rebooted, the detail says so."""
    handle = backend.submit(job(FOREVER))
    folder = backend.store.find(handle.path)
    found = carrier(backend, handle)
    codec.write(str(folder / HOST), host.Host(found.pid, found.started, "another", found.at))
    lost = backend.job(handle)
    codec.write(str(folder / HOST), found)

    assert State.LOST is lost.state
    assert "the machine was rebooted" in lost.detail


def test_a_job_of_another_machine_that_shares_the_home_runs_as_long_as_its_hub_writes(
    backend: LocalBackend, job: Make
) -> None:
    """Its pid means nothing here: what has that number must not be signalled, and no reboot is claimed."""
    handle = backend.submit(job(FOREVER))
    folder = backend.store.find(handle.path)
    found = carrier(backend, handle)
    eventually(lambda: (folder / Files.STATUS).exists())
    afar = dataclasses.replace(found, boot="another", machine="n7")
    codec.write(str(folder / HOST), afar)
    running = backend.job(handle)
    with pytest.raises(ClusterError, match="runs on n7, not here"):
        backend.cancel(handle)
    status = codec.read(JobStatus, str(folder / Files.STATUS))
    codec.write(str(folder / Files.STATUS), dataclasses.replace(status, updated=time.time() - 600))
    lost = backend.job(handle)
    codec.write(str(folder / HOST), found)

    assert (State.RUNNING, "on n7") == (running.state, running.detail)
    assert (State.LOST, True) == (lost.state, "it ran on n7, and has written nothing since" in lost.detail)


def test_a_host_that_fails_at_once_is_an_error(backend: LocalBackend, job: Make) -> None:
    """Its last words are in the message, and no job is left behind."""
    with pytest.raises(ClusterError) as caught:
        backend.submit(job("echo 'error: no python3 on PATH' >&2\nexit 79"))

    assert "exit code 79\n    error: no python3 on PATH" in caught.value.message
    assert [] == backend.jobs()


def test_without_a_shell_no_job_starts(
    backend: LocalBackend, job: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In an image that has none it is said what is missing, and no job is left behind."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ClusterError, match="are started by sh, which is not on PATH"):
        backend.submit(job(""))

    assert [] == backend.jobs()


def test_a_state_folder_that_cannot_be_written_is_an_error(job: Make, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")

    with pytest.raises(ClusterError, match=r"the job's folder cannot be written: .*state"):
        LocalBackend(tmp_path / "state").submit(job(""))


def test_a_job_that_a_full_disk_refuses_leaves_nothing(job: Make, tmp_path: Path) -> None:
    """What it had written already would be missing elsewhere."""
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        fill(disk)
        with pytest.raises(ClusterError, match="No space left on device"):
            LocalBackend(disk).submit(job(""))

        assert [] == [path for path in (disk / "jobs").rglob("*") if path.is_file()]


def test_jobs_come_newest_first(backend: LocalBackend, job: Make) -> None:
    """Running and finished jobs of all names are listed together."""
    first = backend.submit(job("", name="alpha", ended=0))
    second = backend.submit(job(FOREVER, name="beta"))
    third = backend.submit(job("", name="alpha", ended=40))
    eventually(lambda: backend.job(third).state.ended and backend.job(first).state.ended)

    assert [
        ("local://alpha/2", State.FAILED),
        (str(second), State.RUNNING),
        ("local://alpha/1", State.SUCCEEDED),
    ] == [(str(each.handle), each.state) for each in backend.jobs()]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("digits/7", "the last submission of digits is local://digits/1"),
        ("digit", "did you mean local://digits?"),
        ("zebra", "`ddplaunch list` shows all jobs"),
    ],
)
def test_an_unknown_job_is_not_found(backend: LocalBackend, job: Make, path: str, hint: str) -> None:
    """The hint leads to a job that exists."""
    backend.submit(job("", ended=0))

    with pytest.raises(NotFoundError) as caught:
        backend.job(Handle("local", path))

    assert hint == caught.value.hint


@pytest.mark.parametrize("path", ["..", "../7", ".", "", "digits/", "digits/x", "digits/1/2", "digits/../1"])
def test_a_handle_never_leads_out_of_the_state_folder(
    backend: LocalBackend, job: Make, path: str, tmp_path: Path
) -> None:
    """What is no name and number is refused, whatever lies where it points."""
    backend.submit(job("", ended=0))
    for folder in ("state/7", "state/jobs/7"):
        (tmp_path / folder).mkdir()

    with pytest.raises(UsageError):
        backend.job(Handle("local", path))


LAUNCHER = """
import sys, time
from pathlib import Path
from ddplaunch.backends.local.backend import LocalBackend
from ddplaunch.render import Rendered, RenderedFile

file = RenderedFile(sys.argv[2].encode())
LocalBackend(Path(sys.argv[1])).submit(Rendered("local", "digits", {"run.sh": file}, ("sh", "run.sh")))
print("submitted", flush=True)
time.sleep(60)
"""


def test_a_job_survives_its_launcher(tmp_path: Path, job: Make) -> None:
    """A launcher that is killed right after submitting leaves a job that goes on, in a session of its own."""
    script = job(FOREVER).files["run.sh"].content.decode()
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), script],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
    backend, handle = LocalBackend(tmp_path), Handle("local", "digits")

    assert b"submitted\n" == said
    assert State.RUNNING is backend.job(handle).state
    assert os.getsid(carrier(backend, handle).pid) == carrier(backend, handle).pid
    assert State.CANCELLED is backend.cancel(handle).state


def test_a_launcher_that_dies_on_the_way_leaves_no_half_job(backend: LocalBackend, job: Make) -> None:
    """Until its number is claimed a folder is no job, and its process ends untold."""
    begun = backend.store.begin("digits", job("").files)
    child = host.Child(("sh", "run.sh"), 1, 2)
    child.close_pipe()

    assert 1 == child.wait()
    assert [] == backend.jobs()
    os.utime(begun, (0, 0))
    assert "local://digits/1" == str(backend.submit(job("", ended=0)))
    assert not begun.exists()


def test_launchers_that_submit_at_once_get_different_numbers(backend: LocalBackend, job: Make) -> None:
    """Claiming a number is atomic: what another launcher has taken is never written over."""
    begun = [backend.store.begin("digits", job("").files) for _ in range(5)]

    folders = [backend.store.claim(each) for each in begun]

    assert ["1", "2", "3", "4", "5"] == [folder.name for folder in folders]


def test_following_ends_with_the_job(backend: LocalBackend, job: Make) -> None:
    """All that a job writes is seen, to its last line, and then following ends by itself."""
    handle = backend.submit(job(f'{RUNNING}\nfor i in 1 2 3; do say "[0/0] $i"; sleep 0.2; done', ended=0))

    lines = [line for line in backend.logs(handle, EVERYTHING, follow=True) if line]

    assert ["[0/0] 1", "[0/0] 2", "[0/0] 3"] == lines


def test_a_followed_job_that_prints_nothing_still_gives_the_caller_his_turn(
    backend: LocalBackend, job: Make
) -> None:
    handle = backend.submit(job(f'{RUNNING}\nuntil [ -e "$here/go" ]; do sleep 0.1; done', ended=0))

    assert "" == next(backend.logs(handle, EVERYTHING, follow=True))
    assert State.RUNNING is backend.job(handle).state
    (backend.store.find(handle.path) / "go").touch()
