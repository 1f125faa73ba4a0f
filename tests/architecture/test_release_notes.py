"""`scripts/release-notes`: a release has one version everywhere, and says what is new."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import ddplaunch

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

- Later.

## [1.2.0] - 2027-01-31

### Start

- New.

## [1.1.0]: before

- Old.
"""


def notes(tree: Path, tag: str) -> tuple[int, str, list[str]]:
    """Exit code, output and complaints."""
    done = subprocess.run([tree / "scripts/release-notes", tag], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """A repository at version 1.2.0."""
    for name, text in (
        ("scripts/release-notes", (ROOT / "scripts/release-notes").read_text("utf-8")),
        ("launcher/ddplaunch/__init__.py", '"""Text."""\n\n__version__ = "1.2.0"\n'),
        ("charts/a/Chart.yaml", "version: 1.2.0\nappVersion: 1.2.0\n"),
        ("CHANGELOG.md", CHANGELOG),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts/release-notes").chmod(0o755)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(tree: Path) -> None:
    """Without its heading, and without its neighbours."""
    assert (0, "### Start\n\n- New.\n", []) == notes(tree, "v1.2.0")


def test_a_tag_of_another_version_is_refused(tree: Path) -> None:
    found = notes(tree, "v1.3.0")

    assert (1, "", ["error: the tag is v1.3.0, wanted v1.2.0: launcher/ddplaunch/__init__.py"]) == found


def test_a_chart_of_another_version_and_a_missing_section_are_refused_at_once(tree: Path) -> None:
    """One run shows everything. A version before a release is written as Helm wants it."""
    (tree / "launcher/ddplaunch/__init__.py").write_text('__version__ = "1.3.0rc1"\n')

    code, said, complaints = notes(tree, "v1.3.0rc1")

    assert (1, "") == (code, said)
    assert [
        "error: charts/a/Chart.yaml has version 1.2.0, wanted 1.3.0-rc1",
        "error: charts/a/Chart.yaml has appVersion 1.2.0, wanted 1.3.0rc1",
        "error: CHANGELOG.md has no section `## [1.3.0rc1]` with anything in it",
    ] == complaints


def test_this_repository_has_one_version() -> None:
    """Whatever the tag and the changelog are, until there is a release."""
    complaints = notes(ROOT, "v0")[2]

    assert [] == [each for each in complaints if "Chart.yaml" in each]


def test_pages_name_the_files_of_this_version() -> None:
    """A reader copies the name of a wheel, or of the chart, from a page."""
    named = {
        (path.relative_to(ROOT).as_posix(), version)
        for path in (ROOT / "docs").rglob("*.md")
        for version in re.findall(
            r"ddplaunch-(\d[\w.-]*?)(?:-py3-none-any\.whl|\.tgz)", path.read_text("utf-8")
        )
    }
    helms = re.sub(r"^(\d+\.\d+\.\d+)\.?(?=[a-z])", r"\1-", ddplaunch.__version__)

    assert {"docs/how-to/helm.md", "docs/tutorial/ten-minutes.md"} <= {path for path, _ in named}
    assert [] == [each for each in sorted(named) if each[1] not in (ddplaunch.__version__, helms)]
