"""A secret in every form in which a program may print it."""

from __future__ import annotations

import base64
import json
import urllib.parse
import zlib

from ddplaunch.agent.hub.hub import BEGIN, END

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
    head, _, rest = log.partition(BEGIN)
    return head + zlib.decompress(base64.b64decode(rest.partition(END)[0])).decode()
