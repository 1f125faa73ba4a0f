"""Errors are for people: what, and what to do next; and each has its exit code."""

from __future__ import annotations

import importlib
import pkgutil

import ddplaunch
from ddplaunch import errors
from ddplaunch.errors import DdplaunchError, ExitCode, NotFoundError, UsageError


def test_a_message_without_a_hint_ends_there() -> None:
    assert "error: no job is called digits" == str(NotFoundError("no job is called digits"))


def test_nothing_in_an_error_commands_the_terminal() -> None:
    """Escape sequences are shown, and so are the marks that turn the order of letters around."""
    error = UsageError("source: photo_\u202egpj.py\x1b[2J does not exist", "see \u2066a\u2069")

    assert "error: source: photo_\\u202egpj.py\\x1b[2J does not exist\n\nhint: see \\u2066a\\u2069" == str(
        error
    )


def test_exit_codes_do_not_move() -> None:
    """The codes that scripts rely on, all of them."""
    codes = {
        "SUCCEEDED": 0,
        "UNEXPECTED": 1,
        "USAGE": 2,
        "FAILED": 100,
        "NOT_FINISHED": 101,
        "NOT_FOUND": 102,
        "CANCELLED": 103,
        "GATE": 104,
        "HANG": 105,
        "CLUSTER": 106,
    }

    assert codes == {code.name: code.value for code in ExitCode}


def test_the_tree_in_the_docstring_is_whole() -> None:
    """Every error of the launcher stands in the tree that people read."""
    for module in pkgutil.walk_packages(ddplaunch.__path__, "ddplaunch."):
        if not module.name.startswith("ddplaunch.agent.") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(kind: type[DdplaunchError]) -> set[str]:
        return {kind.__name__}.union(*(below(child) for child in kind.__subclasses__()))

    assert set() == {name for name in below(DdplaunchError) if f" {name} " not in (errors.__doc__ or "")}
