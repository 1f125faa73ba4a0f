"""Does with its workers what torchrun does: numbers them, keeps their logs, ends all once one has failed."""

import os
import signal
import subprocess
import sys
import time

_PATIENCE = 10.0
"""Seconds between SIGTERM and SIGKILL for the workers; torchrun's are 30."""


def main() -> int:
    """Returns the exit code."""
    given, command = _arguments(sys.argv[1:])
    per_node, node = int(given["nproc-per-node"]), int(given.get("node-rank", "0"))
    home = os.path.join(os.environ["PET_LOG_DIR"], "none_stand_in", "attempt_0")
    workers = []

    def end(number: int, frame: object) -> None:
        sys.exit(_end(workers))

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)
    for local in range(per_node):
        folder = os.path.join(home, str(local))
        os.makedirs(folder)
        env = {
            **os.environ,
            "RANK": str(node * per_node + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(int(given["nnodes"]) * per_node),
            "LOCAL_WORLD_SIZE": str(per_node),
            "MASTER_ADDR": given["master-addr"],
            "MASTER_PORT": given["master-port"],
            "TORCHELASTIC_RUN_ID": "none",
        }
        with open(f"{folder}/stdout.log", "wb") as out, open(f"{folder}/stderr.log", "wb") as err:
            workers.append(subprocess.Popen([sys.executable, *command], env=env, stdout=out, stderr=err))
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):
            return _end(workers)
        time.sleep(0.1)
    return int(any(worker.returncode for worker in workers))


def _arguments(words: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """Options by name, and the command behind them."""
    given = {}
    for number, word in enumerate(words):
        if not word.startswith("--"):
            return given, words[number:]
        name, _, value = word[2:].partition("=")
        given[name] = value
    return given, []


def _end(workers: "list[subprocess.Popen[bytes]]") -> int:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main())
