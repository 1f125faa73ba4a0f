"""The command line's own script."""

from __future__ import annotations

SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"
