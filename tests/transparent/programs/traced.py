"""Is looked at from inside while it trains, as debuggers and coverage do: `traced.py HOW`."""

import os
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

seen: list[tuple[str, str, str, int]] = []


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def step(number: int) -> float:
    value = torch.ones(2) * number
    dist.all_reduce(value)
    total = float(value.sum())
    if number == 2:
        try:
            raise LookupError(number)
        except LookupError:
            total += 1
    return total


def beside() -> None:
    for number in range(2):
        say("beside", number)


def train() -> None:
    helper = threading.Thread(target=beside)
    helper.start()
    helper.join()
    for number in range(3):
        say("step", number, step(number))
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work is not None
    work.wait()
    dist.barrier()


def trace(frame: FrameType, event: str, _: object) -> Any:
    """Note every line of this program, and its calls of torch.distributed. Below these, ddplaunch asks too."""
    code, file = frame.f_code, Path(frame.f_code.co_filename)
    if file.name == "traced.py" and code.co_name in ("step", "beside", "train"):
        seen.append((event, file.name, code.co_name, frame.f_lineno))
        return trace
    if event == "call" and code.co_name in ("all_reduce", "barrier"):
        seen.append((event, file.name, code.co_name, 0))
    return None  # what is called there is traced nevertheless


def settrace() -> None:
    """All threads, from their first line on."""
    threading.settrace(trace)
    sys.settrace(trace)
    train()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    for each in sorted(seen):
        say(*each)


def setprofile() -> None:
    """Calls and returns, those of functions in C among them."""
    called: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename == __file__ and event == "c_call":
            called.append(str(getattr(argument, "__qualname__", argument)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    train()
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    # A work's `wait` is a function of Python under ddplaunch.
    say(sorted(name for name in set(called) if not name.endswith(".wait")))


def monitoring() -> None:
    """What Python has for it from 3.12 on."""
    if not hasattr(sys, "monitoring"):
        return settrace()
    events = sys.monitoring.events
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "mine")
    lines: list[tuple[str, int]] = []

    def line(code: Any, number: int) -> Any:
        if code.co_filename != __file__ or code.co_name not in ("step", "beside"):
            return sys.monitoring.DISABLE
        lines.append((code.co_name, number))
        return None

    sys.monitoring.register_callback(sys.monitoring.DEBUGGER_ID, events.LINE, line)
    sys.monitoring.set_events(sys.monitoring.DEBUGGER_ID, events.LINE)
    train()
    sys.monitoring.set_events(sys.monitoring.DEBUGGER_ID, 0)
    say(lines)
    return None


def debugger() -> None:
    """Someone connects, asks for a breakpoint, gets the stack and the variables there, and lets it go on."""
    server = socket.create_server(("127.0.0.1", 0))
    client = threading.Thread(target=asks, args=(server.getsockname()[1],))
    client.start()
    line, _ = server.accept()
    reader = line.makefile()
    stop = reader.readline().strip()

    def stops(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != __file__:
            return None
        if event == "line" and frame.f_code.co_name == stop:
            names = []
            above: FrameType | None = frame
            while above is not None:
                names.append(f"{Path(above.f_code.co_filename).name}:{above.f_code.co_name}")
                above = above.f_back
            line.sendall(f"{' < '.join(names)} has {sorted(frame.f_locals)}\n".encode())
            reader.readline()
        return stops

    sys.settrace(stops)
    train()
    sys.settrace(None)
    line.shutdown(socket.SHUT_RDWR)  # `reader` keeps it open
    client.join()


def asks(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        reader = line.makefile()
        line.sendall(b"step\n")
        while text := reader.readline():
            say("debugger:", text.strip())
            line.sendall(b"go on\n")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
