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


class PrefixedLines:
    """The output of one writer as whole lines for a file, each with the writer's name in front.

    Of a progress bar, which has no line end for hours, the newest state is a line every few seconds.
    """

    def __init__(self, prefix: bytes = b"") -> None:
        self.prefix = prefix
        self._splitter = LineSplitter()
        self._shown = b""
        self._shown_at = 0.0

    @property
    def partial(self) -> bytes:
        """Return what has been printed since the last line end."""
        return final(self._splitter.partial)

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the lines that `data` completes."""
        was_open = bool(self._splitter.partial)
        lines = self._splitter.feed(data)
        if lines or not was_open:
            self._shown, self._shown_at = b"", now
        return self._joined(lines)

    def tick(self, now: float) -> bytes:
        """Return the newest state of a line without its end, if it is due and new."""
        if not self._splitter.partial or now - self._shown_at < PARTIAL_EVERY:
            return b""
        self._shown_at = now
        state = self.partial
        if not state.strip() or state == self._shown:
            return b""
        self._shown = state
        return self._joined([state])

    def end(self) -> bytes:
        """Return the last line, if it has no end and has not been shown."""
        return self._joined([line for line in self._splitter.flush() if line != self._shown])

    def _joined(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        return self.prefix + (b"\n" + self.prefix).join(lines) + b"\n"
