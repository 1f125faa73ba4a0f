"""`scripts/check-site` finds what leads nowhere in a built site, and what it would load from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.architecture.conftest import ROOT


def check(site: Path) -> tuple[int, str]:
    """Its exit code, and whatever it says."""
    words: list[str | Path] = [sys.executable, ROOT / "scripts" / "check-site", site]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """Two pages that lead to each other, and a style sheet."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(
        '<h1 id="so-far">So far</h1> <a href="../other.html#here">x</a>'
    )
    (tmp_path / "other.html").write_text(
        '<link rel="stylesheet" href="style.css?v=1"> <a id="here" href="a/#so-far">a</a> <a href="#">top</a>'
        '<a href="https://example.org/">elsewhere</a> <img src="data:image/png;base64,AAAA">'
    )
    (tmp_path / "style.css").write_text("p { background: url(data:x) }")
    return tmp_path


def test_a_site_whose_links_lead_somewhere_passes(site: Path) -> None:
    """A link to another host is none that is loaded."""
    assert (0, "2 pages, every link leads somewhere\n") == check(site)


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ('<a href="none.html">x</a>', "none.html is not there"),
        ('<a href="other.html#none">x</a>', "other.html#none has no such anchor"),
        ('<a href="#none">x</a>', "#none has no such anchor"),
        ('<img src="pictures/none.png">', "pictures/none.png is not there"),
        (
            '<script src="https://example.org/x.js"></script>',
            "https://example.org/x.js is loaded from elsewhere",
        ),
        ('<link rel="preload" href="//example.org/x">', "//example.org/x is loaded from elsewhere"),
    ],
)
def test_what_leads_nowhere_or_is_loaded_from_elsewhere_is_found(site: Path, html: str, said: str) -> None:
    """Each with its page."""
    (site / "broken.html").write_text(html)

    assert (1, f"broken.html: {said}\n") == check(site)


def test_a_style_sheet_that_loads_a_font_is_found(site: Path) -> None:
    (site / "style.css").write_text("@font-face { src: url(https://example.org/x.woff) }")

    assert (1, "style.css: loads from elsewhere\n") == check(site)


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert 1 == check(tmp_path)[0]


def test_pages_are_listed_where_the_navigation_is_taken_from() -> None:
    """A page that no README.md lists would fail `make site`, which runs on the forge."""
    docs = ROOT / "docs"
    lists = [docs / "README.md", docs / "decisions" / "README.md"]
    text = "".join(path.read_text("utf-8") for path in lists)
    pages = {path.relative_to(docs) for path in docs.rglob("*.md")} - {Path("README.md")}

    assert [] == sorted(
        str(page)
        for page in pages
        if f"({page}" not in text and not (page.parent.name == "decisions" and f"({page.name}" in text)
    )
