"""The folder in which a user's jobs are remembered: no other user's, and closed to others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddplaunch.backends.folder import state_folder
from ddplaunch.errors import UsageError


@pytest.fixture(name="state", autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is looked for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/ddplaunch"


def test_others_cannot_look_into_it(state: Path) -> None:
    """It holds the evidence of jobs, whatever umask made it."""
    assert state == state_folder()
    assert 0o700 == state.stat().st_mode & 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a folder of another user")
def test_that_of_another_user_is_refused(state: Path) -> None:
    """He could replace what a job is going to run."""
    state.mkdir(parents=True)
    os.chown(state, 1, 1)

    with pytest.raises(UsageError, match="belongs to another user") as refused:
        state_folder()

    assert "XDG_STATE_HOME" in (refused.value.hint or "")


def test_one_that_cannot_be_made_is_no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/there-is-none")

    assert Path("/proc/there-is-none/ddplaunch") == state_folder()


@pytest.mark.parametrize("name", ["state", "state/ddplaunch"])
def test_a_file_in_its_place_is_refused(state: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("a file")

    with pytest.raises(UsageError, match=f"found a file at {tmp_path / name}, wanted a folder") as refused:
        state_folder()

    assert "XDG_STATE_HOME" in refused.value.hint


def test_it_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An absolute XDG_STATE_HOME counts, a relative one does not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    roots = []
    for value in ("/var/state", "state", ""):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        roots.append(state_folder())

    assert [Path("/var/state/ddplaunch"), *[tmp_path / ".local/state/ddplaunch"] * 2] == roots
