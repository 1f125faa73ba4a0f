"""Names that the user chooses, for all kinds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of `ddplaunch inject`.

    `agent_image` and `key_secret`: for pods. `container`: the one that trains, where a pod has several.
    `agent`: the archive's path, for batch scripts. `python`: the one that runs the agent.
    """

    agent_image: str | None = None
    key_secret: str = "ddplaunch"
    container: str | None = None
    agent: str = "agent.pyz"
    python: str = "python3"
