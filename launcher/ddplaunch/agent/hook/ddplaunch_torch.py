"""Wraps functions of torch.distributed when the program imports it, to note calls as they begin.

The wrapped functions run unchanged. Neither the wrappers' exceptions nor their frames reach the program: with
`put_inside` a function stays the same object, and `step_out` removes a wrapper from a traceback.
"""

# ruff: noqa: SIM105, SLF001 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Optional

    Action = Callable[[ModuleType], None]

HERE = os.path.dirname(os.path.abspath(__file__))


_NO_FILE = "<ddplaunch>/%s.py"
"""The `__file__` of our modules. coverage measures only modules whose `__file__` is a file, and we want it to
measure the program alone. Our frames still have their files, for other tools.
"""


def stay_unmeasured() -> None:
    """Make coverage leave out the modules of the hook that are already imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith("ddplaunch_"):
            module.__file__ = _NO_FILE % name


_HIGH = (900, 200)  # descriptors: a program gets the numbers that it would get without us


def lifted(descriptor: int) -> int:
    """Move a descriptor to a high number, if the limit of open files allows one. Returns the descriptor."""
    import fcntl

    for number in _HIGH:
        try:
            high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
        except OSError:  # above the limit of open files
            continue
        os.close(descriptor)
        return high
    return descriptor


def load(name: str) -> Any:
    """Import a module of the hook later. Our folder is no longer in sys.path, so that no program finds it."""
    from importlib.util import module_from_spec, spec_from_file_location

    if name not in sys.modules:
        spec = spec_from_file_location(name, os.path.join(HERE, name + ".py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = module_from_spec(spec)
        module.__file__ = _NO_FILE % name  # before it runs: coverage decides at its first line
        spec.loader.exec_module(module)
    return sys.modules[name]


class ImportWatch:
    """A finder that calls `actions[name]` once module `name` has been executed; other finders find it."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            _after(spec.loader, action)
        if not self._actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        return spec


def when_imported(actions: dict[str, Action]) -> None:
    """Call each action with its module as soon as the program has imported it, or now if it has."""
    later = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            later[name] = action
    if later:
        sys.meta_path.insert(0, ImportWatch(later))


def put_inside(holder: Any, name: str, make: Callable[[Any, int], Any]) -> None:
    """Let `make` wrap a function of torch. It gets the function, and how many frames up its caller is.

    Most of torch's functions have torch's own decorators. Our wrapper goes inside these: the program still
    sees, pickles and compiles the function that torch made, and warnings name the line that torch means.
    """
    function, cell, depth = getattr(holder, name), None, 1
    while True:
        inner = getattr(function, "__wrapped__", None)
        cells = [
            each for each in getattr(function, "__closure__", None) or () if inner and _holds(each, inner)
        ]
        if not cells:
            break
        function, cell, depth = inner, cells[0], depth + 1
    from functools import wraps

    wrapper = wraps(function)(make(function, depth))
    if cell is None:
        setattr(holder, name, wrapper)
    else:
        cell.cell_contents = wrapper


def _holds(cell: Any, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # it is empty
        return False


def step_out(error: BaseException) -> None:
    """Remove the wrapper that handles the exception from its traceback. The wrapper then says `raise`.

    Before Python 3.11, `raise` puts the frame back.
    """
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next


def _leave_uncompiled(module: Any) -> None:
    """Make torch.compile run our functions as they are; otherwise it compiles them for seconds and warns."""
    module.SKIP_DIRS.append(HERE + os.sep)
    module._recompile_re()


def record_calls() -> None:
    """Record the last calls of torch.distributed, in programs that import it."""

    def action(module: ModuleType) -> None:
        load("ddplaunch_ring").watch(module)
        load("ddplaunch_model").watch_stores(module)

    when_imported(
        {"torch.distributed.distributed_c10d": action, "torch._dynamo.trace_rules": _leave_uncompiled}
    )


def ring_file() -> str:
    """Return the path of the file with this process's last calls. It exists once there was a call."""
    return os.path.join(os.path.dirname(HERE), "rings", str(os.getpid()))


def _after(loader: Any, action: Action) -> None:
    """Run `action` after the loader has run its module. The loader stays: linecache and inspect use it."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # another action of the same module may have done so
        execute(module)
        try:
            action(module)
        except Exception:
            pass

    loader.exec_module = exec_module
