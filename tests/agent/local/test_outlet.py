"""Tests of what becomes of output that the user's disk does not take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ddplaunch.agent.local.display import BACKLOG, Outlet


def _run(command: str, stdout: str, state: Path) -> subprocess.CompletedProcess[str]:
    words = [str(Path(sys.executable).with_name("ddplaunch")), "run", "--", "sh", "-c", command]
    with open(stdout, "wb") as file:
        return subprocess.run(
            words,
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )


def test_output_that_a_full_disk_does_not_take_is_no_success(tmp_path: Path) -> None:
    """The command's last words are lost: `ddplaunch run` says so, and fails as `cat` does."""
    ended = _run("echo trained", "/dev/full", tmp_path)

    assert ended.returncode == 1, ended.stderr
    lost = "cannot write stdout: No space left on device; 8 bytes of output are lost"
    assert lost in ended.stderr

    words = [str(Path(sys.executable).with_name("ddplaunch")), "status", "local://run"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    status = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert status.returncode == 100
    assert "failed after" in status.stdout
    assert lost in status.stdout


def test_a_full_disk_is_waited_for_until_its_writers_would_wait_for_good(tmp_path: Path) -> None:
    """As long as the backlog has room, the disk may have room again; nobody waits for `ulimit -f`."""
    with open("/dev/full", "wb") as file:
        outlet = Outlet(file.fileno())
        outlet.write(b"x" * 1000)
        assert (outlet.refuses, outlet.broken, outlet.lost) == (True, False, 0)

    program = (
        "import resource, sys; sys.path[:] = eval(sys.argv[1]);"
        "from ddplaunch.agent.local.outlet import BACKLOG, Outlet;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); outlet = Outlet(1);"
        "outlet.write(b'x' * (BACKLOG + 8192)); print(outlet.broken, outlet.lost, file=sys.stderr)"
    )
    with open(tmp_path / "out", "wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", program, repr(sys.path)],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=50,
        )

    assert ended.stderr.split() == ["True", str(BACKLOG + 4096)]
