"""Runs in every rank, and tells the supervisor the rank's stacks and the progress of its collectives.

One thread waits in recv() on the supervisor's socket, without the GIL. It answers each request, a single
word, with one line of JSON: `count` (counters), `steps` (and entries), `look` (and the main thread's stack),
`dump` (everything). An answer holds the GIL for about 0.1 ms; a request comes at most once a second. A rank
that dies of an exception first reports it and waits for `go`, at most HOLD seconds, so that its peers' stacks
are taken before they react. Processes that a rank forks through multiprocessing connect as its children.

A process that calls init_process_group is a rank, whether or not its environment has a rank's number. It
reports the call before it waits. Other processes open no connection.

DDPLAUNCH_HOOK is "SOCKET[,any][,mpi][,ptrace][,output=SOCKET][,rank=PID]":
- SOCKET: the abstract name of the supervisor's socket;
- any: a process without RANK may be a rank;
- mpi: an MPI launcher's rank number makes a process a rank;
- ptrace: any process may trace the ranks;
- output=SOCKET: the socket of the carrier of the ranks' output;
- rank=PID: for processes below a rank, that rank's pid.
"""

# ruff: noqa: RUF012, SIM105, SLF001, UP031 - runs on Python 3.8, and imports no more than it must

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # mypy has no stub; `signal` would import enum
import _thread
import os
import sys
import time

import ddplaunch_flight  # type: ignore[import-not-found]
import ddplaunch_model  # type: ignore[import-not-found]
import ddplaunch_mpi  # type: ignore[import-not-found]
import ddplaunch_output  # type: ignore[import-not-found]
import ddplaunch_rendezvous  # type: ignore[import-not-found]
import ddplaunch_spawn  # type: ignore[import-not-found]
import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    import socket
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, NoReturn, Optional

HOLD = 3.0
SEND_TIMEOUT = 2
FRAMES = 200
_IN_FLIGHT = 4
_OWN = os.path.dirname(os.path.abspath(__file__)) + "/ddplaunch_"
_NODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DUMP_SIGNAL = 6  # above SIGRTMIN
_PDEATHSIG, _PTRACER = 1, 0x59616D61  # of prctl(2)
_ANYONE = -1 & (1 << 64) - 1
_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


class _State:
    main = 0  # the main thread's identity
    role = ""
    name = ""  # of the socket
    below = False  # an ancestor has a rank's number in its environment
    prepared = False
    member = False  # it has called init_process_group
    watched = False  # the hooks for its end are in place
    line: Optional[socket.socket] = None
    inode = 0  # of the line
    faults: Optional[tuple[int, int]] = None  # descriptor and inode of the file that faulthandler writes to
    output: list[str] = []  # the files that keep its output, if no other process's is in them
    caught: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []  # the last call that ends the process, and what it was handling there
    exits: dict[int, dict[str, Any]] = {}  # the call of sys.exit by other threads, by their identity
    signals: Any = None  # the module that notes them, once the program has a process group
    go = _thread.allocate_lock()  # held until the supervisor lets a dying rank go
    sending = _thread.allocate_lock()


def start() -> None:
    """Connect to the supervisor, if this process is one that it watches. May raise any exception."""
    name, *words = os.environ["DDPLAUNCH_HOOK"].split(",")
    rank_pid = next((word[5:] for word in words if word.startswith("rank=")), "")
    ddplaunch_torch.stay_unmeasured()
    _State.name, _State.below = name, bool(rank_pid) and rank_pid != str(os.getpid())
    ddplaunch_output.survive_write_errors(_lost)
    ddplaunch_torch.record_calls()
    # Any process may make a process group and so become a rank.
    ddplaunch_rendezvous.watch(_calls_init, _has_group)
    ddplaunch_spawn.watch(_raised, _is_spawned)
    os.register_at_fork(after_in_child=_forked)
    if _State.below:
        if ddplaunch_spawn.started_this():
            _connect("child")
        return
    ranked = "RANK" in os.environ and "LOCAL_RANK" in os.environ
    ranked = ranked or ("mpi" in words and any(name in os.environ for name in _MPI_RANKS))
    if not ranked and "any" not in words:
        return
    fault = ""
    if ranked:
        # Children inherit this process's RANK, and must not be taken for the rank itself.
        os.environ["DDPLAUNCH_HOOK"] = "%s,rank=%d" % (name, os.getpid())
        _take_own_streams(words)
        _tie_to_launcher("ptrace" in words)
        fault = _prepare()
    if _connect("rank" if ranked else "any", fault):
        _watch_end()


def _take_own_streams(words: list[str]) -> None:
    """Give the rank its own streams, if the launch command prints to those of a carrier."""
    carrier = next((word[7:] for word in words if word.startswith("output=")), "")
    try:
        if carrier:
            _State.output = ddplaunch_output.take_own_streams(carrier)
    except Exception:  # then it prints to those of the launch command
        pass


def _prepare() -> str:
    """Set up what only a rank needs, once. Returns the file to which faulthandler writes."""
    if sys.version_info >= (3, 12):
        ddplaunch_torch.load("ddplaunch_caught").watch(_State.caught, _describe)
    _State.prepared = True
    return _register_fault_dump()


# --- ties to the launcher and to the supervisor by signals, which need no GIL


def _register_fault_dump() -> str:
    """Make a signal, and a crash, write all stacks to a file, even while C code holds the GIL.

    The crash handler is not set if the program or PYTHONFAULTHANDLER has set one, nor under MPI, which
    reports crashes itself if nobody else does.

    Returns the file's path; "" if that is impossible, for example outside the main thread.
    """
    try:
        import faulthandler
        import signal

        folder = os.path.join(_NODE, "stacks")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "%d.txt" % os.getpid())
        file = ddplaunch_torch.lifted(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        )
        # At its end Python restores the previous handler, which must not kill the process.
        signal.signal(signal.SIGRTMIN + _DUMP_SIGNAL, signal.SIG_IGN)
        faulthandler.register(signal.SIGRTMIN + _DUMP_SIGNAL, file=file, all_threads=True, chain=False)
        if not faulthandler.is_enabled() and not any(name in os.environ for name in _MPI_RANKS):
            faulthandler.enable(file=file, all_threads=True)
            _State.faults = file, os.fstat(file).st_ino
        return path
    except Exception:
        return ""


def _tie_to_launcher(ptrace: bool) -> None:
    """Have the kernel kill this rank when its launcher dies: a killed launcher must leave no rank behind."""
    try:
        import ctypes
        import signal

        parent = os.getppid()
        libc = ctypes.CDLL(None)
        if ptrace:
            libc.prctl(_PTRACER, ctypes.c_ulong(_ANYONE), 0, 0, 0)
        # The kernel ties us to the parent *thread*: only its main thread is sure to live as long as it does.
        with open("/proc/%d/task/%d/children" % (parent, parent), encoding="ascii") as file:
            tied = str(os.getpid()) in file.read().split()
        if tied:
            libc.prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
    except Exception:
        pass


# --- the line to the supervisor


def _connect(role: str, fault: str = "") -> bool:
    import socket
    import struct

    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT, 0))
    line.connect("\0" + _State.name)
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    if struct.unpack("3i", credentials)[1] != os.getuid():
        line.close()
        return False
    line = _lifted(line)
    _State.inode = os.fstat(line.fileno()).st_ino
    _State.line, _State.main, _State.role = line, _thread.get_ident(), role
    _State.sending = _thread.allocate_lock()
    _State.go = _thread.allocate_lock()
    _State.go.acquire()
    hello: dict[str, Any] = {"hello": role, "python": "%d.%d.%d" % sys.version_info[:3], "fault": fault}
    hello["ring"] = ddplaunch_torch.ring_file()
    hello["output"] = _State.output
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        hello[key.lower()] = os.environ.get(key, "")
    _send(line, _json(hello))
    # Not a threading.Thread: programs count and join those. It takes none of the program's signals: one that
    # the main thread blocks, for signalfd or sigwait, would end the process through it.
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        _thread.start_new_thread(_serve, (line,))
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    if sys.version_info >= (3, 12):
        # os.fork() would warn about this thread too, although it holds no lock that a child could need.
        import warnings

        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
    return True


def _lifted(line: socket.socket) -> socket.socket:
    """Return the socket with a high descriptor number, if the limit of open files allows one."""
    family, kind, proto = line.family, line.type, line.proto
    return type(line)(family, kind, proto, ddplaunch_torch.lifted(line.detach()))


def _is_open(line: socket.socket) -> bool:
    """Whether the descriptor is still ours: a program may close what it does not know, and open its own."""
    try:
        return os.fstat(line.fileno()).st_ino == _State.inode
    except OSError:
        return False


def _calls_init(facts: dict[str, Any]) -> None:
    """Report the rendezvous from the program's own thread, which is about to wait for its peers."""
    fault = "" if _State.prepared else _prepare()
    if _State.line is None:
        _connect("child" if _State.below else "any")
    _State.member = True
    if _State.line is not None:
        _watch_end()
        _send(_State.line, _json({"rendezvous": facts, "fault": fault}))


def _has_group() -> None:
    _report(passed=True)
    _State.signals = ddplaunch_torch.load("ddplaunch_signals")
    _State.signals.watch()


def _is_spawned(index: int) -> None:
    _report(spawned=index, parent=os.getppid())  # this process may have ended before the supervisor reads it


def _lost(reason: str) -> None:
    """Report that output is lost. The program's own thread calls this from its print."""
    try:
        _report(lost=reason)
    except Exception:  # the program's print must not fail because of us
        pass


def _report(**facts: Any) -> None:
    if _State.line is not None:
        _send(_State.line, _json(facts))


def _json(value: object) -> bytes:
    import json  # imports slower than the rest of the hook, so only where something is sent

    return json.dumps(value).encode()


def _send(line: socket.socket, data: bytes) -> None:
    if _State.sending.acquire(timeout=SEND_TIMEOUT):
        try:
            if _is_open(line):
                line.sendall(data + b"\n")
        finally:
            _State.sending.release()


def _serve(line: socket.socket) -> None:
    buffer = b""
    try:
        while True:
            data = line.recv(4096) if _is_open(line) else b""
            if not data:
                return
            *words, buffer = (buffer + data).split(b"\n")
            for word in words:
                if word == b"go":
                    _release()
                else:
                    _send(line, _answer(word))
    except Exception:
        return


def _release() -> None:
    try:
        _State.go.release()
    except RuntimeError:
        pass


def _answer(word: bytes) -> bytes:
    answer: dict[str, Any] = {"is": word.decode(), "at": time.time(), "tid": _thread.get_native_id()}
    recorders: dict[str, bytes] = {}
    if _State.signals is not None:
        _State.signals.note()
    for collect in _ANSWERS.get(word, ()):
        try:
            value = collect()
            if value is not None:
                answer[collect.__name__[1:]] = value
        except Exception as error:
            answer.setdefault("failed", []).append("%s: %r" % (collect.__name__[1:], error))
    try:
        if _initialized() and not _is_helper():
            recorders = ddplaunch_flight.recorders(word)
            if not recorders:
                answer.update(ddplaunch_flight.sequences())
    except Exception as error:
        answer.setdefault("failed", []).append("recorders: %r" % (error,))
    # torch's own JSON, up to 1 MB, is sent unchanged: parsing it would slow the program.
    raw = b",".join(_json(key) + b":" + value for key, value in recorders.items())
    return _json(answer)[:-1] + b',"recorders":{' + raw + b"}}"


# --- requests


def _initialized() -> bool:
    # Use torch.distributed only if the program has imported it completely.
    module = sys.modules.get("torch.distributed")
    return bool(
        module is not None
        and hasattr(module, "is_initialized")
        and module.is_available()
        and module.is_initialized()
    )


def _is_helper() -> bool:
    """Whether this process serves a rank, as a DataLoader worker does. It may have the rank's groups."""
    return _State.role == "child" and not _State.member


def _backend() -> str:
    return str(sys.modules["torch.distributed"].get_backend()) if _initialized() else ""


def _groups() -> dict[str, Any]:
    """Return [global ranks, description] by group name."""
    if _is_helper() or not _initialized():
        return {}
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    return {
        str(world.pg_names[group]): [sorted(ranks), str(getattr(group, "group_desc", "") or "")]
        for group, ranks in list(world.pg_group_ranks.items())
        if group in world.pg_names
    }


def _timeout() -> Optional[float]:
    """Return the longest timeout of the process groups, in seconds; None if torch does not tell."""
    if _is_helper() or not _initialized():
        return None
    longest = None
    for group in list(sys.modules["torch.distributed.distributed_c10d"]._world.pg_map):
        for device in getattr(group, "_device_types", ()):
            options = getattr(group._get_backend(device), "options", None)
            timeout = getattr(options, "_timeout", None)
            if timeout is not None:
                longest = max(longest or 0.0, timeout.total_seconds())
    return longest


def _main_stack() -> dict[str, Any]:
    return _thread_of(_State.main, sys._current_frames().get(_State.main), None)


def _mpi() -> Any:
    return ddplaunch_mpi.state(sys._current_frames().get(_State.main))


def _mpi_call() -> Any:
    return ddplaunch_mpi.call(sys._current_frames().get(_State.main))


def _threads() -> list[dict[str, Any]]:
    # A copy, without the module's lock, which a deadlocked program may hold. The module may be half imported.
    known: Any = dict(getattr(sys.modules.get("threading"), "_active", ()))
    own = _thread.get_ident()
    return [
        _thread_of(ident, frame, known.get(ident))
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]


def _thread_of(ident: int, frame: Optional[FrameType], thread: Any) -> dict[str, Any]:
    frames = ddplaunch_mpi.function(frame) if ident == _State.main else []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN):
            frames.append([frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0])
        frame = frame.f_back
    if len(frames) > FRAMES:
        frames = frames[: FRAMES // 2] + frames[-FRAMES // 2 :]
    main, tid = ident == _State.main, getattr(thread, "native_id", 0) or 0
    name = getattr(thread, "name", "MainThread" if main else "")
    return {
        "name": name,
        "main": main,
        "tid": tid,
        "frames": frames,
        "daemon": getattr(thread, "daemon", None),
    }


def _handled() -> list[dict[str, Any]]:
    """Return the exceptions that user code has caught, and the one that the main thread is handling.

    And the calls of sys.exit by threads that are gone: those that are still there have caught it.
    """
    threads = sys._current_frames()
    handled = [*_State.caught, *(call for ident, call in list(_State.exits.items()) if ident not in threads)]
    for now in _in_flight()[:1]:
        if not any((each["type"], each["frames"]) == (now["type"], now["frames"]) for each in handled):
            handled.append(now)
    return handled


def _in_flight() -> list[dict[str, Any]]:
    """Return the exception that the main thread is handling, as in `finally`; then its chain of contexts."""
    current: Any = getattr(sys, "_current_exceptions", None)
    found = current().get(_State.main) if current else None
    return _chain(found[1] if isinstance(found, tuple) else found)


def _chain(value: Optional[BaseException]) -> list[dict[str, Any]]:
    """Describe an exception, then those while whose handling it was raised."""
    handled: list[dict[str, Any]] = []
    while value is not None and len(handled) < _IN_FLIGHT:
        handled.append(_describe(type(value), _text(value), value.__traceback__))
        value = value.__context__
    return handled


def _signals() -> Any:
    return _State.signals.told() if _State.signals is not None else None


_ANSWERS: dict[bytes, tuple[Callable[[], Any], ...]] = {
    **dict.fromkeys((b"count", b"steps"), (_initialized, _mpi, *ddplaunch_model.COUNT)),
    b"who": ddplaunch_spawn.WHO,
    b"look": (_initialized, _mpi, _main_stack, _timeout),
    b"dump": (
        _initialized,
        _mpi,
        _mpi_call,
        _backend,
        _groups,
        _threads,
        _handled,
        _in_flight,
        _signals,
        *ddplaunch_spawn.DUMP,
        *ddplaunch_model.DUMP,
    ),
}


# --- how it ends


def _watch_end() -> None:
    if _State.watched:
        return
    _State.watched = True
    import atexit

    atexit.register(_ending)
    _note_exits()
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
        try:
            _raised(kind, value, trace)
        except Exception:
            pass
        previous(kind, value, trace)

    if previous is sys.__excepthook__:  # programs compare the two
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook


def _note_exits() -> None:
    """Note where the program calls sys.exit, exit, quit or os._exit, and in which exception's handler.

    Afterwards nothing shows it. A program may catch the SystemExit; the supervisor looks whether the process
    has ended by it.
    """
    call, at_once = sys.exit, os._exit

    def exit(*status: Any) -> None:  # noqa: A001 - it takes the other's place, also for pickle
        _note_exit("sys.exit", sys._getframe(1), status)
        try:
            call(*status)
        except BaseException as error:
            if not isinstance(error, SystemExit):
                _State.left = []
            ddplaunch_torch.step_out(error)
            raise

    def _exit(status: int) -> NoReturn:
        # No file is read here, as for the others: a watchdog may end the process because a disk hangs.
        try:
            if _State.line is not None and (_State.member or not _State.below):
                left = [_exit_call("os._exit", sys._getframe(1), (status,)), *_chain(sys.exc_info()[1])]
                _send(_State.line, _json({"left": left}))
        except Exception:  # then it is not known where; the program ends all the same
            pass
        at_once(status)

    exit.__module__, exit.__qualname__, exit.__doc__ = "sys", "exit", call.__doc__
    _exit.__module__, _exit.__qualname__, _exit.__doc__ = "os", "_exit", at_once.__doc__
    sys.exit = exit  # type: ignore[assignment]
    os._exit = _exit
    builtin: Any = sys.modules.get("_sitebuiltins")
    if builtin is not None:
        _note_quits(builtin.Quitter)


def _note_quits(kind: Any) -> None:
    """`exit()` and `quit()`, of which a script has no need of an import, raise SystemExit by themselves."""
    call = kind.__call__

    def __call__(self: Any, code: Any = None) -> None:  # noqa: N807 - it takes the other's place
        _note_exit(self.name, sys._getframe(1), () if code is None else (code,))
        call(self, code)

    __call__.__qualname__ = call.__qualname__
    kind.__call__ = __call__


def _note_exit(how: str, frame: FrameType, status: tuple[Any, ...]) -> None:
    try:
        if _thread.get_ident() != _State.main:
            _note_thread(_exit_call("SystemExit", frame, status))
            return
        _State.left = []
        if not _is_result(frame):
            _State.left = [_exit_call(how, frame, status), *_chain(sys.exc_info()[1])]
    except Exception:  # then it is not known where; the program ends all the same
        pass


def _note_thread(call: dict[str, Any]) -> None:
    """In another thread than the main one, sys.exit ends that thread alone, and Python says nothing of it."""
    if len(_State.exits) < _IN_FLIGHT:
        _State.exits[_thread.get_ident()] = call


def _is_result(frame: FrameType) -> bool:
    """Whether the argument may be what a function returned, as in `sys.exit(main())`: that is every end."""
    with open(frame.f_code.co_filename, "rb") as file:
        lines = [text for _, text in zip(range(frame.f_lineno or 0), file)]
    argument = lines[-1].replace(b"quit(", b"exit(").partition(b"exit(")[2].strip()
    is_text = b'"' in argument[:2] or b"'" in argument[:2]  # also f"…"
    return not argument or (b"(" in argument and not is_text)


def _exit_call(how: str, frame: FrameType, status: tuple[Any, ...]) -> dict[str, Any]:
    """Describe a call that ends the process like an exception, with its argument as the message.

    repr() of an object of the program's own could run anything.
    """
    frames = _thread_of(_State.main, frame, None)["frames"]
    shown = ""
    if status:
        plain = type(status[0]) in (int, bool, str, type(None))
        shown = repr(status[0])[:200] if plain else "..."
    return {"type": how, "message": shown, "at": time.time(), "frames": frames}


def _raised(kind: type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
    line = _State.line
    if line is not None:
        message = _describe(kind, _text(value), trace)
        message["cause"] = _text(value.__cause__)[:500] if value.__cause__ is not None else ""
        message["in_flight"] = [] if value.__suppress_context__ else _chain(value.__context__)
        _send(line, _json({"raised": message}))
        _State.go.acquire(timeout=HOLD)


def _describe(kind: type[BaseException], message: str, trace: Optional[TracebackType]) -> dict[str, Any]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_OWN):
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
    """Report that the interpreter ends by itself. The socket stays open until the process has ended."""
    line, _State.line = _State.line, None
    try:
        if line is not None:
            message: dict[str, Any] = {"ending": time.time()}
            mpi = _mpi()
            if mpi:
                message["mpi"] = mpi
            if _State.signals is not None:  # the rank may end for one of them
                _State.signals.note()
                message["signals"] = _State.signals.told()
            if _State.left:
                message["left"] = _State.left
            _send(line, _json(message))
    except Exception:
        pass
    if line is not None:
        line.detach()


def _forked() -> None:
    """Drop the parent's connection in a forked child. A multiprocessing child gets its own once it runs."""
    try:
        _crash_silently()
        line, _State.line = _State.line, None
        _State.below, _State.member, _State.prepared = True, False, False
        if line is not None:
            if not _is_open(line):
                line.detach()
            line.close()
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(_State, _rejoin)
    except Exception:
        pass


def _crash_silently() -> None:
    """Keep a forked child that crashes from writing to its parent's file."""
    faults, _State.faults = _State.faults, None
    if faults is not None and os.fstat(faults[0]).st_ino == faults[1]:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, faults[0], inheritable=False)
        os.close(null)


def _rejoin(_: object) -> None:
    try:
        if _State.line is None:
            _connect("child")
    except Exception:
        pass
