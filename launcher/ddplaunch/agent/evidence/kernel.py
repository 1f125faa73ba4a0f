"""Reads new lines of the kernel's log. Without permission there are none, and the reason is given."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Optional

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_RECORD = 8192
_PID = re.compile(r"(?:\bpid[=: ]+|\bprocess |\w\[)(\d+)", re.IGNORECASE)
_KEPT = 200


class KernelLog:
    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.missing = ""  # why nothing can be read; empty: it can
        self._lines: list[str] = []
        self._descriptor: Optional[int] = None
        try:
            if os.readlink("/proc/self/ns/pid") != _INITIAL_PID_NAMESPACE:
                # The kernel would speak of our processes by numbers that we do not know.
                raise PermissionError(1, "this container counts processes by itself")
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"kernel log: {(error.strerror or str(error)).lower()}"

    def naming(self, pids: Iterable[int]) -> list[str]:
        """New lines so far that name one of `pids`, oldest first."""
        self._read()
        wanted = {str(pid) for pid in pids}
        return [line for line in self._lines if wanted.intersection(_PID.findall(line))]

    def _read(self) -> None:
        while self._descriptor is not None:
            try:
                record = os.read(self._descriptor, _RECORD)
            except BrokenPipeError:
                continue  # the ring has overtaken us: the next read goes on behind the gap
            except OSError:
                break
            text = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            self._lines.append(text)
        del self._lines[:-_KEPT]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
