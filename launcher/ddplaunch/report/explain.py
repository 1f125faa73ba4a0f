"""The pages behind the verdict codes, and what each code means in a line."""

from __future__ import annotations

from importlib.resources import files

from ddplaunch.agent.verdicts.catalogue import CATALOGUE


def meanings() -> dict[str, str]:
    """Code -> its meaning in one line, sorted by code."""
    return {code: CATALOGUE[code].meaning for code in sorted(CATALOGUE)}


def page(code: str) -> str:
    """The page of a code of the catalogue, Markdown that reads well as it is."""
    return (files("ddplaunch.report") / "pages" / f"{code}.md").read_text("utf-8")
