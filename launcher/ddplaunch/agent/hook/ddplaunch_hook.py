"""The supervisor's ear inside a rank: answers where its threads stand and how far its collectives have come.

One thread waits in recv() on the supervisor's socket, without the GIL, and answers one word with one line of
JSON: `count` (counters), `look` (counters and the main thread's stack), `dump` (everything). A word costs the
program about 0.1 ms of GIL; no word comes more often than once a second. A rank that dies of an exception
says so first, and waits for `go`, at most HOLD seconds, so that its peers' stacks are taken while they still
stand where they stood. Processes that a rank forks through multiprocessing connect as its children.

DDPLAUNCH_HOOK is "SOCKET[,any][,mpi][,ptrace][,rank=PID]": the abstract name of the socket; whether a process
without RANK may be a rank; whether one is that has an MPI launcher's number; whether to allow ptrace by any
process; and, below a rank, that rank's pid.
"""

# ruff: noqa: RUF012, SIM105, SLF001, UP031 - runs on Python 3.8, and imports no more than it must

from __future__ import annotations

import _thread
import json
import os
import socket
import struct
import sys
import time

import ddplaunch_mpi  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Optional

HOLD = 3.0
SEND_TIMEOUT = 2
FRAMES = 200
DUMP_SIGNAL = 6  # above SIGRTMIN
_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_PDEATHSIG, _PTRACER = 1, 0x59616D61
_ANYONE = -1 & (1 << 64) - 1


class _State:
    main = 0  # the main thread's identity
    role = ""
    name = ""  # of the socket
    line: Optional[socket.socket] = None
    caught: list[dict[str, Any]] = []
    go = _thread.allocate_lock()  # held until the supervisor lets a dying rank go
    sending = _thread.allocate_lock()


def start() -> None:
    """Join the supervisor, if this process is one that it watches. Raises whatever goes wrong."""
    name, *words = os.environ["DDPLAUNCH_HOOK"].split(",")
    rank_pid = next((word[5:] for word in words if word.startswith("rank=")), "")
    _State.name = name
    if rank_pid and rank_pid != str(os.getpid()):
        if _of_multiprocessing() and _connect("child"):
            os.register_at_fork(after_in_child=_forked)
        return
    ranked = "RANK" in os.environ and "LOCAL_RANK" in os.environ
    ranked = ranked or ("mpi" in words and any(name in os.environ for name in _MPI_RANKS))
    if not ranked and "any" not in words:
        return
    fault = ""
    if ranked:
        # What this process starts inherits its RANK, and must not be taken for it.
        os.environ["DDPLAUNCH_HOOK"] = "%s,rank=%d" % (name, os.getpid())
        _tie_to_launcher("ptrace" in words)
        fault = _register_fault_dump()
        if sys.version_info >= (3, 12):
            import ddplaunch_caught  # type: ignore[import-not-found]

            ddplaunch_caught.watch(_State.caught, _describe)
    if _connect("rank" if ranked else "any", fault):
        os.register_at_fork(after_in_child=_forked)
        _watch_end()


def _of_multiprocessing() -> bool:
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read()
    return b"--multiprocessing-fork" in line or b"multiprocessing.forkserver" in line


# --- the line to the supervisor


def _connect(role: str, fault: str = "") -> bool:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT, 0))
    line.connect("\0" + _State.name)
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    if struct.unpack("3i", credentials)[1] != os.getuid():
        line.close()
        return False
    _State.line, _State.main, _State.role = line, _thread.get_ident(), role
    _State.sending = _thread.allocate_lock()
    _State.go = _thread.allocate_lock()
    _State.go.acquire()
    hello = {"hello": role, "python": "%d.%d.%d" % sys.version_info[:3], "fault": fault}
    for key in ("RANK", "LOCAL_RANK"):
        hello[key.lower()] = os.environ.get(key, "")
    _say(line, json.dumps(hello).encode())
    # Not a threading.Thread: programs count those, and wait for them.
    _thread.start_new_thread(_serve, (line,))
    if sys.version_info >= (3, 12):
        # os.fork() counts it all the same. It holds no lock that a child could miss.
        import warnings

        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
    return True


def _say(line: socket.socket, data: bytes) -> None:
    if _State.sending.acquire(timeout=SEND_TIMEOUT):
        try:
            line.sendall(data + b"\n")
        finally:
            _State.sending.release()


def _serve(line: socket.socket) -> None:
    buffer = b""
    try:
        while True:
            data = line.recv(4096)
            if not data:
                return
            *words, buffer = (buffer + data).split(b"\n")
            for word in words:
                if word == b"go":
                    _release()
                else:
                    _say(line, _answer(word))
    except Exception:
        return


def _release() -> None:
    try:
        _State.go.release()
    except RuntimeError:
        pass


def _answer(word: bytes) -> bytes:
    answer: dict[str, Any] = {"is": word.decode(), "at": time.time()}
    recorders: dict[str, bytes] = {}
    for collect in _ANSWERS.get(word, ()):
        try:
            value = collect()
            if value is not None:
                answer[collect.__name__[1:]] = value
        except Exception as error:
            answer.setdefault("failed", []).append("%s: %r" % (collect.__name__[1:], error))
    try:
        recorders = _recorders(word == b"dump")
    except Exception as error:
        answer.setdefault("failed", []).append("recorders: %r" % (error,))
    # torch's own JSON, up to 1 MB of it, goes out as it is: parsing it is not for the program to pay.
    raw = b",".join(json.dumps(key).encode() + b":" + value for key, value in recorders.items())
    return json.dumps(answer).encode()[:-1] + b',"recorders":{' + raw + b"}}"


# --- what can be asked


def _initialized() -> bool:
    # torch.distributed only if the program has imported it, and to the end.
    module = sys.modules.get("torch.distributed")
    return bool(
        module is not None
        and hasattr(module, "is_initialized")
        and module.is_available()
        and module.is_initialized()
    )


def _backend() -> str:
    return str(sys.modules["torch.distributed"].get_backend()) if _initialized() else ""


def _recorders(everything: bool) -> dict[str, bytes]:
    """Backend -> the flight recorder's JSON. Nothing before any process group; with Gloo since torch 2.8."""
    native: Any = sys.modules.get("torch._C._distributed_c10d")
    if native is None or _State.role == "child" or not _initialized():
        return {}
    found: dict[str, bytes] = {}
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    backends = " ".join(str(kind) for kind, _ in world.pg_map.values())
    for backend in ("gloo", "nccl"):
        if backend not in backends:
            continue
        if backend == "nccl" and hasattr(native, "_dump_nccl_trace_json"):
            found[backend] = native._dump_nccl_trace_json(everything, False)
        elif hasattr(native, "_dump_fr_trace_json"):
            found[backend] = _trace(native._dump_fr_trace_json, everything, backend)
    return found


def _trace(function: Any, everything: bool, backend: str) -> Any:
    try:
        return function(everything, False, backend)
    except TypeError:  # torch < 2.15: one recorder for all
        return function(everything, False)


def _groups() -> dict[str, Any]:
    """Group name -> [global ranks, description]."""
    if _State.role == "child" or not _initialized():
        return {}
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    return {
        str(world.pg_names[group]): [sorted(ranks), str(getattr(group, "group_desc", "") or "")]
        for group, ranks in list(world.pg_group_ranks.items())
        if group in world.pg_names
    }


def _main_stack() -> dict[str, Any]:
    return _thread_of(_State.main, sys._current_frames().get(_State.main), "MainThread")


def _mpi() -> Any:
    return ddplaunch_mpi.state(sys._current_frames().get(_State.main))


def _mpi_call() -> Any:
    return ddplaunch_mpi.call(sys._current_frames().get(_State.main))


def _threads() -> list[dict[str, Any]]:
    threading: Any = sys.modules.get("threading")
    # A copy, without the module's lock, which a deadlocked program may hold.
    known = dict(threading._active) if threading else {}
    own = _thread.get_ident()
    return [
        _thread_of(ident, frame, known[ident].name if ident in known else "")
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]


def _thread_of(ident: int, frame: Optional[FrameType], name: str) -> dict[str, Any]:
    frames = ddplaunch_mpi.function(frame) if ident == _State.main else []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            frames.append([frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0])
        frame = frame.f_back
    if len(frames) > FRAMES:
        frames = frames[: FRAMES // 2] + frames[-FRAMES // 2 :]
    return {"name": name, "main": ident == _State.main, "frames": frames}


def _handled() -> list[dict[str, Any]]:
    """What the user's code has caught lately, and what the main thread is handling right now."""
    current: Any = getattr(sys, "_current_exceptions", None)
    found = current().get(_State.main) if current else None
    value = found[1] if isinstance(found, tuple) else found
    handled = list(_State.caught)
    if value is not None:
        now = _describe(type(value), _text(value), value.__traceback__)
        if not any((each["type"], each["frames"]) == (now["type"], now["frames"]) for each in handled):
            handled.append(now)
    return handled


_ANSWERS: dict[bytes, tuple[Callable[[], Any], ...]] = {
    b"count": (_initialized, _mpi),
    b"look": (_initialized, _mpi, _main_stack),
    b"dump": (_initialized, _mpi, _mpi_call, _backend, _groups, _threads, _handled),
}


# --- how it ends


def _watch_end() -> None:
    import atexit

    atexit.register(_ending)
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
        try:
            _raised(kind, value, trace)
        except Exception:
            pass
        previous(kind, value, trace)

    sys.excepthook = excepthook


def _raised(kind: type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
    line = _State.line
    if line is not None:
        _say(line, json.dumps({"raised": _describe(kind, _text(value), trace)}).encode())
        _State.go.acquire(timeout=HOLD)


def _describe(kind: type[BaseException], message: str, trace: Optional[TracebackType]) -> dict[str, Any]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append([code.co_name, code.co_filename, trace.tb_lineno or 0])
        trace = trace.tb_next
    module = kind.__module__
    name = kind.__qualname__ if module in ("builtins", "__main__") else module + "." + kind.__qualname__
    return {"type": name, "message": message[:2000], "at": time.time(), "frames": frames[: -FRAMES - 1 : -1]}


def _text(value: BaseException) -> str:
    try:
        return str(value)
    except Exception:
        return "<its message cannot be printed>"


def _ending() -> None:
    """The interpreter ends by itself. The socket stays open, so that its closing tells the death."""
    line, _State.line = _State.line, None
    try:
        if line is not None:
            said: dict[str, Any] = {"ending": time.time()}
            mpi = _mpi()
            if mpi:
                said["mpi"] = mpi
            _say(line, json.dumps(said).encode())
    except Exception:
        pass
    if line is not None:
        line.detach()


def _forked() -> None:
    """In a forked child: the parent's line is not ours. One of multiprocessing gets its own, once it runs."""
    try:
        line, _State.line = _State.line, None
        if line is not None:
            line.close()
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(_State, _rejoin)
    except Exception:
        pass


def _rejoin(_: object) -> None:
    try:
        if _State.line is None:
            _connect("child")
    except Exception:
        pass


# --- ties


def _register_fault_dump() -> str:
    """Let the supervisor have all stacks written to a file by a signal, even while C code holds the GIL."""
    try:
        import faulthandler
        import signal

        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "stacks")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "%d.txt" % os.getpid())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Python takes the handler away when it ends; what was there before must not kill.
        signal.signal(signal.SIGRTMIN + DUMP_SIGNAL, signal.SIG_IGN)
        faulthandler.register(signal.SIGRTMIN + DUMP_SIGNAL, file=file, all_threads=True, chain=False)
        return path
    except Exception:
        return ""


def _tie_to_launcher(ptrace: bool) -> None:
    """Die with the launcher, which is told of a rank's death and must not leave one behind when killed."""
    try:
        import ctypes
        import signal

        parent = os.getppid()
        libc = ctypes.CDLL(None)
        if ptrace:
            libc.prctl(_PTRACER, ctypes.c_ulong(_ANYONE), 0, 0, 0)
        # The kernel ties to the parent *thread*: only its main thread is sure to live as long as the process.
        with open("/proc/%d/task/%d/children" % (parent, parent), encoding="ascii") as file:
            tied = str(os.getpid()) in file.read().split()
        if tied:
            libc.prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
    except Exception:
        pass
