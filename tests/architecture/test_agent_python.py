"""The agent needs nothing but Python 3.9 and its standard library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "launcher" / "ddplaunch" / "agent"
HOOK = AGENT / "hook"

# What 3.11 has of the standard library, less what 3.9 lacks and what a later Python has dropped.
NEWER = {"tomllib"}
DROPPED = {
    *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr"),
    *("imp", "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr"),
    *("spwd", "sunau", "telnetlib", "uu", "xdrlib"),
}
ALLOWED = sys.stdlib_module_names - NEWER - DROPPED


def foreign_imports(source: str) -> set[str]:
    """Modules that `source` imports, at top level or inside functions, beyond what the agent may."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.update(f"ddplaunch.{a.name}" for a in node.names if module == "ddplaunch")
            found.update({module} - {"ddplaunch"})
    return {
        name
        for name in found
        if name.split(".")[0] not in ALLOWED and not f"{name}.".startswith("ddplaunch.agent.")
    }


def test_agent_imports_the_standard_library_alone() -> None:
    """No module of the agent imports what a training image may lack, not even inside a function."""
    found = {
        path.relative_to(AGENT): foreign_imports(path.read_text("utf-8")) - siblings(path)
        for path in AGENT.rglob("*.py")
    }

    assert {} == {path: names for path, names in found.items() if names}


def siblings(path: Path) -> set[str]:
    """Return the modules beside this one wherever it runs, which it may import without a package."""
    # The hook's files are laid out in a folder of their own. In agent.pyz one module is beside the entry.
    beside = {each.stem for each in path.parent.glob("*.py")} if path.parent == HOOK else set()
    return beside | ({"archive"} if path.name == "__main__.py" else set())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch", {"torch"}),
        ("def f():\n    import torch.distributed as dist", {"torch.distributed"}),
        ("from pydantic import BaseModel", {"pydantic"}),
        ("import tomllib", {"tomllib"}),
        ("import distutils.spawn", {"distutils.spawn"}),
        ("from ddplaunch import errors", {"ddplaunch.errors"}),
        ("from ddplaunch.spec import models", {"ddplaunch.spec"}),
        ("from . import contract", {"."}),
        ("import os.path\nfrom ddplaunch.agent import contract\nfrom ddplaunch.agent.hub import x", set()),
    ],
)
def test_a_planted_import_is_found(source: str, found: set[str]) -> None:
    """The check above sees every way to import, and lets the allowed ones pass."""
    assert found == foreign_imports(source)


COMPILE = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec")
"""

# The hook acts when it is imported, and the entry runs the agent: both are compiled alone.
IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


def run(python: str, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `code` as the agent is run: without site-packages, environment and current folder."""
    command = [python, "-I", "-S", "-B", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_python39_compiles_every_file_of_the_agent(python39: str) -> None:
    """Every file of the agent is Python 3.9."""
    result = run(python39, COMPILE, *sorted(AGENT.rglob("*.py")))

    assert (0, "") == (result.returncode, result.stderr)


def test_python39_refuses_newer_syntax(python39: str, tmp_path: Path) -> None:
    """The check above would see a match statement."""
    planted = tmp_path / "planted.py"
    planted.write_text("match 1:\n    case _:\n        pass\n")

    result = run(python39, COMPILE, planted)

    assert 1 == result.returncode
    assert "SyntaxError" in result.stderr


def test_python39_imports_every_module_of_the_agent(python39: str) -> None:
    """Importing the agent's modules evaluates nothing that Python 3.9 does not know."""
    modules = [
        ".".join(path.relative_to(AGENT.parents[1]).with_suffix("").parts)
        for path in sorted(AGENT.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py") and path.parent != HOOK
    ]

    result = run(python39, IMPORT, AGENT.parents[1], *modules)

    assert (0, "") == (result.returncode, result.stderr)


def test_python39_refuses_newer_names(python39: str, tmp_path: Path) -> None:
    """The check above would see a type that is evaluated at run time."""
    (tmp_path / "planted.py").write_text("Port = int | None\n")

    result = run(python39, IMPORT, tmp_path, "planted")

    assert 1 == result.returncode
    assert "unsupported operand" in result.stderr
