"""The processes that a program has started with multiprocessing."""

from __future__ import annotations

import signal

import pytest
from tests.agent.hook.conftest import Supervisor

STARTS = """
import multiprocessing, os, signal, time
def helps(how):
    if how:
        os.kill(os.getpid(), how)
    time.sleep(60)
fork = multiprocessing.get_context("fork")
helper = fork.Process(target=helps, args=(HOW,), name="tokenizer", daemon=True)
helper.start()
while ASKS and helper.is_alive():
    time.sleep(0.01)
open("ready", "w").write(str(helper.pid))
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "asks", "code"),
    [(signal.SIGKILL, True, -9), (signal.SIGKILL, False, None), (0, False, None)],
    ids=["is gone", "nobody has asked", "lives"],
)
def test_a_helper_is_known_by_its_name_and_its_end_once_the_program_knows_it(
    supervisor: Supervisor, how: int, asks: bool, code: int | None
) -> None:
    supervisor.start(STARTS.replace("HOW", str(int(how))).replace("ASKS", str(asks)))
    ready = supervisor.folder / "ready"
    supervisor.until(lambda: ready.exists() and ready.read_text())
    answer = supervisor.ask(supervisor.line("rank"), "dump")

    assert ([[int(ready.read_text()), "tokenizer", code]], False) == (answer["processes"], "failed" in answer)


POOL = """
import multiprocessing, os, signal, time
def helps(how):
    open("pid", "w").write(str(os.getpid()))
    os.kill(os.getpid(), how)
pool = multiprocessing.get_context("fork").Pool(1)
first = pool._pool[0]
pool.apply_async(helps, (signal.SIGKILL,))
while first in pool._pool:
    time.sleep(0.01)
del first
open("ready", "w").close()
time.sleep(60)
"""


def test_a_worker_that_a_pool_has_replaced_is_known_by_its_end(supervisor: Supervisor) -> None:
    """The pool forgets the process, and with it the task that it had."""
    supervisor.start(POOL)
    supervisor.until((supervisor.folder / "ready").exists)
    ended = supervisor.ask(supervisor.line("rank"), "dump")["processes"]

    assert (int((supervisor.folder / "pid").read_text()), -9) in [(pid, code) for pid, _, code in ended]


def test_a_program_without_helpers_tells_none(supervisor: Supervisor) -> None:
    supervisor.start("import time; open('ready', 'w').close(); time.sleep(60)")
    supervisor.until((supervisor.folder / "ready").exists)

    assert "processes" not in supervisor.ask(supervisor.line("rank"), "dump")
