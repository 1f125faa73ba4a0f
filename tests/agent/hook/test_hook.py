"""The worker hook inside real Python programs: what it tells, and that nobody notices it otherwise."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.agent.hook.conftest import Supervisor
from tests.busy import BUSY

from ddplaunch.agent import hook
from ddplaunch.agent.evidence import stacks

STANDS = """
import threading, time
def helper():
    time.sleep(60)
def stand():
    print("up", flush=True)
    time.sleep(60)
threading.Thread(target=helper, name="helper", daemon=True).start()
stand()
"""


def test_a_rank_says_who_it_is(supervisor: Supervisor) -> None:
    process = supervisor.start(STANDS, rank=3)
    line = supervisor.line("rank")

    version = ".".join(map(str, sys.version_info[:3]))
    assert (line.pid, line.rank, line.local_rank, line.python) == (process.pid, 3, 3, version)


def test_a_dump_has_every_thread_but_the_hooks_own(supervisor: Supervisor) -> None:
    process = supervisor.start(STANDS)
    assert process.stdout is not None
    process.stdout.readline()
    line = supervisor.line("rank")
    supervisor.until(lambda: supervisor.ask(line, "look")["main_stack"]["frames"][0][2] == 7)
    answer = supervisor.ask(line, "dump")

    threads = {thread["name"]: thread for thread in answer["threads"]}
    assert sorted(threads) == ["MainThread", "helper"]
    assert [threads[name]["main"] for name in sorted(threads)] == [True, False]
    assert [frame[0] for frame in threads["MainThread"]["frames"]] == ["stand", "<module>"]
    assert threads["MainThread"]["frames"][0][1:] == [str(supervisor.folder / "train0.py"), 7]
    assert answer["initialized"] is False
    assert "failed" not in answer


def test_a_dump_can_be_had_while_the_program_imports_threading(supervisor: Supervisor) -> None:
    """A module is in sys.modules before its names are there."""
    half = 'import sys, time; sys.modules["threading"] = type(sys)("threading"); print(1, flush=True)'
    process = supervisor.start(f"{half}; time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    answer = supervisor.ask(supervisor.line("rank"), "dump")

    assert ["MainThread"] == [thread["name"] for thread in answer["threads"]]


def test_a_look_is_the_main_thread_alone_and_a_count_no_stack(supervisor: Supervisor) -> None:
    supervisor.start(STANDS)
    line = supervisor.line("rank")
    look, count = supervisor.ask(line, "look"), supervisor.ask(line, "count")

    assert (look["main_stack"]["name"], "threads" in look) == ("MainThread", False)
    assert sorted(count) == ["at", "initialized", "is", "recorders", "tid"]


def test_a_rank_in_an_except_block_says_in_which(supervisor: Supervisor) -> None:
    process = supervisor.start(
        "import time\ntry:\n    [][1]\nexcept IndexError:\n    print('up', flush=True)\n    time.sleep(60)\n"
    )
    assert process.stdout is not None
    process.stdout.readline()
    handled = supervisor.ask(supervisor.line("rank"), "dump")["handled"]

    expected = [("IndexError", "list index out of range", 3)] if hasattr(sys, "_current_exceptions") else []
    assert [(each["type"], each["message"], each["frames"][0][2]) for each in handled] == expected


def test_what_finally_holds_back_is_told(supervisor: Supervisor) -> None:
    """With what was handled when it was raised; what is over by then is not in flight."""
    program = (
        "import time\n"
        "def step():\n    try:\n        raise KeyError('over')\n    except KeyError:\n        pass\n"
        "    try:\n        raise ValueError('first')\n    finally:\n        raise OSError('then')\n"
        "try:\n    step()\nfinally:\n    print('up', flush=True)\n    time.sleep(60)\n"
    )
    process = supervisor.start(program)
    assert process.stdout is not None
    process.stdout.readline()
    found = supervisor.ask(supervisor.line("rank"), "dump")["in_flight"]

    told = [(each["type"], each["message"], [frame[2] for frame in each["frames"]]) for each in found]
    known = [("OSError", "then", [10, 12]), ("ValueError", "first", [8])]
    assert (known if hasattr(sys, "_current_exceptions") else []) == told


@pytest.mark.parametrize(
    ("hides", "hidden"), [("OSError('gone')", ["ValueError"]), ("OSError('gone') from None", [])]
)
def test_an_exception_that_another_one_has_hidden_is_told_with_it(
    supervisor: Supervisor, hides: str, hidden: list[str]
) -> None:
    supervisor.start(f"try:\n    raise ValueError('first')\nfinally:\n    raise {hides}\n")
    supervisor.until(lambda: supervisor.messages("raised"))

    (message,) = supervisor.messages("raised")
    assert hidden == [each["type"] for each in message["raised"]["in_flight"]]


def test_an_uncaught_exception_is_told_before_it_is_printed(supervisor: Supervisor) -> None:
    process = supervisor.start("def f():\n    raise ValueError('no batch')\nf()\n")
    line = supervisor.line("rank")
    supervisor.until(lambda: supervisor.messages("raised"))
    time.sleep(0.2)
    assert process.poll() is None
    line.send(b"go")
    _, err = process.communicate()

    (message,) = supervisor.messages("raised")
    path = str(supervisor.folder / "train0.py")
    assert message["raised"]["type"] == "ValueError"
    assert message["raised"]["message"] == "no batch"
    assert message["raised"]["frames"] == [["f", path, 2], ["<module>", path, 3]]
    assert (process.returncode, err.splitlines()[-1]) == (1, "ValueError: no batch")


def test_a_rank_that_nobody_lets_go_goes_after_three_seconds(supervisor: Supervisor) -> None:
    begun = time.monotonic()  # when `start` returns, the program may be well on its way on a busy machine
    process = supervisor.start("raise SystemError('x')")
    process.wait(BUSY * 20)

    assert 2.5 < time.monotonic() - begun < BUSY * 15
    assert process.returncode == 1


def test_the_programs_own_excepthook_runs_after_ours(supervisor: Supervisor) -> None:
    """Installed later and chaining, as torch does, or set by the user's sitecustomize: both run."""
    program = (
        "import sys\nold = sys.excepthook\n"
        "def mine(*args):\n    print('mine', flush=True)\n    old(*args)\n"
        "sys.excepthook = mine\nraise KeyError('k')\n"
    )
    code, out, err = supervisor.run(program)

    assert (code, out) == (1, "mine\n")
    assert err.splitlines()[-1] == "KeyError: 'k'"
    assert [message["raised"]["type"] for message in supervisor.messages("raised")] == ["KeyError"]


def test_an_interpreter_that_ends_by_itself_says_so(supervisor: Supervisor) -> None:
    begun = time.time()
    code, _, _ = supervisor.run("pass")

    assert code == 0
    (said,) = supervisor.messages("ending")
    assert said.keys() == {"ending"}
    assert begun <= said["ending"] <= time.time()
    assert supervisor.hooks.lines == {}


EXITS = """
import pickle, sys, threading
assert pickle.loads(pickle.dumps(sys.exit)) is sys.exit and sys.exit.__doc__
try:
    sys.exit(1, 2)
except TypeError as error:
    assert sys.version_info < (3, 11) or error.__traceback__.tb_next is None
threading.Thread(target=sys.exit, args=(7,)).start()
def check():
    try:
        raise ValueError("no data")
    except ValueError:
        {}
{}
"""


def test_a_rank_that_calls_exit_says_where_and_in_which_handler(supervisor: Supervisor) -> None:
    code, out, err = supervisor.run(EXITS.format("sys.exit('no data')", "check()"))

    assert (1, "", "no data\n") == (code, out, err)
    ((call, handled),) = (message["left"] for message in supervisor.messages("ending"))
    assert ("sys.exit", "'no data'") == (call["type"], call["message"])
    assert ["check", "<module>"] == [name for name, _, _ in call["frames"]]
    assert ("ValueError", "no data") == (handled["type"], handled["message"])


@pytest.mark.parametrize(
    ("how", "call"),
    [
        ("quit(3)", {"type": "quit", "message": "3"}),
        ("exit()", {"type": "exit", "message": ""}),
        ("import os; os._exit(3)", {"type": "os._exit", "message": "3"}),
    ],
)
def test_other_ways_to_exit_are_told_alike(supervisor: Supervisor, how: str, call: dict[str, str]) -> None:
    code, out, err = supervisor.run(EXITS.format(how, "check()"))

    assert (3 if call["message"] else 0, "", "") == (code, out, err)
    ((told, handled),) = (message["left"] for message in supervisor.messages("left"))
    assert call == {key: told[key] for key in call}
    assert ("check", "ValueError") == (told["frames"][0][0], handled["type"])


def test_a_thread_that_sys_exit_has_ended_is_told_unless_it_has_caught_that(supervisor: Supervisor) -> None:
    program = (
        "import sys, threading, time\ndef ends():\n    sys.exit('no data')\n"
        "def catches():\n    try:\n        sys.exit(3)\n    except SystemExit:\n        time.sleep(60)\n"
        "threading.Thread(target=catches, daemon=True).start()\n"
        "thread = threading.Thread(target=ends)\nthread.start()\nthread.join()\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    process = supervisor.start(program)
    assert process.stdout is not None
    process.stdout.readline()
    (told,) = supervisor.ask(supervisor.line("rank"), "dump")["handled"]

    assert ("SystemExit", "'no data'") == (told["type"], told["message"])
    assert ["ends", "run"] == [name for name, _, _ in told["frames"]][:2]


def test_a_thread_may_end_the_process_and_a_forked_child_its_own(supervisor: Supervisor) -> None:
    program = (
        "import os, pickle, threading\nassert pickle.loads(pickle.dumps(os._exit)) is os._exit\n"
        "if os.fork() == 0:\n    os._exit(status=5)\nassert os.wait()[1] == 5 << 8\n"
        "def watch():\n    os._exit(4)\n"
        "threading.Thread(target=watch).start()\nimport time\ntime.sleep(60)\n"
    )
    assert (4, "", "") == supervisor.run(program)
    (told,) = (message["left"][0] for message in supervisor.messages("left"))
    assert ("os._exit", "4", "watch") == (told["type"], told["message"], told["frames"][0][0])


@pytest.mark.parametrize("last", ["sys.exit(int('3'))", "raise SystemExit(3)", "pass"])
def test_an_exit_that_is_every_programs_last_line_is_not_told(supervisor: Supervisor, last: str) -> None:
    supervisor.run(EXITS.format("pass", last))

    assert [{"ending"}] == [message.keys() for message in supervisor.messages("ending")]


def test_an_exception_that_cannot_be_printed_does_not_break_the_hook(supervisor: Supervisor) -> None:
    program = "class Bad(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Bad\n"
    code, _, _ = supervisor.run(program)

    assert code == 1
    assert supervisor.messages("raised")[0]["raised"]["message"] == "<its message cannot be printed>"


@pytest.mark.parametrize(
    ("words", "rank", "program"),
    [
        ("", None, "pass"),
        ("", None, "import os; assert 'ddplaunch_hook' not in os.environ"),
        (",rank=1", 0, "pass"),
    ],
    ids=["no rank", "torchrun itself", "a rank's helper"],
)
def test_programs_that_are_not_watched_do_not_connect(
    supervisor: Supervisor, words: str, rank: int | None, program: str
) -> None:
    assert supervisor.run(program, rank=rank, words=words) == (0, "", "")
    assert supervisor.heard == []


def test_a_program_without_a_rank_says_hello_where_it_is_the_launch_command(supervisor: Supervisor) -> None:
    """Where the launch command is no torchrun, a program without RANK says hello too."""
    supervisor.run("pass", rank=None, words=",any")
    supervisor.until(lambda: supervisor.messages("hello") != [])

    assert [message["hello"] for message in supervisor.messages("hello")] == ["any"]


NOTICED = """
import sys, os, threading, gc, warnings
assert threading.active_count() == 1, threading.enumerate()
assert sys.excepthook.__module__ != "nothing"
assert not [entry for entry in sys.path if entry.endswith("/hook")], sys.path
fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
assert len(fds) <= 7, fds
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
import subprocess
child = "import os; fds = os.listdir('/proc/self/fd'); assert len(fds) <= 4, fds"
subprocess.run([sys.executable, "-c", child], check=True)
gc.collect()
"""


@pytest.mark.parametrize("options", [(), ("-W", "error", "-X", "dev"), ("-b", "-W", "error"), ("-O",)])
def test_nobody_notices_the_hook(supervisor: Supervisor, options: tuple[str, ...]) -> None:
    assert supervisor.run(NOTICED, options=options) == (0, "", "")


@pytest.mark.parametrize("options", [("-I",), ("-E",), ("-S",)])
def test_a_python_that_ignores_pythonpath_runs_without_the_hook(
    supervisor: Supervisor, options: tuple[str, ...]
) -> None:
    assert supervisor.run("pass", options=options) == (0, "", "")
    assert supervisor.heard == []


def test_a_program_without_a_supervisor_runs_all_the_same(supervisor: Supervisor) -> None:
    supervisor.hooks.name = "ddplaunch-nobody"

    assert supervisor.run("print('ran')") == (0, "ran\n", "")


def test_the_users_own_sitecustomize_runs_under_its_own_name(supervisor: Supervisor) -> None:
    mine = supervisor.folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = __file__\n")
    program = "import sys\nassert sys.modules['sitecustomize'].__file__ == mine\nprint(mine)\n"

    assert supervisor.run(program, env={"PYTHONPATH": str(mine)}) == (0, f"{mine}/sitecustomize.py\n", "")
    assert len(supervisor.messages("hello")) == 1


def test_what_python_says_of_a_broken_sitecustomize_it_still_says(supervisor: Supervisor) -> None:
    mine = supervisor.folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    plain = subprocess.run(
        [sys.executable, "-c", "pass"],
        env={**os.environ, "PYTHONPATH": str(mine)},
        capture_output=True,
        text=True,
    )
    _, _, err = supervisor.run("pass", env={"PYTHONPATH": str(mine)})

    assert plain.stderr != ""
    assert err == plain.stderr


FORKS = """
import multiprocessing, os, time
def work(queue):
    queue.put(os.getpid())
    time.sleep(60)
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,), daemon=True)
    worker.start()
    queue.get()
    print(worker.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_loader_worker_is_no_rank_and_its_stack_can_be_had(supervisor: Supervisor, method: str) -> None:
    process = supervisor.start(FORKS.format(method=method))
    assert process.stdout is not None
    rank = supervisor.line("rank")
    supervisor.until(lambda: len(supervisor.messages("hello")) >= (3 if method == "forkserver" else 2))
    pid = int(process.stdout.readline())
    stack = supervisor.ask(supervisor.hooks.lines[pid], "look")["main_stack"]["frames"]

    assert supervisor.hooks.lines[pid].role == "child"
    assert "work" in [frame[0] for frame in stack]
    assert supervisor.ask(rank, "look")["main_stack"]["frames"][0][0] == "<module>"


def test_a_dying_child_does_not_speak_for_its_parent(supervisor: Supervisor) -> None:
    program = (
        "import os, sys, time\nif os.fork() == 0:\n    raise ValueError('child')\n"
        "os.wait()\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    process = supervisor.start(program)
    assert process.stdout is not None
    process.stdout.readline()
    supervisor.ask(supervisor.line("rank"), "count")

    assert supervisor.messages("raised") + supervisor.messages("ending") == []


def test_stacks_come_by_signal_when_native_code_holds_the_gil(supervisor: Supervisor) -> None:
    program = (
        "import ctypes\nlibc = ctypes.PyDLL(None)\nprint('up', flush=True)\n"
        "def stand():\n    while True:\n        libc.sleep(60)\nstand()\n"
    )
    process = supervisor.start(program)
    assert process.stdout is not None
    line = supervisor.line("rank")
    process.stdout.readline()

    def silent() -> bool:
        supervisor.hooks.ask_all([line], b"look", time.monotonic() + 0.3, lambda: None)
        return line.silent_for >= 0.3

    supervisor.until(silent)
    os.kill(process.pid, signal.SIGRTMIN + 6)
    text = supervisor.until(lambda: Path(line.fault_file).read_text())

    assert "in stand" in text


def test_where_a_rank_crashes_is_written(supervisor: Supervisor) -> None:
    """A forked child's crash is not its parent's, and who asks for stacks elsewhere gets them there."""
    no_core = "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    crash = f"{no_core}if os.fork() == 0:\n    os.abort()\nos.wait()\ndef stand():\n    os.abort()\nstand()\n"
    code, _, error = supervisor.run(crash)
    line = supervisor.line("rank")
    main = stacks.read_crash(line.fault_file)[0]  # behind it the hook's own thread, if it was there by then
    supervisor.heard.clear()
    _, _, elsewhere = supervisor.run(crash, env={"PYTHONFAULTHANDLER": "1"})

    assert (-signal.SIGABRT, "", "stand") == (code, error, main.frames[0].name)
    assert 1 == Path(line.fault_file).read_text().count("Fatal Python error")
    assert 2 == elsewhere.count("Fatal Python error: Aborted")
    assert [] == stacks.read_crash(supervisor.line("rank").fault_file)


def test_the_signal_for_stacks_kills_nobody_who_is_ending(supervisor: Supervisor) -> None:
    number = signal.SIGRTMIN + 6
    program = (
        "import ctypes, os\nos.mkfifo('end')\nos.dup2(os.open('end', os.O_RDWR), 0)\n"
        "libc = ctypes.CDLL(None)\nlibc.on_exit(libc.getchar, None)\n"  # by exit(), after all of Python
    )
    process = supervisor.start(program)
    status = Path(f"/proc/{process.pid}/status")

    def is_caught() -> bool:
        (mask,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt")]
        return bool(int(mask, 16) >> (number - 1) & 1)

    supervisor.until(lambda: supervisor.messages("hello"))
    supervisor.until(lambda: not is_caught())
    os.kill(process.pid, number)
    (supervisor.folder / "end").write_text("now\n")

    assert 0 == process.wait(20)


def test_a_rank_dies_with_its_launcher_and_not_with_a_thread_of_it(supervisor: Supervisor) -> None:
    """Killed launchers leave no rank behind; a rank that a thread started is not tied to that thread."""
    parent = (
        "import os, subprocess, sys, threading, time\n"
        "env = {{**os.environ, 'RANK': '0', 'LOCAL_RANK': '0'}}\n"
        "ranks = []\n"
        "def start():\n"
        "    ranks.append(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env=env))\n"
        "    time.sleep(1)\n"
        "{call}\n"
        "print(ranks[0].pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    pids = []
    for call in ("start()", "t = threading.Thread(target=start); t.start(); t.join()"):
        process = supervisor.start(parent.format(call=call), rank=None)
        assert process.stdout is not None
        pids.append(int(process.stdout.readline()))
    supervisor.until(lambda: len(supervisor.messages("hello")) == 2)
    supervisor.started[0].kill()

    supervisor.until(lambda: pids[0] not in supervisor.hooks.lines)
    assert pids[1] in supervisor.hooks.lines
    os.kill(pids[1], signal.SIGKILL)


def test_a_process_of_another_user_gets_nothing(supervisor: Supervisor) -> None:
    if os.geteuid() != 0:
        return  # only root can be somebody else
    program = (
        "import os, socket\nos.setuid(65534)\n"
        f"s = socket.socket(socket.AF_UNIX)\ns.connect(chr(0) + {supervisor.hooks.name!r})\n"
        "try:\n"
        '    s.sendall(b\'{"hello": "rank", "rank": "0", "local_rank": "0"}\\n\')\n'
        "    print(s.recv(10) == b'')\nexcept ConnectionError:\n    print(True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    supervisor.until(lambda: process.poll() is not None)

    assert process.communicate()[0] == "True\n"
    assert supervisor.heard == []


def test_the_hook_is_written_for_python_3_8() -> None:
    for path in Path(hook.__file__).parent.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


SHOWS = "import sys\nprint(*sorted(sys.modules), sep='\\n')\n"


def test_the_hook_imports_neither_json_nor_sockets(supervisor: Supervisor) -> None:
    _, modules, _ = supervisor.run(SHOWS, rank=None)

    assert "ddplaunch_hook" in modules.split()
    assert {"json", "socket", "struct", "importlib.util"}.isdisjoint(modules.split())


def test_the_next_program_finds_the_hook_compiled(supervisor: Supervisor) -> None:
    (supervisor.folder / "mine.py").write_text("")
    code, out, _ = supervisor.run(
        "import mine, sys\nprint(sys.dont_write_bytecode)", rank=None, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )
    compiled = [path.name.partition(".")[0] for path in Path(supervisor.place.hook, "__pycache__").iterdir()]

    assert (code, out, "ddplaunch_hook" in compiled) == (0, "True\n", True)
    assert not (supervisor.folder / "__pycache__").exists()


def test_what_the_hook_needs_later_is_found_and_no_file_to_coverage(supervisor: Supervisor) -> None:
    """Its folder is out of sys.path by then; coverage measures modules that have a file."""
    program = """
import sys
later = sys.modules["ddplaunch_torch"].load("ddplaunch_caught")
print(later.watch.__name__, sys.modules["ddplaunch_caught"] is later)
print(*(m.__file__ for name, m in sys.modules.items() if name.startswith("ddplaunch_")), sep="\\n")
"""
    code, out, err = supervisor.run(program, rank=None)
    first, *files = out.splitlines()

    assert (code, first, err) == (0, "watch True", "")
    assert [each for each in files if not each.startswith("<ddplaunch>/ddplaunch_")] == []
