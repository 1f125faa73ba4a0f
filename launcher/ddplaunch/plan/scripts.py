"""Finds the training script in a folder, for `ddplaunch init`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_USUAL: Final = ("train.py", "main.py")
_NO_SCRIPTS = re.compile(r"(setup|conftest|noxfile|test_.*|.*_test)\.py|[-.].*")
_NO_FOLDERS = re.compile(r"[-._].*|tests?|venv|env|node_modules|build|dist|site-packages")
_TRAINS = re.compile(
    rb"\b(init_process_group|init_device_mesh|LOCAL_RANK|torchrun|Accelerator|Fabric|Trainer"
    rb"|DistributedDataParallel|FullyShardedDataParallel|fully_shard|deepspeed\.initialize)\b"
)
"""What a script does that is started as ranks, whether by itself or through a framework."""
_IS_RUN = re.compile(rb"^if __name__ *== *['\"]__main__['\"]", re.MULTILINE)
_MOST_BYTES = 5_000_000
_MOST_FILES = 500


class Found(NamedTuple):
    """The script that is meant. If that is not clear, None and the possible ones."""

    script: Path | None
    candidates: tuple[Path, ...] = ()


def find(folder: Path) -> Found:
    """Return the training script in a folder.

    It is train.py, main.py, the only one with a name like train_x.py, the only one that starts or uses a
    process group, or the only one that can be run; otherwise such a script in the folders below; otherwise
    the only file.
    """
    here = _scripts(folder)
    below = [
        each for each in _that(_TRAINS, _below(folder)) if each.name in _USUAL or _IS_RUN.search(_text(each))
    ]
    training, runs = _that(_TRAINS, here), _that(_IS_RUN, here)
    groups = [*_usual(here), training, [each for each in training if each in runs], runs]
    groups += [*_usual(below), below, here]
    script = next((group[0] for group in groups if len(group) == 1), None)
    return Found(script, () if script else tuple(runs or here or below))


def _usual(scripts: list[Path]) -> list[list[Path]]:
    named = [[each for each in scripts if each.name == name] for name in _USUAL]
    return [*named, [each for each in scripts if each.name.startswith("train")]]


def _that(question: re.Pattern[bytes], files: Iterable[Path]) -> list[Path]:
    return [each for each in files if question.search(_text(each))]


def _text(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""


def _scripts(folder: Path) -> list[Path]:
    try:
        files = sorted(folder.glob("*.py"))
    except OSError:
        return []
    return [path for path in files if path.is_file() and not _NO_SCRIPTS.fullmatch(path.name)]


def _below(folder: Path) -> list[Path]:
    """Return the scripts in the folders below, down to two levels."""
    found: list[Path] = []
    for pattern in ("*/", "*/*/"):
        try:
            folders = sorted(folder.glob(pattern))
        except OSError:
            continue
        for each in folders:
            if not any(_NO_FOLDERS.fullmatch(part) for part in each.relative_to(folder).parts):
                found += _scripts(each)
    return found[:_MOST_FILES]
