"""What a rank prints when its file cannot be written: on a real disk that is full for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.hook.conftest import Supervisor
from tests.disks import small_btrfs, small_disk

WAYS = pytest.mark.parametrize("options", [(), ("-u",)])
STREAMS = pytest.mark.parametrize("stream", ["stdout", "stderr"])
FULL = """
import os, sys
filler = open(os.path.join({disk!r}, "filler"), "wb", buffering=0)
try:
    while filler.write(b"x" * 4096):
        pass
except OSError:
    pass
"""
PRINTS = "for _ in range(100):\n    print('x' * 999, file=sys.{stream})\n"
GAP = "... output is missing here: No space left on device"


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        yield disk


@pytest.fixture(name="on_disk")
def _on_disk(disk: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(disk)
    supervisor.place.prepare()
    yield supervisor
    supervisor.close()


@WAYS
@STREAMS
def test_a_full_disk_of_ours_ends_no_program_and_is_told_once(
    on_disk: Supervisor, disk: Path, options: tuple[str, ...], stream: str
) -> None:
    program = FULL.format(disk=str(disk)) + PRINTS.format(stream=stream)

    code, _, _ = on_disk.run(program, options=options, output=Path(on_disk.place.launch_log))

    assert (code, on_disk.messages("lost")) == (0, [{"lost": "No space left on device"}])


@WAYS
def test_the_file_says_where_output_is_missing(
    on_disk: Supervisor, disk: Path, options: tuple[str, ...]
) -> None:
    log = Path(on_disk.place.launch_log)
    program = FULL.format(disk=str(disk)) + PRINTS.format(stream="stdout")
    program += "sys.stdout.flush()\nos.unlink(filler.name)\nfiller.close()\nprint('the last')\n"

    code, _, _ = on_disk.run(program, options=options, output=log)

    assert code == 0
    assert [GAP, "the last"] == log.read_text().splitlines()[-2:]
    assert log.read_text().count(GAP) == 1


def test_a_full_disk_of_ours_ends_no_child_of_a_rank(on_disk: Supervisor, disk: Path) -> None:
    program = (
        "import multiprocessing\n"
        "def work():\n" + "    for _ in range(100): print('x' * 999, flush=True)\n"
        "if __name__ == '__main__':\n" + FULL.format(disk=str(disk)).replace("\n", "\n    ") + "\n"
        "    for method in ('fork', 'spawn'):\n"
        "        child = multiprocessing.get_context(method).Process(target=work)\n"
        "        child.start()\n"
        "        child.join()\n"
        "        assert child.exitcode == 0, child.exitcode\n"
    )

    code, _, _ = on_disk.run(program, output=Path(on_disk.place.launch_log))

    assert code == 0


@pytest.mark.parametrize("taken", ["from the start", "meanwhile"])
def test_a_full_disk_under_the_programs_own_file_is_its_own_affair(
    on_disk: Supervisor, disk: Path, taken: str
) -> None:
    """Its print() fails on a full disk as it would without us, also where it has replaced our file."""
    own = disk.parent / "own"
    with small_disk(own, 1 << 16):
        program = FULL.format(disk=str(own))
        if taken == "meanwhile":
            program += f"os.dup2(os.open({str(own / 'log')!r}, os.O_WRONLY | os.O_CREAT), 1)\n"
        program += PRINTS.format(stream="stdout") + "sys.stdout.flush()\n"
        output = Path(on_disk.place.launch_log) if taken == "meanwhile" else own / "log"

        code, _, _ = on_disk.run(program, options=("-u",), output=output)

    assert (code, on_disk.messages("raised")[0]["raised"]["type"]) == (1, "OSError")
    assert on_disk.messages("lost") == []


def test_a_program_finds_its_streams_as_they_were(supervisor: Supervisor) -> None:
    shows = (
        "import sys\n"
        "for each in sys.stdout, sys.stderr:\n"
        "    print(each is getattr(sys, '__%s__' % each.name[1:-1]), each, type(each.buffer), each.errors,\n"
        "        each.line_buffering, each.write_through, each.isatty(), each.fileno())\n"
    )
    found: list[str] = []
    for options in ((), ("-S",)):  # without site no hook is found
        log = Path(supervisor.place.node, f"shown{len(found)}")
        supervisor.run(shows, env={"PYTHONIOENCODING": "latin-1:replace"}, options=options, output=log)
        found.append(log.read_text())

    assert found[0] == found[1] != ""


def test_a_full_btrfs_kills_no_rank(tmp_path: Path) -> None:
    """Its last calls are kept in a mapped file, and btrfs wants new room for every page that is written."""
    with small_btrfs(tmp_path / "disk") as disk:
        supervisor = Supervisor(disk)
        program = (
            f"import sys\nsys.path.insert(0, {supervisor.place.hook!r})\nimport ddplaunch_ring\n"
            "ring = ddplaunch_ring._Ring()\n"
            + FULL.format(disk=str(disk))
            + "os.sync()\nring.map[:] = bytes(len(ring.map))\n"
        )
        code, _, _ = supervisor.run(program)
        supervisor.close()

    assert code == 0
