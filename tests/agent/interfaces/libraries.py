"""Several versions of NCCL side by side: `python -m tests.agent.interfaces.libraries` fetches them."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.cache import CACHE

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "requirements" / "nccl.txt"
_FOLDER = CACHE / "nccl"
_FILE = Path("nvidia/nccl/lib/libnccl.so.2")


def all_of_them() -> list[Path]:
    """That of torch, and those of the lock, which are fetched if they are not there."""
    own = Path(sysconfig.get_path("purelib")) / _FILE
    return [*([own] if own.exists() else []), *map(_fetched, _pins())]


def _pins() -> list[str]:
    """Each with its hashes."""
    text = "\n".join(line for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    return [f"nvidia{part}" for part in text.split("nvidia")[1:]]


def _fetched(pin: str) -> Path:
    version = pin.split("==")[1].split()[0]
    folder = _FOLDER / version
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _FILE).exists():
            print(f"fetches NCCL {version} into {folder}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=_FOLDER) as partial:
                wanted = Path(partial) / "wanted.txt"
                wanted.write_text(pin)
                words = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--require-hashes"]
                words += ["--quiet", "--no-deps", "--python", sys.executable, "--target", f"{partial}/files"]
                subprocess.run([*words, "-r", str(wanted)], check=True)
                (Path(partial) / "files").rename(folder)
    return folder / _FILE


if __name__ == "__main__":
    print("\n".join(map(str, all_of_them())))
