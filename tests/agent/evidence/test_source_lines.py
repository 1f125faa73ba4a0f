"""The source lines at which threads of real processes stand, and the loops of a program's file."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.few_threads import refuse_threads

from ddplaunch.agent.contract import Frame, Handler, RankEvidence, Stack
from ddplaunch.agent.evidence import stacks
from ddplaunch.agent.evidence.stacks import SourceLines, line
from ddplaunch.agent.supervisor.collector import named_frames

NOW = time.time()


def evidence(*frames: Frame) -> RankEvidence:
    """A rank that stands so: it is this process, which was started after its files were written."""
    return RankEvidence(0, 0, os.getpid(), True, stacks=[Stack("MainThread", True, list(frames))])


def test_the_innermost_line_and_all_of_the_users_own_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A relative file lies where the rank was started; a dead rank stands nowhere."""
    (tmp_path / "train.py").write_text("import x\n\n    with lock:\n")
    (tmp_path / "threading.py").write_text("waiter.acquire()\n")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    monkeypatch.chdir(tmp_path)
    inner, user = Frame("wait", "threading.py", 1), Frame("step", f"{tmp_path}/train.py", 3)
    rank = evidence(inner, user, Frame("main", "train.py", 1))

    found = SourceLines().read(named_frames([rank]))
    shown = {"threading.py:1": "waiter.acquire()", f"{tmp_path}/train.py:3": "with lock:"}
    assert {**shown, "train.py:1": "import x"} == found
    assert {} == SourceLines().read(named_frames([replace(rank, alive=False)]))


def test_without_a_free_thread_no_line_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No line is shown, and the next time there may be room."""
    (tmp_path / "train.py").write_text("step()\n")
    os.utime(tmp_path / "train.py", (0, 0))
    rank, lines = evidence(Frame("main", f"{tmp_path}/train.py", 1)), SourceLines()
    with monkeypatch.context() as patch:
        refuse_threads(patch)
        assert {} == lines.read(named_frames([rank]))

    assert {f"{tmp_path}/train.py:1": "step()"} == lines.read(named_frames([rank]))


POLLS = """\
while not path.exists():
    # not too often
    time.sleep(1)
time.sleep(300)
for number in range(9):
    first()
    second()
    third()
    fourth()
    fifth()
    time.sleep(number)
"""


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (3, "while not path.exists(): # not too often time.sleep(1)"),
        (4, "time.sleep(300)"),
        (11, "time.sleep(number)"),
    ],
)
def test_a_sleep_is_shown_with_the_begin_of_its_loop(tmp_path: Path, number: int, text: str) -> None:
    """By that line alone nobody knows for what it waits. A loop that began long before says little."""
    path = tmp_path / "train.py"
    path.write_text(POLLS)
    os.utime(path, (0, 0))

    assert {f"{path}:{number}": text} == SourceLines().read({(Frame("poll", str(path), number), os.getpid())})


def test_a_long_line_is_cut_and_made_printable(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = '\x1b[2J" + "y" * 300)

    text = line(str(path), 1, NOW + 3600)
    assert (160, False) == (len(text), "\x1b" in text)


@pytest.mark.parametrize("number", [0, 7])
def test_no_line_is_invented_where_there_is_none(tmp_path: Path, number: int) -> None:
    path = tmp_path / "train.py"
    path.write_text("")

    assert "" == line(str(path), number, NOW + 3600)


def test_a_file_that_has_changed_since_the_start_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("while True:\n    step()\n")
    written = path.stat().st_mtime

    assert "while True:" == line(str(path), 1, written + 1)
    assert [[1, 2]] == stacks.read_loops(str(path), written + 1)
    assert "" == line(str(path), 1, written - 1)
    assert stacks.read_loops(str(path), written - 1) is None


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert "" == line(str(tmp_path / "pipe"), 1, NOW + 3600)
    assert stacks.read_loops(str(tmp_path / "pipe"), NOW + 3600) is None
    assert stacks.read_loops(str(tmp_path / "none"), NOW + 3600) is None


def test_storage_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SourceLines()
    lines._stuck = True  # no test can make a file system that hangs

    here = {__file__: os.getpid()}
    seen = lines.read({(Frame("f", __file__, 1), os.getpid())}), lines.find_loops(here, NOW + 3600)
    assert ({}, {}) == seen
    assert [__file__] == list(SourceLines().find_loops(here, NOW + 3600))


# --- loops

PROGRAM = """
for epoch in range(3):
    for batch in batches:
        step(
            batch
        )
    else:
        report()

def wait():
    while True:
        if done(): break
values = [each for each in values]
"""


def test_a_loop_is_known_by_its_first_and_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)

    assert [[2, 8], [3, 6], [11, 12]] == stacks.read_loops(str(path), time.time() + 1)


@pytest.mark.parametrize(
    "text",
    ["while:", "\0", "é".encode("latin-1").decode("latin-1") * (1 << 20)],
    ids=["broken", "nul", "long"],
)
def test_what_is_no_program_is_unknown(text: str, tmp_path: Path) -> None:
    """Also what is too long to be read in passing."""
    path = tmp_path / "train.py"
    path.write_text(text)

    assert stacks.read_loops(str(path), time.time() + 1) is None


HANDLES = """
try:
    train()
except OSError as error:
    log(error)
    raise
except ValueError:
    if last:
        raise
except KeyError:
    train_otherwise()
else:
    save()
finally:
    tracker.finish()

try:
    train()
except OSError:
    os._exit(3)
except ValueError:
    log()
    sys.exit(1)
except KeyError:
    log.exit(1)

def saved():
    try:
        yield
    finally:
        return
with (
    Tracker() as tracker,
    lock,
):
    step()
"""


def test_where_a_program_raises_on_is_known(tmp_path: Path) -> None:
    """Not where it may go on: in an `except` that ends neither with `raise` nor with the process."""
    path = tmp_path / "train.py"
    path.write_text(HANDLES)
    os.utime(path, (0, 0))

    assert [
        Handler("except", [3, 3], [5, 6]),
        Handler("finally", [3, 13], [15, 15]),
        Handler("except", [18, 18], [20, 20]),
        Handler("except", [18, 18], [22, 23]),
        Handler("with", [36, 36], [32, 34]),
    ] == stacks.read_handlers(str(path), NOW)
    assert stacks.read_handlers(str(tmp_path / "none.py"), NOW) is None
    assert {str(path): 5} == {
        file: len(found) for file, found in SourceLines().find_handlers({str(path): os.getpid()}, NOW).items()
    }
