"""Gate and supervisor in a manifest or batch script that another controller runs: text in, text out. Pure.

`document` reads YAML with the place of each value, and changes text at these places and nowhere else, so
that comments and layout stay. `pod` adds the agent to a pod, `sbatch` to a batch script. `change` is the
entry, and knows which pods each kind of object starts, and where `run --join` gets number, rank and master
from. Nothing here reads a file, and nothing is guessed: what a module does not understand it refuses.
"""

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
