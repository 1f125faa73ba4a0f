"""What importing the layer costs and leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[3] / "launcher"


RECORDER = """
import sys
class Recorder:
    def find_spec(self, name, path=None, target=None):
        print(name)
sys.meta_path.insert(0, Recorder())
"""


def _imported(code: str) -> set[str]:
    """Every module that is looked for while *code* runs, whether or not it is still there in the end."""
    done = subprocess.run(
        [sys.executable, "-c", RECORDER + code],
        env={"PYTHONPATH": str(LAUNCHER)},
        capture_output=True,
        check=True,
        text=True,
    )
    return set(done.stdout.split())


def test_reading_a_job_imports_nothing_slow() -> None:
    """`render` has no time for them, and msgspec would take typing_extensions where it finds it."""
    modules = _imported("import ddplaunch.spec.load")

    assert "ddplaunch.spec.load" in modules
    assert set() == modules & {"typing_extensions", "pydantic", "jsonschema", "difflib"}


def test_msgspec_alone_takes_typing_extensions() -> None:
    """Otherwise the guard above guards nothing."""
    assert "typing_extensions" in _imported("import msgspec")


def test_typing_extensions_is_there_for_others() -> None:
    """It is hidden for a moment only, and not hidden at all from a program that has it already."""
    after = _imported("import ddplaunch.spec, typing_extensions")
    before = _imported("import typing_extensions, ddplaunch.spec; assert typing_extensions.TypedDict")

    assert "typing_extensions" in after
    assert "typing_extensions" in before
