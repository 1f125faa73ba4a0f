"""Command lines that are printed for people, read by the shells that they have."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from ddplaunch.agent.text.printable import shell_line

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
