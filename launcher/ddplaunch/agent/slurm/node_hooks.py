"""What an administrator has Slurm run on a node before and after each job: the prolog and the epilog.

The prolog checks for faults that only an administrator can repair. The epilog removes the job's processes and
files from the node, and nothing of any other job. Control group or environment show which processes are the
job's; the name shows its folder. Files of NCCL and torch only show their user: they are removed if no living
process of that user is old enough to have made them. Other files of the user are removed only if the next job
would have no space.

Nothing that comes from a user is trusted: names and arguments of processes are printed escaped and cut, a pid
is signalled only while it is the same process, and files are removed with the user's own rights.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ddplaunch.agent.checks import run
from ddplaunch.agent.checks import run as checks
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.checks.machine import LEAST_SPACE
from ddplaunch.agent.contract import CheckResult, Exit, JobPlan, Status
from ddplaunch.agent.platforms import SLURM
from ddplaunch.agent.system import proc
from ddplaunch.agent.system.phrases import size
from ddplaunch.agent.text.printable import printable

_STEP_DAEMON = re.compile(r"slurmstepd: \[(\d+)")
_VARIABLE = "SLURM_JOB_ID"
_GROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


class OwnedProcess(NamedTuple):
    """A process of a user."""

    pid: int
    job: int  # 0: no job can be seen
    started: float  # seconds since the epoch
    ticks: int  # when it started, since boot; with the pid this names a process for good


def jobs_here() -> list[int]:
    """Return the ids of jobs with a step on this node. Each has a Slurm daemon whose title names it."""
    return sorted({job for job in map(_step_of, _pids()) if job is not None})


def processes_of(user: int) -> list[OwnedProcess]:
    """Return the living processes whose real user is `user`, without this one and its ancestors."""
    boot = _boot_time()
    own = _ancestors()
    processes = []
    for pid in _pids():
        stat = proc.stat(pid)
        if pid in own or stat is None or stat.state in "ZX" or _user(pid) != user:
            continue
        if _step_of(pid) is not None:
            continue
        started = boot + stat.started / os.sysconf("SC_CLK_TCK")
        processes.append(OwnedProcess(pid, _job(pid), started, stat.started))
    return processes


def _step_of(pid: int) -> Optional[int]:
    """Return the job of a Slurm step daemon. The daemon must be root's, because any process can take such a
    title.
    """
    title = _STEP_DAEMON.match(proc.command_line(pid)) if _user(pid) == 0 else None
    return int(title[1]) if title else None


def _job(pid: int) -> int:
    """Return the process's job from its control group, which it cannot leave; otherwise from its
    environment.
    """
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            group = _GROUP.search(file.read())
    except OSError:
        return 0
    value = group[1] if group else proc.environment(pid).get(_VARIABLE, "")
    return int(value) if value.isdigit() else 0


def _user(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            line = next(line for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1
    return int(line.split()[1])


def _ancestors() -> set[int]:
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0:
        pids.add(pid)
        stat = proc.stat(pid)
        pid = stat.parent if stat else 0
    return pids


def _boot_time() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        return float(next(line for line in file if line.startswith("btime ")).split()[1])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


SHARED_MEMORY = "/dev/shm"  # noqa: S108 - that is its place
TEMPORARY = "/tmp"  # noqa: S108 - likewise
KEPT_LONGER = "/var/tmp"  # noqa: S108 - likewise
_PROBE = b"\0" * (1 << 16)


def lacking_room(place: str) -> str:
    """Return what is wrong with the folder; "" if a job can run."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(_PROBE)
            file.flush()
        stat = os.statvfs(place)
    except OSError as error:
        return f"cannot write to {place}: {error.strerror}"
    free = stat.f_bavail * stat.f_frsize
    return "" if free >= LEAST_SPACE else f"{size(free)} free in {place}"


# --- before a job

_NULL = os.makedev(1, 3)
_LOOPBACK = "/sys/class/net/lo/flags"
_UP = 1  # IFF_UP


def prolog() -> int:
    """Check the node, and print what is odd. Returns `Exit.NODE_AT_FAULT` if no job can run here."""
    context = Context(JobPlan("prolog", 1, None, [], [], platform=SLURM.name), "/", 0, 0, b"")
    results = checks.run(context, CHECKS, seconds=10.0)
    odd = [result for result in results if result.status != Status.PASS]
    if odd:
        print("\n".join(run.rows(odd, colour=False)), file=sys.stderr)
    return Exit.NODE_AT_FAULT if any(result.status == Status.FAIL for result in odd) else Exit.OK


def shm(context: Context) -> CheckResult:
    """Check the space in shared memory, through which NCCL and DataLoader workers pass tensors."""
    return _check_room(context, "shm", "shm-too-small", SHARED_MEMORY)


def disk(context: Context) -> CheckResult:
    """Check the space in the folder for temporary files, where Python, torchrun and sbcast write."""
    return _check_room(context, "disk", "disk-full", TEMPORARY)


def _check_room(context: Context, check: str, code: str, place: str) -> CheckResult:
    observed = lacking_room(place)
    if not observed:
        return passed(check, f"there is room in {place}")
    wanted, hint = f"at least {size(LEAST_SPACE)}", f"`df -h {place}; ls -la {place}` on this node"
    others = [job for job in jobs_here() if str(job) != context.variable("SLURM_JOB_ID")]
    if others:  # their files may fill it, and will go with them
        return unknown(check, f"{observed}, while other jobs run here: {', '.join(map(str, others))}", hint)
    return failed(check, code, observed, wanted, hint)


def null(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """Check that /dev/null is the device: a program of root's may have replaced it by a plain output file."""
    try:
        status = os.stat(os.devnull)
    except OSError as error:
        return failed("null", "image-lacks", f"{os.devnull}: {error.strerror}", "a device")
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL and status.st_mode & 0o666 == 0o666:
        return passed("null", "a device")
    hint = f"`rm {os.devnull}; mknod -m 666 {os.devnull} c 1 3` on this node"
    return failed("null", "image-lacks", f"{os.devnull} is not the null device", "it", hint)


def loopback(context: Context) -> CheckResult:  # noqa: ARG001 - as above
    """Check that the loopback interface is up, through which the ranks of one node connect."""
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


# --- after a job

_PATIENCE = 10.0
"""Seconds for killed processes to end. One that hangs in the kernel may never do so."""
_MARGIN = 1.0
"""Seconds by which a file must be older than a process, because their times have different resolutions."""
_SHARED = ("/dev/shm/nccl-*", "/dev/shm/torch_*", "/tmp/torch-shm-dir-*", "/tmp/torchelastic_*")  # noqa: S108 - their own
_NOBODY = 65534
_PLACES = (TEMPORARY, KEPT_LONGER, SHARED_MEMORY)
_AT_ONCE = 500
"""Paths in one command."""
_REMOVAL = 20.0
"""Seconds for one command."""
_SHOWN = 20
_LONGEST = 200
"""Characters of a line."""


def epilog(environment: Mapping[str, str] = os.environ) -> int:
    """Clean up. Returns `Exit.NODE_AT_FAULT` if a process cannot be killed: it may hold a GPU."""
    job, user = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_JOB_UID"])
    stuck = _kill_job(job, user)
    alive = processes_of(user)
    others = {process.job for process in alive}.intersection(jobs_here()) - {job}
    _remove(_own(_own_folders(job), user), user)
    oldest = min((process.started for process in alive), default=time.time() + _MARGIN)
    _remove(_shared_files(user, oldest), user)
    if user != 0 and not others:
        _make_room(user)
    for pid in stuck:
        _log(f"process {pid} of job {job} does not end, not even by SIGKILL")
    return Exit.NODE_AT_FAULT if stuck else Exit.OK


def _kill_job(job: int, user: int) -> list[int]:
    """Kill the job's processes. Returns the pids that are still there after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    signalled: set[int] = set()
    while True:
        left = [process for process in processes_of(user) if process.job == job]
        if not left or time.monotonic() > deadline:
            return [process.pid for process in left]
        for process in left:
            if process.pid not in signalled:
                _log(f"killing process {process.pid} of job {job}: {proc.command_line(process.pid)}")
            signalled.add(process.pid)
            with contextlib.suppress(ProcessLookupError):
                kill(process)
        time.sleep(0.05)


def kill(process: OwnedProcess) -> None:
    """Kill this process, but no other that has its pid by now. Raises ProcessLookupError."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # before Linux 5.3: there are microseconds between check and signal
        if _is_still(process):
            os.kill(process.pid, signal.SIGKILL)
        return
    try:
        if _is_still(process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _is_still(process: OwnedProcess) -> bool:
    stat = proc.stat(process.pid)
    return stat is not None and stat.started == process.ticks


def _own_folders(job: int) -> list[str]:
    """Return the folders of the job's agent, by the job's number: 1 must not match 12."""
    names = (f"/tmp/ddplaunch-{job}{end}" for end in ("", ".*", "-*"))  # noqa: S108 - what job.bash made
    return [path for name in names for path in glob.glob(name)]


def _shared_files(user: int, oldest: float) -> list[str]:
    """Return the user's shared files that are older than `oldest`, when the user's oldest process started."""
    paths = []
    for path in (path for pattern in _SHARED for path in glob.glob(pattern)):
        try:
            stat = os.lstat(path)
        except OSError:
            continue
        if stat.st_uid == user and stat.st_ctime < oldest - _MARGIN:
            paths.append(path)
    return paths


def _own(paths: list[str], user: int) -> list[str]:
    """Return the paths that belong to `user`."""
    own = []
    for path in paths:
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == user:
                own.append(path)
    return own


def _make_room(user: int) -> None:
    """If folders have no space for the next job, delete all files of `user`, who has no other job here.

    Otherwise the next prolog would take this node out of service, and the job's next run would take another
    node.
    """
    for place in _PLACES:
        lacking = lacking_room(place)
        if lacking:
            _log(f"{lacking}: removing the files of user {user} there")
            _remove(_own([os.path.join(place, name) for name in os.listdir(place)], user), user)


def _remove(paths: list[str], user: int) -> None:
    """Remove paths, whatever their depth and mode, with the rights of `user`."""
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        folders = [path for path in some if os.path.isdir(path) and not os.path.islink(path)]
        if folders:
            _call(user, "chmod", "-R", "u+rwX", "--", *folders)
        _call(user, "rm", "-rf", "--one-file-system", "--", *some)
    left = [path for path in paths if os.path.lexists(path)]
    for path in paths[:_SHOWN]:
        _log(f"{'left' if path in left else 'removed'} {path}")
    if len(paths) > _SHOWN:
        _log(f"{len(paths)} paths in all, of which {len(left)} are left")


def _call(user: int, *command: str) -> None:
    """Run the command as `user`, for _REMOVAL seconds at most, because the user may have stopped it."""
    demoted = os.geteuid() == 0 != user
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVAL,
            user=user if demoted else None,
            group=_NOBODY if demoted else None,
            extra_groups=[] if demoted else None,
        )


def _log(text: str) -> None:
    """Print `text` as one line, escaped and cut."""
    print(printable(text[:_LONGEST]), file=sys.stderr)
