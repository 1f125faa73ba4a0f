"""Marks in the hook's ring which asynchronous call the program waits for, or has waited for.

`Work.wait` is replaced on torch's own class: a work has the type that it always had. A wait for what no
recorded call has issued, as within a synchronous collective, costs one look into a dictionary.
"""

# ruff: noqa: RUF012 - runs on Python 3.8 in the user's program

from __future__ import annotations

import struct
from functools import wraps
from threading import get_ident, main_thread
from time import time
from weakref import ref

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from types import ModuleType
    from typing import Any

RAISED, WAITING, WAITED = 3, 4, 5
_MARK = 8  # bytes of a slot before its state: the number of the call
END = struct.Struct("<d")
TO_END = 16  # bytes from its state to the time when it returned, or was waited for


class _State:
    works: dict[int, tuple[Any, ...]] = {}  # by id(): map, place of the state, mark, weak reference


def watch(module: ModuleType) -> None:
    """Mark the waits for works of this module, torch.distributed.distributed_c10d."""
    if hasattr(module, "Work"):
        module.Work.wait = _marking(module.Work.wait)


def forget() -> None:
    """Forget all works: their slots are those of the parent process."""
    _State.works.clear()


def issued(slots: mmap, place: int, work: Any) -> None:
    """Remember, while the work exists, whose slot is to show that it is waited for."""
    key = id(work)
    try:
        gone = ref(work, lambda _: _State.works.pop(key, None))
        _State.works[key] = (slots, place, slots[place - _MARK : place], gone)
    except Exception:  # another backend's work
        pass


def _marking(inner: Callable[..., Any]) -> Callable[..., Any]:
    # Named `wait`: so pybind11 sees that a call from C++ has come back, and does not send it here again.
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = _State.works.pop(id(self), None)
        if known is not None and get_ident() == main_thread().ident:  # its stack shows where
            _mark(known, WAITING)
        try:
            result = inner(self, *args, **kwargs)
        except BaseException as error:
            if known is not None:
                _mark(known, RAISED)
            ddplaunch_torch.step_out(error)
            raise
        if known is not None:
            _mark(known, WAITED)
        return result

    return wraps(inner)(wait)


def _mark(known: tuple[Any, ...], state: int) -> None:
    slots, place, mark, _ = known
    if slots[place - _MARK : place] == mark:  # else a later call has its slot
        END.pack_into(slots, place + TO_END, time())
        slots[place] = state
