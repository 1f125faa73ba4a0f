"""What `diagnose` writes and prints for people elsewhere: pictures, and Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.report.cases import case

from ddplaunch.agent.contract import bundle_file


@pytest.fixture(name="bundle")
def _bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a bundle in the current folder."""
    found = case("mismatch").bundle
    assert found is not None
    monkeypatch.chdir(tmp_path)
    Path("bundle.zip").write_bytes(bundle_file.packed(found))
    return "bundle.zip"


def test_each_picture_becomes_a_file(call: Call, bundle: str) -> None:
    """The folder is made, and each file is whole by itself, with its colours."""
    answer = call("diagnose", bundle, "--svg", "pictures")
    drawn = Path("pictures/ranks-over-time.svg").read_text()

    assert "wrote pictures/ranks-over-time.svg\n" in answer.err
    assert answer.out.startswith("at collective 2 rank 3 called broadcast")
    assert drawn.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in drawn
    assert ".at-fault" in drawn


def test_a_folder_that_cannot_be_made_is_an_error(call: Call, bundle: str) -> None:
    """Its path is named."""
    answer = call("diagnose", bundle, "--svg", "none/pictures")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith("error: none/pictures cannot be written: ")


def test_markdown_is_printed_in_place_of_text(call: Call, bundle: str) -> None:
    """And not beside JSON."""
    assert call("diagnose", bundle, "--markdown").out.startswith("**ddplaunch:** `at collective 2 rank 3")
    assert 2 == call("diagnose", bundle, "--markdown", "--json").code
