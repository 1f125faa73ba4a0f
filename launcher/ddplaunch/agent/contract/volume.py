"""The folder that a job gets on a volume, by the names that its nodes and the launcher agree on."""

from __future__ import annotations

WORK = "work"
"""Below the job's folder: where its source is unpacked, and the ranks of all nodes that see it run."""
NODE = "node-{node}"
"""Below the job's folder: an empty file of each node that sees this folder."""
_SHORT = 8


def folder(root: str, job: str, submission: str) -> str:
    """Return the job's folder in `root`: no other submission has it, also of the same name. "": not known."""
    return f"{root.rstrip('/')}/{job}-{submission[:_SHORT]}" if root and submission else ""
