"""Reads new lines of a growing file."""

from __future__ import annotations

_AT_ONCE = 1 << 20


class FileTail:
    """Reads a file that grows, and may not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Return the whole lines that were added since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_AT_ONCE)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole) or (len(data) if len(data) == _AT_ONCE else 0)
        return whole.splitlines()
