"""What the hook says of init_process_group: where ranks meet, by which line, and that they have met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.hook.conftest import Supervisor
from tests.ports import own_port

pytestmark = pytest.mark.slow

SETS = """
import os
import torch.distributed as dist
from torch._inductor.runtime.cache_dir_utils import cache_dir
os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "0"
print(os.environ["TORCHINDUCTOR_CACHE_DIR"] == cache_dir() if cache_dir() else None)
dist.init_process_group("gloo")
dist.destroy_process_group()
"""
MEETS = """
import os
import torch.distributed as dist
os.environ["MASTER_ADDR"] = "127.0.0.1"
def setup():
    dist.init_process_group("gloo", timeout=__import__("datetime").timedelta(seconds=40))
setup()
print(dist.get_world_size(), dist.init_process_group.__wrapped__ is not None, flush=True)
dist.destroy_process_group()
"""
SPAWNS = """
import sys, time
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    if rank == 1:
        raise ValueError("no batch")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=1)
    time.sleep(2)
if __name__ == "__main__":
    mp.spawn(work, args=(int(sys.argv[0] and open("port").read()),), nprocs=2)
"""


@pytest.fixture(name="port")
def _port() -> int:
    return own_port()


def said(supervisor: Supervisor, word: str) -> list[Any]:
    """What processes said under this word, in order."""
    return [message[word] for message in supervisor.messages(word)]


def test_a_call_is_told_before_it_waits_and_when_it_has_returned(supervisor: Supervisor, port: int) -> None:
    env = {"MASTER_ADDR": "elsewhere", "MASTER_PORT": str(port), "WORLD_SIZE": "1"}
    code, out, err = supervisor.run(MEETS, env=env)
    (made,) = said(supervisor, "rendezvous")
    script = str(supervisor.folder / "train0.py")

    assert (0, "1 True\n") == (code, out), err
    assert ("env", "127.0.0.1", port, 0, 1) == tuple(
        made[key] for key in ("method", "address", "port", "rank", "world_size")
    )
    assert ("gloo", 40.0, ["setup", script, 6]) == (made["backend"], made["timeout"], made["frame"])
    assert [["MASTER_ADDR", "127.0.0.1", ["<module>", script, 4], "elsewhere"]] == made["settings"]
    assert [True] == said(supervisor, "passed")


@pytest.mark.whole
def test_mp_spawns_children_speak_for_themselves(supervisor: Supervisor, port: int) -> None:
    (supervisor.folder / "port").write_text(str(port))
    supervisor.run(SPAWNS, rank=None, words=",any")
    (made,) = said(supervisor, "rendezvous")
    failures = [raised for raised in said(supervisor, "raised") if raised["type"] == "ValueError"]

    assert ("tcp", 0, 1) == (made["method"], made["rank"], made["world_size"])
    assert {("no batch", "work")} == {(each["message"], each["frames"][0][0]) for each in failures}


@pytest.mark.whole
def test_what_a_file_held_before_the_call_is_told(supervisor: Supervisor, tmp_path: Path) -> None:
    """A run that ended without a word has left its keys; torch deletes the file at a good end."""
    call = f"d.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
    for end in ("__import__('os')._exit(0)", "d.destroy_process_group()"):
        supervisor.run(f"import torch.distributed as d\n{call}{end}\n")

    assert [False, True] == [made["file_used"] for made in said(supervisor, "rendezvous")]


def test_the_path_of_a_file_store_is_told(supervisor: Supervisor, tmp_path: Path) -> None:
    path = tmp_path / "store"
    call = f"d.init_process_group('gloo', store=d.FileStore('{path}', 1), rank=0, world_size=1)\n"
    supervisor.run("import torch.distributed as d\n" + call + "d.destroy_process_group()\n")
    (made,) = said(supervisor, "rendezvous")

    assert ("store", str(path), "", None) == tuple(made[key] for key in ("method", "file", "address", "port"))


@pytest.mark.whole
def test_a_variable_that_torch_sets_is_not_the_scripts_own(supervisor: Supervisor, port: int) -> None:
    """Its compiler sets a variable at its import, below a line of the script's; that line is not to blame."""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "1"}
    code, out, err = supervisor.run(SETS, env=env)
    (made,) = said(supervisor, "rendezvous")

    assert (0, "True\n") == (code, out), err
    assert [setting[0] for setting in made["settings"]] == ["TORCH_SHOW_CPP_STACKTRACES"]
