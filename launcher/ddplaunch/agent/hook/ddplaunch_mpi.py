"""Finds the mpi4py function that the main thread has called, with its arguments.

These functions are C code and in no Python stack, but the caller's frame has the position of the call. So the
hook reads the call from the source and its arguments from the frame's variables, without running the
program's code. Arguments that would need such code are left out. `ddplaunch_model` reads calls of torch's
store in the same way.
"""

# ruff: noqa: RUF012 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType
    from typing import Any, Optional

_BLOCKING = frozenset(
    [
        *("barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv"),
        *("alltoall", "alltoallv", "alltoallw", "reduce", "allreduce", "reduce_scatter", "scan", "exscan"),
        *("reduce_scatter_block", "neighbor_allgather", "neighbor_alltoall", "split", "split_type", "dup"),
        *("dup_with_info", "clone", "create", "create_cart", "create_graph", "create_group", "free", "agree"),
        *("create_intercomm", "disconnect", "merge", "spawn", "connect", "accept", "send", "ssend", "rsend"),
        *("bsend", "recv", "sendrecv", "sendrecv_replace", "probe", "mprobe", "wait", "waitall", "waitany"),
        *("waitsome", "fence", "lock", "lock_all", "unlock", "unlock_all", "flush", "complete", "start"),
        *("open", "close", "read_all", "write_all", "init", "init_thread", "finalize"),
    ]
)
"""In lower case: mpi4py has the same function for buffers (Allreduce) and for pickled objects (allreduce)."""
_ARGUMENTS = {
    **dict.fromkeys(["send", "ssend", "rsend", "bsend"], ("buf", "dest", "sendtag")),
    "recv": ("buf", "source", "recvtag"),
    "sendrecv": ("buf", "dest", "sendtag", "recvbuf", "source", "recvtag"),
    "sendrecv_replace": ("buf", "dest", "sendtag", "source", "recvtag"),
    "probe": ("source", "recvtag"),
    "mprobe": ("source", "recvtag"),
    "bcast": ("buf", "root"),
    "gather": ("buf", "recvbuf", "root"),
    "scatter": ("recvbuf", "buf", "root"),
    "reduce": ("buf", "recvbuf", "op", "root"),
    **dict.fromkeys(["allreduce", "allgather", "alltoall", "scan", "exscan"], ("buf", "recvbuf")),
}
"""Parameters in order, by lower-case name of the function. `_SAME`, and `tag`, are other names for them."""
_SAME = {"obj": "buf", "sendobj": "buf", "sendbuf": "buf"}
_DEFAULTS = {"sendtag": 0, "root": 0}
_ANY, _UNKNOWN = -1, -2
_WHO_SEE_LOCALS = frozenset(["locals", "vars", "eval", "exec", "dir"])
_SOURCE_LIMIT = 1 << 20
_MISSING = object()


class _State:
    returned = 0  # how often the main thread was seen to return from an MPI function
    is_pending = False
    pending: Any = None  # the C callback; must outlive its call
    nodes: dict[tuple[CodeType, Any], Any] = {}  # a position, or names -> the call there, or calls; or None


class UnknownError(Exception):
    """An expression that cannot be evaluated without running the program's own code."""


def state(frame: Optional[FrameType]) -> Optional[dict[str, Any]]:
    """Return the state of MPI in this process, whose main thread is in `frame`; None without mpi4py."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        return None
    if function(frame):
        _count_next_return()
    ready = hasattr(mpi, "Is_initialized") and mpi.Is_initialized() and not mpi.Is_finalized()
    return {"ready": bool(ready), "returned": _State.returned}


def _count_next_return() -> None:
    """Have the interpreter count when the main thread next runs Python again.

    A thread that is seen twice on one line may have stayed there, or come back a thousand times.
    """
    if not _State.is_pending:
        import ctypes

        if _State.pending is None:
            _State.pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_returned)
        _State.is_pending = ctypes.pythonapi.Py_AddPendingCall(_State.pending, None) == 0


def _returned(_: object) -> int:
    _State.is_pending = False
    _State.returned += 1
    return 0


def function(frame: Optional[FrameType]) -> list[list[Any]]:
    """Return the frame that a Python stack lacks: [name, file, 0] of the called MPI function."""
    if frame is None or "mpi4py.MPI" not in sys.modules:
        return []
    called = _called(frame)
    file = getattr(sys.modules["mpi4py.MPI"], "__file__", None) or "mpi4py/MPI"
    return [[called[0], file, 0]] if called is not None else []


def call(frame: Optional[FrameType]) -> Optional[dict[str, Any]]:
    """Return the MPI function's name, its communicator, its ranks, and the arguments that name its peers."""
    if frame is None or "mpi4py.MPI" not in sys.modules:
        return None
    called = _called(frame)
    if called is None:
        return None
    name, receiver, node = called
    facts: dict[str, Any] = {"name": name}
    mpi: Any = sys.modules["mpi4py.MPI"]
    ranks: list[int] = []
    if isinstance(receiver, mpi.Comm):
        # While another thread is in a call, only this level of thread support allows a second one.
        if mpi.Query_thread() == mpi.THREAD_MULTIPLE and receiver:
            ranks = _members(mpi, receiver)
            is_world = ranks == list(range(mpi.COMM_WORLD.size))  # then without the list, which may be long
            facts.update(communicator=receiver.Get_name(), size=len(ranks), ranks=[] if is_world else ranks)
        arguments = _arguments(name.lower(), node, frame)
        for key, value in arguments.items():
            if key == "buf":
                facts.update(_size(value))
            elif key.endswith("tag") or key in ("dest", "source", "root"):
                number = value if type(value) is int else _UNKNOWN
                if key in ("dest", "source", "root"):
                    number = _world_rank(number, ranks, key == "source" and number == mpi.ANY_SOURCE)
                elif key == "recvtag" and number == mpi.ANY_TAG:
                    number = _ANY
                facts[key] = number
    return facts


def _world_rank(number: int, ranks: list[int], is_any: bool) -> int:
    if is_any:
        return _ANY
    return ranks[number] if 0 <= number < len(ranks) else _UNKNOWN


def _members(mpi: Any, comm: Any) -> list[int]:
    """Return the world ranks of a communicator, in its order; [] for an intercommunicator."""
    if comm.Is_inter():
        return []
    group, world = comm.Get_group(), mpi.COMM_WORLD.Get_group()
    try:
        return [int(rank) for rank in mpi.Group.Translate_ranks(group, list(range(group.size)), world)]
    finally:
        group.Free()
        world.Free()


# --- which call it is


def _called(frame: FrameType) -> Optional[tuple[str, Any, Any]]:
    """Return name, receiver (None: unknown) and syntax node of the blocking MPI call at `frame`."""
    node = call_at(frame)
    if node is None:
        return None
    try:
        name, receiver = function_of(node.func, frame)
    except UnknownError:
        name = getattr(node.func, "attr", "")
        # Names with a capital letter are MPI's alone; recv() may also be a socket's.
        return (name, None, node) if name[:1].isupper() and name.lower() in _BLOCKING else None
    mpi: Any = sys.modules["mpi4py.MPI"]
    kind = receiver if isinstance(receiver, type) else type(receiver)
    own = receiver is mpi or any(each.__module__ == "mpi4py.MPI" for each in kind.__mro__)
    return (name, receiver, node) if own and name.lower() in _BLOCKING else None


def function_of(node: Any, frame: FrameType) -> tuple[str, Any]:
    """Return ('Allreduce', comm) for `comm.Allreduce`, or for a name that was bound to it."""
    if type(node).__name__ == "Attribute":
        return node.attr, value_of(node.value, frame)
    function = value_of(node, frame)
    return str(getattr(function, "__name__", "")), getattr(function, "__self__", None)


def call_at(frame: FrameType) -> Any:
    """Return the ast.Call at `frame`; None when there is no call, or the source cannot be read."""
    key = (frame.f_code, frame.f_lasti)
    if key not in _State.nodes:
        if len(_State.nodes) > 100:
            _State.nodes.clear()
        try:
            _State.nodes[key] = _find(frame)
        except (OSError, SyntaxError, ValueError, RecursionError):
            _State.nodes[key] = None
    return _State.nodes[key]


def _find(frame: FrameType) -> Any:
    calls = _calls(frame.f_code.co_filename)
    if hasattr(frame.f_code, "co_positions"):  # since Python 3.11
        place = next(position for index, position in _positions(frame.f_code) if index == frame.f_lasti)
        if place[1] is not None and place[3] is not None:
            # The instruction may begin at the method's name; it ends with the call.
            ends = [node for node in calls if (node.end_lineno, node.end_col_offset) == (place[1], place[3])]
            return ends[0] if ends else None
    return _only_one(calls, frame.f_lineno or 0)


def tests_around(frame: FrameType, names: frozenset[str]) -> list[Any]:
    """Return the calls of functions of these names in the innermost loop around the frame's line."""
    key = (frame.f_code, names)
    if key not in _State.nodes:
        try:
            _State.nodes[key] = _tests(frame.f_code.co_filename, frame.f_lineno or 0, names)
        except (OSError, SyntaxError, ValueError, RecursionError):
            _State.nodes[key] = []
    return list(_State.nodes[key])


def _tests(path: str, line: int, names: frozenset[str]) -> list[Any]:
    import ast

    with open(path, "rb") as file:
        tree = ast.parse(file.read(_SOURCE_LIMIT))
    loops = [
        each
        for each in ast.walk(tree)
        if isinstance(each, (ast.While, ast.For)) and each.lineno <= line <= (each.end_lineno or 0)
    ]
    loop = max(loops, key=lambda each: each.lineno, default=ast.Module([], []))
    return [each for each in ast.walk(loop) if isinstance(each, ast.Call) and _name(each) in names]


def named_at(path: str, line: int) -> Optional[str]:
    """Return the blocking MPI function that this line calls, judged by name; None: none, or several."""
    try:
        node = _only_one(_calls(path), line)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return _name(node) if node is not None else None


def _calls(path: str) -> list[Any]:
    import ast

    with open(path, "rb") as file:
        source = file.read(_SOURCE_LIMIT)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]


def _only_one(calls: list[Any], line: int) -> Any:
    here = [node for node in calls if node.lineno <= line <= (node.end_lineno or 0)]
    blocking = [node for node in here if _name(node).lower() in _BLOCKING]
    return blocking[0] if len(blocking) == 1 else None


def _name(node: Any) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _positions(code: Any) -> Iterator[tuple[int, Any]]:
    for index, position in enumerate(code.co_positions()):
        yield 2 * index, position


# --- values, without running the program's code


def _arguments(name: str, node: Any, frame: FrameType) -> dict[str, Any]:
    """Return the arguments; _MISSING for one that is given and cannot be evaluated."""
    parameters = _ARGUMENTS.get(name, ())
    given: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if key in parameters}
    given.update({key: _ANY_DEFAULT for key in ("source", "recvtag") if key in parameters})
    if any(type(each).__name__ == "Starred" for each in node.args) or any(
        k.arg is None for k in node.keywords
    ):
        return dict.fromkeys(parameters, _MISSING)
    pairs = list(zip(parameters, node.args))
    for keyword in node.keywords:
        key = _SAME.get(keyword.arg, keyword.arg)
        if key == "tag":
            key = "sendtag" if "sendtag" in parameters else "recvtag"
        pairs.append((key, keyword.value))
    for key, expression in pairs:
        try:
            given[key] = value_of(expression, frame)
        except UnknownError:
            given[key] = _MISSING
    mpi: Any = sys.modules["mpi4py.MPI"]
    anything = {"source": mpi.ANY_SOURCE, "recvtag": mpi.ANY_TAG}
    return {key: anything[key] if value is _ANY_DEFAULT else value for key, value in given.items()}


_ANY_DEFAULT = object()


def value_of(node: Any, frame: FrameType) -> Any:
    """Return the value of an expression. Raises UnknownError."""
    evaluate = _VALUES.get(type(node).__name__)
    if evaluate is None:
        raise UnknownError
    return evaluate(node, frame)


def _negative(node: Any, frame: FrameType) -> int:
    if type(node.op).__name__ != "USub":
        raise UnknownError
    return -_integer(node.operand, frame)


def _element(node: Any, frame: FrameType) -> Any:
    base, index = value_of(node.value, frame), value_of(node.slice, frame)
    if type(base) in (list, tuple, dict) and type(index) in (int, str):
        try:
            return base[index]
        except LookupError:
            pass
    raise UnknownError


def _part(node: Any, frame: FrameType) -> str:
    """Return a part of an f-string: text, or a plain value without a format."""
    is_value = type(node).__name__ == "FormattedValue"
    part = value_of(node.value if is_value else node, frame)
    if type(part) not in (str, int) or (is_value and (node.format_spec is not None or node.conversion != -1)):
        raise UnknownError
    return str(part)


def _own_number(node: Any, frame: FrameType) -> int:
    """Return the value of `comm.Get_rank()` or `comm.Get_size()`; no other call is evaluated."""
    name, receiver = function_of(node.func, frame)
    if name in ("Get_rank", "Get_size") and _is_communicator(receiver):
        return int(receiver.rank if name == "Get_rank" else receiver.size)
    raise UnknownError


_VALUES: dict[str, Callable[[Any, FrameType], Any]] = {
    "Constant": lambda node, _: node.value,
    "Name": lambda node, frame: _variable(node.id, frame),
    "Attribute": lambda node, frame: _attribute(value_of(node.value, frame), node.attr),
    "UnaryOp": _negative,
    "BinOp": lambda node, frame: _arithmetic(
        type(node.op).__name__, _integer(node.left, frame), _integer(node.right, frame)
    ),
    "List": lambda node, frame: [value_of(each, frame) for each in node.elts],
    "Tuple": lambda node, frame: [value_of(each, frame) for each in node.elts],
    "Subscript": _element,
    "JoinedStr": lambda node, frame: "".join(_part(each, frame) for each in node.values),
    "Call": _own_number,
}


def _variable(name: str, frame: FrameType) -> Any:
    code = frame.f_code
    if name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return _local(name, frame)
    for scope in (frame.f_globals, frame.f_builtins):
        if name in scope:
            return scope[name]
    raise UnknownError


def _local(name: str, frame: FrameType) -> Any:
    """Return a local variable. Raises UnknownError.

    Before Python 3.13, f_locals fills a dict that the frame keeps and locals() returns. We empty the dict
    again, because it would keep objects alive, and leave functions alone that may use it themselves.
    """
    copied = sys.version_info < (3, 13)
    if copied and not _WHO_SEE_LOCALS.isdisjoint(frame.f_code.co_names):
        raise UnknownError
    local = frame.f_locals
    try:
        return local[name]
    except KeyError:
        raise UnknownError from None
    finally:
        if copied:
            local.clear()


def _attribute(base: Any, name: str) -> Any:
    """Return the attribute without running the program's code. Raises UnknownError."""
    if _is_communicator(base) and name in ("rank", "size"):
        return getattr(base, name)
    try:
        own = object.__getattribute__(base, "__dict__")
    except AttributeError:
        own = {}
    if name in own:
        return own[name]
    for each in type(base).__mro__ if not isinstance(base, type) else base.__mro__:
        value = vars(each).get(name, _MISSING)
        if value is not _MISSING and not hasattr(type(value), "__get__"):
            return value
    raise UnknownError


def _is_communicator(value: Any) -> bool:
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def _integer(node: Any, frame: FrameType) -> int:
    value = value_of(node, frame)
    if type(value) is not int:
        raise UnknownError
    return value


def _arithmetic(operator: str, left: int, right: int) -> int:
    if operator == "Add":
        return left + right
    if operator == "Sub":
        return left - right
    if operator == "Mult" and max(abs(left), abs(right)) < 1 << 31:
        return left * right
    if operator == "Mod" and right:
        return left % right
    if operator == "FloorDiv" and right:
        return left // right
    raise UnknownError


def _size(value: Any) -> dict[str, Any]:
    """Return number and type of the elements of a tensor or array; {} for other objects."""
    if isinstance(value, list) and value:
        value = value[0]
    kind = type(value)
    if kind.__module__.partition(".")[0] == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        return {"count": int(value.numel()), "dtype": str(value.dtype).rpartition(".")[2]}
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return {"count": int(value.size), "dtype": str(value.dtype)}
    return {}
