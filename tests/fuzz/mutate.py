"""Real inputs, changed a little: text by its characters, JSON by its structure, all by one seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

TOKENS = (
    *("", "\0", "\n", "\r", "\t", "\x1b[2J", "\x1f", "\u202e", "\u2028", "\ufeff"),
    "²",  # a digit by `isdigit`, and none that `int` takes
    *("٣", "é", "\U0001f600", "\ud800", "-1", "0", "0x10", "1e999", "nan", "9" * 20),
    "9" * 5000,  # more digits than `int` takes
    *("~", "null", "{}", "[", "]" * 40, "{" * 200, ":", "|", "=", "%s%n", "../../etc/passwd"),
    *("$(reboot)", "'\""),
    "a" * 300,
)
"""What programs trip over, as text."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 10**25, 10**400, 1e308, -1e308),
    *(float("inf"), float("-inf"), float("nan")),
    *([], {}, [[]], [None], {"": None}, {"name": {}}, ["²", "x"]),
    *TOKENS,
)
"""What programs trip over, as JSON."""

_DEEPEST = 40


def text(random: Random, given: str, others: Sequence[str], most: int = 6) -> str:
    """*given* with some changes, or with a piece of one of the *others* in it."""
    for _ in range(random.randint(1, most)):
        given = random.choice(_CHANGES)(random, given, others)
    return given


def tree(random: Random, given: Any, most: int = 4) -> Any:
    """A copy of the JSON *given* with some of its values, keys and items changed."""
    root = [copy.deepcopy(given)]
    for _ in range(random.randint(1, most)):
        holder, key = random.choice(_places(root))
        random.choice(_TREE_CHANGES)(random, holder, key, root)
    return root[0]


def as_json(random: Random, given: Any, others: Sequence[str]) -> str:
    """The text of *given*, one time in four changed as text too."""
    found = json.dumps(given)
    return text(random, found, others, 3) if random.random() < 0.25 else found


# --- text


def _span(random: Random, given: str) -> tuple[int, int]:
    start = random.randint(0, len(given))
    return start, min(len(given), start + random.choice((1, 2, 8, 40, 400)))


def _insert(random: Random, given: str, others: Sequence[str]) -> str:
    at, _ = _span(random, given)
    return given[:at] + random.choice(TOKENS) + given[at:]


def _replace(random: Random, given: str, others: Sequence[str]) -> str:
    start, end = _span(random, given)
    return given[:start] + random.choice(TOKENS) + given[end:]


def _flip(random: Random, given: str, others: Sequence[str]) -> str:
    at = random.randrange(len(given)) if given else 0
    return given[:at] + chr(random.randrange(256)) + given[at + 1 :]


def _drop(random: Random, given: str, others: Sequence[str]) -> str:
    start, end = _span(random, given)
    return given[:start] + given[end:]


def _repeat(random: Random, given: str, others: Sequence[str]) -> str:
    start, end = _span(random, given)
    return given[:start] + given[start:end] * random.choice((2, 3, 50)) + given[end:]


def _splice(random: Random, given: str, others: Sequence[str]) -> str:
    other = random.choice(others) if others else given
    start, end = _span(random, other)
    at, to = _span(random, given)
    return given[:at] + other[start:end] + given[to:]


_CHANGES = (_insert, _replace, _flip, _drop, _repeat, _splice)


# --- trees


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Every value of the tree, as what holds it and the key or index there."""
    found: list[tuple[Any, Any]] = []
    todo: list[Any] = [root]
    while todo:
        holder = todo.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                todo.append(holder[key])
    return found


def _put_value(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    holder[key] = copy.deepcopy(random.choice(VALUES))


def _change_text(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    if isinstance(holder[key], str):
        holder[key] = text(random, holder[key], (), 2)
    else:
        _put_value(random, holder, key, root)


def _change_number(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = random.choice((-holder[key], holder[key] + 1, str(holder[key]), [holder[key]]))
    else:
        _put_value(random, holder, key, root)


def _remove(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    if holder is not root:
        del holder[key]


def _rename(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    if isinstance(holder, dict):
        holder[random.choice((*TOKENS, *holder))] = holder.pop(key)


def _swap(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    """With a copy, so that no value comes to lie in itself."""
    other, place = random.choice(_places(root))
    holder[key] = copy.deepcopy(other[place])


def _multiply(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    if isinstance(holder, list) and holder is not root:
        holder[:] = holder * random.choice((2, 30) if len(holder) < 10 else (2,))
    else:
        holder[key] = [holder[key]] * random.choice((1, 2))


def _bury(random: Random, holder: Any, key: Any, root: list[Any]) -> None:
    found = holder[key]
    for _ in range(random.choice((1, 3, _DEEPEST))):
        found = random.choice(([found], {"a": found}))
    holder[key] = found


_TREE_CHANGES = (*[_put_value, _change_text, _change_number, _remove, _rename, _swap] * 3, _multiply, _bury)
