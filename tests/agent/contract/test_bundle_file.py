"""A bundle is one archive, which a person can open, and from which comes back what was put in."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, Callable

import pytest

from ddplaunch.agent.contract import (
    Bundle,
    CallSequence,
    CallSite,
    Collective,
    Dump,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Raised,
    RankEvidence,
    Stack,
    Verdict,
    bundle_file,
    codec,
)
from ddplaunch.agent.contract.bundle_file import TEXT, dump_of
from ddplaunch.agent.plan.codec import ContractError

RECORDED = Path(__file__).parents[1] / "diagnosis/run/recorded"
FRAMES = [Frame(f"step_{depth}", "/home/user/train.py", depth) for depth in range(12)]


def ranks(count: int) -> list[RankEvidence]:
    """Of one job, all at the same place."""
    sites = [CallSite("all_reduce", FRAMES[3]), CallSite("barrier", FRAMES[4])]
    calls = [
        Collective("0", n, "all_reduce", [[1024, n % 4]], ["Float"], True, at=5.0 + n) for n in range(64)
    ]
    return [
        RankEvidence(
            rank,
            rank % 8,
            100 + rank,
            True,
            stacks=[Stack("MainThread", True, FRAMES), Stack("pin", False, FRAMES[:3])],
            raised=[Raised("ValueError", "no", 3.0, FRAMES[:2])],
            groups=[Group("0", list(range(count)), 64, 63, "default_pg")],
            collectives=[dataclasses.replace(each, at=each.at + rank, frames=FRAMES[:4]) for each in calls],
            sequences=[CallSequence("0", 7, sites, [n % 2 for n in range(256)])],
        )
        for rank in range(count)
    ]


def bundle(count: int = 2, dumps: list[Dump] | None = None) -> Bundle:
    """Of a job on one node."""
    nodes = [NodeEvidence(0, "n0", 1.0, "running", ranks(count), dumps=dumps or [])]
    evidence = JobEvidence("digits", 1, count, "deadline", 1.0, nodes)
    verdict = Verdict.of("rank-failed", "rank 1 raised ValueError", "run", ranks=[1])
    return Bundle("digits", 0, 1, count, 1.0, 1795520754.0, evidence=evidence, verdicts=[verdict])


def opened(data: bytes) -> Bundle:
    """What is read from the archive."""
    return bundle_file.load(io.BytesIO(data), dumps=bundle_file.MOST_DUMPS)


def members(data: bytes) -> dict[str, bytes]:
    """What any other program finds in the archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def changed(data: bytes, **changes: Any) -> bytes:
    """The archive with other keys in its JSON, as another program packs it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members(data).items():
            archive.writestr(
                name, json.dumps({**json.loads(content), **changes}) if name == TEXT else content
            )
    return out.getvalue()


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_what_real_faults_of_every_verdict_left_comes_back_as_it_was(path: Path) -> None:
    evidence = codec.load(JobEvidence, json.loads(path.read_text()))
    given = Bundle("digits", 0, 2, 1, 1.0, 2.0, evidence=evidence)

    assert given == opened(bundle_file.packed(given))


def test_a_bundle_that_is_json_alone_is_read() -> None:
    assert bundle() == opened(codec.text(bundle()).encode())


def test_what_many_ranks_have_alike_is_stored_once() -> None:
    given = bundle(1024)
    packed = bundle_file.packed(given)
    text = members(packed)[TEXT]

    assert 12 == text.count(b"train.py")
    assert text.count(b"default_pg") == 1
    assert len(text) < 3000 * 1024
    assert len(packed) < 400 * 1024
    assert given == opened(packed)


def test_the_readme_says_what_happened_and_what_is_there() -> None:
    text = members(bundle_file.packed(bundle(2, [dump_of(1, "gloo", b"x")])))["README.txt"].decode()

    assert "rank-failed: rank 1 raised ValueError" in text
    assert "of 1 ranks" in text


def test_flight_recorders_are_files_of_their_own_by_the_ranks_number() -> None:
    given = bundle(2, [dump_of(rank, "gloo", b"recorder %d" % rank * 50) for rank in range(2)])
    packed = bundle_file.packed(given)

    assert b"recorder 1" * 50 == members(packed)["flight/gloo/rank_1"]
    assert given == opened(packed)


def test_flight_recorders_beyond_the_limit_are_left_out_and_counted() -> None:
    """The count stays right when the bundle is written once more."""
    given = bundle(3, [dump_of(rank, "gloo", os.urandom(1000)) for rank in range(3)])
    packed = bundle_file.packed(given, 2500)
    again = bundle_file.packed(opened(packed), 1100)

    assert "(1 more were left out" in members(packed)["README.txt"].decode()
    assert "(2 more were left out" in members(again)["README.txt"].decode()
    assert [f"flight/gloo/rank_{rank}" in members(again) for rank in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    "dump",
    [
        Dump(-1, "gloo", 1, 1, "QQ=="),
        Dump(0, "../../etc", 1, 1, "QQ=="),
        Dump(0, "gloo", 1, 1, "!"),
        Dump(0, "gloo", 1 << 40, 1, "QQ=="),
    ],
)
def test_a_flight_recorder_of_no_rank_makes_no_file(dump: Dump) -> None:
    """No name in the archive leads out of it."""
    assert {"README.txt", TEXT} == set(members(bundle_file.packed(bundle(2, [dump]))))


def test_a_full_disk_gets_a_bundle_without_recorders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace: Callable[..., None] = codec.replace

    def small(path: str, data: bytes, mode: int) -> None:
        if len(data) > 20_000:
            raise OSError(errno.ENOSPC, "full")
        replace(path, data, mode)

    monkeypatch.setattr(codec, "replace", small)
    given = bundle(2, [dump_of(0, "gloo", os.urandom(30_000))])
    bundle_file.write(str(tmp_path / "b.zip"), given)

    assert given.verdicts == bundle_file.read(str(tmp_path / "b.zip")).verdicts


PACKED = bundle_file.packed(bundle())
STORED = io.BytesIO()
with zipfile.ZipFile(STORED, "w", zipfile.ZIP_BZIP2) as other:
    other.writestr(TEXT, "{}")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "not JSON"),
        (PACKED[:-30], "cut off"),
        (PACKED[100:], "not JSON"),
        (PACKED[:700] + bytes(9) + PACKED[709:], "broken zip archive"),
        (b"PK\x05\x06" + bytes(18), f"without {TEXT}"),
        (PACKED[:-10] + b"\xff\xff\xff\x7f" + PACKED[-6:], "more members"),
        (STORED.getvalue(), "packed as no bundle is"),
        (changed(PACKED, format=3), "a newer ddplaunch wrote it, in format 3"),
        (changed(PACKED, format="2"), "does not say its format"),
        (changed(PACKED, stacks=[["MainThread", True, [99]]]), "an entry that is not there"),
        (changed(PACKED, stacks=[["MainThread", True, [-1]]]), "an entry that is not there"),
        (changed(PACKED, frames=[["f", "x.py"]]), "wanted 3 values, found 2"),
        (changed(PACKED, frames=[["f", "x.py", "1"]]), "wanted int"),
        (changed(PACKED, groups=[["0", "", [10**9]]]), "a rank that cannot be"),
        (changed(PACKED, frames=None), "wanted a list"),
        (changed(PACKED, bundle=[]), "wanted an object"),
        (changed(PACKED, dumps_left_out=None), "wanted int"),
    ],
    # The archives hold the time at which they were made: as names of tests, each worker would have others.
    ids=lambda each: each if isinstance(each, str) else "archive",
)
def test_a_broken_archive_is_refused_in_a_sentence(data: bytes, found: str) -> None:
    with pytest.raises(ContractError, match=found):
        opened(data)


def test_an_archive_that_inflates_is_not_unpacked() -> None:
    """Neither its JSON, of which so much is parsed, nor what else lies in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(TEXT, bytes(50 << 20))

    with pytest.raises(ContractError, match="more than 1,000 bytes"):
        bundle_file.load(io.BytesIO(out.getvalue()), most=1000)
