"""Finds out which child of multiprocessing this process is, and reports its exception and its own children.

mp.spawn's children have no rank in their environment. multiprocessing catches their exceptions, so
sys.excepthook never gets them.
"""

# ruff: noqa: SIM105, SLF001 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import os
import sys

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType
    from typing import Any, Optional

    Raised = Callable[[type[BaseException], BaseException, Optional[TracebackType]], None]


_KEPT, _NAME = 32, 60  # processes that are told, and characters of a name
_ended: dict[int, list[Any]] = {}  # that have failed, by pid: multiprocessing.Pool replaces and forgets them


def started_this() -> bool:
    """Whether multiprocessing has started this process by a method other than fork."""
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read()
    return b"--multiprocessing-fork" in line or b"multiprocessing.forkserver" in line


def _spawned() -> Optional[int]:
    """Return our index among our parent's children, from 0; None if multiprocessing did not start us."""
    module: Any = sys.modules.get("multiprocessing.process")
    identity = getattr(module.current_process(), "_identity", ()) if module is not None else ()
    return identity[-1] - 1 if identity else None


def _processes() -> Optional[list[list[Any]]]:
    """Return [pid, name, exit code] of multiprocessing's processes; None: nobody has asked for the code."""
    module: Any = sys.modules.get("multiprocessing.process")
    found = []
    for process in list(getattr(module, "_dangling", ())):
        popen: Any = getattr(process, "_popen", None)
        pid = getattr(popen, "pid", None)
        if pid and getattr(process, "_parent_pid", None) == os.getpid():
            found.append([pid, str(process._name)[:_NAME], popen.returncode])
    known = {pid for pid, *_ in found}
    found += [each for pid, each in list(_ended.items()) if pid not in known]
    return found[-_KEPT:] or None


def _note_end(module: Any, popen: Any) -> None:
    pid, code = popen.pid, popen.returncode
    if code and pid not in _ended:
        alike = [each for each in list(module._dangling) if getattr(each, "_popen", None) is popen]
        _ended[pid] = [pid, str(alike[0]._name)[:_NAME] if alike else "", code]
        for old in list(_ended)[:-_KEPT]:
            del _ended[old]


WHO = (_spawned,)
DUMP = (_processes,)


def watch(raised: Raised, spawned: Callable[[int], None]) -> None:
    """Call `raised` with each exception that ends a multiprocessing child, before it is handled.

    Call `spawned` in a child of torch's mp.spawn, with its index, before the program's function.
    """

    def of_torch(module: ModuleType) -> None:
        _wrap_torch(module, raised, spawned)

    def of_python(module: ModuleType) -> None:
        _wrap_python(module, raised)

    ddplaunch_torch.when_imported(
        {
            "torch.multiprocessing.spawn": of_torch,
            "multiprocessing.process": of_python,
            "multiprocessing.popen_fork": _wrap_popen,
        }
    )


def _wrap_torch(module: Any, raised: Raised, spawned: Callable[[int], None]) -> None:
    """Report the call of the program's function, and its exceptions before torch's _wrap catches them."""
    import functools

    wrapped = module._wrap

    @functools.wraps(wrapped)
    def _wrap(fn: Any, i: int, *args: Any) -> Any:
        try:
            spawned(i)
        except Exception:  # the program must not fail because of us
            pass
        try:
            return wrapped(_noting(fn, raised), i, *args)
        except BaseException as error:
            ddplaunch_torch.step_out(error)
            raise

    module._wrap = _wrap


def _wrap_python(module: Any, raised: Raised) -> None:
    process = module.BaseProcess
    process.run = _noting(process.run, raised)


def _wrap_popen(module: Any) -> None:
    """Note children that have failed when somebody first learns of it; those of a forkserver are not seen."""
    import functools

    def noting(poll: Any) -> Any:
        @functools.wraps(poll)
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                code = poll(self, *args, **kwargs)
            except BaseException as error:
                ddplaunch_torch.step_out(error)
                raise
            if code:
                try:
                    _note_end(sys.modules["multiprocessing.process"], self)
                except Exception:  # poll has its answer, whatever we could not note
                    pass
            return code

        return noted

    module.Popen.poll = noting(module.Popen.poll)


def _noting(function: Any, raised: Raised) -> Any:
    import functools

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if isinstance(error, Exception):
                try:
                    raised(*sys.exc_info())
                except Exception:
                    pass
            ddplaunch_torch.step_out(error)
            raise

    return noting
