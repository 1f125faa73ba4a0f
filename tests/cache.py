"""Where everything lies that tests build and that outlives a run."""

from __future__ import annotations

import os
from pathlib import Path

_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("DDPLAUNCH_CACHE") or _HOME / "ddplaunch")
