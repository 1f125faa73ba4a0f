"""Reads a rank's model, GPU, and the lock, file or keys that it waits for, from the program's objects.

Nothing here calls CUDA: such a call may wait for a GPU that hangs, and would hold the GIL meanwhile. It would
not tell us more either: each thread has its own current device, and that of the hook's thread is always the
first.
"""

# ruff: noqa: SLF001 - runs on Python 3.8 in the user's program

from __future__ import annotations

import _thread
import os
import sys

import ddplaunch_mpi  # type: ignore[import-not-found]
import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_DEPTH = 12
_OUTERMOST = 60
_LIBRARIES = tuple(
    os.sep + each for each in ("site-packages" + os.sep, "dist-packages" + os.sep, "lib" + os.sep + "python")
)
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddplaunch_")
_LOADER = os.path.join("torch", "utils", "data", "")
_ENGINE = (os.path.join("torch", "autograd", ""), os.path.join("nn", "parallel", "distributed.py"))
_C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
_BATON = os.path.join("torch", "utils", "file_baton.py")
_STORE_CALLS = ("wait", "get", "multi_get")
_KEYS, _KEY = 4, 100  # keys of one call that are told, and characters of each
_FILE_TESTS = frozenset(["exists", "isfile", "is_file", "isdir", "is_dir", "lexists"])
_PATH = 300  # characters of a path that are told
_LOOKS_WITHIN = 3  # pathlib's own frames may be inside the program's
_UTILS = os.path.join("torch", "distributed", "utils.py")


class _State:
    main = 0  # the main thread's identity
    keys: list[Any] = []  # noqa: RUF012 - nobody copies _State; what its call of a store waits for


def _main_frame() -> Any:
    threading: Any = sys.modules.get("threading")
    return sys._current_frames().get(threading.main_thread().ident) if threading else None


def _place() -> Optional[list[Any]]:
    """Return [kind, name, file, line]: where the main thread is, and at which line of the program.

    The kind is "loader", "collective", "engine" (torch's C++ waits for DDP's collective or for threads), or
    "".
    """
    if "torch.distributed.distributed_c10d" not in sys.modules:
        return None
    frame, kind = _main_frame(), ""
    site: Optional[list[Any]] = None
    for depth in range(_OUTERMOST):
        if frame is None:
            break
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if _LOADER in file and name == "__next__":
            kind, site = "loader", None  # the line that asks for a batch, not that of the dataset
        elif not kind and file.endswith(_C10D):
            kind, site = "collective", None
        elif depth == 0 and any(each in file for each in _ENGINE):
            kind = "engine" if _sleeps() else ""
        elif (
            site is None and not file.startswith((_OWN, "<")) and not any(each in file for each in _LIBRARIES)
        ):
            site = [name, file, frame.f_lineno or 0]
        frame = frame.f_back
    return [kind, *(site or ["", "", 0])]


def _sleeps() -> bool:
    """Whether the main thread is asleep."""
    with open("/proc/self/stat", "rb") as file:
        return file.read().rpartition(b")")[2].startswith(b" S")


def _broadcasting() -> Optional[int]:
    """Return the bytes of parameters and buffers that the main thread is broadcasting; None: it is not."""
    frame = _main_frame()
    for _ in range(_DEPTH):
        if frame is None:
            return None
        code = frame.f_code
        if code.co_name == "_sync_params_and_buffers" and code.co_filename.endswith(_UTILS):
            return sum(int(each.numel() * each.element_size()) for each in frame.f_locals["module_states"])
        frame = frame.f_back
    return None


def _polls() -> Optional[list[Any]]:
    """Return [file, by FileBaton?] if the main thread polls for a lock by filelock or torch's FileBaton."""
    frame = _main_frame()
    place = "" if frame is None else frame.f_code.co_filename
    baton = place.endswith(_BATON)
    if baton or "filelock" in place:
        local = frame.f_locals
        file = local["self"].lock_file_path if baton else local.get("lock_filename")
        return [os.path.realpath(os.fsdecode(file)), baton] if file else None
    return None


def watch_stores(module: Any) -> None:
    """Note the keys of calls of torch's stores that wait: the call itself is native code, without a frame.

    Store, from which a program may derive a store of its own, stays as it is: torch asks such a class which
    methods it has overridden.
    """
    _State.main = sys.modules["threading"].main_thread().ident or 0
    for kind in ("TCPStore", "PrefixStore", "FileStore", "HashStore"):
        for name in _STORE_CALLS:
            holder = getattr(module, kind, None)
            if hasattr(holder, name):
                setattr(holder, name, _noting(getattr(holder, name)))


def _noting(call: Any) -> Any:
    from functools import wraps

    @wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        is_main = _thread.get_ident() == _State.main
        if is_main:
            _State.keys = [*args[1:2], *kwargs.values()][:1]
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            ddplaunch_torch.step_out(error)
            raise
        finally:
            if is_main:
                _State.keys = []

    return wrapper


def _keys() -> Optional[list[str]]:
    """Return the keys for which the main thread waits in a call of torch's store; None if it is in none.

    A library's own calls do not count.
    """
    frame = _main_frame()
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None or any(each in frame.f_code.co_filename for each in _LIBRARIES):
        return None
    for given in [*_State.keys]:
        keys = given if isinstance(given, (list, tuple)) else [given]
        return [each[:_KEY] for each in keys[:_KEYS] if type(each) is str]
    return None


def _awaited_file() -> Optional[str]:
    """Return the path for which the main thread looks again and again; None if it does not, or not for one.

    The source is read only if the function sleeps, and calls something like `exists`. What only the program
    itself could make, as the result of its own function, is left out.
    """
    frame = _main_frame()
    for _ in range(_LOOKS_WITHIN):
        names = frozenset() if frame is None else frozenset(frame.f_code.co_names)
        if "sleep" in names and not _FILE_TESTS.isdisjoint(names):
            break
        frame = frame and frame.f_back
    else:
        return None
    if any(each in frame.f_code.co_filename for each in _LIBRARIES):
        return None
    paths = {_path_of(call, frame) for call in ddplaunch_mpi.tests_around(frame, _FILE_TESTS)}
    path = paths.pop() if len(paths) == 1 else None
    return path and path[:_PATH]


def _path_of(call: Any, frame: Any) -> Optional[str]:
    """Return the path of `os.path.exists(path)`, or of `path.exists()`; None if it is not known."""
    try:
        if not call.args:
            return _path(call.func.value, frame)
        function = ddplaunch_mpi.value_of(call.func, frame)
        pythons = any(function is getattr(os.path, each, None) for each in _FILE_TESTS)
        return _path(call.args[0], frame) if pythons else None
    except (ddplaunch_mpi.UnknownError, LookupError, AttributeError):
        return None


def _path(node: Any, frame: Any) -> str:
    """Return the value of an expression for a path. Raises UnknownError."""
    kind = type(node).__name__
    if kind == "BinOp" and type(node.op).__name__ in ("Div", "Add"):
        parts = _path(node.left, frame), _path(node.right, frame)
        return os.path.join(*parts) if type(node.op).__name__ == "Div" else "".join(parts)
    if kind == "Call" and node.args and not node.keywords:
        function = ddplaunch_mpi.value_of(node.func, frame)
        if function is not os.path.join and function is not getattr(sys.modules.get("pathlib"), "Path", None):
            raise ddplaunch_mpi.UnknownError
        return os.path.join(*[_path(each, frame) for each in node.args])
    value = ddplaunch_mpi.value_of(node, frame)
    if type(value) is str or type(value).__module__.partition(".")[0] == "pathlib":
        return str(os.fspath(value))
    raise ddplaunch_mpi.UnknownError


def _device() -> Optional[str]:
    """Return the GPU to which the process groups are bound, by number or UUID; None where it is not known."""
    torch: Any = sys.modules.get("torch")
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if torch is None or c10d is None or not torch.cuda.is_initialized():
        return None
    bound: list[Any] = [getattr(group, "bound_device_id", None) for group in list(c10d._world.pg_map)]
    numbers = {each.index for each in bound if each is not None and each.type == "cuda"}
    if len(numbers) != 1:
        return None
    number = numbers.pop()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number)
    names = visible.split(",")
    return names[number].strip() if number is not None and number < len(names) else None


COUNT = (_place,)
DUMP = (_broadcasting, _device, _polls, _keys, _awaited_file)
