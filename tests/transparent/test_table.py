"""Every command of the table does the same plain and under `ddplaunch run`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.transparent import compare
from tests.transparent.table import ADDED, ROWS, Row

HELD = [pytest.param(row, id=row.name, marks=[pytest.mark.whole] if row.whole else []) for row in ROWS]


@pytest.mark.parametrize("row", HELD)
def test_a_command_does_the_same_under_ddplaunch_and_leaves_nothing(row: Row, tmp_path: Path) -> None:
    differs = compare.report(row, tmp_path)
    if differs:
        pytest.fail(differs, pytrace=False)


@pytest.mark.whole
@pytest.mark.parametrize("row", [row for row in ROWS if row.job], ids=str)
def test_a_job_on_this_machine_ends_as_its_command_does_and_leaves_nothing(row: Row, tmp_path: Path) -> None:
    row = dataclasses.replace(row, compares=("files", "left"))
    sides = compare.plain(row, tmp_path), compare.submitted(row, tmp_path)
    for side in sides:
        side.codes = ["well" if each == 0 else "failed" for each in side.codes]
    found = compare.differences(row, *sides)
    if found:
        pytest.fail("\n".join([row.job, *found, *(side.text() for side in sides)]), pytrace=False)


def test_the_table_has_sixty_commands_and_no_name_twice() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_variables_that_the_table_names_are_all_there(tmp_path: Path) -> None:
    row = Row("variables", 'python -c "import os; print(*os.environ, sep=chr(10))"')
    (tmp_path / "b").mkdir()
    plain = set(compare.plain(row, tmp_path).stdout.decode().split())
    under = compare.under(row, tmp_path / "b").stdout.decode()

    assert {name for name in ADDED if name not in under} == set()
    assert plain.isdisjoint(ADDED)


def test_a_command_that_ends_on_neither_side_is_no_equal(tmp_path: Path) -> None:
    row = Row("endless", "sleep 60", seconds=1)

    assert "on either side, it did not end in 1 s" in compare.report(row, tmp_path)


def test_whatever_differs_is_found(tmp_path: Path) -> None:
    one = Row("one", "sh -c 'echo a; echo b >&2; echo c > file'")
    left = "sleep 60 >/dev/null 2>&1 & : > /dev/shm/left-$TRANSPARENT_MARK"
    other = Row("other", f"sh -c 'echo A; echo B >&2; echo C > file; {left}; exit 3'")
    (tmp_path / "b").mkdir()
    found = compare.differences(one, compare.plain(one, tmp_path), compare.plain(other, tmp_path / "b"))
    for path in compare.SHM.glob("left-transparent-*"):
        path.unlink()

    kinds = [each.partition(":")[0] for each in found]
    assert kinds == ["exit code", "stdout", "stderr", "file file", "left processes", "left in /dev/shm"]
    assert (
        compare.differences(dataclasses.replace(one, compares=()), compare.Outcome(), compare.Outcome()) == []
    )
