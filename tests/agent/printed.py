"""Bundles as the hub prints and sends them."""

from __future__ import annotations

import base64
import io

from ddplaunch.agent.contract import Bundle, bundle_file


def bundle(text: str) -> Bundle:
    """Return the bundle of a hub's log or answer."""
    return bundle_file.load(io.BytesIO(base64.b64decode(text)))
