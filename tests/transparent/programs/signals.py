"""Prints which signals come. `signals.py HOW`: a TERM saves and ends with 9, a second one of INT ends with 3.

HOW: `handlers` until USR2 comes or 30 s have passed; `default` has none; `exit` gets one in an atexit handler;
`blocked` blocks USR1, and looks whether it is pending.
"""

import atexit
import os
import signal
import sys
import time
from types import FrameType

how = sys.argv[1]
got: list[str] = []


def say(*words: object) -> None:
    """Write a line at once: print() may not be called again from a handler while it prints."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def handler(number: int, _: "FrameType | None") -> None:
    name = signal.Signals(number).name
    got.append(name)
    say("got", name)
    if name == "SIGTERM":
        say("saved")
        sys.exit(9)
    if name in ("SIGINT", "SIGQUIT"):
        sys.exit(3)


if how != "default":
    for name in ("USR1", "USR2", "HUP", "WINCH", "TERM", "INT", "QUIT", "CONT", "ALRM"):
        signal.signal(signal.Signals[f"SIG{name}"], handler)
if how == "exit":

    def last() -> None:
        say("ending")
        for _ in range(300):
            if got:
                break
            time.sleep(0.1)

    atexit.register(last)
    sys.exit(5)
if how == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say("up")
    for _ in range(300):
        if signal.sigpending():
            break
        time.sleep(0.1)
    say("pending:", sorted(signal.sigpending()), "got:", got)
    sys.exit(5)
say("up")
until = time.monotonic() + 30
while time.monotonic() < until and got.count("SIGUSR2") < 1:
    time.sleep(0.05)
say("signals:", got)
sys.exit(0 if got else 1)
