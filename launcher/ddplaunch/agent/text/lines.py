"""Cuts what a program prints into lines, as a terminal would show them. Pure."""

from __future__ import annotations

LINE_LIMIT = 16 * 1024
"""Bytes after which a line is shown in pieces."""
PARTIAL_EVERY = 5.0
"""Seconds between two states of a progress bar, or until a prompt, is a line in a file."""


class LineSplitter:
    """Cuts a stream of bytes into lines, as a terminal would show them. Pure, bounded memory."""

    def __init__(self) -> None:
        self.partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return whole lines, without newlines and without text that a carriage return overwrote."""
        data = self.partial + data
        *lines, rest = data.split(b"\n")
        if b"\r" in data:
            lines = [final(line) for line in lines]
        self.partial = rest
        if len(rest) > LINE_LIMIT:
            head, _, tail = rest.rpartition(b"\r")
            if len(tail) > LINE_LIMIT:
                lines += [tail[i : i + LINE_LIMIT] for i in range(0, len(tail), LINE_LIMIT)]
                tail = b""
            self.partial = b"\r" + tail if head else tail
        return lines

    def flush(self) -> list[bytes]:
        """Return the line without newline at the end, if there is one."""
        rest, self.partial = final(self.partial), b""
        return [rest] if rest else []


def final(line: bytes) -> bytes:
    """Return what is left of a line after its carriage returns."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


class StreamLines(LineSplitter):
    """Cuts likewise as time goes on. `shown`: the last state of an open line that `due` has returned.

    Of a progress bar, which has no line end for hours, the newest state is a line every few seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown = b""
        self._since = 0.0

    def take(self, data: bytes, now: float) -> list[bytes]:
        """Return the lines that `data` completes, as `feed`."""
        was_open = bool(self.partial)
        lines = self.feed(data)
        if lines or not was_open:
            self.shown, self._since = b"", now
        return lines

    def due(self, now: float) -> list[bytes]:
        """Return the newest state of a line without its end, if it is due and new."""
        if not self.partial or now - self._since < PARTIAL_EVERY:
            return []
        self._since = now
        state = final(self.partial)
        if not state.strip() or state == self.shown:
            return []
        self.shown = state
        return [state]


class PrefixedLines:
    """The output of one writer as whole lines for a file, each with the writer's name in front."""

    def __init__(self, prefix: bytes = b"") -> None:
        self.prefix = prefix
        self._lines = StreamLines()

    @property
    def partial(self) -> bytes:
        """Return what has been printed since the last line end."""
        return final(self._lines.partial)

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the lines that `data` completes."""
        return self._joined(self._lines.take(data, now))

    def tick(self, now: float) -> bytes:
        """Return the newest state of a line without its end, if it is due and new."""
        return self._joined(self._lines.due(now))

    def end(self) -> bytes:
        """Return the last line, if it has no end and has not been shown."""
        return self._joined([line for line in self._lines.flush() if line != self._lines.shown])

    def _joined(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        return self.prefix + (b"\n" + self.prefix).join(lines) + b"\n"
