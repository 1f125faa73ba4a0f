"""The facts about model and GPU that the hook gives with a dump, in a program with a real torch."""

from __future__ import annotations

import os

import pytest
from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.supervisor.hooks import HookMessage

pytestmark = [pytest.mark.slow]

BEGIN = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=0, world_size=1)
def wait(*_):
    open("ready", "w").close()
    time.sleep(60)
"""
WRAPPED = """
dist._broadcast_coalesced = wait
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 64))
"""
BOUND = """
torch.cuda.is_initialized = lambda: True
torch.cuda.current_device = torch.cuda.get_device_properties = torch.cuda._lazy_init = wait
dist.group.WORLD.bound_device_id = torch.device("cuda", 1)
wait()
"""


def dumped(supervisor: Supervisor, program: str, env: dict[str, str] | None = None) -> HookMessage:
    """Return the answer of a rank that runs `program`."""
    supervisor.start(BEGIN + program, env=env)
    supervisor.until((supervisor.folder / "ready").exists, 60)
    return supervisor.ask(supervisor.line("rank"), "dump")


def test_the_size_of_a_model_is_known_while_ddp_broadcasts_it(supervisor: Supervisor) -> None:
    answer = dumped(supervisor, WRAPPED)

    assert ((256 * 64 + 64) * 4, False, False) == (
        answer["broadcasting"],
        "device" in answer,
        "failed" in answer,
    )


def test_a_rank_that_broadcasts_nothing_has_no_size_of_a_model(supervisor: Supervisor) -> None:
    answer = dumped(supervisor, "wait()")

    assert (False, False) == ("broadcasting" in answer, "failed" in answer)


@pytest.mark.parametrize(
    ("visible", "device"),
    [("4,6", "6"), pytest.param("GPU-a,GPU-b", "GPU-b", marks=pytest.mark.whole), (None, "1"), ("4", None)],
)
def test_the_gpu_of_a_rank_is_known_without_a_call_of_cuda(
    supervisor: Supervisor, visible: str | None, device: str | None
) -> None:
    more = "" if visible is None else f"os.environ['CUDA_VISIBLE_DEVICES'] = {visible!r}\n"
    answer = dumped(supervisor, more + BOUND)

    assert (device, False) == (answer.get("device"), "failed" in answer)


FILELOCK = """
import fcntl, filelock
os.symlink(".", "link")
held = open("cache.lock", "w")
fcntl.flock(held, fcntl.LOCK_EX)
open("ready", "w").close()
filelock.FileLock("link/cache.lock").acquire()
"""
BATON = """
from torch.utils.file_baton import FileBaton
FileBaton("cache.lock").try_acquire()
open("ready", "w").close()
FileBaton("cache.lock").wait()
"""


@pytest.mark.parametrize(("program", "baton"), [(FILELOCK, False), (BATON, True)], ids=["filelock", "baton"])
def test_the_file_of_a_lock_that_is_tried_for_is_told_as_the_kernel_names_it(
    supervisor: Supervisor, program: str, baton: bool
) -> None:
    supervisor.start(BEGIN + program)
    supervisor.until((supervisor.folder / "ready").exists, 60)
    line, answers = supervisor.line("rank"), []

    def asleep() -> bool:
        """Between two tries, it is about to sleep or to try."""
        answers.append(supervisor.ask(line, "dump"))
        return answers[-1].get("polls") is not None

    supervisor.until(asleep, 60)
    path = os.path.realpath(supervisor.folder / "cache.lock")

    assert ([path, baton], False) == (answers[-1]["polls"], "failed" in answers[-1])


def test_a_rank_that_tries_for_no_lock_names_no_file(supervisor: Supervisor) -> None:
    answer = dumped(supervisor, "wait()")

    assert (False, False) == ("polls" in answer, "failed" in answer)


STANDS = {
    "loader": "for _ in torch.utils.data.DataLoader([1], collate_fn=wait): pass",
    "collective": "dist.distributed_c10d.AllreduceOptions = wait\ndist.all_reduce(torch.ones(1))",
    "": "sorted([1], key=wait)",
}


@pytest.mark.parametrize("kind", STANDS)
def test_the_kind_of_place_and_the_programs_own_line_are_told_each_second(
    supervisor: Supervisor, kind: str
) -> None:
    supervisor.start(BEGIN + STANDS[kind])
    supervisor.until((supervisor.folder / "ready").exists, 60)
    answer = supervisor.ask(supervisor.line("rank"), "count")

    assert kind == answer["place"][0]
    assert "failed" not in answer


KEYS = """
store = dist.distributed_c10d._get_default_store()
class Data:
    def __init__(self):
        self.kv, self.shard = dist.PrefixStore("data", store), 3
    def ready(self):
        open("ready", "w").close()
        WAITS
Data().ready()
"""


@pytest.mark.parametrize(
    ("waits", "keys"),
    [
        ('self.kv.wait([f"ready/{self.shard}", "index"])', ["ready/3", "index"]),
        ('self.kv.get("ready/" + str(self.shard))', ["ready/3"]),
        ('{"wait": wait}.get("wait")()', None),
    ],
    ids=["keys", "a name that the program makes", "no store"],
)
def test_the_keys_for_which_a_rank_waits_in_the_store_are_known(
    supervisor: Supervisor, waits: str, keys: list[str] | None
) -> None:
    answer = dumped(supervisor, KEYS.replace("WAITS", waits))

    def told() -> bool:
        found = supervisor.ask(supervisor.line("rank"), "dump")
        frames = [thread["frames"][:1] for thread in found["threads"] if thread["main"]]
        return found.get("keys") == keys and frames[0][0][0] in ("ready", "wait")

    supervisor.until(told)
    assert "failed" not in answer
