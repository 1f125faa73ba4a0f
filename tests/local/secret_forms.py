"""A secret in every form in which a program may print it."""

from __future__ import annotations

import base64
import io
import json
import urllib.parse
import zipfile
from pathlib import Path

from ddplaunch.agent.contract import Marks

SECRET = "hunter2/correct horse+battery'staple\""


FORMS = [
    SECRET,
    repr(SECRET)[1:-1],
    json.dumps(SECRET)[1:-1],
    urllib.parse.quote(SECRET),
    base64.b64encode(SECRET.encode()).decode(),
]


def unpacked(log: str) -> str:
    """The hub's log with the bundle at its end as text."""
    head, _, rest = log.partition(Marks.BUNDLE)
    return head + _members(io.BytesIO(base64.b64decode(rest.partition(Marks.BUNDLE_END)[0])))


def texts(folder: Path) -> dict[str, str]:
    """All files below a folder as text, by their names in it; of a job's log and archives what is inside."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            text = archived(path) if path.suffix == ".zip" else path.read_text(errors="replace")
            found[str(path.relative_to(folder))] = unpacked(text) if Marks.BUNDLE_END in text else text
    return found


def archived(path: Path) -> str:
    """All that is in an archive, as text."""
    return _members(io.BytesIO(path.read_bytes()))


def _members(file: io.BytesIO) -> str:
    with zipfile.ZipFile(file) as archive:
        return "".join(archive.read(name).decode(errors="replace") for name in archive.namelist())
