"""Stacks from every source, in the contract's one shape."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.agent.evidence import stacks


def test_the_main_thread_stands_first() -> None:
    threads = [
        {"name": "loader", "main": False, "frames": [["get", "queue.py", 171]]},
        {"name": "MainThread", "main": True, "frames": [["f", "train.py", 2], ["<module>", "train.py", 9]]},
    ]

    assert stacks.from_hook(threads) == [
        Stack("MainThread", True, [Frame("f", "train.py", 2), Frame("<module>", "train.py", 9)]),
        Stack("loader", False, [Frame("get", "queue.py", 171)]),
    ]


def test_the_hooks_own_thread_is_left_out() -> None:
    threads = [
        {"name": "MainThread", "main": True, "frames": [["f", "train.py", 2]]},
        {"name": "", "main": False, "frames": [["_serve", "/run/node-0/hook/ddplaunch_hook.py", 88]]},
    ]

    assert [stack.thread for stack in stacks.from_hook(threads)] == ["MainThread"]


def test_a_deep_recursion_keeps_its_innermost_and_outermost_frames() -> None:
    frames = [["f", "train.py", number] for number in range(1000)]
    (stack,) = stacks.from_hook([{"name": "MainThread", "main": True, "frames": frames}])

    lines = [frame.line for frame in stack.frames]
    assert lines == [*range(40), *range(960, 1000)]


def test_the_main_thread_of_py_spy_has_the_processes_number() -> None:
    """The thread with the process's own number is the main one; functions are called as hooks call them."""
    text = json.dumps(
        [
            {
                "pid": 7,
                "thread_name": None,
                "os_thread_id": 9,
                "frames": [{"name": "Pinner.<locals>.pin", "filename": "p.py", "line": 3}],
            },
            {
                "pid": 7,
                "thread_name": "MainThread",
                "os_thread_id": 7,
                "frames": [{"name": "f", "filename": "a.py", "line": 0}],
            },
        ]
    )

    assert stacks.from_py_spy(text, 7) == [
        Stack("MainThread", True, [Frame("f", "a.py", 0)], 7),
        Stack("", False, [Frame("pin", "p.py", 3)], 9),
    ]


@pytest.mark.parametrize("text", ["", "Error: permission denied", "{", "[{}]"])
def test_a_complaint_of_py_spy_raises(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        stacks.from_py_spy(text, 7)


def test_in_a_dump_of_faulthandler_the_thread_that_took_the_signal_is_the_main_one(tmp_path: Path) -> None:
    """All threads of a real process; the one that took the signal is the main one."""
    program = tmp_path / "train.py"
    program.write_text(
        "import faulthandler, threading, signal, os, sys\n"
        "ready = threading.Event()\n"
        "def idle():\n"
        "    ready.set()\n"
        "    threading.Event().wait(60)\n"
        "threading.Thread(target=idle, daemon=True).start()\n"
        "ready.wait()\n"
        "faulthandler.register(signal.SIGRTMIN + 6, all_threads=True, chain=False)\n"
        "def stand():\n"
        "    os.kill(os.getpid(), signal.SIGRTMIN + 6)\n"
        "stand()\n"
    )
    text = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True).stderr
    found = stacks.from_faulthandler(text)

    assert [stack.main for stack in found] == [True, False]
    assert found[0].frames == [Frame("stand", str(program), 10), Frame("<module>", str(program), 11)]
    assert found[1].frames[-1].name in ("_bootstrap", "idle")
    assert "idle" in [frame.name for frame in found[1].frames]


CRASHES = """
import ctypes, faulthandler, os, resource, signal, sys, threading, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
faulthandler.enable(file=file, all_threads=True)
faulthandler.register(signal.SIGRTMIN + 6, file=file, all_threads=True)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def stand():
    if sys.argv[1] == "main":
        os.abort()
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.abort, ctypes.c_void_p), None)
    time.sleep(60)
os.kill(os.getpid(), signal.SIGRTMIN + 6)
stand()
"""


@pytest.mark.parametrize(("how", "crashed"), [("main", True), ("native", False)])
def test_a_real_crash(how: str, crashed: bool, tmp_path: Path) -> None:
    """The main thread's stack, and whether it is the one that has crashed: a library may have its own."""
    program, file = tmp_path / "train.py", tmp_path / "stacks.txt"
    program.write_text(CRASHES)
    ended = subprocess.run([sys.executable, str(program), how, str(file)], check=False)
    main, *others = stacks.read_crash(str(file))

    assert -signal.SIGABRT == ended.returncode
    seen = main.frames[0].name, main.frames[0].file, main.main, main.crashed
    assert ("stand", str(program), True, crashed) == seen
    assert [(False, False)] == [(other.main, other.crashed) for other in others]


def test_a_dump_that_was_asked_for_is_no_crash(tmp_path: Path) -> None:
    file = tmp_path / "stacks.txt"
    text = 'Current thread 0x7f (most recent call first):\n  File "/job/train.py", line 4 in stuck\n'
    file.write_text(text)

    assert [] == stacks.read_crash(str(file)) == stacks.read_crash(str(tmp_path / "none"))


def test_in_the_dump_of_a_debug_server_the_last_thread_is_the_main_one() -> None:
    """As torch 2.15 writes it: the server's own thread has no Python, and the main thread is the last."""
    text = (
        "Current thread 0x00007f02e1ffb6c0 (most recent call first):\n  <no Python frame>\n\n"
        "Thread 0x00007f03a09d7a40 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 324 in wait\n\n'
        "Thread 0x00007f03a09d7b80 (most recent call first):\n"
        '  File "/job/train.py", line 4 in stuck\n  File "/job/train.py", line 12 in <module>\n'
    )
    main, other = stacks.from_debug_server(text)

    seen = main.main, main.frames
    assert (True, [Frame("stuck", "/job/train.py", 4), Frame("<module>", "/job/train.py", 12)]) == seen
    assert (False, "wait") == (other.main, other.frames[0].name)
    assert [] == stacks.from_debug_server("not found")


@pytest.mark.parametrize(
    ("how", "function"), [("extension", "fastio.so:do_io"), ("ctypes", "libc.so.6:pause")]
)
def test_the_native_function_of_the_thread_that_owns_the_gil_is_named(how: str, function: str) -> None:
    """By what py-spy has said of real processes: what calls it for Python is passed over."""
    recorded = json.loads(Path(__file__).with_name("recorded").joinpath("py-spy-native.json").read_text())
    (thread,) = recorded[how]

    assert (thread["os_thread_id"], function) == stacks.native_holder(json.dumps([thread]))
    assert (0, "") == stacks.native_holder(json.dumps([{**thread, "owns_gil": False}]))


def test_the_number_of_a_process_of_mp_spawn_is_torchs_own_argument() -> None:
    """By the argument of torch's own function; a user's function of that name has none."""
    local = {"name": "i", "addr": 1, "arg": True, "repr": "2"}
    wrap = {
        "name": "_wrap",
        "filename": "/venv/torch/multiprocessing/spawn.py",
        "line": 90,
        "locals": [local],
    }
    users = {**wrap, "filename": "/src/train.py"}

    def dump(frame: dict[str, object]) -> str:
        return json.dumps([{"frames": [frame]}])

    assert [2, None, None, None] == [
        stacks.spawned_number(text) for text in (dump(wrap), dump(users), dump({**wrap, "locals": None}), "")
    ]


# --- MPI

SOURCE = """\
comm.Barrier()
total = comm.allreduce(
    number,
)
comm.send(comm.recv())
print(total)
"""


def function(path: str, line: int, ready: bool = True) -> str:
    """The innermost frame's name, of a main thread that stands there."""
    threads = [Stack("MainThread", True, [Frame("main", path, line)]), Stack("other", False, [])]
    (main, other) = stacks.with_mpi_function(threads, ready)
    assert Stack("other", False, []) == other
    return main.frames[0].name


@pytest.mark.parametrize(
    ("line", "expected"), [(1, "Barrier"), (2, "allreduce"), (3, "allreduce"), (5, "main"), (6, "main")]
)
def test_a_line_names_its_function_unless_there_are_two(tmp_path: Path, line: int, expected: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)

    assert expected == function(str(path), line)


def test_a_source_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert "main" == function(str(tmp_path / "gone.py"), 1)


def test_an_import_before_mpi_is_ready_is_its_init() -> None:
    file = "<frozen importlib._bootstrap_external>"

    assert ("Init", "main") == (function(file, 1176, ready=False), function(file, 1176, ready=True))
