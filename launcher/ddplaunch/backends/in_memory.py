"""Programs in Python that run the agent on another machine from memory: no file is written there."""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from ddplaunch.agent.contract import Env
from ddplaunch.agent.evidence import py_spy

_BEGIN: Final = """
import os, sys
if sys.version_info < (3, 9):
    sys.exit("its python3 is %d.%d, and the agent needs 3.9" % sys.version_info[:2])
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
except OSError:
    pass

def in_memory(data):
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("ddplaunch", 0)
    else:
        import ctypes
        system_call = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
        number = ctypes.CDLL(None).syscall(system_call, b"ddplaunch", 0)
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    return f"/proc/{os.getpid()}/fd/{number}"
"""
"""Where memory runs out meanwhile, the kernel ends this process and no rank, unless it ends whole containers.

A Python that was built for a C library before 2.27, as conda's are, has no memfd_create.
"""
_END: Final = """
agent = in_memory(sys.stdin.buffer.read(int(sys.argv.pop(1))))
os.execv(sys.executable, [sys.executable, "-I", "-S", agent, *sys.argv[1:]])
"""
AGENT: Final = _BEGIN + _END
"""A program that reads the agent from stdin and runs it. Its first argument: the agent's size in bytes."""
READY: Final = "ready."
"""Begins the line for which the agent is held back: it is no base64."""
WANTED: Final = "py-spy"
_PY_SPY: Final = f"""
import shutil, zlib
size, machine = int(sys.argv.pop(1)), sys.argv.pop(1)
is_wanted = machine == os.uname().machine and not shutil.which("py-spy")
print({READY!r}, {WANTED!r} if is_wanted else "", flush=True)
if is_wanted:
    os.environ[{Env.PY_SPY!r}] = in_memory(zlib.decompress(sys.stdin.buffer.read(size)))
"""
AGENT_WITH_PY_SPY: Final = _BEGIN + _PY_SPY + _END
"""Takes the words of a `PySpy` before those of AGENT. Prints READY, and WANTED if it reads py-spy first."""
_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""The name that uname has for a machine, by its number in the header of an ELF file (elf.h)."""


class PySpy(NamedTuple):
    """Compressed program, and the kind of machine that can run it, "" for none."""

    packed: bytes
    machine: str

    @property
    def words(self) -> list[str]:
        """Return what stands for it among the arguments of AGENT_WITH_PY_SPY."""
        return [str(len(self.packed)), self.machine]


def own_py_spy() -> str | None:
    """Return the path of the py-spy on this machine; None without one."""
    return py_spy.find(sys.executable)


def packed_py_spy() -> PySpy:
    """Return this machine's py-spy, as it travels; empty without one for Linux."""
    path = own_py_spy()
    if path is None:
        return PySpy(b"", "")
    program = Path(path).read_bytes()
    number = int.from_bytes(program[18:20], sys.byteorder)
    machine = _MACHINES.get(number, "") if program.startswith(b"\x7fELF") else ""
    return PySpy(zlib.compress(program) if machine else b"", machine)


def environment_with_py_spy() -> dict[str, str]:
    """Return this process' environment, with the path of its py-spy for machines that see the same files."""
    return {**os.environ, Env.PY_SPY: own_py_spy() or ""}
