"""Shows pages of the report in a real Chromium, without a window, and measures what it makes of them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
_MEASURE = (Path(__file__).parent / "measure.js").read_text("utf-8")
_FOUND = re.compile(r'<pre id="measured">(.*?)</pre>', re.DOTALL)


class Screen(NamedTuple):
    """A way to look at a page. Sizes are in pixels."""

    name: str
    width: int
    height: int
    dark: bool = False


SCREENS = (
    Screen("light", 1200, 800),
    Screen("dark", 1200, 800, dark=True),
    Screen("phone", 390, 844),
)


def program() -> str | None:
    """Return the browser's path; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def picture(page: str, screen: Screen, height: int, path: Path) -> None:
    """Write the upper `height` pixels of the page as a PNG."""
    _run(page, screen, height, f"--screenshot={path}")


def measured(page: str, screen: Screen, height: int = 12_000) -> dict[str, Any]:
    """Return what measure.js finds in the page, in a window in which nothing is scrolled away."""
    shown = page.replace("</body>", f"<script>{_MEASURE}</script></body>")
    found = _FOUND.search(_run(shown, screen, height, "--dump-dom"))
    assert found is not None
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def _run(page: str, screen: Screen, height: int, *words: str) -> str:
    browser = program()
    assert browser is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        path.write_text(page, "utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={screen.width},{height}"]
        command += ["--blink-settings=preferredColorScheme=0"] if screen.dark else []
        done = subprocess.run(
            [*command, *words, path.as_uri()], capture_output=True, text=True, check=False, timeout=120
        )
    assert 0 == done.returncode, done.stderr
    return done.stdout
