"""A diagnosis for an issue or a chat."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.report import conftest as given
from tests.unit.report.cases import case

from ddplaunch.backends.job import State
from ddplaunch.report import Diagnosis, markdown

MISMATCH = """\
**ddplaunch:** `at collective 2 rank 3 called broadcast [8] (train.py:14), the others all_reduce [8] \
(train.py:9)`

- job digits, failed after 1 min 10 s
- culprit: rank 3 on node 1 (host1)
- victims: ranks 0-2
- because: `rank 3: collective 2 is broadcast [8] (train.py:14)`
- because: `ranks 0-2: collective 2 is all_reduce [8] (train.py:9)`
- because: process group '0'; known of 4 of 4 ranks
- what to do: All ranks of a group must call the same collectives in the same order, with the same shapes: \
look for a branch on the rank, or on data that differs between ranks, around the calls named here.

`rank 3 called broadcast [8] (train.py:14), /src/train.py:14`:
```python
dist.broadcast(x, 0)
```

`ranks 0-2 called all_reduce [8] (train.py:9), /src/train.py:9`:
```python
dist.all_reduce(x)
```

More: ddplaunch explain collective-mismatch
"""


def test_it_has_what_a_helper_needs() -> None:
    """The sentence, whose fault it is, why, what to do, and the lines of code."""
    assert MISMATCH == markdown.text(case("mismatch"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank 3 waits", "rank 3 waits"),
        ("a_b", "`a_b`"),
        ("@all <b>", "`@all <b>`"),
        ("see https://x.y", "`see https://x.y`"),
        ("a `b`", "`` a `b` ``"),
        ("two\nlines", "`two\\nlines`"),
    ],
)
def test_what_a_job_says_is_no_markup(text: str, shown: str) -> None:
    """Nobody is mentioned by a log line, and none begins a heading."""
    assert shown == markdown.span(text)


def test_a_line_of_code_does_not_end_its_block() -> None:
    """Its fence is longer than any in it."""
    found = case("mismatch")
    assert found.bundle is not None
    assert found.evidence is not None
    nodes = [
        dataclasses.replace(node, lines=dict.fromkeys(node.lines, "```")) for node in found.evidence.evidence
    ]
    bundle = dataclasses.replace(found.bundle, evidence=dataclasses.replace(found.evidence, evidence=nodes))

    assert "````python\n```\n````" in markdown.text(dataclasses.replace(found, bundle=bundle))


def test_without_a_verdict_it_says_why() -> None:
    assert markdown.text(Diagnosis(given.job(State.SUCCEEDED), None, [])).startswith(
        "**ddplaunch:** nothing is wrong: the job succeeded\n"
    )
