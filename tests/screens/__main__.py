"""`python -m tests.screens DIR`: pictures of eight pages of the report, in Chromium, to be looked at.

Light, dark, and on a phone; CASE: only these. `python -m tests.screens --docs` makes the pictures of the
documentation again: drawings, and, where Chromium is, the first screens of two pages.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.screens import chromium
from tests.unit.report.cases import CASES, DOCS, PICTURES, case, docs_picture

from ddplaunch.report import html

HEIGHT = 2600
"""Pixels of each page that are shown."""
FIRST_SCREENS = {"a-hang": ("mismatch", 1150), "a-gate": ("cut", 1150)}
"""By the name of the picture: the case, and how many pixels of its page are shown."""


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.screens", description=__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--docs", action="store_true", help="write the pictures of the documentation")
    parser.add_argument("only", metavar="CASE", nargs="*", choices=[[], *CASES])
    args = parser.parse_args()
    if args.docs:
        for name in PICTURES:
            path = DOCS / f"{name}.svg"
            path.write_text(docs_picture(name), "utf-8")
            print(path)
        for name, (shown, height) in FIRST_SCREENS.items() if chromium.program() else ():
            path = DOCS / f"{name}.png"
            chromium.picture(html.page(case(shown)), chromium.SCREENS[0], height, path)
            print(path)
    if args.folder is None:
        return 0 if args.docs else parser.error("name the folder")
    if chromium.program() is None:
        print(
            "error: no Chromium is installed\n\nhint: apt-get install chromium-headless-shell",
            file=sys.stderr,
        )
        return 2
    args.folder.mkdir(exist_ok=True)
    for name in args.only or CASES:
        page = html.page(case(name))
        (args.folder / f"{name}.html").write_text(page, "utf-8")
        for screen in chromium.SCREENS:
            path = args.folder / f"{name}-{screen.name}.png"
            chromium.picture(page, screen, HEIGHT, path)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
