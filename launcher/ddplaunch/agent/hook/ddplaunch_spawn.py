"""Finds out which process of multiprocessing this one is, and records how it fails.

mp.spawn's children have no rank in their environment. Their exceptions end in multiprocessing itself, where
sys.excepthook sees nothing of them.
"""

# ruff: noqa: SIM105, SLF001 - runs in somebody else's program, and imports no more than it must

from __future__ import annotations

import sys

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, Optional

    Raised = Callable[[type[BaseException], BaseException, Optional[TracebackType]], None]

_TORCH = "torch/multiprocessing/spawn.py"


def started_this() -> bool:
    """Whether multiprocessing has started this process, by another method than fork."""
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read()
    return b"--multiprocessing-fork" in line or b"multiprocessing.forkserver" in line


def place(frame: Optional[FrameType]) -> Optional[list[Any]]:
    """[place among its parent's children from 0, "torch" or "multiprocessing"] by the main thread's frame.

    None where multiprocessing has not started this process.
    """
    module: Any = sys.modules.get("multiprocessing.process")
    if module is None:
        return None
    while frame is not None:
        if frame.f_code.co_name == "_wrap" and frame.f_code.co_filename.endswith(_TORCH):
            return [int(frame.f_locals["i"]), "torch"]
        frame = frame.f_back
    identity = getattr(module.current_process(), "_identity", ())
    return [identity[-1] - 1, "multiprocessing"] if identity else None


def watch(raised: Raised) -> None:
    """Give every exception that ends a process of multiprocessing to `raised` before it is handled there."""

    def of_torch(module: ModuleType) -> None:
        _wrap_torch(module, raised)

    def of_python(module: ModuleType) -> None:
        _wrap_python(module, raised)

    ddplaunch_torch.when_imported(
        {"torch.multiprocessing.spawn": of_torch, "multiprocessing.process": of_python}
    )


def _wrap_torch(module: Any, raised: Raised) -> None:
    """torch's own _wrap catches what the program's function raises, and hands it to the parent as text."""
    import functools

    wrapped = module._wrap

    @functools.wraps(wrapped)
    def _wrap(fn: Any, *args: Any) -> Any:
        return wrapped(_noting(fn, raised), *args)

    module._wrap = _wrap


def _wrap_python(module: Any, raised: Raised) -> None:
    process = module.BaseProcess
    process.run = _noting(process.run, raised)


def _noting(function: Any, raised: Raised) -> Any:
    import functools

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            try:
                raised(*sys.exc_info())
            except Exception:
                pass
            raise

    return noting
