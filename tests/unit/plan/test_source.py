"""What travels under `source`."""

from pathlib import Path

import pytest

from ddplaunch.errors import UsageError
from ddplaunch.plan import source
from ddplaunch.plan.source import SourceFile


def test_a_file_travels_under_its_own_name(tmp_path: Path) -> None:
    """A file named by a longer path lies directly in the job's source folder."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("x = 1\n")

    assert {"train.py": SourceFile(b"x = 1\n")} == source.read(("src/train.py",), tmp_path)


def test_a_folder_gives_its_content(tmp_path: Path) -> None:
    """What lies in a folder keeps its path below that folder, and scripts stay executable."""
    (tmp_path / "src" / "lib").mkdir(parents=True)
    (tmp_path / "src" / "lib" / "data.py").write_bytes(b"\xff\x00")
    (tmp_path / "src" / "go.sh").write_text("#!/bin/sh\n")
    (tmp_path / "src" / "go.sh").chmod(0o755)

    assert {
        "lib/data.py": SourceFile(b"\xff\x00"),
        "go.sh": SourceFile(b"#!/bin/sh\n", executable=True),
    } == source.read(("src",), tmp_path)


def test_caches_stay_at_home(tmp_path: Path) -> None:
    """Byte code and repositories do not travel, which would change a job's bytes at every submission."""
    for folder in ("__pycache__", ".git"):
        (tmp_path / "src" / folder).mkdir(parents=True)
        (tmp_path / "src" / folder / "x").write_text("")
    (tmp_path / "src" / "train.py").write_text("")

    assert ["train.py"] == list(source.read(("src",), tmp_path))


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    """A path that is not there is an error with the folder in which it was looked for."""
    with pytest.raises(UsageError, match=r"trian\.py does not exist in .*"):
        source.read(("trian.py",), tmp_path)


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    """Nothing is silently overwritten by a file of the same name from elsewhere."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(folder)

    with pytest.raises(UsageError, match=r"two different files would both be train\.py"):
        source.read(("a", "b"), tmp_path)


def test_the_same_file_twice_is_one(tmp_path: Path) -> None:
    """Naming a file and the folder that holds it is no conflict."""
    (tmp_path / "train.py").write_text("")

    assert ["train.py"] == list(source.read((".", "train.py"), tmp_path))


@pytest.mark.parametrize("target", ["nowhere", "."])
def test_a_link_that_cannot_travel_is_an_error(tmp_path: Path, target: str) -> None:
    """A broken link, or a link to a folder, is refused rather than silently left out."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to(target)

    with pytest.raises(UsageError, match="link is no plain file"):
        source.read(("src",), tmp_path)
