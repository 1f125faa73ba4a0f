"""What travels under `source`."""

import os
from pathlib import Path

import pytest

from ddplaunch.errors import SourceTooLargeError, UsageError
from ddplaunch.plan import source
from ddplaunch.plan.source import SourceFile


def test_a_folder_keeps_its_name_its_scripts_and_its_empty_folders(tmp_path: Path) -> None:
    """`from models.net import build` works there as it does here."""
    (tmp_path / "models" / "lib").mkdir(parents=True)
    (tmp_path / "models" / "cache").mkdir()
    (tmp_path / "models" / "lib" / "data.py").write_bytes(b"\xff\x00")
    (tmp_path / "models" / "go.sh").write_text("#!/bin/sh\n")
    (tmp_path / "models" / "go.sh").chmod(0o755)

    assert {
        "models/lib/data.py": SourceFile(b"\xff\x00"),
        "models/go.sh": SourceFile(b"#!/bin/sh\n", executable=True),
        "models/cache/": SourceFile(b""),
    } == source.read(("models",), tmp_path).files


def test_two_packages_travel_together(tmp_path: Path) -> None:
    for folder in ("models", "tools"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(folder)

    found = source.read(("models", "tools"), tmp_path).files

    assert ["models/__init__.py", "tools/__init__.py"] == sorted(found)


def test_what_lies_elsewhere_arrives_under_its_last_name(tmp_path: Path) -> None:
    """There is no path below the job file's folder that it could keep."""
    (tmp_path / "common" / "lib").mkdir(parents=True)
    (tmp_path / "common" / "lib" / "a.py").write_text("")
    (tmp_path / "job").mkdir()

    assert ["common/lib/a.py"] == list(source.read(("../common",), tmp_path / "job").files)
    assert ["a.py"] == list(source.read((f"{tmp_path}/common/lib/a.py",), tmp_path / "job").files)


def test_caches_stay_at_home(tmp_path: Path) -> None:
    """Byte code and environments do not travel, which would change a job's bytes at every submission."""
    for folder in ("__pycache__", ".venv"):
        (tmp_path / "src" / folder).mkdir(parents=True)
        (tmp_path / "src" / folder / "x").write_text("")
    (tmp_path / "src" / "train.py").write_text("")

    assert ["src/train.py"] == list(source.read(("src",), tmp_path).files)


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    """A path that is not there is an error with the folder in which it was looked for."""
    with pytest.raises(UsageError, match=r"trian\.py does not exist in .*"):
        source.read(("trian.py",), tmp_path)


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    """Nothing is silently overwritten by a file of the same name from elsewhere."""
    for folder in ("a", "b", "job"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(folder)

    with pytest.raises(UsageError, match=r"two different files would both be train\.py"):
        source.read(("../a/train.py", "../b/train.py"), tmp_path / "job")


def test_the_same_file_twice_is_one(tmp_path: Path) -> None:
    """Naming a file and the folder that holds it is no conflict."""
    (tmp_path / "train.py").write_text("")

    assert ["train.py"] == list(source.read((".", "train.py"), tmp_path).files)


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to("nowhere")

    with pytest.raises(UsageError, match="link is a broken link"):
        source.read(("src",), tmp_path)


def test_a_file_is_measured_before_it_is_read(tmp_path: Path) -> None:
    """A sparse file of 40 GB is refused at once, with what to do, however little memory there is."""
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(40 << 30)

    with pytest.raises(
        SourceTooLargeError, match=r"only 33,554,432 .* weights\.bin \(42,949,672,960 bytes"
    ) as caught:
        source.read((".",), tmp_path)

    assert ".ddplaunchignore" in caught.value.hint


def test_many_files_are_measured_together(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(bytes(200))

    with pytest.raises(SourceTooLargeError):
        source.read((".",), tmp_path, limit=2000)


def test_a_device_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/dev/zero")

    with pytest.raises(UsageError, match="is not a plain file"):
        source.read(("data",), tmp_path)


@pytest.mark.timeout(10)
def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match="pipe is not a plain file"):
        source.read((".",), tmp_path)


def test_a_file_without_a_size_is_bounded(tmp_path: Path) -> None:
    """Files of /proc have none, and grow while they are read."""
    with pytest.raises(SourceTooLargeError, match="largest is kallsyms"):
        source.read(("/proc/kallsyms",), tmp_path, limit=100_000)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A folder from elsewhere cannot pick files of this machine to send."""
    (tmp_path / "src").mkdir()
    (tmp_path / "outside.txt").write_text("mine")
    (tmp_path / "src" / "link").symlink_to("../outside.txt")

    with pytest.raises(UsageError, match=r"link is a link to .*outside\.txt, which is outside of"):
        source.read(("src",), tmp_path)


def test_a_link_out_of_the_folder_stays_one_where_nodes_see_our_folders(tmp_path: Path) -> None:
    """`data -> /datasets/x` is how people keep data out of their repository."""
    (tmp_path / "src").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "src" / "data").symlink_to("../data")

    found = source.read(("src",), tmp_path, links_outside=True).files

    assert {"src/data": SourceFile(b"", link=f"{tmp_path}/data")} == found


@pytest.mark.parametrize("target", ["a", "a/x.py", "{root}/a"])
def test_a_link_inside_the_folder_stays_one(tmp_path: Path, target: str) -> None:
    """To a file or a folder; one with a whole path of this machine means the same there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("a")
    (tmp_path / "link").symlink_to(target.format(root=tmp_path))

    link = source.read((".",), tmp_path).files["link"].link

    assert target.format(root=tmp_path).removeprefix(f"{tmp_path}/") == link


def test_what_looks_private_stays_at_home(tmp_path: Path) -> None:
    """It is reported; a template of such a file is none, and a link does not lead around it."""
    for name in (".env", ".env.example", "certs/ca.pem", "deep/.ssh/config", ".git/HEAD", "train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "settings").symlink_to(".env")

    found = source.read((".",), tmp_path)

    assert [".env.example", "train.py"] == sorted(found.files)
    assert (".env", ".git", "certs/ca.pem", "deep/.ssh") == found.left_out


def test_what_looks_private_far_from_the_job_file_is_named_by_its_whole_path(tmp_path: Path) -> None:
    """`source` may be absolute, and lie outside of the job file's folder."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / ".env").write_text("x")

    assert (f"{tmp_path}/code/.env",) == source.read((f"{tmp_path}/code",), tmp_path / "jobs").left_out


def test_what_is_named_itself_travels(tmp_path: Path) -> None:
    """A private file beside its folder, and a private folder with all that is in it; nothing is reported."""
    (tmp_path / ".env").write_text("x")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("y")

    both = source.read((".", ".env", ".ssh"), tmp_path)

    assert ([".env", ".ssh/id_rsa"], ()) == (sorted(both.files), both.left_out)


def test_the_ignore_file_has_gits_syntax(tmp_path: Path) -> None:
    """Its patterns come last, so that it can bring back what looked private; it stays at home itself."""
    for name in ("train.py", "data/a.bin", "data/keep.txt", "logs/x", "sub/logs/y", "ca.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".ddplaunchignore").write_text("# data\ndata/*\n!data/keep.txt\n/logs/\n!ca.pem\n")

    found = source.read((".",), tmp_path)

    assert ["ca.pem", "data/keep.txt", "sub/logs/y", "train.py"] == sorted(found.files)
    assert () == found.left_out


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ddplaunchignore").write_text("a/***/[\n!\n")

    with pytest.raises(UsageError, match=r"\.ddplaunchignore contains a line that is not a pattern"):
        source.read((".",), tmp_path)
