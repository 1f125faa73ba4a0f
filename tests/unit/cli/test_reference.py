"""docs/reference is what the program says of itself."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.cli.main import VERBS

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "generate-docs"


@pytest.fixture(name="generate")
def _generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("generate_docs", str(SCRIPT))
    spec = importlib.util.spec_from_loader("generate_docs", loader)
    assert spec is not None
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # as Python does for a script that it runs
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def run(generate: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Its exit code."""
    monkeypatch.setattr(sys, "argv", ["generate-docs", *words])
    code: int = generate.main()
    return code


def test_the_pages_are_up_to_date(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a change of the help, the model or a page, `make docs` was run."""
    assert (0, "") == (run(generate, monkeypatch, "--check"), capsys.readouterr().out)


def test_a_stale_page_is_found_and_written(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The check fails as long as one byte differs, and changes nothing."""
    monkeypatch.setattr(generate, "REFERENCE", tmp_path / "reference")
    assert (1, False) == (run(generate, monkeypatch, "--check"), (tmp_path / "reference").exists())
    assert (0, 0) == (run(generate, monkeypatch), run(generate, monkeypatch, "--check"))
    capsys.readouterr()
    with (tmp_path / "reference" / "cli.md").open("a") as page:
        page.write("edited by hand\n")

    assert 1 == run(generate, monkeypatch, "--check")
    assert "stale: docs/reference/cli.md\n" == capsys.readouterr().out


def test_nothing_is_left_out(generate: ModuleType) -> None:
    """Every verb and every code has its section."""
    commands, verdicts = generate.commands().splitlines(), generate.verdicts().splitlines()

    assert [] == [verb for verb in VERBS if f"## ddplaunch {verb}" not in commands]
    assert [] == [code for code in CATALOGUE if f"## {code}" not in verdicts]


def test_a_comment_in_a_block_of_code_is_no_heading(generate: ModuleType) -> None:
    page = "# code\n\n```\n# a comment\n```\n## How"

    assert "## code\n\n```\n# a comment\n```\n### How" == generate.one_level_down(page)
