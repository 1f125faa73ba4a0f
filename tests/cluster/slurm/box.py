"""One machine of a test cluster: namespaces of its own, held open by its first process.

All boxes of a cluster live inside one outer PID namespace. When its first process dies, for whatever reason,
the kernel ends everything in it; nothing has to be hunted down.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.busy import BUSY

ROOM = "2G"
"""In a node's /tmp, and in its /dev/shm."""
_SETUP = """
set -eu
name=$1 etc=$2 machine=$3 room=$4; shift 4
hostname "$name"
mount --bind "$etc/$name/hosts" /etc/hosts
mount --bind "$etc/nsswitch.conf" /etc/nsswitch.conf
mount --bind "$etc/slurm" /etc/slurm
if [ "$machine" = own ]; then
    mount -t tmpfs -o mode=1777,size=$room tmpfs /dev/shm
    # What must be seen everywhere may lie in /tmp itself.
    mount --rbind /tmp /mnt
    mount -t tmpfs -o mode=1777,size=$room tmpfs /tmp
    for path; do
        mkdir -p "$path"
        mount --rbind "/mnt${path#/tmp}" "$path"
    done
    umount --lazy /mnt
    # A fresh sysfs shows this box's network devices and hides the control groups.
    mount --rbind /sys/fs/cgroup /mnt
    mount -t sysfs sysfs /sys
    mount --rbind /mnt /sys/fs/cgroup
    umount --lazy /mnt
fi
echo ready
exec >/dev/null 2>&1
"""
# With SIGCHLD ignored, the kernel itself buries the orphans that PID 1 inherits. (dash would not ignore it.)
_WAIT = "trap '' CHLD; exec sleep infinity"


class BoxError(Exception):
    """A machine of the cluster did not start; the message holds what was said."""


@dataclass
class Box:
    """`first` is the process that holds the namespaces open; `starter` our child that made it, if we did."""

    first: int
    starter: subprocess.Popen[bytes] | None = None

    def bury(self) -> None:
        """Once its processes are gone: leave no zombie of ours."""
        if self.starter is not None:
            self.starter.wait(timeout=BUSY * 10)


def hold(lock: int, outlive: bool) -> Box:
    """Start the outer PID namespace; its first process keeps the descriptor `lock` open.

    Unless it shall `outlive` this thread, it dies with it.
    """
    tie = [] if outlive else ["setpriv", "--pdeathsig", "KILL"]
    words = [*tie, "unshare", "--pid", "--fork", "--kill-child", "bash", "-c", _WAIT]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock],
        start_new_session=True,
    )
    return Box(_only_child(process.pid), process)


def start(holder: int, name: str, etc: Path, kept: Sequence[Path] | None, log: Path) -> Box:
    """Start a box named `name`.

    Its files below /etc come from `etc`. With `kept` it has its own processes, /tmp and /dev/shm, and sees of
    this machine's /tmp only those folders; without, it shares these things with this machine.
    """
    own = ["--pid", "--fork", "--kill-child", "--mount-proc"] if kept is not None else []
    kinds = ["--net", "--uts", "--mount", "--ipc"]
    folders = [str(path) for path in kept or []]
    settings = [name, str(etc), "shared" if kept is None else "own", ROOM, *folders]
    words = [
        "nsenter",
        f"--target={holder}",
        "--pid",
        "unshare",
        *kinds,
        *own,
        "bash",
        "-c",
        _SETUP + _WAIT,
        "bash",
    ]
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*words, *settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        if process.stdout.readline() != b"ready\n":
            raise BoxError(f"{name} did not start: {log.read_text()}")
    inside = _only_child(process.pid)
    return Box(_only_child(inside) if own else inside, process)


def enter(first: int, processes: bool, folder: str) -> list[str]:
    """The words before a command that shall run in the box whose first process is `first`.

    With `processes` it belongs to those of the box and dies with them, and nsenter waits for it. Without, it
    becomes the very process that was started: signals reach it.
    """
    kinds = ["--net", "--uts", "--mount", "--ipc", *(["--pid"] if processes else [])]
    return ["nsenter", f"--target={first}", *kinds, "env", f"--chdir={folder}"]


def processes(first: int) -> dict[int, str]:
    """Living processes in the PID namespace of `first`, this one left out, with their command lines."""
    namespace = os.readlink(f"/proc/{first}/ns/pid")
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if pid != first and os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:  # it ended, or is a zombie
            continue
    return found


def kill(first: int, seconds: float = 10.0) -> None:
    """End a PID namespace by its first process, and wait until the last of its processes is gone."""
    try:
        os.kill(first, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + BUSY * seconds
    while alive(first):
        if time.monotonic() > deadline:
            raise BoxError(f"process {first} was killed and is still there after {BUSY * seconds:.0f} s")
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _only_child(pid: int, seconds: float = 10.0) -> int:
    deadline = time.monotonic() + BUSY * seconds
    while time.monotonic() < deadline:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            break
        if children:
            return int(children[0])
        time.sleep(0.002)
    raise BoxError(f"process {pid}, which should have become a machine of the cluster, has no child")
