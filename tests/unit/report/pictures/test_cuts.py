"""The cuts of a network are bracketed and named."""

from __future__ import annotations

from tests.unit.report.cases import case
from tests.unit.report.pages import outline, read

from ddplaunch.report import html
from ddplaunch.report.pictures import reachability


def test_a_cut_is_bracketed_and_named() -> None:
    """Both halves at both sides, and the two blocks between them."""
    bundle = case("cut").bundle
    assert bundle is not None
    picture = reachability.picture(bundle)

    assert picture is not None
    assert (
        "Cut: of the paths that were tried, none passes between nodes 0-31 and nodes 32-63."
        == picture.notes[0]
    )
    assert 2 == picture.svg.count(">nodes 32-63</text>")
    assert 2 == picture.svg.count('height="416" class="bracket"')


def test_the_map_comes_first_where_the_gate_said_no() -> None:
    """Nothing has run yet: there is nothing else to draw."""
    page = html.page(case("cut"))
    sections = [line.strip() for line in outline(page).splitlines() if "<section" in line]

    assert '<section id="reachability">' == sections[0]
    assert "nodes 32-63" in read(page).text
