"""What the launcher's tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples at every run: a failure seen once is seen again. A slow machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
