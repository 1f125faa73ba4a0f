"""Job files, real ones and drawn ones, changed as text and by structure: checked, and rendered everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import yaml
from tests.fuzz import drawn, mutate, target
from tests.fuzz.target import Target

from ddplaunch import targets
from ddplaunch.errors import DdplaunchError, ExitCode
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.render.archive import agent_archive
from ddplaunch.spec.load import parse
from ddplaunch.spec.models import JobSpec

_BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b]\n"
)
_ODDITIES = (
    _BOMB,
    "<<: &x {a: *x}\n",
    "env: {A: !!python/object/apply:os.system [id]}\n",
    "nodes: 0x7fffffffffffffffffff\n",
    "? [a, b]\n: c\n",
    "env: {<<: [{A: b}, {A: c}]}\n",
    "%YAML 9.9\n---\n",
    "--- |\n  text\n...\n",
    "source: [folder, pipe, loop, ../../..]\n",
    "source: [deep]\n",
    "local: {}\n",
)

_OPENINGS = ("[", "{a: ", "- ", "? ", "&a ", "!a ", "'", "a:\n ", "|\n")


class Text(Target):
    """By characters and bytes: YAML of every kind, other encodings, aliases, tags, depth."""

    def __init__(self, folder: Path) -> None:
        self._folder = sources(folder)
        self._files = [path.read_bytes().decode("latin-1") for path in _files()]
        self._pieces = [*self._files, *_ODDITIES]

    def make(self, random: Random) -> str:
        """Latin-1 stands for bytes."""
        found = mutate.text(random, random.choice(self._files), self._pieces)
        dice = random.randrange(40)
        if dice == 0:
            return found.encode(random.choice(("utf-16", "utf-32")), "replace").decode("latin-1")
        if dice == 1:
            found += "\n" + "x" * random.randrange(2**20)
        elif dice == 2:
            found += random.choice(_OPENINGS) * random.choice((100, 50_000))
        return found.encode("utf-8", "replace").decode("latin-1")

    def feed(self, given: str) -> None:
        read(given.encode("latin-1"), self._folder)


class Tree(Target):
    """By structure: values of the wrong kind, keys in the wrong place, odd text, depth, size."""

    def __init__(self, folder: Path) -> None:
        self._folder = sources(folder)
        right = (path for path in _files() if "invalid-yaml" not in path.name)
        real = [yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) for path in right]
        self._jobs = [*real, *drawn.JOBS]

    def make(self, random: Random) -> str:
        changed = mutate.tree(random, random.choice(self._jobs))
        return yaml.dump(changed, Dumper=_Dumper, allow_unicode=False, sort_keys=False)

    def feed(self, given: str) -> None:
        read(given.encode(), self._folder)


def read(data: bytes, folder: Path) -> None:
    """As `validate` and `render` do for each target."""
    try:
        spec = parse(data, "job.yaml")
    except DdplaunchError as error:
        _said(error)
        return
    for each in targets.names():
        _render(spec, each, folder)


def _render(spec: JobSpec, name: str, folder: Path) -> None:
    try:
        render(plan.make(spec, name, folder))
    except DdplaunchError as error:
        _said(error)


def _said(error: DdplaunchError) -> None:
    assert error.exit_code is not ExitCode.UNEXPECTED
    assert str(error).startswith(("error: ", "job.yaml")), str(error)[:200]


def sources(folder: Path) -> Path:
    """What job files name under `source`, and traps among it."""
    agent_archive()  # built once after the agent has changed, which takes seconds
    for name in ("train.py", "hello.py", "broken.py", "run.sh", "src/train.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("print('hello')\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "out").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    deep = folder / "deep"
    for _ in range(100):
        deep /= "d"
    deep.mkdir(parents=True)
    return folder


def _files() -> list[Path]:
    patterns = ("examples/*/*.yaml", "tests/specs/*.yaml", "docs/**/*.yaml")
    return sorted(path for pattern in patterns for path in target.ROOT.glob(pattern))


class _Dumper(yaml.CSafeDumper):
    """Without anchors: a value that stands in two places is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quoted(dumper: yaml.CSafeDumper, text: str) -> yaml.Node:
    """YAML cannot write a lone surrogate."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text.encode("utf-8", "replace").decode())


_Dumper.add_representer(str, _quoted)
