"""Prints the addresses that the real library takes, as JSON. The trainer's Python runs it; nobody imports it.

`nccl` makes a unique id, which opens NCCL's bootstrap socket and needs no GPU. `torch` makes a process group
of one rank and an RPC agent, and reads where they listen. It asks one library per process, because a library
chooses only once.
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
    """Return `using`: ['eth0:10.0.0.5'], from NCCL's log, and `said`: its warning, if it fails."""
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
    """Return the addresses at which a process group listens."""
    distributed = import_module("torch.distributed")
    return _opened(lambda: distributed.ProcessGroupGloo(distributed.HashStore(), 0, 1))


def tensorpipe() -> dict[str, Any]:
    """Return the addresses at which an RPC agent listens."""
    store = import_module("torch.distributed").HashStore()
    rpc = import_module("torch.distributed.rpc")
    set_and_start = rpc._set_and_start_rpc_agent  # noqa: SLF001 - init_rpc opens more, and waits for peers
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"])

    def start() -> None:
        set_and_start(rpc.TensorPipeAgent(store, "probe", 0, 1, options, {}, []))

    answer = _opened(start)
    return {**answer, "using": list(dict.fromkeys(answer["using"]))}  # one for each of its channels


def _opened(make: Callable[[], Any]) -> dict[str, Any]:
    before = len(_listening())
    try:
        kept = make()  # without a reference it would close
        return {"using": _listening()[before:], "said": "", "made": type(kept).__name__}
    except RuntimeError as error:
        return {"using": [], "said": str(error).split("\n")[0]}


def _listening() -> list[str]:
    """Return the addresses at which this process listens, in the order in which it began to."""
    addresses = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            with socket.socket(fileno=os.dup(number)) as each:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    addresses.append(each.getsockname()[0].partition("%")[0])
        except OSError:
            continue
    return addresses


def main() -> None:
    """Print a line for the library that the argument names. The last line is the most complete."""
    if sys.argv[1] == "nccl":
        answer = nccl()
    else:
        version = import_module("torch").__version__
        answer = {"version": version, "gloo": gloo()}
        print(json.dumps(answer), flush=True)
        answer["tensorpipe"] = tensorpipe()  # this aborts if it cannot listen
    print(json.dumps(answer), flush=True)
    os._exit(0)  # without waiting for the libraries' threads


if __name__ == "__main__":
    main()
