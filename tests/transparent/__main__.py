"""Runs rows by name, or all: `python -m tests.transparent [NAME ...]`, two at a time."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.transparent.compare import report
from tests.transparent.table import ROWS


def main() -> int:
    """Print a line for each row, and both sides of those that differ; 1 where one does."""

    rows = {row.name: row for row in ROWS}

    def tried(name: str) -> str:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
            return report(rows[name], Path(folder))

    names = sys.argv[1:] or list(rows)
    differ = 0
    with ThreadPoolExecutor(2) as executor:
        for name, text in zip(names, executor.map(tried, names), strict=True):
            print(f"{name}: {'differs' if text else 'the same'}", flush=True)
            if text:
                differ += 1
                print(text, flush=True)
    print(f"{len(names) - differ} of {len(names)} are the same")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
