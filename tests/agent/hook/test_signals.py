"""The signals that a program handles: which, and when."""

from __future__ import annotations

from tests.agent.hook.conftest import Supervisor

BEGINS = """
import os, signal, sys, time
hook = sys.modules["ddplaunch_torch"].load("ddplaunch_signals")
def stop(number, frame):
    print("told", number)
signal.signal(signal.SIGTERM, stop)
"""


def test_a_signal_is_noted_with_its_handler_and_its_time(supervisor: Supervisor) -> None:
    """Those that nobody sends to ask for something are not told."""
    program = (
        "hook.watch()\nhook.watch()\nsignal.signal(signal.SIGCHLD, stop)\n"
        "os.kill(os.getpid(), signal.SIGCHLD)\nhook.note()\n"
        "time.sleep(0.3)\nbefore = time.time()\nos.kill(os.getpid(), signal.SIGTERM)\nafter = time.time()\n"
        "time.sleep(0.2)\nhook.note()\n"
        "(number, at, (name, _, line)), = hook.told()\n"
        "print(number, before - 0.05 <= at <= after + 0.05, name, line)\n"
    )
    code, out, err = supervisor.run(BEGINS + program)

    assert (0, "told 17\ntold 15\n15 True stop 4\n", "") == (code, out, err)


def test_a_rank_that_ends_tells_the_signals_that_it_has_got(supervisor: Supervisor) -> None:
    """It may end for one of them, before anybody asks."""
    program = (
        "sys.modules['ddplaunch_hook']._State.signals = hook\nhook.watch()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsys.exit(1)\n"
    )
    code, _, _ = supervisor.run(BEGINS + program)

    (said,) = supervisor.messages("ending")
    ((number, _, (name, _, _)),) = said["signals"]
    assert (1, 15, "stop") == (code, number, name)


def test_signals_are_noted_where_few_files_may_be_open(supervisor: Supervisor) -> None:
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nhook.watch()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nhook.note()\n"
        "print([number for number, _, _ in hook.told()])\n"
    )
    code, out, err = supervisor.run(BEGINS + program)

    assert (0, "told 15\n[15]\n", "") == (code, out, err)


def test_a_program_with_its_own_descriptor_gets_none_of_ours(supervisor: Supervisor) -> None:
    program = (
        "reads, writes = os.pipe2(os.O_NONBLOCK)\nsignal.set_wakeup_fd(writes)\n"
        "before = os.listdir('/proc/self/fd')\nhook.watch()\n"
        "print(before == os.listdir('/proc/self/fd'), signal.set_wakeup_fd(-1) == writes)\n"
    )
    code, out, err = supervisor.run(BEGINS + program)

    assert (0, "True True\n", "") == (code, out, err)


def test_a_forked_childs_signals_are_its_own(supervisor: Supervisor) -> None:
    program = (
        "hook.watch()\nif os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os._exit(signal.set_wakeup_fd(-1) + 1)\n"
        "print(os.wait()[1])\nhook.note()\nprint(hook.told())\n"
    )
    code, out, err = supervisor.run(BEGINS + program)

    assert (0, "0\n[]\n", "") == (code, out.removeprefix("told 15\n"), err)


def test_a_program_with_a_descriptor_of_its_own_keeps_it(supervisor: Supervisor) -> None:
    """Its own before, or after us, as asyncio's; a thread has none."""
    program = (
        "import asyncio, threading\n"
        "thread = threading.Thread(target=hook.watch)\nthread.start()\nthread.join()\n"
        "print(signal.set_wakeup_fd(-1))\n"
        "reads, writes = os.pipe2(os.O_NONBLOCK)\nsignal.set_wakeup_fd(writes)\nhook.watch()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint(os.read(reads, 9), signal.set_wakeup_fd(-1) == writes)\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n    came = asyncio.Event()\n"
        "    loop.add_signal_handler(signal.SIGUSR1, came.set)\n    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    await came.wait()\n    print('came')\n"
        "asyncio.run(main())\nhook.note()\nprint(hook.told())\n"
    )
    code, out, err = supervisor.run(BEGINS + program)

    assert (0, "-1\ntold 15\nb'\\x0f' True\ncame\n[]\n", "") == (code, out, err)
