"""Modules that lie in one block are found, loaded and shown in tracebacks as if they were files."""

from __future__ import annotations

import bz2
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterator

import pytest

from ddplaunch.agent.packed import Modules

FILES = {
    "parcel/__init__.py": b"NAME = __name__\n",
    "parcel/inner/__init__.py": b"from parcel.inner.leaf import VALUE\n",
    "parcel/inner/leaf.py": "VALUE = 'ü'\ndef fail():\n    raise KeyError(VALUE)\n".encode(),
}


@pytest.fixture(name="modules")
def _modules() -> Iterator[Modules]:
    """On `sys.meta_path` during a test."""
    block = bz2.compress(b"\0".join(part for name, data in FILES.items() for part in (name.encode(), data)))
    modules = Modules("/some/agent.pyz", block)
    sys.meta_path.insert(0, modules)
    yield modules
    sys.meta_path.remove(modules)
    for name in [name for name in sys.modules if name.partition(".")[0] == "parcel"]:
        del sys.modules[name]


def test_packages_and_their_modules_are_imported(modules: Modules) -> None:
    """From outside and from each other, with the names and places that they would have as files."""
    inner = importlib.import_module("parcel.inner")

    assert ("ü", "parcel.inner") == (inner.VALUE, inner.__package__)
    assert "/some/agent.pyz/parcel/inner/__init__.py" == inner.__file__
    assert modules is vars(inner)["__loader__"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("parcel.absent")


def test_files_are_read_as_data(modules: Modules) -> None:
    """Of a package, by the standard library's own way; what is not there is an OSError."""
    assert FILES["parcel/inner/leaf.py"] == pkgutil.get_data("parcel.inner", "leaf.py")
    with pytest.raises(OSError, match=r"absent\.txt is not in /some/agent\.pyz"):
        modules.get_data("/some/agent.pyz/parcel/absent.txt")


@pytest.mark.usefixtures("modules")
def test_tracebacks_show_the_lines() -> None:
    """Of a module that is no file on any disk."""
    leaf = importlib.import_module("parcel.inner.leaf")
    try:
        leaf.fail()
    except KeyError:
        shown = traceback.format_exc()

    assert 'File "/some/agent.pyz/parcel/inner/leaf.py", line 3, in fail\n    raise KeyError(VALUE)' in shown
