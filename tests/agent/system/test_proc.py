"""/proc, about real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch.agent.system import ports, proc

PROGRAM = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(60)"


@pytest.fixture(name="child")
def _child() -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RANK": "3", "EMPTY": ""},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_state_parent_environment_and_command_of_a_process_are_read(child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + BUSY * 10
    while (stat := proc.stat(child.pid)) is not None and stat.state != "S" and time.monotonic() < deadline:
        time.sleep(0.01)

    assert stat is not None
    assert (stat.state, stat.parent, stat.threads) == ("S", os.getpid(), 1)
    assert stat.memory > 1 << 20
    assert child.pid in proc.children(os.getpid())
    environment = proc.environment(child.pid)
    assert (environment["RANK"], environment["EMPTY"]) == ("3", "")
    assert proc.command_line(child.pid).startswith(f"{sys.executable} -c import sys")


def test_a_dead_child_tells_how_it_died_before_it_is_buried(child: subprocess.Popen[str]) -> None:
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = proc.stat(child.pid)

    assert stat is not None
    assert (stat.state, os.WTERMSIG(stat.exit_status)) == ("Z", signal.SIGKILL)


def test_a_buried_child_tells_how_it_died_since_linux_6_15(child: subprocess.Popen[str]) -> None:
    descriptor = os.pidfd_open(child.pid)
    child.kill()
    child.wait()
    status = proc.exit_status(descriptor)
    os.close(descriptor)

    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert status == (signal.SIGKILL if release >= (6, 15) else None)


def test_of_a_pid_that_no_process_has_nothing_is_read() -> None:
    gone = 2**22 + 1

    seen = proc.stat(gone), proc.usage(gone), proc.children(gone), proc.environment(gone)
    assert (None, None, [], {}) == seen


def test_what_was_mapped_before_hides_no_read() -> None:
    """Of a rank that has torch's libraries from a disk, and reads its data from the cache; or the reverse."""
    imported = proc.Usage(1.0, 40 << 20, 0, 9, fetched=900 << 20)
    reads = imported._replace(read=50 << 20)
    maps = imported._replace(fetched=920 << 20)

    assert [10 << 20, 20 << 20] == [after.read_since(imported) for after in (reads, maps)]


def test_usage_grows_by_what_was_read_and_written(tmp_path: Path) -> None:
    before = proc.usage(os.getpid())
    file = tmp_path / "data"
    file.write_bytes(b"x" * (1 << 19))
    for _ in range(2):
        file.read_bytes()
    after = proc.usage(os.getpid())

    assert before is not None
    assert after is not None
    assert after.read_since(before) >= 1 << 20
    assert 1 << 19 <= after.written - before.written < 1 << 20


def test_output_files_are_regular_files_only(tmp_path: Path) -> None:
    """A log is found once although both streams go there; pipes and /dev/null are none."""
    log = tmp_path / "out.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=file, stderr=file)
    try:
        assert proc.output_files(process.pid) == [str(log)]
    finally:
        process.kill()
        process.wait()


def test_the_bytes_of_a_connection_are_counted_at_both_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with left, right:
        inodes = {os.fstat(left.fileno()).st_ino, os.fstat(right.fileno()).st_ino}
        assert inodes <= proc.socket_inodes(os.getpid())
        before = ports.traffic_by_inode()
        left.sendall(b"x" * 100_000)
        received = 0
        while received < 100_000:
            received += len(right.recv(1 << 16))
        after = ports.traffic_by_inode()

    assert [after[inode].moved - before[inode].moved for inode in inodes] == [100_000, 100_000]
    assert all(0 <= after[inode].idle < BUSY * 5 for inode in inodes)


def test_a_socket_is_idle_from_its_last_data_in_either_direction() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with left, right:
        left.sendall(b"x")
        right.recv(1)
        time.sleep(0.5)
        idle = ports.traffic_by_inode()[os.fstat(right.fileno()).st_ino].idle

    assert 0.4 <= idle < BUSY * 5


def test_the_kernels_clock_tells_since_when_a_process_sleeps(child: subprocess.Popen[str]) -> None:
    """By the kernel's own clock, where it tells: ours runs, and the child does not."""
    until = time.monotonic() + 30
    while (slept := proc.off_cpu_for(child.pid)) is not None and slept < 0.4:
        assert time.monotonic() < until
        time.sleep(0.05)

    ours = [proc.off_cpu_for(os.getpid()) for _ in range(20)]  # between two reads others may get the CPU
    if slept is None:
        assert {None} == {*ours}
    else:
        assert min(each for each in ours if each is not None) < 0.4


@pytest.mark.parametrize("cpu", sorted(os.sched_getaffinity(0)))
def test_the_clock_of_each_cpu_is_read_and_our_own_cpus_are_left_as_they_were(cpu: int) -> None:
    program = (
        "import os, sys, time; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True); time.sleep(60)"
    )
    before = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", program, str(cpu)], stdout=subprocess.PIPE) as sleeper:
        try:
            assert sleeper.stdout is not None
            sleeper.stdout.readline()
            began = time.monotonic()
            time.sleep(0.5)
            slept, longest = proc.off_cpu_for(sleeper.pid), time.monotonic() - began
        finally:
            sleeper.kill()

    assert slept is None or 0.2 < slept < longest + 0.1
    assert before == os.sched_getaffinity(0)


@pytest.mark.parametrize(("ran", "slept"), [(90.0, 10.0), (0.0, 0.0), (100.5, 0.0), (None, None)], ids=str)
def test_a_thread_that_was_just_moved_to_another_cpu_has_not_slept_since_the_machine_started(
    ran: float | None, slept: float | None
) -> None:
    assert slept == proc.between(ran, 100.0)


def test_without_a_process_nothing_is_known_of_sleep() -> None:
    assert (None, "") == (proc.off_cpu_for(2**22 + 1), proc.program(2**22 + 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a mount namespace")
def test_a_file_of_a_process_with_other_mounts_is_not_ours_of_that_name(tmp_path: Path) -> None:
    """As of a container: its file is found and not ours of that name, whatever links lead to it."""
    code, mounted = tmp_path / "code", tmp_path / "mounted"
    for folder, text in ((code, "ours"), (mounted, "its")):
        (folder / "v1").mkdir(parents=True)
        (folder / "v1/train.py").write_text(text)
        (folder / "absolute").symlink_to(code / "v1")
        (folder / "relative").symlink_to("v1/../v1")
    (mounted / "round").symlink_to(code / "round")
    script = f"mount --bind {mounted} {code} && cd {code}/v1 && echo up && exec sleep 60"
    words = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert "up\n" == child.stdout.readline()
        names = [f"{code}/v1/train.py", f"{code}/absolute/train.py", f"{code}/relative/train.py", "train.py"]
        theirs = {Path(proc.path_from_here(child.pid, name)).read_text() for name in names}
        is_there = Path(proc.path_from_here(child.pid, f"{code}/round/train.py")).exists()
        child.kill()

    assert ({"its"}, False) == (theirs, is_there)
    assert "ours" == Path(proc.path_from_here(os.getpid(), names[1])).read_text()
