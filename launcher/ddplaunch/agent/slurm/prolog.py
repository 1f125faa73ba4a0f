"""Before a job: checks of faults that only an administrator can repair."""

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
    """Check the node, and print what is odd. Returns `Exit.NODE_AT_FAULT` when no job can run here."""
    context = Context(JobPlan("prolog", 1, None, [], [], platform=SLURM.name), "/", 0, 0, b"")
    results = checks.run(context, CHECKS, seconds=10.0)
    odd = [result for result in results if result.status != Status.PASS]
    if odd:
        print("\n".join(table.rows(odd, colour=False)), file=sys.stderr)
    return Exit.NODE_AT_FAULT if any(result.status == Status.FAIL for result in odd) else Exit.OK


def shm(context: Context) -> CheckResult:
    """Check: space in shared memory, through which NCCL and DataLoader workers pass tensors."""
    return _room(context, "shm", "shm-too-small", room.SHARED_MEMORY)


def disk(context: Context) -> CheckResult:
    """Check: space in the folder for temporary files, where Python, torchrun and sbcast write."""
    return _room(context, "disk", "disk-full", room.TEMPORARY)


def _room(context: Context, check: str, code: str, place: str) -> CheckResult:
    observed = room.lacking(place)
    if not observed:
        return passed(check, f"there is room in {place}")
    wanted, hint = f"at least {size(LEAST)}", f"`df -h {place}; ls -la {place}` on this node"
    others = [job for job in jobs.here() if str(job) != context.variable("SLURM_JOB_ID")]
    if others:  # their files may fill it, and go with them
        return unknown(check, f"{observed}, while other jobs run here: {', '.join(map(str, others))}", hint)
    return failed(check, code, observed, wanted, hint)


def null(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """Check: /dev/null is the device. Root's programs may replace it by a plain file of output."""
    try:
        status = os.stat(os.devnull)
    except OSError as error:
        return failed("null", "image-lacks", f"{os.devnull}: {error.strerror}", "a device")
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL and status.st_mode & 0o666 == 0o666:
        return passed("null", "a device")
    hint = f"`rm {os.devnull}; mknod -m 666 {os.devnull} c 1 3` on this node"
    return failed("null", "image-lacks", f"{os.devnull} is not the null device", "it", hint)


def loopback(context: Context) -> CheckResult:  # noqa: ARG001 - as above
    """Check: the loopback interface is up, by which ranks of one node connect."""
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
