"""What strangers say commands no terminal; a printed command means the same to every shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.text.printable import printable, shell_line

EVIL = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069\ufeff\U000e0001\udc80",
]


@pytest.mark.parametrize("char", EVIL, ids=ascii)
def test_what_does_not_print_is_shown_as_an_escape(char: str) -> None:
    """C0, C1, the marks of direction, line separators, invisible tags, and bytes that are no text."""
    shown = printable(f"a{char}b")

    assert shown.isprintable()
    assert f"a{ascii(char)[1:-1]}b" == shown


def test_what_prints_stays_as_it_is() -> None:
    """In any language; an escape that was text before stays text; newlines, where they are asked for."""
    assert "Ж中é\\x1b 'x'" == printable("Ж中é\\x1b 'x'")
    assert "two\nlines\\r" == printable("two\nlines\r", lines=True)


def test_no_verdict_holds_what_a_terminal_obeys() -> None:
    """It goes into Slurm's Comment and a pod's termination message as it is."""
    evil = "".join(EVIL)
    verdict = Verdict.of("a" + evil, "b" + evil, "run", facts=["c" + evil], hint="d" + evil)

    assert all(map(str.isprintable, [verdict.code, verdict.sentence, *verdict.facts, verdict.hint]))


WORDS = [
    *("train.py", "command[1]=--hang", "", "two words", "it's", r"a\b", "a\\", "a\\'b", r"\\", "$HOME"),
    *("`date`", "!!", "=ls", "%self", "~", "*?{a,b}", "a=~/x", "#x", "a;b&c|d<e>f(g)", 'say "no"'),
    *("ä\tö", "x\ny", "--set", "a^b", "local://run/1"),
]


@pytest.mark.parametrize("name", ["sh", "bash", "zsh", "fish"])
def test_a_printed_command_means_the_same_in_every_shell(name: str) -> None:
    """Each word arrives as it was meant."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"there is no {name} here")
    python = "import json, sys; print(json.dumps(sys.argv[1:]))"

    command = shell_line([sys.executable, "-c", python, *WORDS])
    done = subprocess.run([program, "-c", command], capture_output=True, text=True, timeout=20)

    assert ("", WORDS) == (done.stderr, json.loads(done.stdout))


def test_what_needs_no_quotes_has_none() -> None:
    """A command is easier to read without."""
    plain = "ddplaunch submit job.yaml --set nodes=4 --to slurm"
    assert plain == shell_line(plain.split())
    assert "--set 'command[1]=--hang'" == shell_line(["--set", "command[1]=--hang"])
