"""How many processes and threads there is room for, measured against the kernel's own count."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.checks.make import make_context
from tests.few_threads import group_of

from ddplaunch.agent.checks import machine
from ddplaunch.agent.checks.machine import ENOUGH_THREADS, LEAST_THREADS, Room
from ddplaunch.agent.contract import Status

ROOT = Path(__file__).parents[3]
NOBODYS = 54322
"""Number of a user who runs nothing here, not even the pods of other tests."""
COUNTED = """
import encodings.ascii, os, resource, sys, threading
from ddplaunch.agent.checks import machine
machine.room_for_threads()  # imports what another user may not read
limit, user = map(int, sys.argv[1:])
if user:
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    os.setuid(user)
room = machine.room_for_threads()
never, started = threading.Event(), 1
child = os.fork()
if child == 0:
    never.wait(60)
    os._exit(0)
while started < 100:
    try:
        threading.Thread(target=never.wait, daemon=True).start()
    except RuntimeError:
        break
    started += 1
print(room.name, room.limit, room.left, started, machine.room_for_threads().left == room.left, flush=True)
os.kill(child, 9)
os.waitpid(child, 0)  # its group can be removed only then
os._exit(0)
"""
"""What is left, how many can really be started, a process and threads, and whether these are left out of the
count: a check ends with what it has started."""


def counted(*words: str, limit: int, user: int) -> str:
    """What COUNTED prints in a process of this user."""
    command = [*words, sys.executable, "-c", COUNTED, str(limit), str(user)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_the_kernel_refuses_exactly_the_thread_for_which_we_see_no_room() -> None:
    assert "ulimit -u 20 19 19 True" == counted(limit=20, user=NOBODYS)


def test_the_tightest_control_group_says_what_may_be_started() -> None:
    """As in a container with a limit of its own; root has no other."""
    with group_of(20) as words:
        assert "pids.max 20 19 19 True" == counted(*words, limit=20, user=0)


def room_for(monkeypatch: pytest.MonkeyPatch, left: int, name: str = "ulimit -u") -> None:
    """Make the node one with so much room by that limit."""
    monkeypatch.setattr(machine, "room_for_threads", lambda: Room(left, 50, name))


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize(
    ("each", "more", "expected"),
    [
        (LEAST_THREADS, -1, (Status.FAIL, "threads-too-few")),
        (LEAST_THREADS, 0, (Status.UNKNOWN, "")),
        (ENOUGH_THREADS, -1, (Status.UNKNOWN, "")),
        (ENOUGH_THREADS, 0, (Status.PASS, "")),
    ],
)
def test_too_few_threads_fail_and_fewer_than_usual_warn(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ranks: int,
    each: int,
    more: int,
    expected: tuple[str, str],
) -> None:
    room_for(monkeypatch, each * ranks + more)
    result = machine.check_threads(make_context(tmp_path, nproc_per_node=ranks))

    assert expected == (result.status, result.code)


@pytest.mark.parametrize(
    ("name", "platform", "advice"),
    [
        ("ulimit -u", "local", "limits.conf"),
        ("ulimit -u", "slurm", "PropagateResourceLimitsExcept=NPROC"),
        ("pids.max", "local", "--pids-limit"),
        ("pids.max", "slurm", "`TasksMax=`"),
        ("pids.max", "kubernetes", "podPidsLimit"),
    ],
)
def test_the_hint_names_what_sets_the_limit_on_this_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, platform: str, advice: str
) -> None:
    room_for(monkeypatch, 3, name)
    result = machine.check_threads(make_context(tmp_path, platform=platform))

    assert f"room for 3 more threads ({name} is 50)" == result.observed
    assert advice in result.hint


def test_where_no_limit_is_seen_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    assert machine.room_for_threads(str(tmp_path)) is None
