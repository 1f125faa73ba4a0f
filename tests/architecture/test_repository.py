"""What must hold for every file that is tracked."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.architecture.conftest import ROOT, tracked

PACKAGE = ROOT / "launcher" / "ddplaunch"

# Where packages come from is a matter of the machine: a mirror, a proxy, a wheel folder. The names are split
# here so that this file does not name them either.
REGISTRIES = re.compile(
    r"pypi\.(?:org|python)|pythonho" r"sted\.org|download\.pyt" r"orch\.org|registry\.npm" r"js\.org"
    r"|crates\.i" r"o\b|rubyge" r"ms\.org|proxy\.golan" r"g\.org|anacon" r"da\.org"
)  # fmt: skip
DEVELOPER_PATHS = re.compile(r"(?<![\w.$}~-])/(?:root|Users|work|home/(?!me\b|user\b)\w+|tmp/boot)/")


def lines_with(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """`file:line: text` for each line in which `pattern` occurs."""
    return [
        f"{path.name}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    """The repository builds from whatever index the machine is set up for."""
    assert [] == lines_with(REGISTRIES, tracked())


def test_no_file_holds_a_path_of_a_developers_machine() -> None:
    """Nothing in the repository depends on where somebody once worked."""
    assert [] == lines_with(DEVELOPER_PATHS, tracked())


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (REGISTRIES, "--index-url https://" + "pypi." + "org/simple"),
        (REGISTRIES, "https://files." + "pythonhosted" + ".org/packages/x.whl"),
        (REGISTRIES, "https://download." + "pytorch" + ".org/whl/cpu"),
        (DEVELOPER_PATHS, "PYTHONPATH=/" + "work/main/launcher"),
        (DEVELOPER_PATHS, 'open("/' + 'home/jane/train.py")'),
        (DEVELOPER_PATHS, "see /" + "root/.pyenv"),
    ],
)
def test_a_planted_line_is_found(pattern: re.Pattern[str], line: str, tmp_path: Path) -> None:
    """Both scans see what they are for."""
    planted = tmp_path / "planted.txt"
    planted.write_text(f"fine\n{line}\n")

    assert [f"planted.txt:2: {line}"] == lines_with(pattern, [planted])


@pytest.mark.parametrize("line", ["$HOME/work/x", "/var/work/x", "run/work", "/home/me/job.yaml", "~/root/x"])
def test_an_ordinary_path_is_no_developers_path(line: str) -> None:
    """Paths that happen to hold such a word are let through."""
    assert None is DEVELOPER_PATHS.search(line)


def test_every_package_says_what_it_is_for() -> None:
    """Each package's docstring is the contract of its layer."""
    packages = tracked("launcher/**/__init__.py")

    assert 8 <= len(packages)
    assert [] == [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]


def imported_tests(source: str) -> list[str]:
    """Return what `source` imports from modules of tests."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in nodes for alias in node.names]
    return [name for name in names if re.search(r"(^|\.)test_", name)]


def test_no_test_file_leans_on_another() -> None:
    """What several need is a helper, in a module of its own that pytest does not collect."""
    found = {
        str(path.relative_to(ROOT)): imported_tests(path.read_text("utf-8")) for path in tracked("tests/*.py")
    }

    assert {} == {path: imports for path, imports in found.items() if imports}
    assert ["tests.unit.test_main.SCRIPT"] == imported_tests("from tests.unit.test_main import SCRIPT")
    assert ["tests.unit.test_main"] == imported_tests("from tests.unit import test_main as main, conftest")


def test_every_path_that_a_test_is_marked_by_is_there() -> None:
    text = (ROOT / "tests/conftest.py").read_text("utf-8")
    named = re.findall(r'"(tests/[^"]+)"', text)

    assert 40 <= len(named)
    assert [] == [path for path in named if not (ROOT / path).exists()]
