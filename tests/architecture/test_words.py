"""Words of our own that nobody would search for, and docstrings that begin in the middle of a sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).parents[2] / "launcher"
SOURCES = sorted(LAUNCHER.rglob("*.py"))
FIRST = {
    "Of",
    "That",
    "Those",
    "Its",
    "Whose",
    "Likewise",
    "As",
    "By",
    "With",
    "For",
    "From",
    "To",
    "At",
    "In",
}
FIRST |= {"On", "Only", "Also", "Not", "What", "Where", "Who", "How", "Which", "Why"}
"""Words that begin no docstring: what follows them has no subject and no verb."""
OURS = r"cries|overheard|in_?vain|testimony|outlook|roll_?call|desks?|crew|misfits|wishes|news"
"""Words that have become terms of the field: see the glossary in CONTRIBUTING."""
NAME = re.compile(rf"(?:^|_)(?:{OURS})(?:$|_)")


def odd_docstrings(source: str) -> list[str]:
    """Return the first lines of the docstrings that begin with a word of FIRST."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    texts = [
        ast.get_docstring(node) or " " for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)
    ]
    return [text.splitlines()[0] for text in texts if text.partition(" ")[0] in FIRST]


def odd_names(source: str) -> set[str]:
    """Return the names in `source` that hold a word of OURS."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for field in ("name", "id", "attr", "arg"):
            value = getattr(node, field, None)
            if isinstance(value, str) and NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).lower()):
                found.add(value)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(LAUNCHER).as_posix())
def test_a_docstring_begins_with_what_it_is_about(path: Path) -> None:
    """A reader who has nothing but the docstring knows what comes back."""
    assert [] == odd_docstrings(path.read_text("utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(LAUNCHER).as_posix())
def test_no_name_is_a_word_of_our_own(path: Path) -> None:
    """Neither is the module's."""
    assert set() == odd_names(path.read_text("utf-8"))
    assert not NAME.search(path.stem)


def test_both_guards_see_what_they_are_to_see() -> None:
    """Modules, classes and functions; names of all kinds."""
    source = (
        '"""Of it."""\nclass RollCall:\n  """That one."""\ndef f(news):\n  """As is."""\n  self.desk = 1\n'
    )

    assert ["Of it.", "That one.", "As is."] == odd_docstrings(source)
    assert {"RollCall", "news", "desk"} == odd_names(source)
