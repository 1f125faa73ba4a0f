"""A bundle that was printed into a log is the bundle."""

from __future__ import annotations

import base64
import json
import zlib

from ddplaunch.agent.contract import Bundle, codec
from ddplaunch.agent.hub import hub
from ddplaunch.backends import printed

BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0, exit_code=20)


def block(bundle: Bundle) -> list[str]:
    """As the hub prints it."""
    text = base64.b64encode(zlib.compress(json.dumps(codec.dump(bundle)).encode())).decode()
    return [hub.BEGIN, *(text[start : start + 60] for start in range(0, len(text), 60)), hub.END]


def test_a_printed_bundle_is_read() -> None:
    """From among other lines; the last whole one counts, of an end that was cut off nothing does."""
    old = Bundle("digits", 0, 2, 1, 1.0, 1.0)
    lines = ["12:00 x", *block(old), "y", *block(BUNDLE), "z", *block(old)[:-1]]

    assert BUNDLE == printed.bundle(lines)
    assert None is printed.bundle([hub.BEGIN, "no base64!", hub.END])
    assert None is printed.bundle([])
