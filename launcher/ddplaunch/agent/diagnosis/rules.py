"""Declarations of rules' modules, and how these are found. Pure.

A module of `gate` or `run` declares ENTRIES, one for each verdict code that is its own, and RULES, pairs of a
subject (`gate.kinds.Kind`) or a stage (`run.stages.Stage`) and a rule. Nothing else names the module.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Callable, Optional, Protocol, runtime_checkable

PARTS = ("gate", "run")
"""Packages of rules: for a job that cannot start, and for one that hangs or fails."""


@runtime_checkable
class Listing(Protocol):
    """A loader that knows the modules of a package, which `pkgutil` cannot list in `agent.pyz`."""

    def submodules(self, package: str) -> list[str]: ...


@dataclass(frozen=True)
class Entry:
    """A verdict code. `in_run`: the exit code where it is found in a run, if that is another one."""

    code: str
    meaning: str
    exit_code: int
    in_run: Optional[int] = None


def entries(exit_code: int, meanings: dict[str, str], in_run: Optional[int] = None) -> tuple[Entry, ...]:
    """Return the entries of several codes, each with its meaning in one line."""
    return tuple(Entry(code, meaning, exit_code, in_run) for code, meaning in meanings.items())


def declared_entries(part: str) -> list[Entry]:
    """Return the entries of all modules of 'gate' or 'run'."""
    return [entry for module in _modules(part) for entry in getattr(module, "ENTRIES", ())]


def declared_rules(part: str) -> list[tuple[Any, Callable[[Any], Any]]]:
    """Return the rules of all modules of 'gate' or 'run', each after its subject or stage.

    Modules come in the order of their names, the rules of one in its own.
    """
    return [rule for module in _modules(part) if hasattr(module, "ENTRIES") for rule in module.RULES]


def _modules(part: str) -> list[ModuleType]:
    package = import_module(f"{__package__}.{part}")
    loader: object = package.__loader__
    if isinstance(loader, Listing):
        names = loader.submodules(package.__name__)
    else:
        names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    return [import_module(f"{package.__name__}.{name}") for name in sorted(names)]
