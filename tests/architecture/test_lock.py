"""The locks hold what pyproject.toml and the .in files ask for, hash by hash."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
PIN = re.compile(r"^(?P<pin>[A-Za-z0-9][^\\#\n]*?) \\\n(?P<hashes>(?: +--hash=\S+(?: \\)?\n)*)", re.MULTILINE)


def normal(name: str) -> str:
    """The form under which two spellings of a package are the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> dict[str, list[Requirement]]:
    """Pins of a lock by normal name; several when they differ by Python version."""
    pins: dict[str, list[Requirement]] = {}
    for match in PIN.finditer(text):
        pin = Requirement(match["pin"])
        pins.setdefault(normal(pin.name), []).append(pin)
    return pins


def uncovered(wanted: Iterable[str], lock: str, python: str) -> list[str]:
    """Requirements that no pin of `lock` for that Python meets."""
    machine = {key: str(value) for key, value in default_environment().items()}
    environment = {**machine, "python_version": python, "python_full_version": f"{python}.9"}
    pins = locked(lock)

    def met(requirement: Requirement) -> bool:
        return any(
            requirement.specifier.contains(next(iter(pin.specifier)).version, prereleases=True)
            for pin in pins.get(normal(requirement.name), [])
            if pin.marker is None or pin.marker.evaluate(environment)
        )

    return [each for each in wanted if not met(Requirement(each))]


def project_requirements() -> list[str]:
    """Everything pyproject.toml asks for, extras included, and what builds it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    build: list[str] = project["build-system"]["requires"]
    return [*build, *project["project"]["dependencies"], *(each for extra in extras for each in extra)]


def lines(name: str) -> list[str]:
    """Requirements of an .in file."""
    text = (REQUIREMENTS / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_lock_covers_the_project(python: str) -> None:
    """Whoever changes a dependency runs `make lock`, for every Python that the project supports."""
    lock = (REQUIREMENTS / "dev.txt").read_text("utf-8")

    assert [] == uncovered(project_requirements(), lock, python)


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("uv", "3.11"),
        ("agent39", "3.9"),
        ("nccl", "3.11"),
        ("site", "3.11"),
        ("site", "3.12"),
        ("site", "3.13"),
        ("site", "3.14"),
    ],
)
def test_the_small_locks_cover_their_sources(name: str, python: str) -> None:
    """uv's own lock, that of Python 3.9, NCCL's and the site's are as fresh as what they were made from."""
    lock = (REQUIREMENTS / f"{name}.txt").read_text("utf-8")

    assert [] == uncovered(lines(f"{name}.in"), lock, python)


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda path: path.name)
def test_every_pin_is_exact_and_has_hashes(path: Path) -> None:
    """Nothing is installed that was not seen when the lock was made."""
    text = path.read_text("utf-8")
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]

    assert len(entries) == sum(1 for match in PIN.finditer(text) if "--hash=sha256:" in match["hashes"])
    assert [] == [entry for entry in entries if "==" not in entry.split(";")[0]]


def test_a_missing_and_an_outgrown_pin_are_found() -> None:
    """The checks above see a package that is not locked, and one that is locked too low."""
    lock = (
        "one==1.0 \\\n    --hash=sha256:00\nTwo_x==2.0 ; python_version < '3.10' \\\n    --hash=sha256:11\n"
    )

    assert ["one>=2", "three"] == uncovered(["one>=2", "three", "two-x"], lock, "3.9")
    assert ["two-x>=2"] == uncovered(["one", "two-x>=2"], lock, "3.11")
