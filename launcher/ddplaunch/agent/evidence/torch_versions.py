"""What each version of torch shows of a rank's collectives: the one table of it."""

from __future__ import annotations

FIRST_WITH_GLOO = "2.8"
