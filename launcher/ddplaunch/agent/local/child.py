"""A process of the agent on this machine, with the pipe from which its lines are read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from typing import Callable

from ddplaunch.agent.system import processes


class Child:
    """A child process of the agent. `line` gets the lines that it prints, `ended` its exit code.

    It inherits `descriptors`.
    """

    def __init__(
        self,
        words: list[str],
        env: dict[str, str],
        line: Callable[[bytes], None],
        ended: Callable[[int], None],
        descriptors: Collection[int] = (),
    ) -> None:
        self.verb = words[0]
        self.line = line
        self.ended = ended
        self.rest = b""
        self.process = subprocess.Popen(
            [*processes.own_command(), *words, f"--die-with-parent={os.getpid()}"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=descriptors,
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    def drain(self) -> bool:
        """Read what is there, and pass on whole lines. Returns False at the end of the stream."""
        data = self.pipe.read(1 << 20)
        while data:
            *lines, self.rest = (self.rest + data).split(b"\n")
            if lines:
                self.line(b"\n".join(lines) + b"\n")
            data = self.pipe.read(1 << 20)
        return data is None

    def close(self) -> None:
        self.drain()
        if self.rest:
            self.line(self.rest + b"\n")
        self.pipe.close()
        self.ended(self.process.returncode)
