"""Why the verdict on a program is not the right one, where that is known: docs/accuracy.md has it."""

from __future__ import annotations

WHY: dict[str, str] = {
    "ends_terminated": "rank 1 sends SIGTERM to itself. The sentence names it, and says that the sender is "
    "not known: the scheduler, a person or a memory killer may have sent it, so no rank is accused.",
}
"""A sentence by the name of the program's case."""
UNTESTED = frozenset(["ends_terminated"])
"""Programs whose verdict is not right on a quiet machine either: no test asks for it."""
