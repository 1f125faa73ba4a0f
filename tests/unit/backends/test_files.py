"""Files of a job that are broken, or made to harm whoever reads them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.bundles import BUNDLE as FROM_HUB
from tests.unit.backends.bundles import block

from ddplaunch.agent.contract import (
    Bundle,
    Frame,
    JobEvidence,
    JobStatus,
    Marks,
    NodeEvidence,
    NodeStatus,
    Phase,
    RankEvidence,
    Stack,
    codec,
)
from ddplaunch.agent.plan.codec import ContractError, dump
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.backends import files, folder, lines
from ddplaunch.backends.job import Selection
from ddplaunch.backends.kubernetes import node_status
from ddplaunch.backends.local import backend
from ddplaunch.backends.local.backend import LocalBackend
from ddplaunch.backends.slurm import outcomes, parse
from ddplaunch.errors import UsageError

STATUS = JobStatus("digits", 0, Phase.RUNNING, 1.0, [NodeStatus(0), NodeStatus(1)], 1.0, 2.0, [1])
BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0)


def _with(obj: Any, **changes: Any) -> str:
    return json.dumps({**dump(obj), **changes})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[" * 10**6, "nested too deeply"),
        (_with(STATUS, detail="x")[:-1], "not JSON"),
        (_with(STATUS, started=1e30), "started is 1e.30"),
        (_with(STATUS, updated=-1e30), "updated is -1e.30"),
        (_with(STATUS, started=float("nan")), "started is nan"),
        (_with(STATUS, nodes=[{"node": 10**10}]), "node is 10000000000"),
        (_with(STATUS, waiting_for=[10**10]), "waiting_for is 10000000000"),
        (_with(STATUS, started=10**400), "started is 1000"),
    ],
)
def test_what_cannot_be_is_refused(text: str, found: str) -> None:
    with pytest.raises(ContractError, match=found):
        files.load(JobStatus, text)


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "status.json").open("wb") as file:
        file.truncate(40 << 30)

    with pytest.raises(ContractError, match="more than 4,194,304 bytes"):
        files.read(JobStatus, tmp_path / "status.json")


def test_a_log_that_inflates_is_refused() -> None:
    """A megabyte of it would fill a gigabyte of memory."""
    packer = zlib.compressobj(1)
    zeros = bytes(1 << 20)
    data = b"".join(packer.compress(zeros) for _ in range(80)) + packer.flush()

    with pytest.raises(ContractError, match="unpacks to more"):
        files.inflate(data)
    assert None is files.printed_bundle([Marks.BUNDLE, base64.b64encode(data).decode(), Marks.BUNDLE_END])


@pytest.mark.timeout(20)
def test_a_broken_job_hides_no_other(tmp_path: Path) -> None:
    """`list` shows a job whose files are named pipes as one without files, and the good one beside it."""
    for number, make in ((1, os.mkfifo), (2, lambda path: path.write_text(_with(STATUS, exit_code=0)))):
        run = tmp_path / "jobs" / "digits" / str(number) / "run"
        run.mkdir(parents=True)
        make(run / "status.json")
    os.mkfifo(tmp_path / "jobs" / "digits" / "1" / "host.json")

    found = {job.handle.path: str(job.state) for job in LocalBackend(tmp_path).jobs()}

    assert {"digits/1": "lost", "digits/2": "succeeded"} == found


@pytest.mark.timeout(20)
def test_evidence_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """`diagnose` says which file is broken, where it would say that no evidence was left."""
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "bundle.zip")

    with pytest.raises(UsageError, match=r"bundle\.zip is not a plain file"):
        folder.newest_bundle(tmp_path)


_FLAT: dict[str, Callable[[], str]] = {
    "lists": lambda: '{"job":[' + "[]," * 20_000_000 + "[]]}",
    "values under one another's limit": lambda: '{"job":[' + "{}," * 920_000 + "{}]}",
    "lists under their limit": lambda: '{"job":[' + "[]," * 1_230_000 + "[]]}",
    "numbers under their limit": lambda: '{"job":[' + "1.5," * 3_690_000 + "1]}",
    "keys": lambda: "{" + ",".join(f'"k{number}":0' for number in range(1_500_000)) + "}",
    "wide letters": lambda: '{"job":"' + "a" * 24_000_000 + '\\ud83d\\ude00"}',
}


@pytest.mark.parametrize("text", _FLAT.values(), ids=_FLAT)
def test_a_flat_bundle_costs_little(text: Callable[[], str], tmp_path: Path) -> None:
    """Parsed, a byte of JSON can take thirty: what no job has written is refused before."""
    (tmp_path / "bundle.json").write_text(text())
    code = (
        "import sys, time; from pathlib import Path; from ddplaunch.backends import files\n"
        "try: files.read_bundle(Path(sys.argv[1]))\n"
        "except ValueError as error: print(type(error).__name__)\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(status.partition('VmHWM:')[2].split()[0], time.process_time())"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "bundle.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    refused, kilobytes, seconds = done.stdout.split()
    assert "ContractError" == refused
    assert int(kilobytes) < 200_000
    assert float(seconds) < 2


def test_the_evidence_of_four_thousand_ranks_is_read() -> None:
    stacks = [Stack("MainThread", True, [Frame(f"step_{depth}", "train.py", 10) for depth in range(12)])]
    ranks = [RankEvidence(rank, 0, 100, True, stacks=stacks) for rank in range(8)]
    nodes = [NodeEvidence(node, f"n{node}", 1.0, "running", ranks) for node in range(512)]
    bundle = replace(BUNDLE, evidence=JobEvidence("digits", 512, 4096, "deadline", 1.0, nodes))

    assert bundle == files.bundle(codec.text(bundle))


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, _loop, _device], ids=lambda make: make.__name__)
def test_what_is_no_file_is_as_good_as_none(make: Callable[[Path], None], tmp_path: Path) -> None:
    """In the place of the key, the address or a log: nothing waits, and nothing is raised."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("key", "hub.address", "hub.json", "output.log", "gate.log"):
        make(run / name)

    assert None is folder.ask_hub(tmp_path, 0)
    assert [] == folder._addresses(tmp_path)
    assert [] == lines.last_lines(run / "output.log", 5)
    assert [] == list(lines.GrowingFile(run / "output.log").present())
    assert [] == list(backend.lines_of(tmp_path, Selection(), follow=False, alive=lambda: False))
    assert [] == outcomes.of_gates(tmp_path)


def test_a_line_without_end_is_shown_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"x" * (5 << 20))

    shown = list(lines.GrowingFile(tmp_path / "output.log").present())

    assert 5 << 20 == sum(map(len, shown))
    assert max(map(len, shown)) <= 2 << 20


@pytest.mark.parametrize("text", ["[" * 10**5, '{"unreached":' + "[" * 10**5, '{"a":' * 10**5])
def test_deep_json_of_pods_and_gates_is_no_answer(text: str) -> None:
    """Whoever prints it ends nobody's look."""
    assert None is scheduler_log.read_report(('{"unreached":' + text).encode())
    assert None is node_status.parse_message(text)
    with pytest.raises(parse.NonsenseError):
        parse.squeue_json(text)


def test_a_printed_bundle_is_read() -> None:
    """From among other lines; the last whole one counts, of an end that was cut off nothing does."""
    lines = ["12:00 x", *block(BUNDLE), "y", *block(FROM_HUB), "z", *block(BUNDLE)[:-1]]

    assert FROM_HUB == files.printed_bundle(lines)
    assert None is files.printed_bundle([Marks.BUNDLE, "no base64!", Marks.BUNDLE_END])
    assert None is files.printed_bundle([])
