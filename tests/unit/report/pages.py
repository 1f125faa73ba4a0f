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
