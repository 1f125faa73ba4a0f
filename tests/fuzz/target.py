"""What can be fuzzed: each target is a way by which data of strangers comes in."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

ROOT = Path(__file__).resolve().parents[2]


class Target(ABC):
    """Made once, and then given many inputs."""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """`folder`: where it may write."""

    @abstractmethod
    def make(self, random: Random) -> Any:
        """The input of this seed: plain data, as JSON has it; bytes as text of Latin-1."""

    @abstractmethod
    def feed(self, given: Any) -> None:
        """Give it to the product. An error made for people is caught here; what it raises is a bug."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what it holds."""


class Way(NamedTuple):
    """How to make a target, and how many of a thousand inputs are for it."""

    made_by: str  # module:class
    share: int


WAYS = {
    "job-text": Way("tests.fuzz.jobs:Text", 120),
    "job-tree": Way("tests.fuzz.jobs:Tree", 40),
    "hub-stranger": Way("tests.fuzz.hub:Stranger", 60),
    "hub-client": Way("tests.fuzz.desks:Client", 30),
    "hub-lies": Way("tests.fuzz.lies:Lies", 60),
    "webhook": Way("tests.fuzz.answers:Answer", 20),
    "key-desk": Way("tests.fuzz.lies:KeyDesk", 40),
    "bundle": Way("tests.fuzz.evidence:Evidence", 60),
    "archive": Way("tests.fuzz.evidence:Archive", 40),
    "log": Way("tests.fuzz.evidence:Log", 60),
    "state": Way("tests.fuzz.state:State", 10),
    "slurm-text": Way("tests.fuzz.slurm:Text", 190),
    "slurm-json": Way("tests.fuzz.slurm:Json", 150),
    "kubernetes": Way("tests.fuzz.kubernetes:Objects", 80),
    "pod-log": Way("tests.fuzz.kubernetes:PodLog", 40),
}


@contextmanager
def opened(name: str) -> Iterator[Target]:
    """The target of that name, with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ddplaunch-fuzz-") as folder:
        made = kind(name)(Path(folder))
        try:
            yield made
        finally:
            made.close()


def kind(name: str) -> type[Target]:
    """Its class; its module, and what that needs, is imported now."""
    module, _, attribute = WAYS[name].made_by.partition(":")
    return cast("type[Target]", getattr(import_module(module), attribute))


def seeded(name: str, seed: int) -> Random:
    """The chance of one input: the same on every machine."""
    return Random(f"{name} {seed}")
