"""Bundles as a hub prints them."""

from __future__ import annotations

import base64
import json
import zlib

from ddplaunch.agent.contract import Bundle, Marks, codec

BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0, exit_code=20)


def block(bundle: Bundle) -> list[str]:
    """As the hub prints it."""
    text = base64.b64encode(zlib.compress(json.dumps(codec.dump(bundle)).encode())).decode()
    return [Marks.BUNDLE, *(text[start : start + 60] for start in range(0, len(text), 60)), Marks.BUNDLE_END]
