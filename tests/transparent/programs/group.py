"""A program and its child, in one process group: each writes which signals it has got, until TERM comes."""

import os
import signal
import time
from types import FrameType

got: list[str] = []


def handler(number: int, _: "FrameType | None") -> None:
    got.append(signal.Signals(number).name)


for name in ("USR1", "USR2", "INT", "TERM"):
    signal.signal(signal.Signals[f"SIG{name}"], handler)
child = os.fork()
if child:
    time.sleep(0.5)  # until the child is there
    print("up", flush=True)
until = time.monotonic() + 60
while time.monotonic() < until and "SIGTERM" not in got:
    time.sleep(0.05)
with open("of-parent" if child else "of-child", "w") as file:
    file.write(" ".join(got))
if child:
    os.waitpid(child, 0)
