"""A bundle that was printed into a log is the bundle."""

from __future__ import annotations

from tests.unit.backends.bundles import BUNDLE, block

from ddplaunch.agent.contract import Bundle, Marks
from ddplaunch.backends import files


def test_a_printed_bundle_is_read() -> None:
    """From among other lines; the last whole one counts, of an end that was cut off nothing does."""
    old = Bundle("digits", 0, 2, 1, 1.0, 1.0)
    lines = ["12:00 x", *block(old), "y", *block(BUNDLE), "z", *block(old)[:-1]]

    assert BUNDLE == files.printed_bundle(lines)
    assert None is files.printed_bundle([Marks.BUNDLE, "no base64!", Marks.BUNDLE_END])
    assert None is files.printed_bundle([])
