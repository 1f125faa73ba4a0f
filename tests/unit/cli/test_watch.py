"""What somebody who waits gets to see of a job's lines."""

from __future__ import annotations

from ddplaunch.cli.watch import News


def test_what_all_supervisors_say_is_shown_once() -> None:
    """A verdict comes from every node in the same words; ranks' lines and a node's own news are all shown."""
    lines = [
        "[1/ddplaunch] rank 3 is in load",
        "[0/ddplaunch] rank 3 is in load",
        "[0/0] rank 3 is in load",
        "[0/ddplaunch] torchrun ended with 1",
        "[2/ddplaunch] rank 3 is in load",
        "[1/ddplaunch] rank 3 is in load",
        "[1/1] epoch 1",
        "[1/2] epoch 1",
    ]
    news = News()

    assert [True, False, True, True, False, True, True, True] == [news(line) for line in lines]
