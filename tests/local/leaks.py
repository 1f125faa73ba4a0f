"""A program that gives its secret away wherever it can, then hangs, or dies of it."""

import base64
import os
import sys
import threading
import time
import urllib.parse

import torch.distributed as dist

TOKEN = os.environ["TOKEN"]
EVIL = "\x1b]0;owned\x07\x9b2J\u202e"


def stand() -> None:
    """A thread whose name is the secret stands here."""
    time.sleep(600)


dist.init_process_group("gloo")
threading.Thread(target=stand, name=f"login {TOKEN}{EVIL}", daemon=True).start()
dist.new_group(ranks=[0, 1], group_desc=f"group {TOKEN}{EVIL}")
os.environ["MASTER_PASSWORD"] = TOKEN
exec(compile("def f(wait):\n    wait()\n", f"/{TOKEN}{EVIL}.py", "exec"))
for _ in range(3):
    dist.barrier()
try:
    raise ValueError(f"caught password={TOKEN}{EVIL}")
except ValueError as error:
    print(f"https://x/?t={urllib.parse.quote(TOKEN)} {base64.b64encode(TOKEN.encode()).decode()}", flush=True)
    print(f"last words: {error!r} {TOKEN}{EVIL}", flush=True)
    if os.environ["RANK"] == "0" and sys.argv[1] == "hang":
        exec("f(stand)")
    elif os.environ["RANK"] == "0":
        time.sleep(2)
        raise RuntimeError(f"password={TOKEN}{EVIL}") from None
dist.barrier()
