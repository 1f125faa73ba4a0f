"""Writes torch's flight recorder of a rank into a file when the folder PEER_DUMPS asks for it.

Gloo's recorder never writes by itself. Two files a rank: as torch gives it, and mended, so that torchfrtrace
can read it: Gloo leaves the groups' keys out of `pg_config`, and the state of what is done at "scheduled".
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from typing import Any

FOLDER = os.environ.get("PEER_DUMPS", "")


def watch() -> None:
    """Waits until the file `now` is there, and writes."""
    while not os.path.exists(os.path.join(FOLDER, "now")):
        time.sleep(0.2)
    native = sys.modules.get("torch._C._distributed_c10d")
    if native is None:
        return
    data = native._dump_fr_trace(True, False, False, "gloo")
    for name, content in (("raw", data), ("mended", pickle.dumps(mended(pickle.loads(data))))):
        path = os.path.join(FOLDER, name, "rank_" + os.environ["RANK"])
        with open(path + ".part", "wb") as file:
            file.write(content)
        os.rename(path + ".part", path)


def mended(dump: dict[str, Any]) -> dict[str, Any]:
    """The dump as torch's NCCL recorder would have written it."""
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    names = {world.pg_names[group]: list(ranks) for group, ranks in world.pg_group_ranks.items()}
    for entry in dump.get("entries", []):
        if entry.get("retired"):
            entry["state"] = "completed"
    described = {entry["process_group"][0]: entry["process_group"][1] for entry in dump.get("entries", [])}
    dump["pg_config"] = {
        name: {"name": name, "desc": described.get(name, "default_pg"), "ranks": str(ranks)}
        for name, ranks in names.items()
    }
    return dump


if FOLDER and "RANK" in os.environ:
    threading.Thread(target=watch, daemon=True).start()
