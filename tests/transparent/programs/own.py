"""Uses what Python offers for looking at programs, and for their ends: `own.py KIND`."""

import atexit
import faulthandler
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
from pathlib import Path


def say(*words: object) -> None:
    print(*words, flush=True)


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> None:
    raise ValueError(f"no {number}")


def excepthook() -> None:
    """An own hook gets the exception, and the one before it is Python's."""
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: object) -> None:
        say("mine:", kind.__name__, value)
        before(kind, value, trace)  # type: ignore[arg-type]

    sys.excepthook = hook
    fail(1)


def uncaught() -> None:
    try:
        fail(1)
    except ValueError as error:
        raise RuntimeError("of this") from error


def thread_uncaught() -> None:
    thread = threading.Thread(target=fail, args=(2,), name="mine")
    thread.start()
    thread.join()
    say("goes on")


def faults() -> None:
    faulthandler.enable(all_threads=False)
    faulthandler.dump_traceback(file=sys.stdout, all_threads=False)
    os.kill(os.getpid(), 11)


def recursion() -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    try:
        deeper(0)
    except RecursionError:
        say("depth is bounded")


def settrace() -> None:
    """What a debugger or coverage sees of the program's own lines."""
    seen = []

    def trace(frame: object, event: str, argument: object) -> object:
        code = frame.f_code  # type: ignore[attr-defined]
        if code.co_filename == __file__:
            seen.append((event, code.co_name, frame.f_lineno))  # type: ignore[attr-defined]
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    double(3)
    try:
        fail(3)
    except ValueError:
        pass
    sys.settrace(None)
    say(seen)


def profile() -> None:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.runcall(sum, map(double, range(100)))
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    say(sorted((Path(key[0]).name, key[2], value[0]) for key, value in stats.items()))


def ends() -> None:
    atexit.register(say, "first registered, last called")
    atexit.register(say, "second")
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    say([each.name for each in threading.enumerate() if each.name == "MainThread"])
    sys.exit("a text as the exit code")


def hard() -> None:
    atexit.register(say, "never said")
    sys.stdout.write("lost in the buffer")
    os._exit(6)


def start(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=queue.put, args=([method],))
    process.start()
    say(queue.get(timeout=30))
    process.join()
    bad = context.Process(target=fail, args=(7,), name="bad")
    bad.start()
    bad.join()
    say(process.exitcode, bad.exitcode)


def pool() -> None:
    with ProcessPoolExecutor(2) as executor:
        say(list(executor.map(double, range(5))))
        try:
            executor.submit(fail, 9).result()
        except ValueError as error:
            say(error, [line.strip() for line in traceback.format_exc().splitlines() if "File" in line][-3:])


def broken() -> None:
    """A worker kills itself; its parent catches that, and goes on with another pool."""
    with ProcessPoolExecutor(1) as executor:
        try:
            executor.submit(os._exit, 9).result()
        except Exception as error:
            say(type(error).__name__)
    with ProcessPoolExecutor(1) as executor:
        say(executor.submit(double, 4).result())


def children() -> None:
    """Descriptors for a child, and what a child sees."""
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'passed'); print(sorted(os.listdir('/proc/self/fd'))[:4])"
    subprocess.run([sys.executable, "-c", code], pass_fds=[write], check=True)
    say(os.read(read, 10))
    subprocess.run([sys.executable, "-c", "import sys; sys.exit(3)"], close_fds=True, check=False)
    say(subprocess.run("ls /proc/self/fd | head -n 3; exit 5", shell=True, close_fds=False).returncode)


def forks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pid = os.fork()
    if pid == 0:
        say("in the child", threading.active_count())
        os._exit(4)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        say("no other child")


def daemonizes() -> None:
    """As a daemon does: it closes all descriptors it does not know, and opens its own."""
    os.closerange(3, 4096)
    with open("mine.log", "wb", 0) as log:
        log.write(b"begun\n")
        others = [open(f"mine.{number}", "wb", 0) for number in range(1000)] if os.getenv("MANY") else []
        time.sleep(1.5)
        log.write(b"done\n")
        sizes = {os.fstat(each.fileno()).st_size for each in others}
        for each in others:
            os.unlink(each.name)
        say(log.fileno(), sizes)


def findcaller() -> None:
    logging.basicConfig(format="%(filename)s:%(funcName)s:%(lineno)d %(message)s", stream=sys.stdout)
    logging.warning("here")
    warnings.warn("there", stacklevel=1)
    say(traceback.extract_stack()[-1].name, len(traceback.extract_stack()))


def shared() -> None:
    memory = shared_memory.SharedMemory(os.environ["TRANSPARENT_MARK"], create=True, size=64)
    memory.buf[0] = 7
    say(memory.buf[0])
    memory.close()
    memory.unlink()


def environment() -> None:
    """os.environ and the C library's environment change together, and children see it."""
    os.environ["NCCL_DEBUG"] = "WARN"
    os.environ.pop("HOME")
    os.putenv("PUT", "1")
    subprocess.run(["sh", "-c", "echo $NCCL_DEBUG $HOME $PUT"], check=True)
    say(type(os.environ).__name__, type(os.putenv).__name__, os.environ.putenv is os.putenv)  # type: ignore[attr-defined]


def modules() -> None:
    """Imports of one's own, also by a finder of one's own."""
    import importlib.abc
    import importlib.util

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> object:  # type: ignore[override]
            return importlib.util.spec_from_loader(name, None) if name == "made_up" else None

    sys.meta_path.insert(0, Finder())
    import made_up  # type: ignore[import-not-found]

    say(made_up.__name__, importlib.util.find_spec("json").name)  # type: ignore[union-attr]
    importlib.reload(sys.modules["importlib.util"])
    say([each for each in sys.path if "hook" in each])


def opened() -> None:
    """A ResourceWarning tells of a file that is not closed, an unraisable hook of an exception in __del__."""

    class Bad:
        def __del__(self) -> None:
            raise ValueError("in __del__")

    warnings.simplefilter("always")
    open("facts.py")
    Bad()
    say("after")


def background() -> None:
    subprocess.Popen(["sleep", "30"])
    say("its child goes on")


def collected() -> None:
    """Garbage of the program alone is collected; nothing is frozen or disabled."""
    import gc

    say(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.callbacks)


kind, *rest = sys.argv[1:]
if __name__ == "__main__":
    globals()[kind](*rest)
