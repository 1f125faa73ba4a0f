"""The versions of the trainer's Python and of what it has."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.agent.checks.make import lay_torch, make_context

from ddplaunch.agent.checks import interpreter
from ddplaunch.agent.contract import Status


def test_versions_are_read_without_importing(tmp_path: Path) -> None:
    """torch's own file, in the forms that its releases had, and NCCL's wheel give the versions."""
    text = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n"
    environment = lay_torch(tmp_path, text)
    (tmp_path / "nvidia_nccl_cu13-2.30.7.dist-info").mkdir()
    context = make_context(tmp_path, python=sys.executable, environment=environment)
    result = interpreter.check_versions(context)

    expected = {"torch": "2.15.0+cu132", "cuda": "13.2", "nccl": "2.30.7"}
    assert expected == {key: value for key, value in result.facts.items() if key != "python"}
    assert result.facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_an_older_form_of_the_version_file(tmp_path: Path) -> None:
    """torch 1.x wrote no annotations."""
    environment = lay_torch(tmp_path, "__version__ = '1.13.1+cu117'\ndebug = False\ncuda = '11.7'\n")
    result = interpreter.check_versions(
        make_context(tmp_path, python=sys.executable, environment=environment)
    )

    assert ("1.13.1+cu117", "11.7") == (result.facts["torch"], result.facts["cuda"])


def test_a_python_that_is_not_there_has_no_versions(tmp_path: Path) -> None:
    """That it is not there is for another check to say."""
    result = interpreter.check_versions(make_context(tmp_path, python="/no/such/python3"))

    assert (Status.UNKNOWN, {}) == (result.status, result.facts)
