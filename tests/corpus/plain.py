"""Runs a program of the corpus under plain torchrun, without ddplaunch, as those who do not have it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.corpus.faults import Fault, Healthy
from tests.corpus.harness import HERE, living, own_shm
from tests.ports import own_port

STARTED = 120.0
"""Seconds for which the moment at which progress stops is waited for, on a busy machine."""
_DIAGNOSED = 120.0
_BIN = Path(sys.executable).parent
_HIDDEN = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"')
"""Before a program's path and a command, to which that program is none."""
_FORBIDDEN = """
import sys
from ddplaunch.agent.evidence import waits
from ddplaunch.agent.system import proc
from ddplaunch.cli.main import main
read = proc.text
hidden = ("syscall", "stack")
proc.text = lambda pid, name: "" if name.rpartition("/")[2] in hidden else read(pid, name)
waits._string = lambda pid, address: ""
sys.exit(main())
"""
"""The command with the files of /proc that a user may not read where tracing is forbidden."""


@contextlib.contextmanager
def job(
    case: Fault | Healthy, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Its launchers, one a node; at the end nothing of it is left."""
    port = str(own_port())
    own = {"CORPUS_SCENE": str(folder), **(env or {})}
    launchers = []
    launch = case.launch if isinstance(case, Fault) else ()
    try:
        for node in range(case.nodes):
            words = [*own_shm(case), sys.executable]
            words += ["-m", "torch.distributed.run", "--nnodes", str(case.nodes)]
            words += ["--nproc-per-node", str(case.nproc), "--node-rank", str(node)]
            words += ["--master-addr", "127.0.0.1", "--master-port", port, *launch, case.file]
            with (folder / f"output-{node}").open("wb") as output:
                launcher = subprocess.Popen(
                    [*words, *case.arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=HERE / case.folder,
                    env={**os.environ, **own},
                    start_new_session=True,
                )
            launchers.append(launcher)
        yield launchers
    finally:
        for each in launchers:
            if each.poll() is None:
                each.kill()
            each.wait()
        until = time.monotonic() + 10
        while (left := living(folder)) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def diagnosed(pid: int, how: str = "py-spy") -> dict[str, Any]:
    """What `ddplaunch diagnose pid:… --json` prints; {"error": …} with its message where it fails.

    `how`: "py-spy"; "none", which only root can ask for, as on a machine where nobody has installed it;
    "forbidden", as for a user who may not trace.
    """
    program = [sys.executable, "-c", _FORBIDDEN] if how == "forbidden" else [str(_BIN / "ddplaunch")]
    command = [*program, "diagnose", f"pid:{pid}", "--json"]
    done = subprocess.run(
        command if how == "py-spy" else [*_HIDDEN, str(_BIN / "py-spy"), *command],
        capture_output=True,
        text=True,
        timeout=_DIAGNOSED,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}
    return found
