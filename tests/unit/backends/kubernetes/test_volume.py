"""The files of a job on a volume: where they are, and that they arrive whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch.agent.contract import SOURCE_MARK, SOURCE_TIME
from ddplaunch.agent.plan import work_folder
from ddplaunch.backends.kubernetes import volume
from ddplaunch.backends.kubernetes.queries import ApiState

GOLDEN = Path(__file__).parents[3] / "golden" / "kubernetes"
READER = Path(work_folder.__file__).read_text()
BINARY = bytes(range(256)) * 3000


def owner(case: str, **metadata: Any) -> dict[str, Any]:
    """The Job or JobSet of a golden job, as the cluster has it."""
    found = list(yaml.safe_load_all((GOLDEN / case / "manifest.yaml").read_text().replace("(version)", "x")))
    job: dict[str, Any] = found[-1]
    return {**job, "metadata": {**job["metadata"], "uid": "1f3a9c2d-aaaa", **metadata}}


def test_the_folder_is_known_from_the_job_alone() -> None:
    """As its nodes name it; a job without the key, and one that is gone, have none."""
    found = volume.place(owner("outputs"))
    assert found is not None
    assert "/runs/team/vision/kept-1f3a9c2d/work" == found.work
    assert f"{found}" == f"{found.work}, on the claim runs, which pods see at /runs"
    assert not found.of_machine

    assert [None] * 3 == [volume.place(owner("digits")), volume.place(owner("jobset")), volume.place(None)]


def test_the_reader_may_only_read() -> None:
    """It runs as the job's user, goes with the job, and ends by itself in any case."""
    job = owner("outputs")
    where = volume.place(job)
    assert where is not None
    made = volume._job(ApiState("lab", "kept", job), where, "worker2", "kept-reader-1")
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    mounts = {each["mountPath"]: each["readOnly"] for each in container["volumeMounts"]}
    assert {"/data": True, "/runs/": True} == mounts
    assert {"data", "runs"} == {each["name"] for each in pod["volumes"]}
    assert "nodeName" not in pod
    assert ["1f3a9c2d-aaaa"] == [each["uid"] for each in made["metadata"]["ownerReferences"]]
    assert made["spec"]["ttlSecondsAfterFinished"] > 0
    assert made["spec"]["activeDeadlineSeconds"] > 0
    assert "training" != made["metadata"]["labels"]["app.kubernetes.io/component"]


def read(folder: Path, verb: str = "read", most: int = 1000) -> bytes:
    words = [sys.executable, "-I", "-S", "-c", READER, verb, str(folder), str(most)]
    return subprocess.run(words, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A job's, with all kinds of files."""
    work = tmp_path / "toy-1" / "work"
    (work / "out").mkdir(parents=True)
    (work / "__pycache__").mkdir()
    for name in ("out/x", "x", "empty", "__pycache__/y.pyc", "s p\u00e4ce\nline"):
        (work / name).write_bytes(b"" if name == "empty" else BINARY)
    (work / "x").chmod(0o755)
    (work / "last").symlink_to("out/x")
    (work / "folder").symlink_to("out")
    (work / "train.py").write_text("source")
    os.utime(work / "train.py", (SOURCE_TIME, SOURCE_TIME))
    (work / SOURCE_MARK).touch()
    for node in (0, 11):
        (work.parent / f"node-{node}").touch()
    return work.parent


def pieces(data: bytes, size: int = 7919) -> Iterator[bytes]:
    """As they come through a connection."""
    return (data[at : at + size] for at in range(0, len(data), size))


def received(data: bytes, copy: Path | None) -> tuple[list[int], list[str], bool]:
    """Nodes, paths, and whether that is all."""
    nodes, found = volume._received(volume._Bytes(pieces(data)), copy)
    return nodes, [each.path for each in found.files], found.complete


NAMES = sorted(["empty", "folder", "last", "out/x", "s p\u00e4ce\nline", "x"])


def test_what_ranks_wrote_arrives_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    """With its times and executable bits; links as links; neither the source nor byte code."""
    assert ([0, 11], NAMES, True) == received(read(folder, "list"), None)
    assert ([0, 11], NAMES, True) == received(read(folder), tmp_path / "here")

    here, work = tmp_path / "here", folder / "work"
    for name in ("out/x", "x", "empty", "s p\u00e4ce\nline"):
        assert (work / name).read_bytes() == (here / name).read_bytes()
        assert (work / name).stat().st_mtime == pytest.approx((here / name).stat().st_mtime, abs=1e-3)
    assert os.access(here / "x", os.X_OK)
    assert ("out/x", "out") == (os.readlink(here / "last"), os.readlink(here / "folder"))
    assert len(NAMES) == sum(not path.is_dir() or path.is_symlink() for path in here.rglob("*"))


def test_a_job_that_has_not_begun_has_written_nothing() -> None:
    assert ([], [], True) == received(read(Path("/nowhere"), "list"), None)


def test_more_files_than_are_listed_say_so(folder: Path) -> None:
    nodes, names, complete = received(read(folder, "list", most=2), None)

    assert ([0, 11], 2, False) == (nodes, len(names), complete)


@pytest.mark.parametrize("cut", [1, 40, 5000, -1])
def test_a_connection_that_ends_early_is_no_copy(folder: Path, tmp_path: Path, cut: int) -> None:
    with pytest.raises(ValueError, match="cut off"):
        received(read(folder)[:cut], tmp_path / "here")


def test_bytes_that_changed_on_the_way_are_no_copy(folder: Path, tmp_path: Path) -> None:
    data = read(folder)
    at = data.index(BINARY[:1000]) + 500

    with pytest.raises(ValueError, match="arrived with different bytes"):
        received(data[:at] + b"!" + data[at + 1 :], tmp_path / "here")


@pytest.mark.parametrize("last", ["b", None])
def test_nothing_is_written_through_a_link_from_a_pod(tmp_path: Path, last: str | None) -> None:
    (tmp_path / "mine").mkdir()
    lines = [{"nodes": []}, ["a", 1, 0.0, 0o777, f"{tmp_path}/mine"], ["a/x", 1, 0.0, 0o644, last]]
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    if last is None:
        data += b'1\nx0\n{"sha256": "%s", "fault": ""}\n' % sha256(b"x").hexdigest().encode()

    with pytest.raises((ValueError, FileExistsError)):
        received(data + b'{"end": true}\n', tmp_path / "here")
    assert [] == list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_a_pod_names_no_path_outside(tmp_path: Path, name: str) -> None:
    lines = [{"nodes": []}, [name, 1, 0.0, 0o644, None]]
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines) + b"1\nx0\n"

    with pytest.raises(ValueError, match="is not a path below the folder"):
        received(data, tmp_path / "here")
    assert not (tmp_path / "x").exists()
