"""The host process of a local job: how it is started, recognised by a later command, and stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddplaunch.agent.system import processes, signals
from ddplaunch.backends import files

_START_SCRIPT = (
    'IFS= read -r folder && program=$1 && script=$2 && shift 2 && exec "$program" "$folder/$script" "$@"'
)
"""The process starts before its job, so that its pid is on record by then. It ends if it gets no folder."""
DIGITS = range(3, 10)
STDIN = DIGITS[-1]
"""At first, the descriptor of the user's own stdin, unless the user has another one under this number. A
shell can only name descriptors of one digit. In the foreground the pipe is replaced by it."""
_POLL = 0.05


@dataclass(frozen=True)
class Host:
    """A process, known by its pid and by what tells it from an earlier or later one with that pid."""

    pid: int
    started: int  # clock ticks since boot, as in /proc/<pid>/stat
    boot: str
    at: float  # seconds since the epoch
    machine: str = ""  # its name; "": not known
    namespace: str = ""  # of process ids

    def alive(self) -> bool:
        """Whether it is running. A zombie is not, although its parent may take hours to notice."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and self._is_ours(fields)

    def stopped(self) -> bool:
        """Whether a signal has stopped it."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] in "Tt" and self._is_ours(fields)

    def send(self, number: int, *, of_group: bool = False) -> bool:
        """Send it a signal. Returns False if it is gone, even if another process now has its pid.

        `of_group`: all processes of our group have got the signal.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, ValueError):
            return False
        try:
            # This comes after the descriptor was opened, which from then on means this process and no other.
            if not self.alive():
                return False
            if of_group:  # Python's pidfd_send_signal() cannot carry that along
                signals.pass_on(self.pid, number, of_group=True)
            else:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def kill(self) -> None:
        """Kill it with its descendants: one that is stopped does not notice that its parent is gone."""
        with contextlib.ExitStack() as open_files:
            opened = [processes.open_pid(pid) for pid in processes.descendants(self.pid)]
            descriptors = [each for each in opened if each is not None]
            for each in descriptors:
                open_files.callback(os.close, each)
            self.send(signal.SIGKILL)
            for each in descriptors:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(each, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for it to end. Returns False if it still runs after so many seconds."""
        return wait_until(lambda: not self.alive(), seconds)

    def of_earlier_boot(self) -> bool:
        return _boot() != self.boot

    def elsewhere(self) -> str:
        """Return the machine on which it runs or ran, if that is another one, or another container; else "".

        A home folder may be shared: `srun ddplaunch run --join` leaves its records there.
        """
        if self.of_earlier_boot():
            return self.machine if self.machine != os.uname().nodename else ""
        return self.machine if self.namespace not in ("", _namespace()) else ""

    def _is_ours(self, fields: list[str]) -> bool:
        return int(fields[19]) == self.started and not self.of_earlier_boot()


class Child:
    """A child process that becomes the host of a job.

    It is no Popen, because that warns about every child that outlives it, as a host does.
    """

    def __init__(
        self,
        command: Sequence[str],
        output: int,
        errors: int,
        stdin: int | None = None,
        *,
        own_session: bool = True,
        kept: Sequence[int] = (),
    ) -> None:
        """`command`: a program, the name of a script in the job's folder, arguments. `stdin`: the user's.

        `kept`: descriptors that it inherits; they must not use up all of DIGITS.
        """
        at = next(each for each in reversed(DIGITS) if each not in kept)
        reading, self._writing = os.pipe()
        # Above the numbers that the child gets: none of these may be overwritten before it has been copied.
        given = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, STDIN + 1) for each in (reading, output, errors)]
        if stdin is not None:
            given.append(fcntl.fcntl(stdin, fcntl.F_DUPFD_CLOEXEC, STDIN + 1))
        streams = [(os.POSIX_SPAWN_DUP2, each, to) for each, to in zip(given, (0, 1, 2, at), strict=False)]
        # Neither Ctrl-C nor a terminal that closes reaches it.
        apart: dict[str, Any] = {"setsid": True} if own_session else {"setpgroup": 0}
        try:
            self.pid = os.posix_spawnp(
                "sh",
                [
                    "sh",
                    "-c",
                    _START_SCRIPT + (f" <&{at} {at}<&-" if stdin is not None else ""),
                    "ddplaunch-host",
                    *command,
                ],
                os.environ,
                file_actions=streams,
                **apart,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these, its children would too
            )
        finally:
            for each in (reading, *given):
                os.close(each)
        fields = _stat(self.pid)
        assert fields is not None  # it cannot be gone, because only its parent can wait for it
        self.host = Host(self.pid, int(fields[19]), _boot(), time.time(), os.uname().nodename, _namespace())
        self._status: int | None = None

    def run_job(self, folder: Path) -> None:
        """Let it become the host of the job in `folder`."""
        os.write(self._writing, os.fsencode(folder) + b"\n")
        self.close_pipe()

    def close_pipe(self) -> None:
        """Close the pipe to it. It then ends, unless it has become a host."""
        os.close(self._writing)

    def poll(self) -> int | None:
        """Return its exit code, negative for the signal that killed it; None while it is alive."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Wait for it to end, however long that takes, and return its exit code."""
        code = self._wait(0)
        assert code is not None
        return code

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = status if pid else None
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)


def read(path: Path) -> Host | None:
    """Return the host process on record; None if none can be read."""
    return files.read_if_valid(Host, path)


def wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    """Wait until `happened()`. Returns False if that has not happened after so many seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the third on. The second one may contain blanks and
    brackets.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
