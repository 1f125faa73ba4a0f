"""Imports that nothing needs when the program runs stay away from the agent's archives."""

from __future__ import annotations

import pytest

from ddplaunch.render.used_imports import keep_used


@pytest.mark.parametrize(
    ("source", "shorter"),
    [
        ("from a import b\nb()\n", "from a import b\nb()\n"),
        ("from a import b, c\nb()\n", "from a import b\nb()\n"),
        ("from a import b\nx = 1\n", "\nx = 1\n"),
        ("from a import b as c, d as e\nc()\n", "from a import b as c\nc()\n"),
        ("from a import (\n\tb,\n\tc,\n)\nc()\n", "from a import c\n\n\n\nc()\n"),
        ("from a import b\nx: b\n", "from a import b\nx: b\n"),
        ('from a import b\nx = globals()["b"]\n', 'from a import b\nx = globals()["b"]\n'),
        ("from a import b\nbb = a_b = 1\n", "\nbb = a_b = 1\n"),
        ("import a\nx = 1\n", "import a\nx = 1\n"),
        ("from __future__ import annotations\nx: y\n", "from __future__ import annotations\nx: y\n"),
        ("from __future__ import annotations\nx = {y: z}\n", "\nx = {y: z}\n"),
        ("if x:\n\tfrom a import b\n", "if x:\n\tpass\n"),
        ("def f():\n\tfrom a import b\n\treturn b\n", "def f():\n\tfrom a import b\n\treturn b\n"),
        ("from a import b\nfrom b import c\nc()\n", "from a import b\nfrom b import c\nc()\n"),
    ],
    ids=[
        "it is called",
        "one of two is",
        "none is",
        "by another name",
        "on several lines",
        "in an annotation that stays",
        "in a text",
        "only as a part of other names",
        "a module, which may do something",
        "the future of annotations",
        "without any annotation",
        "alone in a block",
        "in a function",
        "a mention too much is no harm",
    ],
)
def test_names_that_are_mentioned_stay(source: str, shorter: str) -> None:
    """All others go, and no line moves."""
    assert shorter == keep_used(source)
    assert source.count("\n") == shorter.count("\n")
