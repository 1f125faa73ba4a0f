"""Run by the trainer's Python, never imported by the agent: which addresses the real library takes, as JSON.

`nccl` makes a unique id, which opens NCCL's bootstrap socket and needs no GPU; `torch` makes a process group
of one rank, and an RPC agent, and looks where they listen. One question a process: they look around once.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import sys
import tempfile
from importlib import import_module
from typing import Any, Callable


def nccl(path: str = "") -> dict[str, Any]:
    """`using`: ['eth0:10.0.0.5'], as NCCL's own log says it, without a scope; empty when it finds none.

    `said`: why it fails, where it does: over that interface it may do so as well.
    """
    wheels = [os.path.join(folder, "nvidia/nccl/lib/libnccl.so.2") for folder in sys.path]
    library = ctypes.CDLL(path or next(filter(os.path.isfile, wheels), "libnccl.so.2"))
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    code = number.value
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,BOOTSTRAP")
    os.environ.pop("NCCL_DEBUG_FILE", None)
    with tempfile.TemporaryFile() as log:
        kept = os.dup(1)
        os.dup2(log.fileno(), 1)
        failed = library.ncclGetUniqueId(ctypes.create_string_buffer(128))
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {
        "version": f"{code // 10000}.{code // 100 % 100}.{code % 100}",
        "using": re.findall(r"Bootstrap ?: Using ([^\s%<]+)", text)[:1],
        "said": " ".join(re.findall(r"NCCL WARN (.*)", text)[-1:]) if failed else "",
    }


def gloo() -> dict[str, Any]:
    """Return where a process group listens."""
    distributed = import_module("torch.distributed")
    return _opened(lambda: distributed.ProcessGroupGloo(distributed.HashStore(), 0, 1))


def tensorpipe() -> dict[str, Any]:
    """Return where an RPC agent listens."""
    store = import_module("torch.distributed").HashStore()
    rpc = import_module("torch.distributed.rpc")
    set_and_start = rpc._set_and_start_rpc_agent  # noqa: SLF001 - init_rpc opens more, and waits for peers
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"])

    def start() -> None:
        set_and_start(rpc.TensorPipeAgent(store, "probe", 0, 1, options, {}, []))

    found = _opened(start)
    return {**found, "using": list(dict.fromkeys(found["using"]))}  # one for each of its channels


def _opened(make: Callable[[], Any]) -> dict[str, Any]:
    before = len(_listening())
    try:
        kept = make()  # it closes when nobody holds it
        return {"using": _listening()[before:], "said": "", "made": type(kept).__name__}
    except RuntimeError as error:
        return {"using": [], "said": str(error).split("\n")[0]}


def _listening() -> list[str]:
    """Addresses at which this process listens, in the order in which it began to."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            with socket.socket(fileno=os.dup(number)) as each:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append(each.getsockname()[0].partition("%")[0])
        except OSError:
            continue
    return found


def main() -> None:
    """A line on standard output for the library that the argument names; the last one says most."""
    if sys.argv[1] == "nccl":
        found = nccl()
    else:
        version = import_module("torch").__version__
        found = {"version": version, "gloo": gloo()}
        print(json.dumps(found), flush=True)
        found["tensorpipe"] = tensorpipe()  # which aborts where it cannot listen
    print(json.dumps(found), flush=True)
    os._exit(0)  # their threads need not be waited for


if __name__ == "__main__":
    main()
