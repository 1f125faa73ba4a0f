"""Which lines of a job's output are shown, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.backends.job import EVERYTHING, Selection
from ddplaunch.backends.lines import last_lines
from ddplaunch.backends.local import backend

LINES = ["[0] a", "[0/0] a", "[1/2] b", "[1/3] c", "[0/1] d", "[1/ddplaunch] notice", "no prefix"]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "output.log").write_text("\n".join(LINES) + "\n")
    return tmp_path


def read(folder: Path, wanted: Selection = EVERYTHING) -> list[str]:
    return list(backend.lines_of(folder, wanted, follow=False, alive=lambda: False))


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (EVERYTHING, LINES),
        (Selection(ranks=frozenset({0, 3})), ["[0/0] a", "[1/3] c"]),
        (Selection(nodes=frozenset({1})), ["[1/2] b", "[1/3] c", "[1/ddplaunch] notice"]),
        (Selection(nodes=frozenset({0}), ranks=frozenset({1, 2})), ["[0/1] d"]),
        (Selection(tail=2), ["[1/ddplaunch] notice", "no prefix"]),
        (Selection(ranks=frozenset({0, 1, 2}), tail=2), ["[1/2] b", "[0/1] d"]),
        (Selection(tail=0), []),
    ],
)
def test_only_the_wanted_lines_are_shown(folder: Path, wanted: Selection, lines: list[str]) -> None:
    """Node and rank come from the prefix, and a tail counts what is left."""
    assert lines == read(folder, wanted)


def test_a_remark_on_the_whole_output_is_always_shown(folder: Path) -> None:
    """That some of it is gone concerns whoever asks for one rank of it."""
    with (folder / "run" / "output.log").open("a") as file:
        file.write("[ddplaunch] some is gone\n")

    assert ["[1/3] c", "[ddplaunch] some is gone"] == read(folder, Selection(ranks=frozenset({3})))


def test_a_last_line_without_its_newline_is_shown(folder: Path) -> None:
    """A rank that is killed in the middle of a line loses none of it."""
    with (folder / "run" / "output.log").open("a") as file:
        file.write("[0/0] half")

    assert [*LINES, "[0/0] half"] == read(folder)


def test_earlier_attempts_come_first(folder: Path) -> None:
    """What a retried job moved aside is read before the newest attempt, tenth after ninth."""
    for attempt in (10, 9):
        (folder / f"run-{attempt}").mkdir()
        (folder / f"run-{attempt}" / "output.log").write_text(f"attempt {attempt}\n")
    (folder / "run-old").mkdir()

    assert ["attempt 9", "attempt 10", *LINES] == read(folder)


def test_a_new_attempt_is_followed(folder: Path) -> None:
    """When the job is tried again while it is watched, no line is lost and none comes twice."""
    life = iter([True, True, True, False])
    following = backend.lines_of(folder, EVERYTHING, follow=True, alive=lambda: next(life))
    shown = [next(following) for _ in LINES]
    with (folder / "run" / "output.log").open("a") as file:
        file.write("[0/0] last words")
    (folder / "run").rename(folder / "run-0")
    (folder / "run").mkdir()
    (folder / "run" / "output.log").write_text("[0/0] again\n")

    shown += [line for line in following if line]

    assert [*LINES, "[0/0] last words", "[0/0] again"] == shown


@given(st.lists(st.binary(max_size=5), max_size=12), st.integers(1, 7))
def test_lines_are_put_together_from_any_pieces(pieces: list[bytes], chunk: int) -> None:
    """However the file grows between two looks, the lines are those of the whole."""
    import tempfile

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddplaunch.backends.lines._CHUNK", chunk)
        folder = Path(name)
        (folder / "run").mkdir()
        path = folder / "run" / "output.log"
        path.write_bytes(b"")
        grow = iter(pieces)

        def alive() -> bool:
            piece = next(grow, None)
            if piece is not None:
                with path.open("ab") as file:
                    file.write(piece)
            return piece is not None

        patch.setattr("time.sleep", lambda _: None)
        following: Iterator[str] = backend.lines_of(folder, EVERYTHING, follow=True, alive=alive)
        shown = [line for line in following if line]

    whole = b"".join(pieces).decode("utf-8", errors="replace").split("\n")
    assert [line for line in whole if line] == shown


def test_last_words_are_the_last_lines_that_say_anything(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n\n \nthree\n\n")

    assert ["two", "three"] == last_lines(tmp_path / "log", 2)
    assert [] == last_lines(tmp_path / "none", 2)
