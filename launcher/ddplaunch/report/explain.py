"""Pages on the verdict codes, and the meaning of each code in one line."""

from __future__ import annotations

import textwrap
from importlib.resources import files
from importlib.resources.abc import Traversable

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE


def meanings() -> dict[str, str]:
    """Return the meaning of each code in one line, sorted by code."""
    return {code: CATALOGUE[code].meaning for code in sorted(CATALOGUE)}


def has_page(code: str) -> bool:
    """Whether there is such a code: each has a page, and to see that takes no rule."""
    return f"{code}.md" in (page.name for page in _pages().iterdir())


def page(code: str) -> str:
    """Return the page of a code of the catalogue, in Markdown."""
    return (_pages() / f"{code}.md").read_text("utf-8")


def _pages() -> Traversable:
    return files("ddplaunch.report") / "pages"


def folded(text: str, width: int) -> str:
    """Return Markdown with its paragraphs and list items folded to `width`; other blocks stay as they are."""
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
