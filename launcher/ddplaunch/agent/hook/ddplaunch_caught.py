"""Remembers exceptions that the program catches, since Python 3.12."""

# ruff: noqa: RUF012 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType
    from typing import Any, Optional

    Describe = Callable[[type[BaseException], str, Optional[TracebackType]], dict[str, Any]]

REMEMBERED, EVERY = 8, 0.5  # exceptions kept; seconds between two of one function
_STANDARD = os.path.dirname(os.__file__) + "/"
_HOOK = os.path.dirname(os.path.abspath(__file__)) + "/"
_PLAIN = {str, int, float, bool, type(None)}


class _State:
    at: dict[CodeType, float] = {}
    foreign: dict[str, bool] = {}  # by file name


def watch(memory: list[dict[str, Any]], describe: Describe) -> None:
    """Put the exceptions that end in an except block of the user's own files into `memory`.

    That costs nothing without an exception, and about 40 ns for each.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = next((number for number in (4, 3) if monitoring and monitoring.get_tool(number) is None), None)

    def caught(code: CodeType, _: int, value: BaseException) -> None:
        if not _is_users(code.co_filename) or isinstance(
            value, (StopIteration, StopAsyncIteration, GeneratorExit)
        ):
            return
        now = time.time()
        if now - _State.at.get(code, 0.0) >= EVERY:
            _State.at[code] = now
            memory.append(describe(type(value), _message(value), value.__traceback__))
            del memory[:-REMEMBERED]

    if tool is not None:
        monitoring.use_tool_id(tool, "ddplaunch")
        monitoring.register_callback(tool, monitoring.events.EXCEPTION_HANDLED, caught)
        monitoring.set_events(tool, monitoring.events.EXCEPTION_HANDLED)


def _is_users(path: str) -> bool:
    """Whether the file is the user's own: libraries, and the hook, catch exceptions a few times a step."""
    foreign = _State.foreign.get(path)
    if foreign is None:
        foreign = path.startswith(("<", _STANDARD, _HOOK)) or "-packages/" in path or _is_installed(path)
        _State.foreign[path] = foreign
    return not foreign


def _is_installed(path: str) -> bool:
    """Whether pip has installed into the file's folder of sys.path, as `pip install --target` does.

    Not where the program itself lies: what is installed beside it does not make it a library.
    """
    program = os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    for folder in sys.path:
        if folder and path.startswith(os.path.join(folder, "")):
            try:
                installed = any(name.endswith(".dist-info") for name in os.listdir(folder))
            except OSError:
                installed = False
            return installed and os.path.dirname(program) != os.path.abspath(folder)
    return False


def _message(value: BaseException) -> str:
    """Return the exception's text: the exception itself would keep its frames, and with them a batch, alive.

    Arguments that are not plain are left out: their text could run the program's own code, or print a tensor.
    """
    plain = hasattr(type(value).__str__, "__objclass__") and {type(each) for each in value.args} <= _PLAIN
    return str(value) if plain else ", ".join(type(each).__name__ for each in value.args)
