"""The pages of the report as a real Chromium shows them: legible, labelled, within the screen.

`make test` compares the pages' text; this is what only a browser knows.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.screens import chromium
from tests.screens.chromium import SCREENS, Screen
from tests.unit.report.cases import CASES, case

from ddplaunch.report import Diagnosis, html

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(
        chromium.program() is None, reason="no Chromium is installed: chromium-headless-shell"
    ),
]
FAINT = "<style>.quiet { color: #aaaaaa !important; }</style>"
WIDE = '<p style="width: 2000px">wide</p>'


def seen(diagnosis: Diagnosis, screen: Screen, more: str = "") -> dict[str, Any]:
    """What is measured in its page."""
    return chromium.measured(html.page(diagnosis).replace("</main>", f"{more}</main>"), screen)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
@pytest.mark.parametrize("name", CASES)
def test_a_page_is_legible_labelled_and_fits(name: str, screen: Screen) -> None:
    """Contrast of 4.5 for every text, names for all pictures and regions, nothing beside the screen."""
    found = seen(case(name), screen)

    assert found.pop("texts") >= 10
    assert found.pop("first_screen") <= (screen.height if name != "circle" else 2 * screen.height)
    assert found.pop("width") <= screen.width
    assert found == {
        "dark": screen.dark,
        "faint": [],
        "unnamed": [],
        "out_of_keyboard": [],
        "first_level": 1,
        "skipped": [],
        "headless_tables": 0,
        "language": "en",
        "broken_links": 0,
    }


def test_what_is_faint_wide_or_without_a_name_is_found() -> None:
    """The measurement sees what it is for."""
    found = seen(case("mismatch"), SCREENS[0], FAINT + WIDE + '<div role="img"></div><h6>x</h6>')

    assert found["faint"]
    assert ['<div role="img"></div>'] == found["unnamed"]
    assert found["width"] >= 2000
