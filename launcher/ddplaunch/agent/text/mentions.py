"""Mentions of nodes and ranks: data inside a text until it is printed, when `filled` spells them out. Pure.

A mention is START, a noun, its parts and END. A part is NEXT and a number, or a span of numbers; a node's
name and then its address may follow, each after a WITH. The four marks are noncharacters of Unicode, which no
text has: `printable` escapes them, and so does the codec wherever it reads anything else than a Template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Optional

from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.ranges import listing

START, NEXT, WITH, END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_PART = f"{NEXT}[0-9]+(?:-[0-9]+)?(?:{WITH}[^{START}-{END}]*){{0,2}}"
_MENTION = re.compile(f"{START}(node|rank)((?:{_PART})*){END}")
_NOWHERE: Mapping[str, str] = {}


class Template(str):
    """A text whose mentions are not spelled out yet."""

    __slots__ = ()


def mention(noun: str, parts: Iterable[str]) -> str:
    """Return the mention of 'node' or 'rank' `parts`, each as `part` makes it."""
    return f"{START}{noun}{''.join(NEXT + each for each in parts)}{END}"


def part(numbers: str, name: str = "", address: str = "") -> str:
    """Return a part of a mention: '0-3', or one node with its name, its address, or both."""
    return WITH.join([numbers, name, address]).rstrip(WITH)


def filled(text: str, machines: Mapping[str, str] = _NOWHERE) -> str:
    """Return the text with its mentions spelled out: 'nodes 2 (n3) and 5', 'ranks 0-3 and 7'.

    `machines` are those of nodes by their numbers: 'node 2 (digits-2 on worker2)', where it is named first.
    """
    shown: set[str] = set()

    def spell(match: re.Match[str]) -> str:
        parts = match[2].split(NEXT)[1:]
        if not parts:
            return f"no {match[1]}"
        several = len(parts) > 1 or "-" in parts[0].partition(WITH)[0]
        return f"{match[1]}{'s' * several} {listing([_spelled(each, machines, shown) for each in parts])}"

    return _MENTION.sub(spell, text) if START in text else text


def _spelled(text: str, machines: Mapping[str, str], shown: set[str]) -> str:
    number, name, address, *_ = [*text.split(WITH), "", ""]
    if name and number in machines and number not in shown:
        shown.add(number)
        name = f"{name} on {machines[number]}"
    known = ", ".join(filter(None, (name, address)))
    return f"{number} ({known})" if known else number


def any_in(text: str) -> bool:
    """Whether there is a mention in a text that `safe` has returned."""
    return START in text


def named(text: str) -> list[list[int]]:
    """Return the numbers of each mention that gives nodes their names."""
    match = [[each.split(WITH) for each in match[2].split(NEXT)[1:]] for match in _MENTION.finditer(text)]
    return [[int(each[0]) for each in parts] for parts in match if any(len(e) > 1 and e[1] for e in parts)]


def safe(text: str) -> str:
    """Return the text printable but for its mentions, and these with printable names."""
    pieces, end = [], 0
    for match in _MENTION.finditer(text):
        inside = "".join(each if each in (NEXT, WITH) else printable(each) for each in match[2])
        pieces += [printable(text[end : match.start()]), f"{START}{match[1]}{inside}{END}"]
        end = match.end()
    return "".join([*pieces, printable(text[end:])])


def after_first(text: str) -> Optional[str]:
    """Return what follows the mention with which the text begins; None where it begins otherwise."""
    match = _MENTION.match(text)
    return text[match.end() :] if match else None


def cut(text: str, limit: int, machines: Mapping[str, str] = _NOWHERE) -> str:
    """Return the beginning of the text that reads as at most `limit` characters, its mentions whole."""
    kept, left, end = "", limit, 0
    for match in [*_MENTION.finditer(text), None]:
        plain = text[end : match.start() if match else None]
        shown = filled(match[0], machines) if match else ""
        if len(plain) + len(shown) > left:
            return kept + (plain + shown)[:left]
        kept, left = kept + plain + (match[0] if match else ""), left - len(plain) - len(shown)
        end = match.end() if match else end
    return kept


def escaped(text: str) -> str:
    """Return the text without marks, escaped as `printable` does it: nothing from outside makes a mention."""
    if text.isascii() or not any(mark in text for mark in (START, NEXT, WITH, END)):
        return text
    return re.sub(f"[{START}-{END}]", lambda match: printable(match[0]), text)
