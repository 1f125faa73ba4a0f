"""Why the verdict on a program is not the right one, where that is known: docs/accuracy.md has it."""

from __future__ import annotations

WHY: dict[str, str] = {
    "ends_terminated": "rank 1 sends SIGTERM to itself. A signal that asks a program to end is taken for "
    "the scheduler's or a person's: its sender is not known.",
    "short_timeout_in_barrier": "on the busy machine ranks 1 and 3 came to init later than the program's "
    "timeout of 2 s, before its fault. That timeout begins after init now.",
    "healthy_mpi_styles_long": "there were fewer free CPUs than ranks.",
}
"""A sentence by the name of the program's case."""
UNTESTED = frozenset(["ends_terminated"])
"""Programs whose verdict is not right on a quiet machine either: no test asks for it."""
