"""The file that the gate leaves for the node's supervisor, also on a disk that has filled up meanwhile."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Optional

from ddplaunch.agent.contract import Files, RendezvousSettings, codec

_ROOM = 4096
"""Bytes reserved on the disk at first: without the file the supervisor cannot even start."""


class AgreedFile:
    """`Files.AGREED` in the node's folder: reserves space on entry, and frees what was not used."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, Files.AGREED)

    def __enter__(self) -> AgreedFile:
        with contextlib.suppress(OSError):  # the disk check reports it
            os.makedirs(self._folder, exist_ok=True)
            with open(codec.unfinished(self._path), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, _ROOM)
        return self

    def write(self, agreed: RendezvousSettings) -> None:
        """Write the file. Raises OSError."""
        os.makedirs(self._folder, exist_ok=True)
        codec.write(self._path, agreed)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        with contextlib.suppress(OSError):
            os.unlink(codec.unfinished(self._path))
