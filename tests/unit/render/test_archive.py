"""The archives that travel with a job have the same bytes everywhere, and the agent's runs on any Python."""

from __future__ import annotations

import ast
import io
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.contract import SOURCE_TIME, Exit
from ddplaunch.agent.supervisor import launch
from ddplaunch.errors import ExitCode, SourceTooLargeError
from ddplaunch.plan.source import LIMIT, SourceFile
from ddplaunch.render import agent_archive as packer
from ddplaunch.render import archive
from ddplaunch.render.archive import agent_archive, source_archive

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "launcher" / "ddplaunch"
COMPILED = shutil.ignore_patterns("__pycache__")
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
BUILD = "import sys; from ddplaunch.render import archive; sys.stdout.buffer.write(archive.agent_archive())"


def pythons(*versions: str) -> list[str]:
    """Those of pyenv's Pythons that are here, by the start of their version."""
    folders = [folder for version in versions for folder in sorted(PYENV.glob(f"{version}.*"))]
    return [str(folder / "bin" / "python") for folder in folders]


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`agent.pyz` as a file."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(agent_archive())
    return path


@pytest.mark.parametrize("python", [sys.executable, *pythons("3.12", "3.13")])
def test_a_build_elsewhere_has_the_same_bytes(python: str, tmp_path: Path) -> None:
    """Another folder, time, umask, hash seed and Python leave no trace in the agent's archive."""
    launcher = tmp_path / "elsewhere"
    shutil.copytree(PACKAGE, launcher / "ddplaunch", ignore=COMPILED)
    for path in launcher.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1, 1))
    (launcher / "ddplaunch" / "agent" / "left.pyc").write_bytes(b"not the agent's")
    env = {"PYTHONPATH": str(launcher), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}

    built = subprocess.run(
        [python, "-B", "-c", BUILD], cwd=tmp_path, env=env, umask=0o077, capture_output=True, check=True
    )

    assert agent_archive() == built.stdout


@pytest.fixture(name="copy")
def _copy(tmp_path: Path) -> Path:
    """A few modules of the package, packed soon; nobody has packed them yet."""
    for name in ("__init__.py", "agent/__main__.py", "agent/archive.py", "agent/contract/__init__.py"):
        (tmp_path / "ddplaunch" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / "ddplaunch" / name)
    return tmp_path / "ddplaunch"


def test_a_kept_archive_is_used_until_a_source_changes(copy: Path) -> None:
    """What was packed once is read, which is quick; a source that changes by one byte is packed anew.

    Python may have been told to keep nothing, and the folder not be there.
    """
    kept = copy / "__pycache__" / "agent.pyz"
    first = packer.current(copy)
    assert first == kept.read_bytes()
    marked = first[:100] + b"!" + first[101:]
    kept.write_bytes(marked)

    assert marked == packer.current(copy)
    with (copy / "agent" / "contract.py").open("a") as file:
        file.write("#")
    changed = packer.current(copy)

    assert first != changed
    assert changed == kept.read_bytes()


@pytest.mark.parametrize("length", [0, 9, -50, -1])
def test_a_damaged_archive_is_packed_anew(copy: Path, length: int) -> None:
    """An archive whose writing was cut short is never sent."""
    whole = packer.current(copy)
    (copy / "__pycache__" / "agent.pyz").write_bytes(whole[:length])

    assert whole == packer.current(copy)


def test_a_wheels_archive_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installs ddplaunch needs nothing that packs."""
    (tmp_path / "agent.pyz").write_text("the wheel's")
    monkeypatch.setattr(archive, "__file__", str(tmp_path / "archive.py"))

    assert b"the wheel's" == agent_archive()


def test_an_archive_that_cannot_be_kept_is_made_all_the_same(copy: Path) -> None:
    """An installation that this user may not write to works, if slower."""
    whole = packer.current(copy)
    shutil.rmtree(copy / "__pycache__")
    (copy / "__pycache__").write_text("a file where the folder would be")

    assert whole == packer.current(copy)


def test_the_agent_is_small() -> None:
    """It fits beside the largest source into a Kubernetes ConfigMap, which holds 1 MiB."""
    assert (1 << 20) - LIMIT > len(agent_archive()) + 40_000  # the plan's


@pytest.mark.parametrize("python", [sys.executable, *pythons("3.9", "3.13")])
def test_the_agent_runs_alone(python: str, agent: Path, tmp_path: Path) -> None:
    """Without site-packages, environment and current folder the agent still finds all of itself."""
    command = [python, "-I", "-S", str(agent), "--help"]

    result = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)

    assert (Exit.OK, "") == (result.returncode, result.stderr)
    assert "hub" in result.stdout


@pytest.mark.parametrize("python", pythons("2.7", "3.6", "3.8"), ids=lambda path: Path(path).parts[-3])
def test_an_old_python_says_that_it_is_too_old(python: str, agent: Path) -> None:
    """A Python that cannot run the agent ends with a sentence and an exit code of its own."""
    major, minor, _ = Path(python).parts[-3].split(".")

    result = subprocess.run([python, agent, "gate"], capture_output=True, text=True, check=False)

    assert Exit.UNUSABLE == result.returncode
    assert [
        f"error: ddplaunch's agent cannot run on {python}: it is Python {major}.{minor}, wanted 3.9 or newer",
        "",
        "hint: use an image with another python3, or name one in the job file: `python: /path/to/python3`",
    ] == result.stderr.splitlines()


@pytest.mark.parametrize("python", pythons("3.9"))
def test_a_python_without_zlib_says_so(python: str, agent: Path, tmp_path: Path) -> None:
    """The entry itself can be read without zlib, as in a Python that was built on a machine without it."""
    result = _without("zlib", python, agent, "gate", tmp_path)

    assert Exit.UNUSABLE == result.returncode
    assert "it lacks the zlib module" in result.stderr.splitlines()[0]


@pytest.mark.parametrize("python", [sys.executable, *pythons("3.9", "3.13")])
def test_a_python_without_lzma_unpacks_the_agent_by_xz(python: str, agent: Path, tmp_path: Path) -> None:
    """Many a Python was built on a machine without liblzma's headers; torch does not need them."""
    result = _without("lzma", python, agent, "--help", tmp_path, PATH=os.environ["PATH"])

    assert (Exit.OK, "") == (result.returncode, result.stderr)
    assert "hub" in result.stdout


def test_a_python_without_lzma_says_so_where_there_is_no_xz(agent: Path, tmp_path: Path) -> None:
    result = _without("lzma", sys.executable, agent, "gate", tmp_path, PATH=str(tmp_path))

    assert Exit.UNUSABLE == result.returncode
    assert "it lacks the lzma module, and there is no xz program" in result.stderr.splitlines()[0]


def _without(
    module: str, python: str, agent: Path, argument: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / f"{module}.py").write_text("raise ImportError\n")
    env = {"PYTHONPATH": str(folder), **environment}
    return subprocess.run([python, agent, argument], env=env, capture_output=True, text=True, check=False)


def test_the_archive_is_a_sound_zip_file() -> None:
    """Other tools read it as well: checksums right, and the entry needs no zlib."""
    with zipfile.ZipFile(io.BytesIO(agent_archive())) as found:
        members = found.infolist()
        broken = found.testzip()

    assert None is broken
    assert {zipfile.ZIP_STORED} == {m.compress_type for m in members}
    assert {((1980, 1, 1, 0, 0, 0), 0o100644 << 16)} == {(m.date_time, m.external_attr) for m in members}
    assert ["__main__.py", "archive.py", "modules.json.xz"] == [m.filename for m in members]


def test_modules_are_packed_by_their_names_with_every_statement_on_its_line(agent: Path) -> None:
    with zipfile.ZipFile(agent) as found:
        packed = json.loads(lzma.decompress(found.read("modules.json.xz")))
    sources = {
        path.relative_to(PACKAGE.parent).as_posix(): path.read_text("utf-8")
        for path in (PACKAGE / "agent").rglob("*.py")
    }

    assert {"ddplaunch/agent/__main__.py", "ddplaunch/agent/archive.py"} == sources.keys() - packed.keys()
    assert [] == [name for name in packed.keys() & sources if meaning(packed[name]) != meaning(sources[name])]


def meaning(source: str) -> tuple[str, list[int]]:
    """Return the syntax tree without the text of docstrings, and the lines of all its nodes."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                text.value = ""
    return ast.dump(tree), [node.lineno for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr))]


def test_docstrings_and_comments_are_left_out_and_texts_stay() -> None:
    source = 'class A:  # a comment\n    """Two\n    lines."""\n\n    text = "# no comment"\n'

    assert 'class A:\n    ""\n\n\n    text = "# no comment"\n' == packer.without_docs(source)


letters = st.characters(exclude_characters="/\0", exclude_categories=["Cs"])
parts = st.text(letters, min_size=1, max_size=60).filter(lambda part: part not in (".", ".."))
names = st.lists(parts, min_size=1, max_size=5).map("/".join)
sources = st.dictionaries(
    names, st.builds(SourceFile, st.binary(max_size=300), st.booleans(), st.just("")), max_size=5
)


@given(sources)
def test_source_arrives_as_it_was(files: dict[str, SourceFile]) -> None:
    """Names, bytes and the executable bit of every file come out of the archive unchanged."""
    with tarfile.open(fileobj=io.BytesIO(source_archive(files))) as tar:
        found = {
            member.name: SourceFile(tar.extractfile(member).read(), bool(member.mode & 0o100))  # type: ignore[union-attr]
            for member in tar.getmembers()
        }
        strangers = {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar.getmembers()}

    assert files == found
    assert {(SOURCE_TIME, 0, 0, "", "")} >= strangers


@given(sources)
def test_source_has_the_same_bytes_in_any_order(files: dict[str, SourceFile]) -> None:
    """The order in which files are named does not show."""
    assert source_archive(files) == source_archive(dict(reversed(files.items())))


def test_too_much_source_names_the_largest_file() -> None:
    """What does not fit is an error that says how much there is, what may be, and what to leave out."""
    files = {"train.py": SourceFile(b"x"), "data.bin": SourceFile(random.Random(1).randbytes(LIMIT))}

    with pytest.raises(SourceTooLargeError) as raised:
        source_archive(files)

    assert ExitCode.USAGE == raised.value.exit_code
    assert "2 files" in raised.value.message
    assert "the largest is data.bin (650,000 bytes)" in raised.value.message
    assert "put data on a volume" in raised.value.hint


def test_source_of_exactly_the_limit_travels_as_it_is_and_more_is_compressed(tmp_path: Path) -> None:
    files = {f"lib/{number}.py": SourceFile(b"x = 1") for number in range(100)}
    plain = source_archive(files)
    packed = source_archive(files, limit=len(plain) - 1)
    (tmp_path / "source.tar").write_bytes(packed)
    launch.unpack(str(tmp_path / "source.tar"), str(tmp_path / "work"))

    assert plain == source_archive(files, limit=len(plain))
    assert len(plain) > 10 * len(packed)
    assert packed == source_archive(files, limit=len(packed))
    assert files.keys() == {f"lib/{path.name}" for path in (tmp_path / "work" / "lib").iterdir()}
    with pytest.raises(SourceTooLargeError):
        source_archive(files, limit=len(packed) - 1)
