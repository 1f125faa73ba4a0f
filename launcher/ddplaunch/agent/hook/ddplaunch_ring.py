"""Records the last calls of torch.distributed in a file that outlives the process.

The file is mapped into memory. One `pack_into` writes a call, and a time and a byte write its end, without a
system call. So the record stays when the process is killed, aborts in C++ or is frozen. The file has a
header, SLOTS slots that are written in turn, and text: one line of JSON for each group, function, dtype and
line of the user's, to which the slots refer by number. The program's calls of public functions are recorded;
calls that C++ makes, as for DDP in backward(), are not. The record of an asynchronous call shows whether the
program has waited for it.

A call costs 1 µs in a loop, and 10 µs if a training step has filled the processor's caches in between,
because all memory that the call uses is fetched again. That is why repeated calls from one line use little
memory. The file is made at the first call, with all of its space.
"""

# ruff: noqa: SIM105, SLF001, UP031 - runs on Python 3.8 in the user's program

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import sys
from functools import partial, wraps
from itertools import count
from threading import get_ident, main_thread
from time import time
from weakref import ref

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType
    from typing import Any, Optional

HEADER = b"ddplaunch ring 3\n".ljust(64, b"\0")
SLOTS = 256
_DIMENSIONS = 6
_CALL = struct.Struct("<HHHHB3x%dq" % _DIMENSIONS)
"""The part that calls from one line mostly share: function, group, line, dtype, dimensions, shape."""
_WRITTEN = struct.Struct("<QBBHiddI%dsQ" % _CALL.size)
"""A slot as written: mark, state, asynchronous, tag, peer, time, end, number, the call, mark. The marks are
the number of the call in the process; they differ if a write was cut short."""
SLOT = struct.Struct("<QBBHiddI%sQ" % _CALL.format[1:])
TEXT = 1 << 16
ENTERED, RETURNED, RAISED, WAITING, WAITED = 1, 2, 3, 4, 5
LARGE = 0xFFFF  # a tag that does not fit, or is not known
_STATE = _MARK = 8  # offset in a slot; the number of the call comes before it
_END = struct.Struct("<d")
_TO_END = 16  # bytes from its state to the time when it returned, or was waited for
_FIRST, _SIZE = len(HEADER), SLOT.size
_SET_FLAGS, _NO_COW = 0x40086602, 0x00800000  # of ioctl(2) for files
NOBODY, ANYBODY = -2, -1  # as a peer
_DEPTH = 16  # frames in which the user's line is looked for
_SITES = 4096  # lines that are cached
_STANDARD = os.path.dirname(os.__file__) + os.sep

COLLECTIVES = {  # function -> its parameter that must be equal on all ranks
    "all_reduce": "tensor",
    "all_reduce_coalesced": "",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_gather": "tensor",
    "all_gather_coalesced": "",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "_all_gather_base": "input_tensor",
    "gather": "tensor",
    "gather_single": "tensor",
    "gather_into_tensor": "tensor",
    "scatter": "tensor",
    "reduce_scatter": "output",
    "reduce_scatter_single": "output",
    "reduce_scatter_tensor": "output",
    "_reduce_scatter_base": "output",
    "all_to_all": "",
    "all_to_all_single": "input",
    "barrier": "",
    "monitored_barrier": "",
    "all_gather_object": "",
    "gather_object": "",
    "broadcast_object_list": "",
    "scatter_object_list": "",
}
_ROOTS = {  # function -> its parameter that names the root
    "broadcast": "src",
    "reduce": "dst",
    "gather": "dst",
    "scatter": "src",
    "broadcast_object_list": "src",
    "gather_object": "dst",
    "scatter_object_list": "src",
}
POINT_TO_POINT = {  # function -> its parameter that names the peer
    "send": "dst",
    "isend": "dst",
    "recv": "src",
    "irecv": "src",
    "send_object_list": "dst",
    "recv_object_list": "src",
}
_OTHERWISE = ("monitored_barrier", "send_object_list", "recv_object_list")
"""Calls that send more than one message, so that torch counts them otherwise than we do."""
PHASES = ("init_process_group", "new_group", "destroy_process_group")
_FUNCTIONS = ("", *COLLECTIVES, *POINT_TO_POINT, *PHASES)
_NO_GROUP = object()


class _WithinError(Exception):
    """Another recorded function has made the call."""


class _Ring:
    """The file, and caches that make a repeated call cheap."""

    def __init__(self) -> None:
        path = ddplaunch_torch.ring_file()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        size = len(HEADER) + SLOTS * SLOT.size + TEXT
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                # Otherwise btrfs copies each written page, and kills us by SIGBUS when the disk is full.
                fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", _NO_COW))
            except OSError:  # another file system
                pass
            os.posix_fallocate(file, 0, size)  # without space on the disk a mapping kills by SIGBUS
            self.map = mmap.mmap(file, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(file)
        self.marks = count(1)
        self.names: dict[Any, int] = {}
        self.groups: dict[int, _Group] = {}  # by id(), until another group may have it
        self.calls: dict[tuple[int, int, int], tuple[int, Any, Any, list[int], bytes]] = {}
        self.by_name: dict[str, _Group] = {}
        self.sites: dict[tuple[int, int], int] = {}  # (code's identity, instruction) -> name
        self.codes: list[CodeType] = []  # kept alive, so that no other code gets their id()
        self.end = len(HEADER) + SLOTS * SLOT.size  # of the text so far
        self.lines = 0
        for function in _FUNCTIONS:  # so that each has the same number everywhere; 0: unknown
            self.name(function)
        self.forget()
        self.map[: len(HEADER)] = HEADER

    def forget(self) -> None:
        """Clear the caches: new groups may get the id() of earlier ones."""
        self.calls.clear()
        self.groups = {id(_NO_GROUP): _Group(0)}

    def learn(
        self, function: int, group: Any, dtype: Any, shape: Any, frame: FrameType
    ) -> tuple[int, Any, Any, list[int], bytes]:
        """Return the group's id(), dtype, shape, counters, and the bytes of such a call.

        They are cached if the calling frame is the user's own. Raises _WithinError.
        """
        known, site = self.group(group), self.site(frame)
        sizes = (*shape[:_DIMENSIONS], *[0] * (_DIMENSIONS - len(shape)))
        content = _CALL.pack(function, known.name, site, self.dtype(dtype), len(shape), *sizes)
        call = (id(group), dtype, shape, known.made, content)
        if self.sites.get((id(frame.f_code), frame.f_lasti), 0) > 0:
            self.calls[function, id(frame.f_code), frame.f_lasti] = call
        return call

    def name(self, value: Any) -> int:
        """Return the number of a text, which is added if it is new; 0 when there is no space left."""
        number = self.names.get(value)
        if number is None:
            line = json.dumps(value).encode() + b"\n"
            if self.end + len(line) > len(self.map):
                return 0
            self.map[self.end : self.end + len(line)] = line
            self.end += len(line)
            number = self.names[value] = self.lines
            self.lines += 1
        return number

    def dtype(self, dtype: Any) -> int:
        if dtype is None:
            return 0
        number = self.names.get(dtype)
        if number is None:
            number = self.names[dtype] = self.name(str(dtype).rpartition(".")[2])
        return number

    def site(self, frame: Optional[FrameType]) -> int:
        """Return the number of the innermost line in the user's files, otherwise in an installed package.

        Returns 0 if there is neither. Raises _WithinError if a recorded function is in between.
        """
        package = 0
        for _ in range(_DEPTH):
            if frame is None:
                break
            site = self.sites.get((id(frame.f_code), frame.f_lasti))
            if site is None:
                site = self._learn_site(frame)
            if site > 0:
                return site
            package = package or -site
            frame = frame.f_back
        return package

    def _learn_site(self, frame: FrameType) -> int:
        """Return the number of a frame's line; below 0 in a package, 0 in torch or Python."""
        code = frame.f_code
        if code is _State.wrapper:
            raise _WithinError
        if len(self.sites) >= _SITES:
            self.sites.clear()
            self.calls.clear()
            self.codes.clear()
        site = 0
        path = code.co_filename
        package = "-packages/" in path
        if not path.startswith(_State.foreign) and (package or not path.startswith(_STANDARD)):
            site = self.name((code.co_name, path, frame.f_lineno or 0)) * (-1 if package else 1)
        self.codes.append(code)
        self.sites[id(code), frame.f_lasti] = site
        return site

    def group(self, group: Any) -> _Group:
        """Return the group's record. Raises what torch raises if there is no group or we are not in it."""
        known = self.groups.get(id(group))
        if known is None:
            name = str((_State.c10d._get_default_group() if group is None else group).group_name)
            known = self.by_name.setdefault(name, _Group(self.name(name)))
            self.groups[id(group)] = known
        return known


class _Group:
    def __init__(self, name: int) -> None:
        self.name = name
        self.made = [0, 0]  # collectives, and point-to-point operations
        self.otherwise = False  # torch has counted other messages than these operations
        self.peers: dict[int, int] = {}  # rank in the group -> global


class _State:
    ring: Optional[_Ring] = None
    off = False  # the file cannot be written
    c10d: Any = None  # torch.distributed.distributed_c10d
    foreign: tuple[str, ...] = ()  # prefixes of paths that are never the user's
    wrapper: Optional[CodeType] = None  # of every function that records


def watch(module: ModuleType) -> None:
    """Record the program's calls of torch.distributed.distributed_c10d, which has just been imported."""
    torch = os.path.dirname(os.path.dirname(str(module.__file__)))
    _State.c10d, _State.foreign = module, (torch + os.sep, ddplaunch_torch.HERE + os.sep, "<")
    functions = [(module, name) for name in (*COLLECTIVES, *POINT_TO_POINT, *PHASES)]
    for holder, name in [*functions, (getattr(module, "ProcessGroup", None), "monitored_barrier")]:
        if callable(getattr(holder, name, None)):
            ddplaunch_torch.put_inside(holder, name, partial(recorded, name))
    os.register_at_fork(after_in_child=_forked)
    _watch_works(module)


def made(name: str) -> list[Optional[int]]:
    """Return how many collectives and messages the program has called in a group; [None, None]: unknown."""
    if _State.off:
        return [None, None]
    group = _State.ring.by_name.get(name) if _State.ring is not None else None
    if group is None:
        return [0, 0]
    return [None, None] if group.otherwise else [*group.made]


def _forked() -> None:
    """Drop the parent's file in a forked child."""
    _State.ring = None
    _works.clear()


def recorded(name: str, function: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """Return the function, wrapped so that each call is recorded unless another recorded function makes it.

    `depth`: how many frames up the caller is, above torch's decorators.
    """
    kind = _phase if name in PHASES else _point_to_point if name in POINT_TO_POINT else _collective
    enter = kind(name, function)
    if name in _OTHERWISE:
        enter = _counted_otherwise(enter, *_positions(function, "group"))

    def call(*args: Any, **kwargs: Any) -> Any:
        place = 0
        try:
            ring = _State.ring or _open()
            if ring is not None:
                place = enter(ring, sys._getframe(depth), args, kwargs)
        except Exception:
            pass
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if place:
                _raised(ring, place, error)  # type: ignore[arg-type]
            ddplaunch_torch.step_out(error)
            raise
        if place:
            _END.pack_into(ring.map, place + _TO_END, time())  # type: ignore[union-attr]
            ring.map[place] = RETURNED  # type: ignore[union-attr]
            if ring.map[place + 1] and result is not None:  # type: ignore[union-attr]
                _remember_work(ring.map, place, result)  # type: ignore[union-attr]
        return result

    _State.wrapper = call.__code__  # the same for all of them
    return call


def _raised(ring: _Ring, place: int, error: BaseException) -> None:
    ring.map[place] = RAISED
    slot = SLOT.unpack_from(ring.map, place - _STATE)
    p2p = _FUNCTIONS[slot[8]] in POINT_TO_POINT
    for group in ring.by_name.values():
        if group.name == slot[9]:
            if isinstance(error, (TypeError, ValueError)):
                # A refused call need not match any other rank's call, so the next call gets its number.
                group.made[p2p] -= 1
            elif p2p:
                group.otherwise = True


def _open() -> Optional[_Ring]:
    if not _State.off:
        try:
            _State.ring = _Ring()
        except Exception:
            _State.off = True
            raise
    return _State.ring


# --- functions that record a call when it is entered; they return the offset of its state in the file

if TYPE_CHECKING:
    Enter = Callable[[_Ring, FrameType, tuple[Any, ...], dict[str, Any]], int]


def _collective(name: str, called: Callable[..., Any]) -> Enter:
    function, tensor_name, root_name = _FUNCTIONS.index(name), COLLECTIVES[name], _ROOTS.get(name, "")
    tensor_at, group_at, async_at, root_at = _positions(called, tensor_name, "group", "async_op", root_name)

    def enter(ring: _Ring, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = len(args)
        group = args[group_at] if given > group_at else kwargs.get("group")
        later = args[async_at] if given > async_at else kwargs.get("async_op")
        tensor = None
        if tensor_name:
            tensor = args[tensor_at] if given > tensor_at else kwargs.get(tensor_name)
        root = None
        if root_name:
            root = args[root_at] if given > root_at else kwargs.get(root_name)
            inner = kwargs.get("group_" + root_name)
            if root is None and inner is not None:
                root = _global(ring.group(group), group, inner)
        root = root if type(root) is int and root >= 0 else NOBODY
        return _write(ring, function, 0, group, tensor, root, LARGE, bool(later), frame)

    return enter


def _point_to_point(name: str, called: Callable[..., Any]) -> Enter:
    function, peer_name = _FUNCTIONS.index(name), POINT_TO_POINT[name]
    tensor_name = "" if name.endswith("_list") else "tensor"
    tensor_at, group_at, peer_at, tag_at = _positions(called, tensor_name, "group", peer_name, "tag")
    later = name.startswith("i")

    def enter(ring: _Ring, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = len(args)
        group = args[group_at] if given > group_at else kwargs.get("group")
        peer = args[peer_at] if given > peer_at else kwargs.get(peer_name)
        if peer is None:
            inner = kwargs.get("group_" + peer_name)
            peer = ANYBODY if inner is None else _global(ring.group(group), group, inner)
        tensor = None
        if tensor_name:
            tensor = args[tensor_at] if given > tensor_at else kwargs.get(tensor_name)
        tag = args[tag_at] if given > tag_at else kwargs.get("tag", 0)
        tag = tag if 0 <= tag < LARGE else LARGE
        return _write(ring, function, 1, group, tensor, peer, tag, later, frame)

    return enter


def _counted_otherwise(enter: Enter, at: int) -> Enter:
    """Return `enter` for calls whose messages torch counts otherwise; `at`: where they have their group."""

    def noting(ring: _Ring, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        ring.group(args[at] if len(args) > at else kwargs.get("group")).otherwise = True
        return enter(ring, frame, args, kwargs)

    return noting


def _phase(name: str, called: Callable[..., Any]) -> Enter:
    function = _FUNCTIONS.index(name)
    (at,) = _positions(called, "use_local_synchronization")

    def enter(ring: _Ring, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        ring.forget()
        if kwargs.get("use_local_synchronization") or any(args[at : at + 1]):
            return 0  # a group that only its members make, and whose name they make of their ranks
        if name == "destroy_process_group":  # a later group may have its name, and torch counts from 0 again
            for group in ring.by_name.values():
                group.otherwise = True
        return _write(ring, function, 0, _NO_GROUP, None, NOBODY, LARGE, False, frame)

    return enter


def _write(
    ring: _Ring,
    function: int,
    kind: int,
    group: Any,
    tensor: Any,
    peer: int,
    tag: int,
    later: bool,
    frame: FrameType,
) -> int:
    dtype, shape = (None, ()) if tensor is None else (tensor.dtype, tensor.shape)
    call = ring.calls.get((function, id(frame.f_code), frame.f_lasti))
    if call is None or call[0] != id(group) or call[1] is not dtype or call[2] != shape:
        call = ring.learn(function, group, dtype, shape, frame)
    _, _, _, made, content = call
    made[kind] = number = made[kind] + 1
    mark = next(ring.marks)
    place = _FIRST + mark % SLOTS * _SIZE
    _WRITTEN.pack_into(ring.map, place, mark, ENTERED, later, tag, peer, time(), 0.0, number, content, mark)
    return place + _STATE


def _global(group: _Group, given: Any, inner: int) -> int:
    peer = group.peers.get(inner)
    if peer is None:
        whole = _State.c10d._get_default_group() if given is None else given
        peer = group.peers[inner] = int(_State.c10d.get_global_rank(whole, inner))
    return peer


def _positions(function: Callable[..., Any], *names: str) -> tuple[int, ...]:
    """Return the index of each parameter; one beyond all of them for a missing name."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = getattr(inner, "__code__", None)  # a method of C++ has none, and is called with its group
    parameters = code.co_varnames[: code.co_argcount] if code else ("group",)
    return tuple(parameters.index(name) if name in parameters else 99 for name in names)


# --- asynchronous calls: which of them the program waits for, or has waited for
#
# `Work.wait` is replaced on torch's own class, so works keep their type. A wait for work that no recorded
# call has issued, as within a synchronous collective, costs one dictionary lookup.

_works: dict[int, tuple[Any, ...]] = {}  # by id(): map, place of the state, mark, weak reference


def _watch_works(module: ModuleType) -> None:
    """Record waits for the works of this module, torch.distributed.distributed_c10d."""
    if hasattr(module, "Work"):
        module.Work.wait = _marking_waits(module.Work.wait)


def _remember_work(slots: mmap.mmap, place: int, work: Any) -> None:
    """Remember, while the work exists, which slot shows whether the program waits for it."""
    key = id(work)
    try:
        gone = ref(work, lambda _: _works.pop(key, None))
        _works[key] = (slots, place, slots[place - _MARK : place], gone)
    except Exception:  # another backend's work
        pass


def _marking_waits(inner: Callable[..., Any]) -> Callable[..., Any]:
    # Named `wait` so that pybind11 sees a call from C++ come back, and does not send it here again.
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = _works.pop(id(self), None)
        if known is not None and get_ident() == main_thread().ident:  # its stack shows where
            _mark_wait(known, WAITING)
        try:
            result = inner(self, *args, **kwargs)
        except BaseException as error:
            if known is not None:
                _mark_wait(known, RAISED)
            ddplaunch_torch.step_out(error)
            raise
        if known is not None:
            _mark_wait(known, WAITED)
        return result

    return wraps(inner)(wait)


def _mark_wait(known: tuple[Any, ...], state: int) -> None:
    slots, place, mark, _ = known
    if slots[place - _MARK : place] == mark:  # else a later call has its slot
        _END.pack_into(slots, place + _TO_END, time())
        slots[place] = state
