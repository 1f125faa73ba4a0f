"""The words of torch's mp.spawn about a child's end, as torch 2.15 prints them."""

from __future__ import annotations

import pytest

from ddplaunch.agent.evidence import program_output


@pytest.mark.parametrize(
    ("end", "exits"),
    [
        ("process 2 terminated with signal SIGKILL", {2: -9}),
        ("process 0 terminated with exit code 7", {0: 7}),
        ("process 1 terminated with signal SIGNONE", {}),
        ("process 1 terminated with exit code 0", {}),
    ],
)
def test_the_first_bad_end_is_read(end: str, exits: dict[int, int]) -> None:
    """By the child's index; a name that no signal has says nothing."""
    text = f"    raise ProcessExitedException(\ntorch.multiprocessing.spawn.ProcessExitedException: {end}\n"

    assert exits == program_output.mp_spawn_exits(text)
