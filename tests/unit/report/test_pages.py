"""The pages of `ddplaunch explain`: one for each code, all of one form, and what they quote works."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from importlib.resources import files

import pytest
from pydantic import BaseModel

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.cli.main import known_verb, verb_parser
from ddplaunch.report import explain
from ddplaunch.spec.load import parse
from ddplaunch.spec.models import JobSpec

SECTIONS = ["What it means", "How it shows", "How to confirm it by hand", "How to fix it"]
WIDEST = 118
FILE = ("c", "conf", "json", "log", "md", "py", "pyz", "yaml")
"""Last parts of dotted words that are names of files."""
HEAD = {"apiVersion": "ddplaunch/v1", "name": "page", "command": "[train.py]"}


def blocks(page: str) -> Iterator[str]:
    """What is indented as code, without its indent."""
    for block in re.findall(r"(?:^ {4,}.*\n|^\n(?= {4}))+", page, re.MULTILINE):
        yield textwrap.dedent(block).strip("\n")


def spans(page: str) -> list[str]:
    """What stands between backticks. A span may be broken over two lines."""
    prose = "\n".join(line for line in page.split("\n") if not line.startswith("    "))
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def commands(page: str) -> Iterator[list[str]]:
    """The words of every call of ddplaunch, without what the shell does to it."""
    lines = [line.removeprefix("$ ") for block in blocks(page) for line in block.splitlines()]
    for line in [*lines, *spans(page)]:
        if line.startswith("ddplaunch "):
            yield shlex.split(re.split(r" [|;>&]", line)[0], comments=True)[1:]


def keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """All keys of the job file, as dotted paths."""
    for field, info in model.model_fields.items():
        name = above + (info.alias or field)
        yield name
        if isinstance(info.default, BaseModel):
            yield from keys(type(info.default), f"{name}.")


KEYS = frozenset(keys(JobSpec))


def named_keys(page: str) -> Iterator[str]:
    """What the page calls a key of the job file: `gate.timeout`, `python:`."""
    for span in spans(page):
        dotted = re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", span)
        if dotted and span.rpartition(".")[2] not in FILE:
            yield span
        key = re.fullmatch(r"([a-z_.]+):", span)
        if key:
            yield key[1]


def snippets(page: str) -> Iterator[str]:
    """The blocks that are parts of a job file."""
    for block in blocks(page):
        key = re.match(r"([a-z_]+):\s", block)
        if key and key[1] in KEYS:
            yield block


def test_every_code_has_a_page_and_every_page_its_code() -> None:
    """A code is added, and retired, together with its page."""
    folder = files("ddplaunch.report") / "pages"

    assert sorted(f"{code}.md" for code in CATALOGUE) == sorted(page.name for page in folder.iterdir())


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_page_has_the_sections_that_people_look_for(code: str) -> None:
    """Code, meaning in the catalogue's words, four sections in one order, none of them empty."""
    page = explain.page(code)
    meaning = f"{CATALOGUE[code].meaning}."
    head, *sections = re.split(r"^#+ .*$", page, flags=re.MULTILINE)[1:]

    assert [f"# {code}", *(f"## {section}" for section in SECTIONS)] == re.findall(
        r"^#.*", page, re.MULTILINE
    )
    assert head.strip() in (meaning, meaning[0].upper() + meaning[1:])
    assert [] == [section for section in sections if not section.strip()]
    assert [] == [line for line in page.split("\n") if len(line) > WIDEST or line != line.rstrip()]
    assert page.endswith("\n")


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_page_is_markdown_and_readable_as_it_is(code: str) -> None:
    """What is quoted from a terminal is indented, from its first line on, so that nothing folds it."""
    page = explain.page(code)

    assert [] == re.findall(r"^(?! {4}).+\n {4,}.*", page, re.MULTILINE)
    assert [] == re.findall(rf"^{code}: .*", page, re.MULTILINE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_commands_of_a_page_are_understood(code: str) -> None:
    """Whoever copies a call of ddplaunch gets no usage error, and no code that there is not."""
    for words in commands(explain.page(code)):
        parser = verb_parser(known_verb(words[0]))
        if len(words) > 1:  # else the verb is only mentioned
            arguments = parser.parse_args(words[1:])
            assert words[0] != "explain" or arguments.code in CATALOGUE


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_keys_of_a_page_are_in_the_job_file(code: str) -> None:
    """A key that is named exists, and a part of a job file that is shown is valid."""
    page = explain.page(code)

    assert [] == sorted(set(named_keys(page)) - KEYS)
    for snippet in snippets(page):
        head = [f"{key}: {value}" for key, value in HEAD.items() if f"{key}:" not in snippet]
        parse("\n".join([*head, snippet]).encode(), code)


def test_the_checks_find_something_to_check() -> None:
    """None of them passes because it looks past the pages."""
    pages = [explain.page(code) for code in CATALOGUE]

    assert 10 < sum(len(list(commands(page))) for page in pages)
    assert 20 < sum(len(list(named_keys(page))) for page in pages)
    assert 0 < sum(len(list(snippets(page))) for page in pages)
