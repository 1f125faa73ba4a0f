"""docs/how-to/symptoms.md, as somebody follows it: the fault, the page's command, and the answer it shows.

A comment above an answer names the programs at fault, one for each paragraph of the answer, or the file that
it was copied from.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.corpus import harness
from tests.local.conftest import SCRIPT, Desk, eventually
from tests.ports import own_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "symptoms.md").read_text("utf-8")
ANSWER = re.compile(
    r"<!-- (answers of|from|tried by) (\S+?)[,:]?(?: ([^\n]*))? -->\n```text\n(.*?)```", re.DOTALL
)
FACT = "    - "
SETTLED = 12.0
"""Seconds after which a rank that moves no more has been noticed: by default it is after ten."""
SECONDS = 90.0
"""Within which a job has come to its fault on a machine with little else to do."""


@dataclass(frozen=True)
class Case:
    """How a program is started, where that differs from `torchrun --nproc-per-node 4 train.py`."""

    arguments: tuple[str, ...] = ()
    memory: int | None = None  # bytes, of a memory cgroup around the whole job
    shm: int | None = None  # bytes, of a /dev/shm of its own
    root: bool = False
    moves: bool = False  # it does not stop: it is asked again until its pace is known


CASES = {
    "own_master": Case(("fault",)),
    "io_stuck": Case(root=True),
    "rank_killed_memory": Case(memory=2600 << 20, root=True),
    "shm_full": Case(shm=64 << 20, root=True),
    "slow": Case(moves=True),
    "ends": Case(("exit_code",)),
}


@dataclass(frozen=True)
class Shown:
    """A paragraph of an answer on the page, the command above it, and the program that provokes it."""

    program: str
    command: str
    sentence: str
    facts: tuple[str, ...]


def _answers(kind: str) -> Iterator[tuple[str, str, str, str]]:
    """For each answer of this kind: the command above it, the file or folder, the names, and its text."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        for match in ANSWER.finditer(section):
            commands = re.findall(r"^\$ (.*)$", section[: match.start()], re.MULTILINE)
            if match[1] == kind:
                yield commands[-1] if commands else "", match[2], match[3] or "", match[4]


def _paragraphs(answer: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for paragraph in re.split(r"\n\s*\n", answer.strip("\n")):
        sentence, *facts = re.split(rf"\n{FACT}", paragraph)
        yield one_line(sentence), tuple(map(one_line, facts))


def one_line(text: str) -> str:
    """Without line breaks and indentation."""
    return " ".join(text.split())


def _shown() -> Iterator[Shown]:
    for command, folder, names, answer in _answers("answers of"):
        for name, (sentence, facts) in zip(re.split(", | and ", names), _paragraphs(answer), strict=True):
            yield Shown(f"{folder}/{name}.py", command, sentence, facts)


def plain(text: str) -> str:
    """Without what differs from run to run: times, sizes, pids, ports, and how a kernel calls its waits."""
    text = one_line(re.sub(r"^\[\d+/\w+\] ", "", text, flags=re.MULTILINE))
    text = re.sub(r"\b\d+ min (?=\d+ s\b)", "", text)
    text = re.sub(r"\b\d+(\.\d+)?(?=( (s|min|ms|MiB|GiB)\b|%))", "#", text)
    text = re.sub(r"\b(pid|port|worker|MASTER_PORT to) \d+|(\]|localhost):\d+", r"\1\2 #", text)
    text = re.sub(r", user \w+\)", ", user #)", text)
    return re.sub(r"(asleep|in the kernel) \(\w+\)", r"\1 (#)", text)


def provoked(desk: Desk, shown: Shown) -> str:
    """What the page's command says of the program, which runs as `train.py`."""
    case = CASES.get(Path(shown.program).stem, Case())
    shutil.copy(ROOT / shown.program, desk.folder / "train.py")
    shutil.copy(ROOT / "tests" / "corpus" / "programs" / "scene.py", desk.folder)
    desk.env |= harness.AS_ROOT | {
        "CORPUS_SCENE": str(desk.folder),
        "SEED_PORT": str(own_port()),
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    _, runs, launch = shown.command.partition("ddplaunch run -- ")
    words = [*(launch or "torchrun --nproc-per-node 4 train.py").split(), *case.arguments]
    ours = [sys.executable, "-c", SCRIPT]
    if runs:
        words = [*ours, "run", "--kill-after", "20s", "--", *words]
    elif "HANDLE" in shown.command:
        words = [*ours, "run", "--", *words]
    with (
        harness._memory_cgroup(case.memory) as enter,
        (desk.folder / "output").open("w") as output,
        subprocess.Popen(
            [*([] if case.shm is None else [*harness._WITH_OWN_SHM, str(case.shm)]), *words],
            cwd=desk.folder,
            env=desk.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=enter,
            start_new_session=True,
        ) as job,
    ):
        try:
            if runs:
                job.wait(BUSY * SECONDS)
                return (desk.folder / "output").read_text()
            eventually(lambda: has_stopped(desk.folder, case, job), "it stops", SECONDS)
            asked = shown.command.replace("HANDLE", "local://run").replace("pid:1234", f"pid:{job.pid}")
            answer = desk.call(*asked.split()[1:])
            until = time.monotonic() + BUSY * SECONDS
            while case.moves and "of the last" not in answer.stdout and time.monotonic() < until:
                time.sleep(SETTLED)
                answer = desk.call(*asked.split()[1:])
            return answer.stdout + answer.stderr
        finally:
            if job.poll() is None:
                job.send_signal(signal.SIGINT)
                try:
                    job.wait(BUSY * 40)
                except subprocess.TimeoutExpired:
                    job.kill()


def unsaid(shown: Shown, answer: str) -> list[str]:
    """What the page shows and the answer does not have; `…` stands for what the page leaves out."""
    code, _, sentence = shown.sentence.partition(": ")
    texts = (sentence, *shown.facts, f"explain {code}")
    if " " in code:  # no verdict
        texts = (shown.sentence, *shown.facts)
    said = plain(answer)
    return [part for text in texts for part in text.split("…") if plain(part) not in said]


def has_stopped(folder: Path, case: Case, job: subprocess.Popen[bytes]) -> bool:
    """Whether the job has ended, or its ranks have stood still for so long that somebody looks at it."""
    notes = [folder / "output"] if case.moves else list(folder.glob("stopped-*"))
    since = max((each.stat().st_mtime for each in notes), default=time.time())
    return job.poll() is not None or time.time() > since + SETTLED


@pytest.mark.whole
@pytest.mark.parametrize("shown", list(_shown()), ids=lambda shown: Path(shown.program).stem)
def test_the_pages_answer_is_what_the_command_says(desk: Desk, shown: Shown) -> None:
    case = CASES.get(Path(shown.program).stem, Case())
    if case.root and os.geteuid() != 0:
        pytest.skip("limits memory, or mounts a disk")

    answer = provoked(desk, shown)

    assert [] == unsaid(shown, answer), answer
    desk.gone()


@pytest.mark.whole
@pytest.mark.parametrize("number", [0, 1])
def test_the_holder_of_a_port_is_named_as_the_page_shows(desk: Desk, number: int) -> None:
    """A server, and the torchrun of another job."""
    port = str(own_port())
    (desk.folder / "other.py").write_text("import time\ntime.sleep(600)\n")
    assert 0 == desk.call("init", "--example").returncode
    ((command, _, _, answer),) = _answers("tried by")
    sentence, facts = list(_paragraphs(answer))[number]
    holders = (
        ["python3", "-m", "http.server", port, "--bind", "127.0.0.1"],
        ["torchrun", "--nproc-per-node", "1", "--master-port", port, "other.py"],
    )
    with subprocess.Popen(
        holders[number],
        cwd=desk.folder,
        env=desk.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as holder:
        try:
            eventually(lambda: listens(int(port)), "it listens", SECONDS)
            said = desk.call(*command.replace("29500", port).split()[1:])
        finally:
            holder.terminate()

    assert 104 == said.returncode
    assert [] == unsaid(Shown("", command, sentence, facts), said.stdout), said.stdout
    desk.gone()


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.whole
def test_the_readmes_answer_is_what_its_job_says(desk: Desk) -> None:
    """The page shows it, too. On a machine that is too busy the branch may be missing."""
    shown = re.search(
        r"\$ ddplaunch submit (\S+) --wait\n…\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    assert shown is not None
    answer = desk.call("submit", str(ROOT / shown[1]), "--wait", seconds=SECONDS)
    branch = re.compile(r"; rank 0 is in the branch .*? are not| Begin with \S+ and \S+")
    said = branch.sub("", plain(answer.stdout + answer.stderr))

    assert 105 == answer.returncode
    for paragraph in shown[2].split("\n\n"):
        assert branch.sub("", plain(paragraph)) in said, answer.stdout + answer.stderr
    desk.gone()


def test_an_answer_that_was_copied_is_in_its_source_word_for_word() -> None:
    """Those of GPUs, of several nodes and of Kubernetes: the page says from where they are."""
    for _, file, _, answer in _answers("from"):
        source = plain((ROOT / file).read_text("utf-8"))
        for sentence, facts in _paragraphs(answer):
            bare = re.sub(r"^[a-z-]+: ", "", sentence)  # a test looks at the sentence without its code
            for text in (bare, *facts):
                for part in text.split("…"):
                    assert plain(part) in source, f"{file} has no longer: {part}"


def test_each_answer_of_the_page_is_tried_or_says_where_it_is_from() -> None:
    kinds = ("answers of", "from", "tried by")
    assert sum(len(list(_answers(kind))) for kind in kinds) == PAGE.count("```text")
