"""Turns flight recorders, as torch itself gives them, into answers as a rank's hook gives them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Optional

_EVERYBODY = "default_pg"
_DIGITS = 6
"""Digits of the largest world size that is believed."""


def world(size: str) -> list[int]:
    """Return all ranks of a world; none where its size is not known."""
    return [*range(int(size))] if size.isdecimal() and len(size) <= _DIGITS else []


def answer(recorded: Mapping[str, Any], everybody: list[int]) -> Optional[dict[str, Any]]:
    """Return the answer of a rank; None where nothing is recorded. `everybody`: all ranks, where known.

    `recorded`: dumps by backend. One that is of another form is left out: some other program's, or torch's.
    """
    dumps: dict[str, dict[str, Any]] = {}
    groups: dict[str, tuple[list[int], str]] = {}
    for backend, dump in recorded.items():
        try:
            dump = {**dump, "entries": _entries(dump, backend)}
            groups.update(_groups(dump, everybody))
        except (ValueError, TypeError, AttributeError):
            continue
        if dump["entries"]:
            dumps[backend] = dump
    if not dumps:
        return None
    dumps = {backend: _of_groups(dump, groups) for backend, dump in dumps.items()}
    return {"recorders": dumps, "backend": list(dumps)[-1], "initialized": True, "groups": groups}


def _entries(dump: Mapping[str, Any], backend: str) -> list[dict[str, Any]]:
    """Return the backend's own: the general recorder has those of others in some versions of torch."""
    return [each for each in dump.get("entries", []) if str(each.get("profiling_name")).startswith(backend)]


def _groups(dump: dict[str, Any], everybody: list[int]) -> dict[str, tuple[list[int], str]]:
    """Return members and description by name, where they are known: Gloo's recorder names no members."""
    groups = {}
    for group in dump.get("pg_config", {}).values():
        name, ranks = str(group.get("name", "")), str(group.get("ranks", "")).strip("[]")
        if name and ranks:
            groups[name] = ([int(rank) for rank in ranks.split(",")], str(group.get("desc", "")))
    for entry in dump["entries"]:
        name, description = (*entry.get("process_group", []), "", "")[:2]
        if description == _EVERYBODY and everybody:
            groups.setdefault(name, (everybody, description))
    return groups


def _of_groups(dump: dict[str, Any], groups: Collection[str]) -> dict[str, Any]:
    """Return the dump without groups of unknown members: a rank without a call may not be a member."""
    entries = [each for each in dump["entries"] if (*each.get("process_group", []), "")[0] in groups]
    numbers = {str(each.get("pg_id", 0)) for each in entries}
    status = {name: its for name, its in dump.get("pg_status", {}).items() if name in numbers}
    return {**dump, "entries": entries, "pg_status": status}
