"""Reading a report of HTML as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "br"}


class Structure(HTMLParser):
    """Fails where tags do not nest; collects text, tags and what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        links = [value or "" for name, value in attrs if name in ("src", "href", "action")]
        self.fetched += [link for link in links if not link.startswith("#")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def read(page: str) -> Structure:
    """The page's structure, all of whose tags are closed."""
    found = Structure()
    found.feed(page)
    found.close()
    assert [] == found.open
    return found


class _Outline(HTMLParser):
    """Writes each element and each text into a line, indented by its depth; styles are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.lines: list[str] = []
        self.style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = "".join(f' {name}="{value}"' if value is not None else f" {name}" for name, value in attrs)
        self.lines.append("  " * self.depth + f"<{tag}{named}>")
        self.depth += tag not in _VOID
        self.style = tag == "style"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.depth -= tag not in _VOID

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1
        self.style = False

    def handle_data(self, data: str) -> None:
        if data.strip() and not self.style:
            self.lines.append("  " * self.depth + " ".join(data.split()))


def outline(page: str) -> str:
    """The elements of a page as a browser builds them, line by line."""
    found = _Outline()
    found.feed(page)
    found.close()
    return "\n".join(found.lines) + "\n"
