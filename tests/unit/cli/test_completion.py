"""Completion: which words fit, and that three real shells load the scripts and offer them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.unit.cli.conftest import SCRIPT, Call
from tests.unit.cli.ended_jobs import ended

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.cli.completion import FILES, fitting
from ddplaunch.cli.main import VERBS

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(name="jobs", autouse=True)
def _jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs to complete."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in ("1", "2"):
        ended(tmp_path / "ddplaunch" / "jobs" / "digits" / number, Exit.OK)


HANDLES = {"local://digits/1", "local://digits/2"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", set(VERBS)),
        ("su", {"submit"}),
        ("status ", HANDLES),
        ("status local://digits/2", {"local://digits/2"}),
        ("status local://digits/2 ", set()),
        ("logs -f ", HANDLES),
        ("logs --rank 0 ", HANDLES),
        ("logs --rank ", set()),
        ("logs --t", {"--tail"}),
        ("explain rank-k", {code for code in CATALOGUE if code.startswith("rank-k")}),
        ("submit --to ", {"kubernetes", "local", "slurm"}),
        ("submit ", {FILES[0]}),
        ("validate a.yaml ", {FILES[0]}),
        ("render job.yaml -o ", {FILES[0]}),
        ("run -- torchrun ", {FILES[0]}),
        ("completion ", set(SHELLS)),
        ("xyzzy ", set()),
    ],
)
def test_a_word_is_completed_by_what_fits(line: str, words: set[str]) -> None:
    """Verbs, options, handles, codes, targets; else the shell's own file names."""
    assert words == {word for word, _ in fitting(line.split(" "))}


def test_every_word_of_the_overview_has_its_meaning() -> None:
    """Shells that show descriptions have one to show."""
    assert VERBS == dict(fitting([""]))


def test_hidden_options_are_not_offered() -> None:
    """What only the scripts use is no option for people."""
    assert {"-h", "--help", "--debug"} == {word for word, _ in fitting(["completion", "-"])}


def test_what_begins_with_two_dashes_is_completed(call: Call) -> None:
    """As the scripts ask: argparse has a use of its own for `--`."""
    options = {line.split("\t")[0] for line in call("completion", "--words", "submit", "--").out.splitlines()}

    assert {"--to", "--wait", "--dry-run", "--json"} <= options
    assert ":files\n" == call("completion", "--words", "run", "--", "./tr").out


def test_a_shell_must_be_named(call: Call) -> None:
    assert (2, 2) == (call("completion").code, call("completion", "tcsh").code)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> str:
    """A PATH on which `ddplaunch` is this checkout's."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "ddplaunch"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{SCRIPT}' \"$@\"\n")
    script.chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"


ASK = {
    "bash": """\
eval "$(ddplaunch completion bash)"
COMP_LINE="ddplaunch $1" COMP_POINT=$((10 + ${#1})) COMP_WORDBREAKS=$' \\t\\n:'
_ddplaunch 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """\
autoload -Uz compinit && compinit -D
source <(ddplaunch completion zsh)
_describe() { print -rl -- "${(@)found}" }
_files() { print :files }
words=(ddplaunch "${(@s: :)1}") CURRENT=$#words
_ddplaunch
""",
    "fish": """\
ddplaunch completion fish | source
complete -C "ddplaunch $argv[1]"
""",
}


def ask(shell: str, line: str, path: str) -> list[str]:
    """What a real shell makes of the completion of `ddplaunch LINE`."""
    plain = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    result = subprocess.run(
        [shell, *plain, "-c", ASK[shell], *(["ask"] if shell != "fish" else []), line],
        env=os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUSY * 60,
    )
    assert "" == result.stderr
    return result.stdout.splitlines()


CASES = [
    case
    for case in [
        ("bash", "expl", ["explain"]),
        ("bash", "status local:", ["//digits/1", "//digits/2"]),
        ("bash", "submit ", [""]),
        ("zsh", "expl", ["explain:print the page about a verdict code"]),
        ("zsh", "status local:", ["local\\://digits/2:succeeded", "local\\://digits/1:succeeded"]),
        ("zsh", "submit ", [":files"]),
        ("fish", "expl", ["explain\tprint the page about a verdict code"]),
        ("fish", "status local:", ["local://digits/1\tsucceeded", "local://digits/2\tsucceeded"]),
        ("fish", "validate some-fi", ["some-file.yaml"]),
    ]
    # zsh and fish are tried where they are; bash is everywhere.
    if case[0] == "bash" or shutil.which(case[0])
]


@pytest.mark.parametrize(("shell", "line", "words"), CASES)
def test_a_real_shell_offers_them(
    shell: str, line: str, words: list[str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script loads without a word of complaint, and handles with their colon survive."""
    (tmp_path / "some-file.yaml").touch()
    monkeypatch.chdir(tmp_path)

    assert sorted(words) == sorted(ask(shell, line, path))
