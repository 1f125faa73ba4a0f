"""For which file a process waits: real processes, asleep in a real kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import Process, Wait
from ddplaunch.agent.diagnosis.run.processes import waits_for_storage
from ddplaunch.agent.evidence import waits
from ddplaunch.agent.system import proc

PROGRAMS = Path(__file__).resolve().parents[2] / "corpus/programs"


@contextmanager
def asleep(program: str, folder: Path, states: str) -> Iterator[int]:
    """A process of Python that runs `program` in `folder`, once it sleeps in one of these states."""
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS), "CORPUS_SCENE": str(folder), "RANK": "0"}
    words = [sys.executable, "-c", f"import fcntl, os, scene\nprint(flush=True)\n{program}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            _until_asleep(process.pid, states)
            yield process.pid
        finally:
            process.kill()


def _until_asleep(pid: int, states: str) -> None:
    """Wait until it has slept without a wake-up."""
    deadline = time.monotonic() + BUSY * 10
    before = None
    while True:
        now = proc.usage(pid)
        stat = proc.stat(pid)
        if stat is not None and stat.state in states and now == before:
            return
        assert time.monotonic() < deadline, (stat, proc.text(pid, "stack"))
        before = now
        time.sleep(0.2)


def wait_of(pid: int) -> Wait | None:
    """What is found out about a process now."""
    stat = proc.stat(pid)
    assert stat is not None
    return waits.read_wait(pid, stat.state, proc.wchan(pid))


def is_stuck(pid: int) -> bool:
    """Whether the rule takes it for one that waits for storage."""
    stat = proc.stat(pid)
    assert stat is not None
    return waits_for_storage(Process(pid, stat.state, waits_for=wait_of(pid)))


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system")


def test_a_pipe_with_a_name_is_no_storage(tmp_path: Path) -> None:
    """It is named, with its mount, and nobody says that its file system does not answer."""
    os.mkfifo(tmp_path / "queue")
    with asleep("open('queue')", tmp_path, "S") as pid:
        found = wait_of(pid)
        stuck = is_stuck(pid)

    assert found is not None
    assert (str(tmp_path / "queue"), 0, False) == (found.file, found.holder, stuck)
    assert os.path.ismount(found.mount)


@pytest.mark.parametrize(
    "call",
    ["os.read(0, 1)", "import time; time.sleep(60)", "import subprocess; subprocess.run(['sleep', '60'])"],
)
def test_who_waits_for_a_pipe_a_clock_or_a_child_waits_for_no_file(call: str, tmp_path: Path) -> None:
    program = f"os.dup2(os.pipe()[0], 0)\n{call}"
    with asleep(program, tmp_path, "S") as pid:
        found = wait_of(pid)
        for child in proc.children(pid):
            os.kill(child, 9)

    assert found is None


def test_a_parent_of_vfork_waits_for_no_storage(tmp_path: Path) -> None:
    """It sleeps in state D until its child has begun another program."""
    program = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nif libc.vfork() == 0:\n libc.sleep(30)\n libc._exit(0)"
    )
    with asleep(program, tmp_path, "D") as pid:
        stuck = is_stuck(pid)
        for child in proc.children(pid):
            os.kill(child, 9)

    assert not stuck


@pytest.mark.parametrize("call", ["fcntl.flock", "fcntl.lockf"])
def test_the_holder_of_a_lock_is_named_with_its_command(call: str, tmp_path: Path) -> None:
    program = f"import time\nfile = open('cache.lock', 'w')\n{call}(file, fcntl.LOCK_EX)\ntime.sleep(60)"
    with asleep(program, tmp_path, "S") as holder, asleep(program, tmp_path, "S") as pid:
        found = wait_of(pid)
        stuck = is_stuck(pid)
        free = wait_of(holder)

    assert found is not None
    assert (str(tmp_path / "cache.lock"), holder, False, None) == (found.file, found.holder, stuck, free)
    assert "cache.lock" in found.command


@pytest.mark.parametrize("call", ["fcntl.flock", "fcntl.lockf"])
def test_the_kernels_table_shows_who_holds_a_lock_where_calls_may_not_be_read(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = proc.text
    monkeypatch.setattr(
        proc, "text", lambda pid, name: "" if name.endswith(("syscall", "stack")) else read(pid, name)
    )
    program = f"import time\nfile = open('cache.lock', 'w')\n{call}(file, fcntl.LOCK_EX)\ntime.sleep(60)"
    with asleep(program, tmp_path, "S") as holder, asleep(program, tmp_path, "S") as pid:
        found, free = wait_of(pid), wait_of(holder)

    assert found is not None
    assert (str(tmp_path / "cache.lock"), holder, None) == (found.file, found.holder, free)


OPENS = "file = os.open('cache.lock', os.O_CREAT | os.O_RDWR)\n"
LOCKS = f"{OPENS}fcntl.flock(file, fcntl.LOCK_EX)\n"
SLEEPS = "import time\ntime.sleep(60)"


def tried(pid: int, folder: Path, ranks: tuple[int, ...] | None = None) -> Wait:
    """What is found out about a process that tries for `cache.lock`; `ranks`: one of them has it if open."""
    found = waits.polled_lock(pid, [str(folder / "cache.lock"), ranks is not None], ranks or ())
    assert found is not None
    return found


def test_of_those_that_have_a_lock_file_open_the_holder_alone_is_named(tmp_path: Path) -> None:
    other = (
        f"{OPENS}second = os.open('other.lock', os.O_CREAT | os.O_RDWR)\nfcntl.flock(second, fcntl.LOCK_EX)\n"
    )
    with asleep(other + SLEEPS, tmp_path, "S"), asleep(SLEEPS, tmp_path, "S") as pid:
        unlocked = tried(pid, tmp_path)
        with asleep(LOCKS + SLEEPS, tmp_path, "S") as holder:
            found, itself = tried(pid, tmp_path), tried(holder, tmp_path)

    assert (str(tmp_path / "cache.lock"), holder, []) == (found.file, found.holder, found.functions)
    assert ("cache.lock" in found.command, os.path.ismount(found.mount)) == (True, True)
    assert [(0, ""), (0, "")] == [(each.holder, each.command) for each in (unlocked, itself)]


def test_the_rank_that_has_the_file_open_holds_a_baton(tmp_path: Path) -> None:
    """It locks nothing. A process that is no rank may only look at the file."""
    with asleep(OPENS + SLEEPS, tmp_path, "S") as holder, asleep(SLEEPS, tmp_path, "S") as pid:
        found = [tried(pid, tmp_path, ranks).holder for ranks in ((holder, pid), (pid,), ())]

    assert [holder, 0, 0] == found


@needs_root
def test_a_file_of_the_same_name_in_another_container_is_another_file(tmp_path: Path) -> None:
    apart = "import ctypes\nctypes.CDLL(None).unshare(0x20000)\n"
    with asleep(apart + LOCKS + SLEEPS, tmp_path, "S"), asleep(SLEEPS, tmp_path, "S") as pid:
        found = tried(pid, tmp_path)

    assert 0 == found.holder


def test_who_tries_for_no_lock_waits_for_nobody() -> None:
    assert waits.polled_lock(os.getpid(), None, [os.getpid()]) is None


@needs_root
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="this kernel has no FUSE")
@pytest.mark.parametrize(("after_mount", "state"), [(False, "D"), (True, "S")])
def test_a_dead_file_server_is_named_with_its_mount(after_mount: bool, state: str, tmp_path: Path) -> None:
    """The path is that of the call: no descriptor is open yet. The mount is that of its own namespace."""
    program = f"os.stat(scene.dead_server({after_mount}) + '/shard')"
    with asleep(program, tmp_path, state) as pid:
        found = wait_of(pid)
        stuck = is_stuck(pid)

    assert found is not None
    folder = str(tmp_path / "nas-0")
    seen = found.file, found.mount, found.kind, found.source, stuck
    assert (f"{folder}/shard", folder, "fuse", "nas:/data", True) == seen


@needs_root
@pytest.mark.skipif(shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin") is None, reason="no mkfs.ext4")
def test_a_frozen_file_system_is_named(tmp_path: Path) -> None:
    """Who writes to it sleeps in state D until it is thawed."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", image], check=True)
    disk.mkdir()
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    try:
        target = disk / "step-1.pt"
        target.write_bytes(b"")
        subprocess.run(["fsfreeze", "--freeze", disk], check=True)
        try:
            with _writer(target) as pid:
                found = wait_of(pid)
                stuck = is_stuck(pid)
                subprocess.run(["fsfreeze", "--unfreeze", disk], check=True)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", disk], check=False, stderr=subprocess.DEVNULL)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)

    assert found is not None
    assert (str(target), str(disk), "ext4", True) == (found.file, found.mount, found.kind, stuck)


@contextmanager
def _writer(target: Path) -> Iterator[int]:
    """A process that writes to a file which is open before."""
    program = f"file = open({str(target)!r}, 'r+b', 0)\nfile.write(b'x')"
    with asleep(program, target.parent.parent, "D") as pid:
        yield pid
