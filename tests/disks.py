"""Disks of a few kilobytes or megabytes, to be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_btrfs(folder: Path) -> Iterator[Path]:
    """A btrfs at `folder`, of the least size that it can have; skips where there is no mkfs.btrfs."""
    make = shutil.which("mkfs.btrfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.getuid() != 0 or make is None:
        pytest.skip("wants root and mkfs.btrfs, of btrfs-progs")
    image = folder.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(128 << 20)
    subprocess.run([make, "--quiet", image], check=True, stdout=subprocess.DEVNULL)
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        image.unlink()


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `folder`, gone afterwards. Skips without root, who alone may mount."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def small_quota(folder: Path, size: int) -> Iterator[Path]:
    """A btrfs with room at `folder`, of which `size` bytes may be used."""
    with small_btrfs(folder) as disk:
        tool = shutil.which("btrfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert tool is not None, "mkfs.btrfs is there and btrfs is not"
        for words in (["quota", "enable"], ["qgroup", "limit", str(size)]):
            subprocess.run([tool, *words, disk], check=True, stdout=subprocess.DEVNULL)
        yield disk


def fill(disk: Path) -> Path:
    """The file that takes all the room there is: without it the disk has room again."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return filler
