"""The layouts: see the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WROTE = bytes(range(256)) * 40
"""What is in the files that a layout's program writes."""
SAVES = """
import os, sys, time
WROTE = bytes(range(256)) * 40
rank = os.environ.get("RANK") or os.environ["NODE_RANK"]  # without torchrun each node is one
WRITES = rank == os.environ.get("WRITER", "0")
def write(path, data=WROTE):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
def save():
    if WRITES:
        write("x")
        write("out/x")
def stand():
    print("up", flush=True)
    for step in range(1500 if os.environ.get("STANDS") else 0):
        time.sleep(0.2)
"""
"""The part of each program that writes, in rank WRITER alone. With STANDS it stays until it is cut off."""
PLAIN = SAVES + "save()\nstand()\n"
BOTH = {"x": WROTE, "out/x": WROTE}
Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Layout:
    """`make` writes what `files` cannot hold. `job_file`: where it lies. `wrote`: outputs, by their paths."""

    name: str
    files: Files
    keys: Mapping[str, Any]
    make: Callable[[Path], None] = lambda folder: None
    wrote: Mapping[str, bytes | str] = field(default_factory=lambda: BOTH)
    job_file: str = "job.yaml"
    on: tuple[str, ...] = ("local", "slurm", "kubernetes")

    def __str__(self) -> str:
        return self.name

    def lay(self, folder: Path, **more: Any) -> Path:
        """Write everything into a folder; return the job file, with `more` keys."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        job = folder / self.job_file
        job.parent.mkdir(parents=True, exist_ok=True)
        name = "".join(each if each.isalnum() else "-" for each in self.name)
        keys = {"apiVersion": "ddplaunch/v1", "name": name, **self.keys, **more}
        job.write_text(json.dumps(keys, ensure_ascii=False))
        self.make(folder)
        return job


def wrong(layout: Layout, found: Mapping[str, bytes | str]) -> list[str]:
    """Return what differs between the outputs that were found and those that must be."""
    return [
        f"{path}: {'missing' if path not in found else 'too much' if path not in layout.wrote else 'differs'}"
        for path in sorted(layout.wrote.keys() | found.keys())
        if found.get(path) != layout.wrote.get(path)
    ]


def read(folder: Path) -> dict[str, bytes | str]:
    """Return the files below a folder, links by their targets."""
    found: dict[str, bytes | str] = {}
    for above, folders, names in os.walk(folder):
        for name in (*names, *folders):
            path = Path(above, name)
            if path.is_symlink():
                found[str(path.relative_to(folder))] = os.readlink(path)
            elif path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _links(links: Mapping[str, str]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name, target in links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)

    return make


def _folders(*names: str, mode: int = 0o755) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name).chmod(mode)

    return make


def _modes(modes: Mapping[str, int]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name, mode in modes.items():
            (folder / name).chmod(mode)

    return make


def _git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def _repository(folder: Path) -> None:
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "first")


def _worktree(folder: Path) -> None:
    """Its `.git` is a file that names the repository."""
    main, tree = (folder.parent / f"{folder.name}-{word}" for word in ("main", "tree"))
    shutil.copytree(folder, main)
    _repository(main)
    _git(main, "worktree", "add", "-q", "--detach", str(tree))
    shutil.copy(tree / ".git", folder / ".git")


def _program(*checks: str, imports: str = "") -> str:
    """A program that makes these checks first."""
    return (
        SAVES
        + imports
        + "\n"
        + "\n".join(f"assert {each}, {each!r}" for each in checks)
        + "\nsave()\nstand()\n"
    )


def _writes(*statements: str) -> str:
    """A program of which one rank does this."""
    body = "".join(f"    {each}\n" for each in statements)
    return f"{SAVES}if WRITES:\n{body}stand()\n"


NET = "def build():\n    return 7\n"
TWO = {"source": ["train.py", "lib"], "command": ["train.py"]}
ALL = {"source": ["."], "command": ["train.py"]}

LAYOUTS: tuple[Layout, ...] = (
    Layout("one file", {"train.py": PLAIN}, {"source": "train.py", "command": ["train.py"]}),
    Layout("without source", {"train.py": PLAIN}, {"command": ["train.py"]}, on=("local", "slurm")),
    Layout(
        "a package",
        {
            "main.py": _program("build() == 7", imports="from models.net import build"),
            "models/__init__.py": "",
            "models/net.py": NET,
        },
        {"source": ["main.py", "models"], "command": ["main.py"]},
    ),
    Layout(
        "a module of a package",
        {
            "pkg/__init__.py": "",
            "pkg/net.py": NET,
            "pkg/train.py": _program("build() == 7", imports="from .net import build"),
        },
        {"source": ["pkg"], "command": ["-m", "pkg.train"]},
    ),
    Layout(
        "a namespace package",
        {
            "train.py": _program("build() == 7", imports="from lib.deep.net import build"),
            "lib/deep/net.py": NET,
        },
        TWO,
    ),
    Layout(
        "a module of src",
        {
            "src/pkg/__init__.py": "",
            "src/pkg/train.py": PLAIN,
        },
        {"source": ["src"], "command": ["-m", "pkg.train"], "env": {"PYTHONPATH": "src"}},
    ),
    Layout(
        "data by the script's own path",
        {
            "code/train.py": _program(
                "open(os.path.join(os.path.dirname(__file__), 'a.csv')).read() == '1,2'"
            ),
            "code/a.csv": "1,2",
        },
        {"source": ["code"], "command": ["code/train.py"]},
    ),
    Layout(
        "a folder of configurations",
        {
            "train.py": _program(
                "open(os.path.join(sys.path[0], 'conf', 'model', 'small.yaml')).read() == 'width: 7'"
            ),
            "conf/config.yaml": "defaults: [model: small]",
            "conf/model/small.yaml": "width: 7",
        },
        {"source": ["train.py", "conf"], "command": ["train.py"]},
    ),
    Layout(
        "a link to a folder within",
        {"train.py": _program("open('lib/link/file').read() == 'there'"), "lib/folder/file": "there"},
        TWO,
        make=_links({"lib/link": "folder"}),
    ),
    Layout(
        "a link out of the folder",
        {"train.py": _program("os.path.exists('lib/link/hostname')"), "lib/file": "there"},
        TWO,
        make=_links({"lib/link": "/etc"}),
        on=("local", "slurm"),
    ),
    Layout(
        "a project to install",
        {
            "setup.py": "from setuptools import setup\nsetup(name='pkg', packages=['pkg'])\n",
            "pkg/__init__.py": "",
            "pkg/train.py": PLAIN,
            "pkg.egg-info/PKG-INFO": "Name: pkg",
        },
        {"source": ["."], "command": ["-m", "pkg.train"]},
    ),
    Layout("a repository", {"train.py": _program("not os.path.exists('.git')")}, ALL, make=_repository),
    Layout("a worktree", {"train.py": PLAIN}, ALL, make=_worktree),
    Layout(
        "a folder of 5,000 files",
        {
            "train.py": _program("len(os.listdir('lib')) == 5000"),
            **{f"lib/{number}.txt": str(number) for number in range(5000)},
        },
        TWO,
    ),
    Layout(
        "a read-only folder",
        {"train.py": PLAIN, "lib/net.py": NET},
        TWO,
        make=_folders("lib", mode=0o555),
    ),
    Layout(
        "names of other alphabets",
        {"modèle/été.py": _program("open('modèle/数据.txt').read() == '7'"), "modèle/数据.txt": "7"},
        {"source": ["modèle"], "command": ["modèle/été.py"]},
    ),
    Layout(
        "names that a shell would read",
        {"a$b;c/train'.py": PLAIN, "a$b;c/-rf": "x"},
        {"source": ["a$b;c"], "command": ["a$b;c/train'.py"]},
    ),
    Layout(
        "an empty folder",
        {
            "train.py": _writes("save()", "open('lib/runs/y', 'wb').write(WROTE)"),
            "lib/a": "",
        },
        TWO,
        make=_folders("lib/runs"),
        wrote={**BOTH, "lib/runs/y": WROTE},
    ),
    Layout(
        "an ignored data set",
        {
            "train.py": _program("not os.path.exists('data/huge.bin')", "os.path.exists('data/small.bin')"),
            "data/huge.bin": bytes(5_000_000),
            "data/small.bin": b"7",
            ".ddplaunchignore": "huge.bin\n",
        },
        ALL,
    ),
    Layout(
        "a tool that it runs",
        {
            "train.py": SAVES
            + "import subprocess\nassert subprocess.check_output(['lib/tool.sh']) == b'7'\nsave()\nstand()\n",
            "lib/tool.sh": "#!/bin/sh\nprintf 7\n",
        },
        TWO,
        make=_modes({"lib/tool.sh": 0o755}),
    ),
    Layout(
        "it goes to a folder of its own",
        {"train.py": SAVES + "os.makedirs('runs/1', exist_ok=True)\nos.chdir('runs/1')\nsave()\nstand()\n"},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"runs/1/x": WROTE, "runs/1/out/x": WROTE},
    ),
    Layout(
        "it writes beside the script",
        {"code/train.py": _writes("write(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'x'))")},
        {"source": ["code"], "command": ["code/train.py"]},
        wrote={"code/x": WROTE},
    ),
    Layout(
        "a module from the folder above",
        {
            "here/train.py": _program(
                "build() == 7", imports="sys.path.insert(0, 'common')\nfrom net import build"
            ),
            "common/net.py": NET,
        },
        {"source": ["train.py", "../common"], "command": ["train.py"]},
        job_file="here/job.yaml",
    ),
    Layout(
        "a job file in a folder",
        {"conf/train.py": PLAIN},
        {"source": ["train.py"], "command": ["train.py"]},
        job_file="conf/job.yaml",
    ),
    Layout(
        "many files and folders written",
        {"train.py": _writes("for n in range(200): write(f'out/{n % 7}/{n} part.bin', str(n).encode())")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={f"out/{n % 7}/{n} part.bin": str(n).encode() for n in range(200)},
    ),
    Layout(
        "a link to the last checkpoint",
        {
            "train.py": _writes(
                "write('out/step-3.pt')",
                "os.symlink('step-3.pt', 'out/last.pt')",
                "os.symlink('out', 'latest')",
            )
        },
        {"source": "train.py", "command": ["train.py"]},
        wrote={"out/step-3.pt": WROTE, "out/last.pt": "step-3.pt", "latest": "out"},
    ),
    Layout(
        "its configuration kept with the time it had",
        {
            "train.py": _writes("import shutil", "os.mkdir('run')", "shutil.copy2('lib/a.yaml', 'run')"),
            "lib/a.yaml": "a: 7",
        },
        TWO,
        wrote={"run/a.yaml": b"a: 7"},
    ),
    Layout(
        "a file of the source written again",
        {
            "train.py": _writes("write('lib/state.json', b'{}')"),
            "lib/state.json": "[]",
        },
        TWO,
        wrote={"lib/state.json": b"{}"},
    ),
    Layout(
        "a file as old as 1970",
        {"train.py": _writes("write('old')", "os.utime('old', (0, 0))")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"old": WROTE},
    ),
    Layout(
        "a sparse file",
        {"train.py": _writes("write('sparse', b'7')", "os.truncate('sparse', 3_000_000)")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"sparse": b"7" + bytes(2_999_999)},
    ),
    Layout(
        "a script and its neighbour",
        {"train.py": _program("build() == 7", imports="from net import build"), "net.py": NET},
        {"source": ["train.py", "net.py"], "command": ["train.py"]},
    ),
    Layout(
        "two packages",
        {
            "train.py": _program("build() == 7", imports="import data\nfrom models.net import build"),
            "models/__init__.py": "",
            "models/net.py": NET,
            "data/__init__.py": "",
        },
        {"source": ["train.py", "models", "data"], "command": ["train.py"]},
    ),
    Layout(
        "a script below the packages",
        {
            "scripts/train.py": _program("build() == 7", imports="from models.net import build"),
            "models/__init__.py": "",
            "models/net.py": NET,
        },
        {"source": ["."], "command": ["scripts/train.py"], "env": {"PYTHONPATH": "."}},
    ),
    Layout(
        "data by a relative path",
        {"train.py": _program("open('data/a.csv').read() == '1,2'"), "data/a.csv": "1,2"},
        {"source": ["train.py", "data"], "command": ["train.py"]},
    ),
    Layout(
        "notebooks beside",
        {
            "train.py": _program("not os.path.exists('notebooks')"),
            "notebooks/look.ipynb": '{"cells": []}',
            "README.md": "# look",
        },
        {"source": ["train.py"], "command": ["train.py"]},
    ),
    Layout(
        "a compiled extension",
        {
            "train.py": _program("open('lib/ext.so', 'rb').read() == bytes(range(256))"),
            "lib/ext.so": bytes(range(256)),
            "lib/.hidden": "7",
        },
        TWO,
    ),
    Layout(
        "a checkpoint that is put in place",
        {"train.py": _writes("for n in range(3): write('last.tmp'); os.replace('last.tmp', 'last.pt')")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"last.pt": WROTE},
    ),
    Layout(
        "a checkpoint in shards",
        {"train.py": _writes("write('step-3/__0_0.distcp')", "write('step-3/.metadata', b'7')")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"step-3/__0_0.distcp": WROTE, "step-3/.metadata": b"7"},
    ),
    Layout(
        "old checkpoints are removed",
        {
            "train.py": _writes(
                "for n in range(5): write(f'step-{n}.pt')", "for n in range(4): os.remove(f'step-{n}.pt')"
            )
        },
        {"source": "train.py", "command": ["train.py"]},
        wrote={"step-4.pt": WROTE},
    ),
    Layout(
        "a log that grows",
        {"train.py": _writes("for n in range(100): open('log.jsonl', 'a').write(f'{n}\\n')", "os.sync()")},
        {"source": "train.py", "command": ["train.py"]},
        wrote={"log.jsonl": "".join(f"{n}\n" for n in range(100)).encode()},
    ),
)
EVERY_DAY = ("a package", "a link to the last checkpoint")
"""Those that `make test` runs: each by another way of a file."""
