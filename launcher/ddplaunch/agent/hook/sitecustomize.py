"""The first sitecustomize on PYTHONPATH: starts the hook, then runs the user's own sitecustomize.

Every Python that the command starts runs this file, so even an old Python must be able to read it.
"""

import os
import sys


def _wake():  # type: () -> None
    try:
        if "DDPLAUNCH_HOOK" in os.environ and sys.version_info >= (3, 8):
            _start()
    except Exception:  # the program must run without the hook, too
        pass


def _start():  # type: () -> None
    """Import the hook and compile it for the next process, even where the image forbids bytecode."""
    given, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        import ddplaunch_hook  # type: ignore[import-not-found]
    finally:
        sys.dont_write_bytecode = given
    ddplaunch_hook.start()


def _yield_to_next():  # type: () -> None
    """Run the sitecustomize that this one hides; its exceptions are left to Python.

    Where there is none, the import fails as it does without this one.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    sys.path_importer_cache.pop(here, None)
    if sys.version_info < (3, 5):  # noqa: UP036
        del sys.modules["sitecustomize"]
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    else:
        _run_next()


def _run_next():  # type: () -> None
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


_wake()
_yield_to_next()
