"""What workflows name is there: targets, scripts, files, tests. Actions and images are pinned by hash."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.architecture.conftest import ROOT, tracked

WORKFLOWS = tracked(".github/workflows/*.yml")
ACTIONS = tracked(".github/actions/*/action.yml")
FOLDERS = ("scripts", "requirements", "docker", "charts", "tests", "launcher", ".ci")
"""Where a word of a command that begins so must lead somewhere."""
MORE = {"release.yml": {"attest", "push", "publish"}, "docs.yml": {"deploy"}}
"""Jobs that may do more than read."""
OPERATORS = "();<>|&\n"
COMMIT = re.compile(r"uses: (?!\./)\S+@[0-9a-f]{40} # v\d+(\.\d+)*$")
DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}$")
TEST = re.compile(r"(tests/\S+\.py)::(\w+)")


def steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every step of a workflow, or of an action that is made of steps."""
    jobs = [*document.get("jobs", {}).values(), document.get("runs", {})]
    return [step for job in jobs for step in job.get("steps", [])]


def commands(script: str) -> Iterator[list[str]]:
    """The words between operators of a shell, those that set a variable left out."""
    script = re.sub(r"(?m)(^|\s)#.*$", "", script).replace("\\\n", " ")
    lexer = shlex.shlex(script, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if set(word) <= set(OPERATORS):
            yield words
            words = []
        elif words or not re.match(r"\w+=", word):
            words.append(word)


def wanting(script: str) -> list[str]:
    """Targets of make, and files of the repository, that the script names and that are not there."""
    found = []
    for words in commands(script):
        if words[:1] == ["make"]:
            targets = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            found += [f"make {target}" for target in targets if not is_target(target)]
        for word in words:
            if word.split("/")[0] in FOLDERS and "/" in word and "$" not in word:
                found += [] if (ROOT / word).exists() else [word]
                program = word == words[0] and (ROOT / word).exists()
                found += (
                    [f"{word} (not executable)"] if program and not os.access(ROOT / word, os.X_OK) else []
                )
    return found


@functools.cache
def is_target(name: str) -> bool:
    """Whether the Makefile knows how to make it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    words = ["make", "--dry-run", "--silent", name]
    return 0 == subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False).returncode


def unpinned(text: str) -> list[str]:
    """Lines that take an action by anything but a commit with its version behind it, or an image by a tag."""
    lines = [line.strip().removeprefix("- ") for line in text.splitlines()]
    found = [line for line in lines if line.startswith("uses:") and not COMMIT.match(line)]
    found = [line for line in found if not (ROOT / line.removeprefix("uses: ") / "action.yml").is_file()]
    images = [
        match[1]
        for line in lines
        if (match := re.match(r"(?:image|node|BASE|\w*KIND_NODE): ([\w./-]+[@:]\S+)", line))
    ]
    return found + [image for image in images if not DIGEST.match(image)]


def test_there_are_workflows() -> None:
    """Else the tests below would look at nothing."""
    assert {"docs.yml", "tests.yml", "release.yml"} <= {path.name for path in WORKFLOWS}
    assert ACTIONS


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_whatever_a_workflow_runs_is_there(path: Path) -> None:
    """A target or a script that has another name since would be noticed on the forge alone."""
    scripts = [step["run"] for step in steps(yaml.safe_load(path.read_text("utf-8"))) if "run" in step]

    assert scripts
    assert [] == [each for script in scripts for each in wanting(script)]
    # What somebody names a branch is text, and no part of a script.
    assert [] == [script for script in scripts if "${{" in script]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_actions_and_images_are_pinned(path: Path) -> None:
    """A tag is another commit tomorrow."""
    assert [] == unpinned(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_its_jobs_ask_for_more_one_by_one(path: Path) -> None:
    """And only for a tag: what a pull request runs may write nothing."""
    document = yaml.safe_load(path.read_text("utf-8"))
    more = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}

    assert {"contents": "read"} == document["permissions"]
    assert MORE.get(path.name, set()) == more.keys()
    for name in more:  # what may write runs no code that is checked out
        assert not any("checkout" in step.get("uses", "") for step in document["jobs"][name]["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_test_that_is_left_out_is_there(path: Path) -> None:
    """One with another name would run on the forge, where it cannot pass."""
    found = TEST.findall(path.read_text("utf-8"))

    assert [] == [name for file, name in found if f"def {name}(" not in (ROOT / file).read_text("utf-8")]


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("make tset", "make tset"),
        ("cd . && CI=true make -j2 lint qiuck # fast", "make qiuck"),
        ("scripts/no-such quick", "scripts/no-such"),
        ('echo "a\nb" | scripts/lint\n\\\n  x requirements/none.txt', "requirements/none.txt"),
        ("docs/README.md; scripts/job_file_page.py", "scripts/job_file_page.py (not executable)"),
    ],
)
def test_what_is_not_there_is_found(script: str, missing: str) -> None:
    """Behind variables and other commands, over several lines, and as an argument."""
    assert [missing] == wanting(script)


def test_what_is_there_is_not_reported() -> None:
    """Also a target that is a file, variables of make, and words of other commands that look alike."""
    assert [] == wanting('make .venv/.ready chaos RUNS=1\nscripts/lint >"x/$make" || echo make tset')


@pytest.mark.parametrize(
    "line",
    [
        "- uses: actions/checkout@v7",
        "uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1",
        "- uses: actions/checkout@3d3c42e # v7",
        "uses: ./.github/actions/no-such",
        "image: debian:bookworm",
        "DDPLAUNCH_KIND_NODE: kindest/node:v1.34.11",
    ],
)
def test_what_is_not_pinned_is_found(line: str) -> None:
    """A tag, a commit without its version, a part of one, an action that is not here, an image by a tag."""
    assert 1 == len(unpinned(f"    {line}\n"))
    assert [] == unpinned("- uses: a/b@" + "0" * 40 + " # v1.2\nimage: a@sha256:" + "0" * 64 + " # b\n")
