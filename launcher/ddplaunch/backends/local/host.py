"""The one process that carries a local job: started, recognised again, and stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddplaunch.agent.contract import codec
from ddplaunch.backends import files

_WHEN_TOLD = (
    'IFS= read -r folder && program=$1 && script=$2 && shift 2 && exec "$program" "$folder/$script" "$@"'
)
"""The process is there before its job, so that its pid is on record by then. Told nothing, it ends."""
_POLL = 0.05


@dataclass(frozen=True)
class Host:
    """A process, told apart from every other that had or will have its pid."""

    pid: int
    started: int  # clock ticks since boot, as in /proc/<pid>/stat
    boot: str
    at: float  # seconds since the epoch

    def alive(self) -> bool:
        """A zombie is as dead as one that is gone: its parent may take hours to notice."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and self._is_ours(fields)

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal. False when it is gone, whoever has its pid now."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, ValueError):
            return False
        try:
            # Looked at after it was opened: from here on the descriptor means this process and no other.
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for its end. False when it still lives after so many seconds."""
        return wait_until(lambda: not self.alive(), seconds)

    def of_earlier_boot(self) -> bool:
        return _boot() != self.boot

    def _is_ours(self, fields: list[str]) -> bool:
        return int(fields[19]) == self.started and not self.of_earlier_boot()


class Child:
    """A process of ours that becomes the host of a job once it is told which.

    No Popen: it is made to outlive us, and Popen complains of every child that it has not seen end.
    """

    def __init__(self, command: Sequence[str], output: int, errors: int) -> None:
        """`command`: a program, the name of a script in the job's folder, arguments."""
        reading, self._writing = os.pipe()
        streams = ((os.POSIX_SPAWN_DUP2, given, to) for to, given in enumerate((reading, output, errors)))
        try:
            self.pid = os.posix_spawnp(
                "sh",
                ["sh", "-c", _WHEN_TOLD, "ddplaunch-host", *command],
                os.environ,
                file_actions=list(streams),
                setsid=True,  # neither Ctrl-C nor a closing terminal reach it
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores, and children would too
            )
        finally:
            os.close(reading)
        fields = _stat(self.pid)
        assert fields is not None  # it cannot be gone: nobody but us could have waited for it
        self.host = Host(self.pid, int(fields[19]), _boot(), time.time())
        self._status: int | None = None

    def become(self, folder: Path) -> None:
        """The host of the job in `folder`."""
        os.write(self._writing, os.fsencode(folder) + b"\n")
        self.give_up()

    def give_up(self) -> None:
        """Tell it no more: unless it has become a host, it ends."""
        os.close(self._writing)

    def poll(self) -> int | None:
        """Return its exit code, negative for the signal that killed it; None while it lives."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end, however long, and return its exit code."""
        code = self._wait(0)
        assert code is not None
        return code

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = status if pid else None
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)


def read(path: Path) -> Host | None:
    """The host on record, None when there is none that can be read."""
    try:
        return files.read(Host, path)
    except (OSError, codec.ContractError):
        return None


def wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    """False when it has not happened in so many seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third on; the second may hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
