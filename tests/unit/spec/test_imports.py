"""What importing the layer costs and leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[3] / "launcher"


def _python(code: str) -> list[str]:
    """What *code* leaves in `sys.modules` that a bare interpreter has not."""
    end = "print(json.dumps(sorted(set(sys.modules) - before)))"
    report = "\n".join(["import json, sys; before = set(sys.modules)", code, end])
    done = subprocess.run(
        [sys.executable, "-c", report], env={"PYTHONPATH": str(LAUNCHER)}, capture_output=True, check=True
    )
    modules: list[str] = json.loads(done.stdout)
    return modules


def test_reading_a_job_imports_nothing_slow() -> None:
    """`render` has no time for them, and msgspec would take typing_extensions where it finds it."""
    modules = _python("import ddplaunch.spec.load")

    assert "ddplaunch.spec.load" in modules
    assert [] == [
        name for name in modules if name in ("typing_extensions", "pydantic", "jsonschema", "difflib")
    ]


def test_msgspec_alone_takes_typing_extensions() -> None:
    """Otherwise the guard above guards nothing."""
    assert "typing_extensions" in _python("import msgspec")


def test_typing_extensions_is_there_for_others() -> None:
    """It is hidden for a moment only, and not hidden at all from a program that has it already."""
    after = _python("import ddplaunch.spec, typing_extensions")
    before = _python("import typing_extensions, ddplaunch.spec; assert typing_extensions.TypedDict")

    assert "typing_extensions" in after
    assert "typing_extensions" in before
