"""DeepSpeed for CPUs, built from source once, in the cache folder; its lock is requirements/deepspeed.txt.

Not in the tests' environment: its source is built with the torch that is there and a compiler, for minutes.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cache import CACHE

LOCK = Path(__file__).resolve().parents[1] / "requirements" / "deepspeed.txt"
_BUILDS = CACHE / "deepspeed"
PATIENCE = 1800
"""Seconds for a test that may have to build it first, on a machine that does other things as well."""
_BUILD = {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "DS_BUILD_SHM_COMM": "1"}
"""Its only part in C++ that every start on CPUs loads; otherwise the first ranks would compile it."""


def environment() -> dict[str, str]:
    """Return what a job needs to find it; without it the test is skipped, with the reason."""
    folder = _installed()
    return {
        "DS_ACCELERATOR": "cpu",
        "PYTHONPATH": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


def _installed() -> Path:
    """Return the folder that holds it; what was built with another torch is not that.

    By its name it is a folder of libraries, so that verdicts name the user's line and none of DeepSpeed.
    """
    (own,) = re.findall(r"^deepspeed==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE)
    folder = _BUILDS / f"{own}-torch{version('torch')}-{sys.implementation.cache_tag}"
    _BUILDS.mkdir(parents=True, exist_ok=True)
    with (_BUILDS / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            print(f"builds DeepSpeed {own} into {folder}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=_BUILDS) as partial:
                files = Path(partial) / "files"
                _install(files / "site-packages")
                files.rename(folder)
    return folder / "site-packages"


def _install(folder: Path) -> None:
    """Build and install it. Never from uv's cache: that forgets with which parts it was built."""
    words = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--require-hashes", "--quiet"]
    words += ["--no-deps", "--no-build-isolation", "--no-cache", "--python", sys.executable]
    words += ["--target", str(folder), "--requirements", str(LOCK)]
    done = subprocess.run(words, env=os.environ | _BUILD, capture_output=True, text=True, check=False)
    if done.returncode:  # there is no compiler here, say, or no network
        pytest.skip(f"DeepSpeed cannot be installed here: {done.stderr.strip()[-1000:]}")
    if not list(folder.glob("deepspeed/ops/comm/*.so")):
        pytest.fail("DeepSpeed was installed without its part in C++")


if __name__ == "__main__":
    print(_installed())
