"""Text that speaks of nodes and ranks: words, and between them the subjects as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import listing, plural

_NOUNS = ("node", "rank")
_NOWHERE: Mapping[int, str] = {}


class Part(NamedTuple):
    """Some of a subject's numbers, in a row; a single node may have its name and address."""

    first: int
    last: int
    name: str = ""
    address: str = ""


@dataclass(frozen=True)
class Subject:
    """Nodes or ranks of which a text speaks. As a string it is spelled out: 'ranks 0-3 and 7'."""

    noun: str  # of _NOUNS
    parts: tuple[Part, ...]

    @property
    def numbers(self) -> Iterator[int]:
        return (number for part in self.parts for number in range(part.first, part.last + 1))

    @property
    def count(self) -> int:
        return sum(part.last - part.first + 1 for part in self.parts)

    def __str__(self) -> str:
        return spelled((self,))


Text = tuple[Union[str, Subject], ...]
"""Words and subjects. `say` makes it, `spelled` the string that people read."""
Sayable = Union[str, Subject, Text]


def say(*parts: Sayable) -> Text:
    """Return the text that has these parts, one behind the other."""
    said: list[Union[str, Subject]] = []
    for part in parts:
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, str) and said and isinstance(said[-1], str):
                said[-1] += each
            elif each:
                said.append(each)
    return tuple(said)


def joined(glue: str, parts: Iterable[Sayable]) -> Text:
    """Return the text that has these parts with `glue` between them."""
    return say(*(each for number, part in enumerate(parts) for each in ((glue, part) if number else (part,))))


def listed(parts: Sequence[Sayable]) -> Text:
    """Return 'a', 'a and b', or 'a, b and c'."""
    *first, last = parts
    return say(joined(", ", first), " and ", last) if first else say(last)


def spelled(text: Text, machines: Mapping[int, str] = _NOWHERE) -> str:
    """Return the text with its subjects spelled out: 'nodes 2 (n3) and 5', 'ranks 0-3 and 7'.

    `machines` are those of nodes by their numbers: 'node 2 (digits-2 on worker2)', where it is named first.
    """
    return "".join(spelled_parts(text, machines))


def spelled_parts(text: Text, machines: Mapping[int, str] = _NOWHERE) -> list[str]:
    """Return what `spelled` puts together, part by part."""
    shown: set[int] = set()
    return [each if isinstance(each, str) else _spelled(each, machines, shown) for each in text]


def _spelled(subject: Subject, machines: Mapping[int, str], shown: set[int]) -> str:
    noun, parts = subject.noun, subject.parts
    if not parts:
        return f"no {noun}"
    shown_parts = [_spelled_part(each, machines, shown) for each in parts]
    return f"{plural(subject.count, noun)} {listing(shown_parts)}"


def _spelled_part(part: Part, machines: Mapping[int, str], shown: set[int]) -> str:
    number, last, name, address = part
    if name and number in machines and number not in shown:
        shown.add(number)
        name = f"{name} on {machines[number]}"
    known = ", ".join(filter(None, (name, address)))
    row = f"{number}" if number == last else f"{number}-{last}"
    return f"{row} ({known})" if known else row


def cut(text: Text, limit: int, machines: Mapping[int, str] = _NOWHERE) -> Text:
    """Return the beginning of the text that reads as at most `limit` characters, its subjects whole."""
    kept: list[Sayable] = []
    for each in text:
        shown = spelled((each,), machines)
        if len(shown) > limit:
            return say(*kept, shown[:limit])
        kept.append(each)
        limit -= len(shown)
    return say(*kept)


def named(text: Text) -> list[list[int]]:
    """Return the numbers of each subject that gives nodes their names."""
    subjects = [each for each in text if isinstance(each, Subject)]
    return [[part.first for part in each.parts] for each in subjects if any(part.name for part in each.parts)]


def safe(text: Text) -> Text:
    """Return the text with printable words and names."""
    return say(*(printable(each) if isinstance(each, str) else _safe(each) for each in text))


def _safe(subject: Subject) -> Subject:
    parts = (Part(first, last, printable(name), printable(at)) for first, last, name, at in subject.parts)
    return Subject(subject.noun, tuple(parts))


# --- as JSON: words as they are, a subject as {"node": [[2, 2, "n3"], [5, 7]]}


def packed(text: Text) -> list[Any]:
    """Return the text as plain data."""
    return [each if isinstance(each, str) else {each.noun: [*map(_row, each.parts)]} for each in text]


def _row(part: Part) -> list[Union[int, str]]:
    first, last, name, address = part
    return [first, last, name, address] if address else [first, last, name] if name else [first, last]


def unpacked(data: Any) -> Optional[Text]:
    """Return the text that `packed` has made into this data; None where it is no such data."""
    try:
        return say(*(each if isinstance(each, str) else _subject(each) for each in data))
    except (TypeError, ValueError, AttributeError):
        return None


def _subject(data: Any) -> Subject:
    ((noun, rows),) = data.items()
    parts = tuple(Part(*row) for row in rows)
    kinds = {(type(first), type(last), type(name), type(at)) for first, last, name, at in parts}
    if noun not in _NOUNS or not kinds <= {(int, int, str, str)}:
        raise ValueError(data)
    if not all(0 <= part.first <= part.last for part in parts):
        raise ValueError(data)
    return Subject(noun, parts)
