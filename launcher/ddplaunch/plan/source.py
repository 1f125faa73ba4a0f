"""The files named under `source`, read and named as they will lie beside the job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ddplaunch.errors import UsageError

_LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
"""What never belongs to a job and would change its bytes from one submission to the next."""


class SourceFile(NamedTuple):
    """One file of `source`, read already."""

    data: bytes
    executable: bool = False


def read(paths: tuple[str, ...], base: Path) -> Mapping[str, SourceFile]:
    """Files by their POSIX path below the job's source folder.

    A file travels under its own name; of a folder its content does: `source: src` puts `src/train.py` where
    the command `train.py` finds it. Raises UsageError for what is missing or not a plain file.
    """
    files: dict[str, SourceFile] = {}
    for given in paths:
        root = base / given
        if not root.exists():
            raise UsageError(
                f"source: {given} does not exist in {base}", hint="paths are relative to the job file"
            )
        for path in sorted(_walk(root)) if root.is_dir() else [root]:
            name = path.relative_to(root if root.is_dir() else root.parent).as_posix()
            file = SourceFile(path.read_bytes(), bool(path.stat().st_mode & 0o100))
            if files.setdefault(name, file) != file:
                raise UsageError(
                    f"source: two different files would both be {name}", hint="rename one of them"
                )
    return files


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        links = [name for name in folders if Path(folder, name).is_symlink()]  # os.walk would pass over them
        for name in [*names, *links]:
            path = Path(folder, name)
            if not path.is_file():
                raise UsageError(
                    f"source: {path} is no plain file",
                    hint="leave it out: list the files and folders that are code",
                )
            yield path
