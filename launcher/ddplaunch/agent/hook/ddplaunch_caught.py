"""Remembers exceptions that the program catches. `ddplaunch_hook` loads it on Python 3.12 and later."""

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

REMEMBERED, EVERY = 8, 0.5  # exceptions to keep; seconds between two from one function
_STANDARD = os.path.dirname(os.__file__) + "/"
_HOOK = os.path.dirname(os.path.abspath(__file__)) + "/"
_PLAIN = {str, int, float, bool, type(None)}


class _State:
    at: dict[CodeType, float] = {}
    foreign: dict[str, bool] = {}  # by file name


def watch(memory: list[dict[str, Any]], describe: Describe) -> None:
    """Add to `memory` the exceptions that except blocks in the user's own files catch.

    This costs about 40 ns per exception, and nothing otherwise.
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
    """Whether the file is the user's own. Libraries and the hook catch exceptions several times per step."""
    foreign = _State.foreign.get(path)
    if foreign is None:
        foreign = path.startswith(("<", _STANDARD, _HOOK)) or "-packages/" in path or _is_installed(path)
        _State.foreign[path] = foreign
    return not foreign


def _is_installed(path: str) -> bool:
    """Whether pip has installed packages into the file's folder on sys.path, as `pip install --target` does.

    The program's own folder does not count: packages installed beside the program do not make it a library.
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
    """Return the exception's text. The exception itself would keep its frames alive, and a batch with them.

    If an argument is not plain, return only the types: str() could run the program's code, or print a tensor.
    """
    plain = hasattr(type(value).__str__, "__objclass__") and {type(each) for each in value.args} <= _PLAIN
    return str(value) if plain else ", ".join(type(each).__name__ for each in value.args)
