"""The kernel's log, from a file that stands in for /dev/kmsg, and from the real one where it may be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ddplaunch.agent.evidence.kernel import KernelLog


def opened(folder: Path) -> tuple[KernelLog, int]:
    """A log that reads a pipe, and the descriptor at the pipe's other end: the caller closes both."""
    ring = folder / "kmsg"
    os.mkfifo(ring)
    log = KernelLog(str(folder / "absent"))
    log._descriptor = os.open(ring, os.O_RDONLY | os.O_NONBLOCK)
    return log, os.open(ring, os.O_WRONLY)


def test_only_new_lines_that_name_our_processes_are_kept(tmp_path: Path) -> None:
    log, writer = opened(tmp_path)
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


def test_events_of_our_gpus_or_our_processes_are_kept_with_their_time(tmp_path: Path) -> None:
    """Those of our GPUs, or of our processes, are kept, with the time at which the kernel wrote them.

    The lines are real: issues 155 of NVIDIA/NVSentinel and 1150 of NVIDIA/open-gpu-kernel-modules, an older
    driver's without a process, and one whose process is not known.
    """
    log, writer = opened(tmp_path)
    written = time.monotonic() - 5
    lines = [
        "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
        "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
        "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000",
        "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:44:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5",
    ]
    for number, line in enumerate(lines):  # a read of the real thing gives one record
        os.write(writer, f"4,{number},{int(written * 1e6)},-;{line}\n".encode())
        log.xids([], [])
    found = log.xids([1818990], ["0000:44:00"])
    os.close(writer)
    log.close()

    assert [(79, "0000:44:00", None), (45, "0000:dc:00", 1818990), (79, "0000:44:00", None)] == [
        (xid.number, xid.gpu, xid.pid) for xid in found
    ]
    assert [lines[0], lines[1], lines[3]] == [xid.text for xid in found]
    assert all(4 < time.time() - xid.at < 60 for xid in found)


def test_a_log_that_may_not_be_read_gives_no_lines_and_a_reason(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "absent"))

    assert (log.naming([1]), log.missing.startswith("kernel log: ")) == ([], True)


def test_a_line_of_the_real_log_that_came_after_we_began_is_found() -> None:
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


def test_the_error_of_another_program_on_our_gpu_is_left_out(tmp_path: Path) -> None:
    """As a driver of an H100 wrote it: an error of a program's own, left out unless the program is ours."""
    log, writer = opened(tmp_path)
    lines = [
        "NVRM: Xid (PCI:0000:00:06): 43, pid=806, name=python3, channel 0x00000064",
        "NVRM: Xid (PCI:0000:00:06): 79, pid=806, name=python3, GPU has fallen off the bus.",
    ]
    for number, line in enumerate(lines):
        os.write(writer, f"4,{number},1,-;{line}\n".encode())
        log.xids([], [])
    ours, others = log.xids([806], ["0000:00:06"]), log.xids([807], ["0000:00:06"])
    os.close(writer)
    log.close()

    assert ([43, 79], [79]) == ([xid.number for xid in ours], [xid.number for xid in others])
