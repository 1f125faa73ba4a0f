"""What a job leaves behind: its bundle, and the same packed into a log."""

from __future__ import annotations

import base64
import io
import json
import zipfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import mutate, target, told
from tests.fuzz.target import Target
from tests.unit.report.conftest import bundle

from ddplaunch.agent.contract import Bundle, Marks, bundle_file, codec
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.backends import files, saved
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.errors import UsageError

_RECORDED = target.ROOT / "tests/agent/diagnosis/run/recorded"
_COLUMNS = 120
_BOMB = 100 << 20


class Evidence(Target):
    """Bundles as JSON, from what real faults have left."""

    def __init__(self, _: Path) -> None:
        self._bundles = bundles()
        self._texts = [json.dumps(each) for each in self._bundles]

    def make(self, random: Random) -> str:
        return mutate.as_json(random, mutate.tree(random, random.choice(self._bundles)), self._texts)

    def feed(self, given: str) -> None:
        read(given)


class Archive(Target):
    """Archives as `diagnose FILE` reads them: broken in their JSON, in their bytes, or packed by another."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bundle.zip"
        loaded = [codec.load(Bundle, each) for each in bundles()]
        self._packed = [bundle_file.packed(each) for each in loaded]
        self._texts = [_members(each) for each in self._packed]
        self._bomb = _zip_bomb()

    def make(self, random: Random) -> str:
        packed = bytearray(random.choice([*self._packed, self._bomb]))
        if random.randrange(3):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", random.choice((0, 8, 8, 8, 12, 14))) as archive:
                for name, text in random.choice(self._texts).items():
                    if name == bundle_file.TEXT:
                        text = json.dumps(mutate.tree(random, json.loads(text))).encode()
                    archive.writestr(random.choice((name, name, "../" + name, "/" + name)), text)
            packed = bytearray(out.getvalue())
        for _ in range(random.choice((0, 0, 1, 5))):
            packed[random.randrange(len(packed))] = random.randrange(256)
        if not random.randrange(10):
            del packed[random.randrange(len(packed)) :]
        return packed.decode("latin-1")

    def feed(self, given: str) -> None:
        self._path.write_bytes(given.encode("latin-1"))
        try:
            job, found = saved.open_bundle(self._path, again=True)
        except UsageError:
            return
        told.diagnosis(job, found)
        bundle_file.packed(found)


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("bundle.json", "w") as member,
    ):
        for _ in range(_BOMB >> 20):
            member.write(bytes(1 << 20))
    return out.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class Log(Target):
    """A hub's log with a bundle in it, broken in the text, in what is packed, and in the packing."""

    def __init__(self, _: Path) -> None:
        self._bundles = bundles()
        self._bomb = _bomb()

    def make(self, random: Random) -> str:
        made = json.dumps(mutate.tree(random, random.choice(self._bundles), 1)).encode()
        packed = bytearray(zlib.compress(made, 1))
        dice = random.randrange(50)
        if dice == 0:
            packed = bytearray(self._bomb)
        for _ in range(random.choice((0, 0, 1, 5))):
            packed[random.randrange(len(packed))] = random.randrange(256)
        text = "\n".join(log_lines(bytes(packed)))
        return mutate.text(random, text, (), 2) if dice % 3 == 0 else text

    def feed(self, given: str) -> None:
        found = files.printed_bundle(given.split("\n"))
        if found is not None:
            told.diagnosis(_JOB, found)


_JOB = Job(Handle("local", "digits/1"), State.FAILED, 1_700_000_000.0, "digits", exit_code=50)


def read(given: str) -> None:
    """As `diagnose` does, and as the hub does that judges it."""
    try:
        found = files.bundle(given)
    except codec.ContractError:
        return
    told.diagnosis(_JOB, found)
    if found.evidence is not None:
        complaints: list[str] = []
        judge(found.evidence, complaints.append)
        assert not complaints, complaints[0]


@cache
def bundles() -> list[Any]:
    """As plain data; each of another fault."""
    own: Any = codec.dump(bundle(passed={"0": {"1": 3}, "1": {"0": 2, "master": 1}}))
    recorded = [json.loads(path.read_text()) for path in sorted(_RECORDED.glob("*.json"))]
    return [own, *({**own, "evidence": each} for each in recorded)]


def log_lines(packed: bytes | None = None) -> list[str]:
    """A hub's last words."""
    data = zlib.compress(json.dumps(bundles()[0]).encode()) if packed is None else packed
    text = base64.b64encode(data).decode()
    lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    return ["11:00:00 the job has ended", Marks.BUNDLE, *lines, Marks.BUNDLE_END]


def _bomb() -> bytes:
    packer = zlib.compressobj(9)
    zeros = bytes(1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(_BOMB >> 20)) + packer.flush()
