"""The first sitecustomize on PYTHONPATH: starts the hook, then runs the user's own sitecustomize."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _wake() -> None:
    try:
        if "DDPLAUNCH_HOOK" in os.environ:
            _load().start()
    except Exception:  # the program must run without the hook, too
        pass


def _load() -> Any:
    """Import the hook and compile it for the next process, even where the image forbids bytecode."""
    given, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        import ddplaunch_hook  # type: ignore[import-not-found]
    finally:
        sys.dont_write_bytecode = given
    return ddplaunch_hook


def _yield_to_next() -> None:
    """Run the sitecustomize that this one hides; its exceptions are left to Python."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


_wake()
_yield_to_next()
