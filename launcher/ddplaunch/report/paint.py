"""Adds colour to terminal text. Every text must read the same without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paint:
    """Adds terminal escapes to words if `on`."""

    on: bool = False

    def bad(self, text: str) -> str:
        return self._around("1;31", text)

    def good(self, text: str) -> str:
        return self._around("32", text)

    def odd(self, text: str) -> str:
        return self._around("33", text)

    def _around(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


PLAIN = Paint()
