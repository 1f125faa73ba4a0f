"""Asks one real library, once for each line on standard input, each time in a process of its own.

The library is loaded before, so that a question takes milliseconds: `python asker.py nccl PATH` or `torch`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

from tests.agent.interfaces import data

from ddplaunch.agent.interfaces import library

_NEW_NETWORK = 0x40000000  # linux/sched.h
_SECONDS = 30
"""For one question."""


def main(what: str, path: str) -> None:
    """Questions are {"of": …, "network": a file, "environment": {…}}, answers as of `library`.

    NCCL's has `data` as well: ['eth0:10.0.0.5'].
    """
    finder = data.Finder(path) if what == "nccl" else None
    if finder is None:
        import torch.distributed.rpc  # noqa: F401
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        end, answer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(end)
            signal.alarm(_SECONDS)
            _ask(question, path, finder, answer)
            os._exit(0)
        os.close(answer)
        with os.fdopen(end) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        print(text or json.dumps({"broke": status}), flush=True)


def _ask(question: dict[str, Any], path: str, finder: data.Finder | None, answer: int) -> None:
    network = os.open(str(question["network"]), os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.environ.clear()
    os.environ.update(question["environment"])
    if question["of"] == "tensorpipe":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it aborts aloud where it cannot listen
    if finder is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its log goes there
        found = library.nccl(path)  # which reads its files, too
        found["data"] = finder.find()
    else:
        found = library.gloo() if question["of"] == "gloo" else library.tensorpipe()
    os.write(answer, json.dumps(found).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
