"""A rank that sleeps in a loop of its own until another has done something."""

from __future__ import annotations

import pytest
from tests.agent.diagnosis.build import in_evaluate, job, only, rank, stack
from tests.agent.diagnosis.run.build_branches import source

from ddplaunch.agent.contract import Frame, Process, RankEvidence, Verdict

HEAD = "def gather(n):\n"
FILE = "/job/train.py"


def sleeping(text: str, line: int, number: int = 0) -> RankEvidence:
    return rank(
        number,
        stack(Frame("gather", FILE, line)),
        called=16,
        process=Process(500 + number, "S", wchan="hrtimer_nanosleep"),
    )


def told(text: str, line: int) -> Verdict:
    """The verdict on a rank that sleeps at this line, while another waits for it."""
    functions = source(HEAD + text, line)
    return only(job(sleeping(text, line), rank(1), functions=functions))


@pytest.mark.parametrize(
    ("text", "line", "waits_for"),
    [
        ("    while not ready(n):\n        sleep(1)\n", 3, "`ready(n)` (train.py:2)"),
        (
            "    while store.add(n, 0) != 4: sleep(1)\n",
            2,
            "the end of `while store.add(n, 0) != 4` (train.py:2)",
        ),
        (
            (
                "    while True:\n        parts = look()\n        if all(parts):\n            return parts\n"
                "        sleep(1)\n"
            ),
            6,
            "`all(parts)` (train.py:4)",
        ),
        (
            "    for _ in range(600):\n        sleep(1)\n        if exists(n):\n            break\n",
            3,
            "`exists(n)` (train.py:4)",
        ),
        (
            "    while True:\n        if seen == world:\n            break\n        sleep(1)\n",
            5,
            "`seen == world` (train.py:3)",
        ),
        (
            "    while time() < end and not ready(n):\n        sleep(1)\n",
            3,
            "the end of `while time() < end and not ready(n)` (train.py:2)",
        ),
    ],
)
def test_who_looks_for_something_again_and_again_is_said_to_wait_for_it(
    text: str, line: int, waits_for: str
) -> None:
    verdict = told(text, line)

    assert (
        f"rank 0 has been in gather (train.py:{line}), waiting for {waits_for} for 11 s" in verdict.sentence
    )
    assert ([0], 0.7) == (verdict.ranks, verdict.confidence)
    assert "See what that one did instead" in verdict.hint


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("    while True:\n        sleep(1)\n", 3),
        ("    while time() < end:\n        sleep(1)\n", 3),
        ("    while n < 9:\n        sleep(1)\n        n += 1\n", 3),
        ("    while n != 9:\n        sleep(1)\n        n += 1\n", 3),
        ("    while True:\n        if tries >= most:\n            break\n        sleep(1)\n", 5),
        ("    for _ in range(600):\n        sleep(1)\n", 3),
        ("    for _ in range(9):\n        if ready(n):\n            break\n    sleep(100)\n", 5),
    ],
)
def test_who_only_lets_time_pass_waits_for_nobody(text: str, line: int) -> None:
    verdict = told(text, line)

    assert "waiting for" not in verdict.sentence.partition("the other")[0]
    assert verdict.confidence > 0.9


def test_who_looks_for_something_is_not_blamed_beside_who_works() -> None:
    text = "    while not ready(n):\n        sleep(1)\n"
    verdict = only(
        job(
            sleeping(text, 3),
            rank(1, in_evaluate(), called=16),
            rank(2),
            functions=source(HEAD + text, 3),
        )
    )

    assert ([1], [0, 2]) == (verdict.ranks, verdict.victims)
