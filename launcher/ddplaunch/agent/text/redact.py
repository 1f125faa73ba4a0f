"""Takes a job's secrets out of text: each becomes `[secret NAME]`. Pure.

A value is fields line by line, as it is and in the forms that programs give it by accident: the escapes of
`repr` and JSON, those of URLs, base64 with whatever around it. So is its beginning at the end of a text that
was cut. Values of less than SHORTEST characters are not looked for: they stand in any text.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

SHORTEST = 4
_CUT = 8
"""Characters of a beginning, or of base64, that are no accident."""
_OURS = (
    "address addresses backend check code host kind machine master_addr method mpi netns numbered_by outcome "
    "packed phase resolved role source stack_source standing state status what"
)
"""Keys of words that rules compare, ours and the network's: a secret that equals one must not change it. What
is `packed` was free of secrets before."""

_KEPT = frozenset(_OURS.split())

T = TypeVar("T")


class Redactor:
    """`values`: the secrets by name."""

    def __init__(self, values: Mapping[str, str]) -> None:
        names = {form: name for name, value in values.items() for form in _forms(value)}
        longest_first = sorted(names, key=len, reverse=True)
        self._marks = {form: f"[secret {names[form]}]" for form in longest_first}
        self._begins = _any_of(sorted({form[:_CUT] for form in names}))
        self._pattern = _any_of(longest_first)

    def hide(self, value: T) -> T:
        """`value`, a text or whatever may stand in a message, without the secrets."""
        hidden: T = self._hidden(value) if self._marks else value
        return hidden

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._hidden(each) for each in value]
        if isinstance(value, tuple):  # a text's subjects have named ones in them
            parts = [self._hidden(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, dict):
            return {key: each if key in _KEPT else self._hidden(each) for key, each in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **self._hidden(fields))
        return value

    def _text(self, text: str) -> str:
        if not self._begins.search(text):  # as nearly always
            return text
        text = self._pattern.sub(lambda match: self._marks[match[0]], text)
        for form, mark in self._marks.items():
            at = text.rfind(form[:_CUT])
            if at >= 0 and len(text) - at >= _CUT and form.startswith(text[at:]):
                return text[:at] + mark
        return text


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)))


NO_SECRETS = Redactor({})


def _forms(value: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus  # which most jobs do without

    for line in map(str.strip, value.splitlines()):
        if len(line) >= SHORTEST:
            data = line.encode(errors="surrogateescape")
            yield from (line, repr(line)[1:-1], ascii(line)[1:-1], json.dumps(line)[1:-1], repr(data)[2:-1])
            yield from (quote(data), quote(data, safe=""), quote_plus(data))
            yield from _base64(data)


def _base64(data: bytes) -> Iterator[str]:
    """Yield the value's base64, and the characters that are its own when other bytes precede it."""
    import base64

    coded = [base64.b64encode(data).decode()]
    for before, own in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(data)) * 8 // 6
        coded.append(base64.b64encode(bytes(before) + data).decode()[own:whole])
    for each in coded:
        if len(each) >= _CUT:
            yield from (each, each.replace("+", "-").replace("/", "_"))
