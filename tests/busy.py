"""How patient tests are: waits name the seconds that a machine with little else to do needs."""

from __future__ import annotations

BUSY = 4.0
"""Times those seconds for a machine that is slower, or has other things to do."""
