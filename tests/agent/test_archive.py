"""The agent as nodes run it: one file, any Python >= 3.9, nothing around it."""

from __future__ import annotations

import importlib
import json
import lzma
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddplaunch.agent import archive


def test_the_agent_lists_its_verbs_without_anything_around_it(agent: list[str], tmp_path: Path) -> None:
    result = subprocess.run([*agent, "--help"], cwd=tmp_path, env={}, capture_output=True, text=True)

    assert (0, "") == (result.returncode, result.stderr)
    assert {"gate", "hub", "run"} <= set(result.stdout.replace(",", " ").replace("{", " ").split())


def test_an_unknown_verb_is_refused_with_those_there_are(agent: list[str], tmp_path: Path) -> None:
    result = subprocess.run([*agent, "gat"], cwd=tmp_path, env={}, capture_output=True, text=True)

    assert 0 != result.returncode
    assert "" == result.stdout
    assert "gate" in result.stderr
    assert "Traceback" not in result.stderr


LAUNCHER = Path(archive.__file__).parents[2]
IMPORTS = """
import sys
from ddplaunch.agent import archive
archive.read(sys.argv[1], sys.stdin.buffer.read())
sys.meta_path.insert(0, archive.Module)
from parcel import VALUE
print(VALUE, end="")
"""
PARCEL = {
    "parcel/__init__.py": "NAME = __name__\n",
    "parcel/inner/__init__.py": "from parcel.inner.leaf import VALUE\n",
    "parcel/inner/leaf.py": "VALUE = 'ü'\ndef fail():\n    raise KeyError(VALUE)\n",
}


@pytest.fixture(name="parcel")
def _parcel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages of PARCEL, as if they lay in /some/agent.pyz."""
    for name, value in vars(archive.Module).items():
        if name in ("archive", "compiled", "sources"):
            monkeypatch.setattr(archive.Module, name, value)  # as it was, after the test
    archive.read("/some/agent.pyz", lzma.compress(json.dumps(PARCEL).encode()))
    monkeypatch.setattr(sys, "meta_path", [archive.Module, *sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "parcel"]:
        del sys.modules[name]


@pytest.mark.usefixtures("parcel")
def test_packages_and_their_modules_are_imported_from_the_archive() -> None:
    inner = importlib.import_module("parcel.inner")

    assert ("ü", "parcel.inner") == (inner.VALUE, inner.__package__)
    assert "/some/agent.pyz/parcel/inner/__init__.py" == inner.__file__
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("parcel.absent")


@pytest.mark.usefixtures("parcel")
def test_without_a_folder_for_it_nothing_compiled_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared file system each look would be a question to its server."""
    monkeypatch.setattr(archive.Module, "_kept", lambda *_: pytest.fail("it was looked for"))

    assert "ü" == importlib.import_module("parcel.inner").VALUE


@pytest.mark.usefixtures("parcel")
def test_files_of_the_archive_are_read_as_data() -> None:
    assert PARCEL["parcel/inner/leaf.py"].encode() == pkgutil.get_data("parcel.inner", "leaf.py")
    with pytest.raises(OSError, match=r"absent\.txt is not in /some/agent\.pyz"):
        pkgutil.get_data("parcel", "absent.txt")


@pytest.mark.usefixtures("parcel")
def test_tracebacks_show_lines_of_modules_in_the_archive() -> None:
    leaf = importlib.import_module("parcel.inner.leaf")
    try:
        leaf.fail()
    except KeyError:
        shown = traceback.format_exc()

    assert 'File "/some/agent.pyz/parcel/inner/leaf.py", line 3, in fail\n    raise KeyError(VALUE)' in shown


def test_what_python_compiles_is_kept_for_the_next_process_until_the_source_changes(tmp_path: Path) -> None:
    def imported(value: str) -> str:
        """What a process of its own finds in a module that says `value`."""
        packed = lzma.compress(json.dumps({"parcel/__init__.py": f"VALUE = '{value}'"}).encode())
        command = [sys.executable, "-c", IMPORTS, str(tmp_path / "agent.pyz")]
        return subprocess.run(
            command, input=packed, cwd=LAUNCHER, capture_output=True, check=True
        ).stdout.decode()

    without = imported("one")
    (tmp_path / archive.COMPILED).mkdir()
    first = imported("one")
    (kept,) = (tmp_path / archive.COMPILED).iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"one", b"two"))

    assert ["one", "one", "two", "six"] == [without, first, imported("one"), imported("six")]
