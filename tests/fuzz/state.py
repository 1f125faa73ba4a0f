"""A state folder with broken jobs in it, as the command line reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import evidence, mutate
from tests.fuzz.target import Target

from ddplaunch.agent.contract import Files, JobPlan, JobStatus, NodeStatus, Phase, codec
from ddplaunch.backends.kubernetes import submission as of_kubernetes
from ddplaunch.backends.local import backend, host
from ddplaunch.backends.slurm import submission as of_slurm
from ddplaunch.cli.main import main
from ddplaunch.errors import DdplaunchError, ExitCode

_HANDLE = "local://digits/1"
_CALLS: Sequence[Sequence[str]] = (
    ("list",),
    ("list", "--json"),
    ("status", _HANDLE),
    ("diagnose", _HANDLE),
    ("diagnose", "--json", _HANDLE),
    ("logs", _HANDLE, "--node", "0"),
)
_KINDS = ("file", "file", "file", "file", "pipe", "folder", "loop", "none")


class State(Target):
    """A local job whose files are changed, beside one that is whole; and what was sent elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "ddplaunch"
        os.environ["XDG_STATE_HOME"] = str(folder)
        self._files = _files()

    def make(self, random: Random) -> Any:
        """Path -> kind and text."""
        given: dict[str, Any] = {}
        for name, found in self._files.items():
            if random.random() < 0.3:
                changed = mutate.tree(random, found) if not isinstance(found, str) else found
                kind = random.choice(_KINDS if name.endswith(".json") else ("file", "none"))
                given[name] = (kind, mutate.as_json(random, changed, ()))
        if random.random() < 0.1:
            given[f"jobs/digits/{random.choice(('²', '7', '9' * 30, '-1'))}/{Files.STATUS}"] = ("file", "{}")
            given[f"jobs/digits/1/run-{random.choice(('²', '0', 'x'))}/bundle.json"] = ("file", "{}")
        return given

    def feed(self, given: Any) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        for name, found in self._files.items():
            _put(self._root / name, "file", found if isinstance(found, str) else json.dumps(found))
        for name, (kind, text) in given.items():
            _put(self._root / name, kind, text)
        for words in _CALLS:
            _call(*words)
        of_slurm.Records(self._root).all()
        of_kubernetes.Records(self._root).all()


def _call(*words: str) -> None:
    """With --debug the command line raises what it would say."""
    out = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())):
        try:
            main(["--debug", *words])
        except DdplaunchError as error:
            if error.exit_code is ExitCode.UNEXPECTED:
                raise


def _put(path: Path, kind: str, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        path.unlink()
    if kind == "file":
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)


def _files() -> dict[str, Any]:
    status = JobStatus(
        "digits",
        0,
        Phase.RUNNING,
        1.0,
        [NodeStatus(0, "n0", Phase.RUNNING), NodeStatus(1, "n1")],
        1.0,
        2.0,
        [1],
    )
    plan = JobPlan("digits", 2, 2, ["torchrun"], ["train.py"])
    alive = host.Host(os.getpid(), int(_stat()), host._boot(), time.time())
    sent = {"name": "digits", "workdir": "/", "script": "/x/digits.sbatch", "at": 1.0, "job_id": 7}
    away = {"server": "s", "namespace": "default", "name": "digits", "uid": "u", "at": 1.0}
    jobs: dict[str, Any] = {}
    for number, process in (("1", alive), ("2", dataclasses.replace(alive, pid=2**22 + 1))):
        job: dict[str, Any] = {
            Files.STATUS: codec.dump(status),
            Files.PLAN: codec.dump(plan),
            Files.BUNDLE: evidence.bundles()[0],
            Files.OUTPUT: "[0/0] step 1\n[1/ddplaunch] rank 2 has ended\n",
            backend.HOST: dataclasses.asdict(process),
            backend.HOST_LOG: "Killed\n",
        }
        jobs |= {f"jobs/digits/{number}/{name}": found for name, found in job.items()}
    more = {"state": "failed", "exit_code": 40, "ended": 2.0, "detail": "x", "verdicts": []}
    return {**jobs, "slurm/digits-x/job.json": sent | more, "kubernetes/s/default/digits.json": away | more}


def _stat() -> str:
    found = host._stat(os.getpid())
    assert found is not None
    return found[19]
