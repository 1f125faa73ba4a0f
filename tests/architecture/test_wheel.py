"""What is installed is whole, and needs nothing that only a checkout has."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddplaunch.render.archive import agent_archive

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == result.returncode, result.stderr
    return result.stdout


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the source distribution, as a registry's users get it."""
    folder = tmp_path_factory.mktemp("dist")
    run([BIN / "hatchling", "build", "-t", "sdist", "-d", folder], ROOT)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        sdist.extractall(folder, filter="data")
    unpacked = next(path for path in folder.iterdir() if path.is_dir())
    run([BIN / "hatchling", "build", "-t", "wheel", "-d", folder], unpacked)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package that git tracks arrives, the agent's and any data file included."""
    listed = subprocess.run(
        ["git", "ls-files", "launcher/ddplaunch"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {name.removeprefix("launcher/") for name in listed.stdout.split() if (ROOT / name).exists()}

    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    installed = {name for name in names if ".data/data/" in name}
    members = names - installed

    assert {"share/man/man1/ddplaunch.1"} == {name.partition(".data/data/")[2] for name in installed}
    assert set() == tracked - members
    assert {"ddplaunch/render/agent.pyz"} == members - tracked
    assert {"ddplaunch"} == {name.split("/")[0] for name in members}
    assert [] == [name for name in members if "__pycache__" in name]


def test_the_wheel_carries_its_sbom(wheel: Path) -> None:
    """Where PEP 770 puts it, unchanged."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if ".dist-info/sboms/" in each]
        assert (ROOT / "requirements" / "ddplaunch.cdx.json").read_bytes() == archive.read(name)


@pytest.fixture(name="python", scope="module")
def _python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed, with the few packages that it needs."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run([BIN / "uv", "venv", "--offline", "--python", sys.executable, venv], venv.parent)
    install(venv / "bin" / "python", wheel)
    return venv / "bin" / "python"


def install(python: Path, *words: str | Path) -> None:
    """Install a package, in the locked version."""
    # From uv's cache as a rule; somebody may have emptied it since the environment was made.
    lock = ROOT / "requirements" / "dev.txt"
    run([BIN / "uv", "pip", "install", "-c", lock, "--python", python, *words], python.parent)


def test_an_installed_launcher_renders_an_agent(python: Path, tmp_path: Path) -> None:
    """Beside its few dependencies the wheel runs, and holds the agent that it sends."""
    said = run([python.with_name("ddplaunch"), "--help"], tmp_path)
    code = "from ddplaunch.render import archive; open('sent', 'wb').write(archive.agent_archive())"
    run([python, "-c", code], tmp_path)
    installed = run([BIN / "uv", "pip", "list", "--offline", "--python", python], tmp_path)

    assert re.search(r"\bsubmit\b", said)
    assert agent_archive() == (tmp_path / "sent").read_bytes()
    assert set() == {"torch", "pytest", "kubernetes"} & set(installed.split())


def test_an_installed_plugin_is_found_by_pytest(python: Path, tmp_path: Path) -> None:
    """Nobody has to name it: pytest knows its option, and loads it."""
    elsewhere = tmp_path / "site-packages"  # the environment is that of a launcher, without pytest
    install(python, "--target", elsewhere, "pytest")
    (tmp_path / "test_one.py").write_text("def test_passes():\n    pass\n")

    pytests: list[str | Path] = ["env", f"PYTHONPATH={elsewhere}", python, "-m", "pytest"]
    said = run([*pytests, "--ddplaunch", "test_one.py"], tmp_path)

    assert re.search(r"^plugins: .*\bddplaunch-", said, re.MULTILINE)
    assert "1 passed" in said
