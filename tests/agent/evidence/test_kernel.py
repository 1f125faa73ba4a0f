"""The kernel's log, from a file that stands in for /dev/kmsg, and from the real one where it may be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ddplaunch.agent.evidence.kernel import KernelLog


def test_only_new_lines_that_name_our_processes(tmp_path: Path) -> None:
    """Numbers that are no pids, other pids, and lines from before we listened are left out."""
    ring = tmp_path / "kmsg"
    os.mkfifo(ring)
    log = KernelLog(str(tmp_path / "absent"))
    log._descriptor = os.open(ring, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(ring, os.O_WRONLY)
    records = [
        b"6,812,1,-;Out of memory: Killed process 812 (python) total-vm:99kB, anon-rss:7kB\n",
        b"6,813,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=812,uid=0\n SUBSYSTEM=x\n",
        b"6,814,1,-;python[812]: segfault at 0 ip 00007f sp 00007f error 4\n",
        b"6,815,1,-;eth0: 812 packets dropped\n",
        b"6,816,1,-;Killed process 8120 (python)\n",
    ]
    found = []
    for record in records:  # a read of the real thing gives one record
        os.write(writer, record)
        found = log.naming([812])
    os.close(writer)
    log.close()

    assert found == [record.decode().partition(";")[2].partition("\n")[0] for record in records[:3]]


def test_who_may_not_read_is_told_why(tmp_path: Path) -> None:
    """A missing or forbidden log gives no lines and a reason."""
    log = KernelLog(str(tmp_path / "absent"))

    assert (log.naming([1]), log.missing.startswith("kernel log: ")) == ([], True)


def test_a_real_kernel_message() -> None:
    """A line written to the real log after we began to listen is found, where that is allowed."""
    log = KernelLog()
    try:
        writer = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError:  # nor may it be read, as a rule
        assert log.naming([4199999]) == []
        return
    line = f"ddplaunch test {time.time_ns()}: pid=4199999"
    os.write(writer, line.encode() + b"\n")
    os.close(writer)
    found = log.naming([4199999])
    log.close()

    assert found[-1:] == ([] if log.missing else [line])
