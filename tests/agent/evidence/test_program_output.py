"""What ranks and launchers print: tracebacks, and exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Frame, Raised
from ddplaunch.agent.evidence import program_output
from ddplaunch.agent.evidence.program_output import Tracebacks, port_in_use


def read(text: str) -> list[Raised]:
    """All exceptions in `text`."""
    tracebacks = Tracebacks()
    return [raised for line in text.splitlines() if (raised := tracebacks.feed(line, 12.0)) is not None]


def printed_by(tmp_path: Path, program: str) -> tuple[str, str]:
    """What a real interpreter prints for `program`, and the program's path."""
    path = tmp_path / "train.py"
    path.write_text(program)
    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    return result.stderr, str(path)


def test_an_uncaught_exception_is_read_with_its_frames_innermost_first(tmp_path: Path) -> None:
    text, path = printed_by(
        tmp_path, "def load(name):\n    raise ValueError('bad: ' + name)\n\nload('a.bin')\n"
    )

    expected = [Frame("load", path, 2), Frame("<module>", path, 4)]
    assert read(text) == [Raised("ValueError", "bad: a.bin", 12.0, expected, False, "log")]


def test_what_follows_a_logged_exception_is_no_part_of_it(tmp_path: Path) -> None:
    """logging.exception in mid-run is found, and what follows it is not taken for a part of it."""
    program = (
        "import logging\ntry:\n    {}['step']\nexcept KeyError:\n    logging.exception('skipped')\n"
        "logging.warning('ValueError: not one')\n"
    )
    text, path = printed_by(tmp_path, program)

    assert [(r.type, r.message, r.frames) for r in read(text)] == [
        ("KeyError", "'step'", [Frame("<module>", path, 3)])
    ]


def test_a_chain_of_exceptions_is_read_in_the_order_in_which_they_happened(tmp_path: Path) -> None:
    program = "try:\n    int('x')\nexcept ValueError as e:\n    raise RuntimeError('no step') from e\n"
    text, _ = printed_by(tmp_path, program)

    assert [raised.type for raised in read(text)] == ["ValueError", "RuntimeError"]


def test_an_exception_keeps_its_qualified_name_and_may_have_no_message(tmp_path: Path) -> None:
    text, _ = printed_by(tmp_path, "import queue\nraise queue.Empty\n")

    assert [(r.type, r.message) for r in read(text)] == [("_queue.Empty", "")]


def test_a_deep_recursion_is_one_exception_of_some_frames(tmp_path: Path) -> None:
    text, _ = printed_by(tmp_path, "def f(n):\n    return f(n + 1)\n\nf(0)\n")
    (raised,) = read(text)

    assert raised.type == "RecursionError"
    assert raised.frames[-1].name == "<module>"


def test_a_syntax_error_has_a_frame_without_a_function(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = = 1\n")
    text, _ = printed_by(tmp_path, "import broken\n")

    assert [(r.type, r.frames[0].line) for r in read(text)] == [("SyntaxError", 1)]


def test_the_rank_that_torch_writes_before_every_line_is_no_part_of_it() -> None:
    """`[rank3]: ` before each line, as torch's own hook prints it."""
    text = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/job/train.py", line 70, in main\n'
        "[rank3]:     dist.all_reduce(t)\n"
        "[rank3]:     ^^^^^^^^^^^^^^^^^^\n"
        "[rank3]: RuntimeError: Connection closed by peer: [127.0.0.1]\n"
    )

    assert read(text) == [
        Raised(
            "RuntimeError",
            "Connection closed by peer: [127.0.0.1]",
            12.0,
            [Frame("main", "/job/train.py", 70)],
            False,
            "log",
        )
    ]


def test_the_traceback_of_a_loader_worker_in_a_message_is_told_too() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n'
        "    for batch in loader:\n"
        "ValueError: Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "data.py", line 5, in __getitem__\n'
        "    raise ValueError('corrupt')\n"
        "ValueError: corrupt\n"
    )

    wanted = [("Caught ValueError in DataLoader worker process 0.", "train.py"), ("corrupt", "data.py")]
    assert [(r.message, r.frames[0].file) for r in read(text)] == wanted


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\nno frames here\n",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n!!! not an exception\n',
        "ValueError: alone\n",
        '  File "a.py", line 1, in f\nValueError: without a head\n',
    ],
)
def test_what_only_looks_like_a_traceback_is_none(text: str) -> None:
    assert read(text) == []


def test_a_huge_message_is_cut() -> None:
    text = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: {"x" * 100_000}\n'

    assert [len(raised.message) for raised in read(text)] == [2000]


def test_an_exception_of_cpp_that_ends_the_process_is_read() -> None:
    """As torch's watchdog of NCCL printed it after an index that was too large, on a GPU."""
    what = (
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with "
        "exception: CUDA error: device-side assert triggered"
    )
    lines = [
        "frame #8: clone3",
        "",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        what,
    ]

    assert [
        Raised("c10::DistBackendError", "CUDA error: device-side assert triggered", 12.0, [], False, "log")
    ] == read("\n".join([*lines, "Compile with `TORCH_USE_CUDA_DSA`"]))


@pytest.mark.parametrize(
    "lines",
    [
        ["terminate called without an active exception"],
        ["terminate called after throwing an instance of 'int'", "Aborted"],
        ["  what():  nothing was thrown"],
    ],
)
def test_an_exception_of_cpp_without_a_message_is_none(lines: list[str]) -> None:
    assert [] == read("\n".join(lines))


REPORT = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_04:50:11
  host      : node-a
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 812)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 812
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_04:50:11
  host      : node-a
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 811)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_the_report_of_torchrun_gives_rank_pid_and_code_of_every_worker() -> None:
    """Rank, local rank, pid and code of every worker that is listed; signals are negative."""
    assert program_output.torchrun_exits(REPORT) == {5: (1, 812, -9), 4: (0, 811, 1)}


def test_a_log_without_a_report_gives_nothing() -> None:
    assert program_output.torchrun_exits("rank 3: exitcode : 1\nusage: torchrun [-h]\n") == {}


@pytest.mark.parametrize(
    ("end", "exits"),
    [
        ("process 2 terminated with signal SIGKILL", {2: -9}),
        ("process 0 terminated with exit code 7", {0: 7}),
        ("process 1 terminated with signal SIGNONE", {}),
        ("process 1 terminated with exit code 0", {}),
    ],
)
def test_the_first_bad_end_of_mp_spawn_is_read(end: str, exits: dict[int, int]) -> None:
    text = f"    raise ProcessExitedException(\ntorch.multiprocessing.spawn.ProcessExitedException: {end}\n"

    assert exits == program_output.mp_spawn_exits(text)


FOUR = """
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[27115,1],1]
  Exit code:    7
"""
FOUR_KILLED = """
mpirun noticed that process rank 1 with PID 0 on node n1 exited on signal 9 (Killed).
"""
FIVE = """
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-n1-6099@1,12]
   Exit code:    3
"""
FIVE_KILLED = """
prterun noticed that process rank 2 with PID 6117 on node n1 exited on
signal 9 (Killed).
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FOUR, {1: 7}),
        (FOUR_KILLED, {1: -9}),
        (FIVE, {12: 3}),
        (FIVE_KILLED, {2: -9}),
        ("Process name: none\nExit code: unknown", {}),
    ],
)
def test_mpiruns_report_names_the_rank_that_ended_first(text: str, expected: dict[int, int]) -> None:
    """As mpirun of Open MPI 4.1 and 5.0 prints it."""
    assert expected == program_output.mpirun_exits(text)


LISTEN = "DistNetworkError: The server socket has failed to listen on any local network address. "
BIND = "The server socket has failed to bind to "


@pytest.mark.parametrize(
    ("line", "port"),
    [
        (LISTEN + "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: …", 29500),
        (LISTEN + BIND + "[::]:29511 (errno: 98 - Address already in use).", 29511),
        (LISTEN + "useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use", 0),
        (LISTEN + BIND + "0.0.0.0:80 (errno: 13 - Permission denied).", None),
        ("OSError: [Errno 98] Address already in use", None),
        ("port: 29500, code: -98, name: EADDRINUSE", None),
    ],
)
def test_a_port_at_which_torchruns_store_cannot_listen_is_known(line: str, port: int | None) -> None:
    assert port == port_in_use(["Traceback (most recent call last):", line])
