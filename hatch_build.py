"""Puts the packed agent into a wheel, so that an installed launcher packs nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackedAgent(BuildHookInterface[Any]):
    """Hatch's custom build hook."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the archive. An editable installation packs it when it is needed: its sources change."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "launcher"))
        from ddplaunch.render import agent_archive

        made = Path(self.root) / "build" / agent_archive.NAME
        made.parent.mkdir(exist_ok=True)
        made.write_bytes(agent_archive.packed())
        build_data["force_include"][str(made)] = f"ddplaunch/render/{agent_archive.NAME}"
