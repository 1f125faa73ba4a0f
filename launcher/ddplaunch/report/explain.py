"""The pages behind the verdict codes, and what each code means in a line."""

from __future__ import annotations

import textwrap
from importlib.resources import files

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE


def meanings() -> dict[str, str]:
    """Code -> its meaning in one line, sorted by code."""
    return {code: CATALOGUE[code].meaning for code in sorted(CATALOGUE)}


def page(code: str) -> str:
    """The page of a code of the catalogue, Markdown that reads well as it is."""
    return (files("ddplaunch.report") / "pages" / f"{code}.md").read_text("utf-8")


def folded(text: str, width: int) -> str:
    """Markdown with its paragraphs and list items folded to `width`; what is indented or a heading stays."""
    blocks = [_fold(block, width) for block in text.rstrip().split("\n\n")]
    return "\n\n".join(blocks)


def _fold(block: str, width: int) -> str:
    lines = block.split("\n")
    if lines[0].startswith(("    ", "#", "|", "```")) or max(map(len, lines)) <= width:
        return block
    if not lines[0].startswith(("- ", "* ")):
        return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
    items: list[str] = []
    for line in lines:
        if line.startswith(("- ", "* ")):
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    return "\n".join(
        textwrap.fill(item, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for item in items
    )
