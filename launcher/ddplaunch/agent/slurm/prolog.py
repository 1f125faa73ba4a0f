"""Before a job: checks of the node that only an administrator can repair."""

from __future__ import annotations

import os
import stat
import sys

from ddplaunch.agent.checks import run as checks
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.checks.disk import LEAST
from ddplaunch.agent.contract import CheckResult, Exit, JobPlan, Status
from ddplaunch.agent.gate import table
from ddplaunch.agent.platforms import SLURM
from ddplaunch.agent.slurm import jobs, room
from ddplaunch.agent.system.phrases import size

_NULL = os.makedev(1, 3)
_LOOPBACK = "/sys/class/net/lo/flags"
_UP = 1  # IFF_UP


def main() -> int:
    """`Exit.NODE_AT_FAULT` when no job can work here; whatever else is odd is printed alone."""
    context = Context(JobPlan("prolog", 1, None, [], [], platform=SLURM.name), "/", 0, 0, b"")
    results = checks.run(context, CHECKS, seconds=10.0)
    odd = [result for result in results if result.status != Status.PASS]
    if odd:
        print("\n".join(table.rows(odd, colour=False)), file=sys.stderr)
    return Exit.NODE_AT_FAULT if any(result.status == Status.FAIL for result in odd) else Exit.OK


def shm(context: Context) -> CheckResult:
    """Shared memory, in which NCCL and DataLoader workers hand tensors over."""
    return _room(context, "shm", "shm-too-small", room.SHARED_MEMORY)


def disk(context: Context) -> CheckResult:
    """The folder for temporary files, where Python, torchrun and sbcast write."""
    return _room(context, "disk", "disk-full", room.TEMPORARY)


def _room(context: Context, check: str, code: str, place: str) -> CheckResult:
    observed = room.lacking(place)
    if not observed:
        return passed(check, f"there is room in {place}")
    wanted, hint = f"at least {size(LEAST)}", f"`df -h {place}; ls -la {place}` on this node"
    others = [job for job in jobs.here() if str(job) != context.variable("SLURM_JOB_ID")]
    if others:  # it may be theirs, and pass with them
        return unknown(check, f"{observed}, while other jobs run here: {', '.join(map(str, others))}", hint)
    return failed(check, code, observed, wanted, hint)


def null(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """A program of root that deletes and writes its output file makes a plain file of /dev/null."""
    try:
        found = os.stat(os.devnull)
    except OSError as error:
        return failed("null", "image-lacks", f"{os.devnull}: {error.strerror}", "a device")
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL and found.st_mode & 0o666 == 0o666:
        return passed("null", "a device")
    hint = f"`rm {os.devnull}; mknod -m 666 {os.devnull} c 1 3` on this node"
    return failed("null", "image-lacks", f"{os.devnull} is not the null device", "it", hint)


def loopback(context: Context) -> CheckResult:  # noqa: ARG001 - as above
    """Without it the ranks of one node do not find each other."""
    try:
        with open(_LOOPBACK, encoding="ascii") as file:
            up = int(file.read(), 16) & _UP
    except (OSError, ValueError) as error:
        return unknown("loopback", f"cannot tell: {error}")
    if up:
        return passed("loopback", "up")
    return failed("loopback", "host-unreachable", "the interface lo is down", "up", "`ip link set lo up`")


CHECKS: tuple[tuple[str, checks.Check], ...] = (
    ("shm", shm),
    ("disk", disk),
    ("null", null),
    ("loopback", loopback),
)
