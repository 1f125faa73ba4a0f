"""docs/tutorial/ten-minutes.md, as somebody follows it: every command, in one shell, in an empty folder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.busy import BUSY
from tests.local.conftest import Desk
from tests.ports import own_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "ten-minutes.md"
PORT = "29555"
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1:]  # the first one installs
TIMES = re.compile(r"\d[\d.:-]*( (d|h|min|s)\b( \d+ (h|min|s)\b)?)?")


def plain(line: str) -> str:
    """Without what differs from run to run: numbers, times, columns, who you are."""
    return TIMES.sub("#", re.sub(r"\s+", " ", re.sub(r"user \S+(?=\))", "user ann", line))).strip()


def test_each_command_of_the_tutorial_answers_what_it_shows(desk: Desk) -> None:
    lines = "".join(BLOCKS).splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    script = "\n".join(f"echo '$' {number}\n{command}" for number, command in enumerate(commands))
    done = subprocess.run(
        ["bash", "-m", "-c", script.replace(PORT, str(own_port()))],
        cwd=desk.folder,
        env=desk.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUSY * 180,
    )

    # What a command says on its two streams comes in any order here, and in a terminal as the page shows it.
    answers: list[list[str]] = [[]]  # a shell without a terminal says first that it has none
    for line in done.stdout.splitlines():
        if re.fullmatch(r"\$ \d+", line):
            answers.append([])
        else:
            answers[-1].append(plain(line))
    shown: list[list[str]] = []
    for line in lines:
        if line.startswith("$ "):
            shown.append([])
        elif line.strip("… "):
            shown[-1].append(line)
    for command, wanted, answer in zip(commands, shown, answers[1:], strict=True):
        missing = [line for line in wanted if plain(line) not in answer]
        assert missing == [], f"{command} did not print this\n\n{done.stdout}"
    desk.gone()
