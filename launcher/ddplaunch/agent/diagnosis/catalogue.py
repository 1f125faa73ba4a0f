"""Every verdict code: one line of meaning, and the exit code of a job that ends by it.

A code is a stable name: printed with its sentence, accepted by `ddplaunch explain`, read by scripts. Its
entry stands beside its rule. The catalogue is built when it is first asked: a healthy job needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from ddplaunch.agent.contract import Verdict, codec
from ddplaunch.agent.diagnosis.rules import PARTS, Entry, declared_entries


class Catalogue(Mapping[str, Entry]):
    """The entries of all rules by code, sorted, those of the gate first."""

    def __init__(self) -> None:
        self._parts: Optional[dict[str, dict[str, Entry]]] = None

    def part(self, name: str) -> dict[str, Entry]:
        """Return the entries of the rules of 'gate' or 'run'. Raises ValueError where a code has two."""
        if self._parts is None:
            found = {part: declared_entries(part) for part in PARTS}
            codes = sorted(entry.code for entries in found.values() for entry in entries)
            twice = {code for code, after in zip(codes, codes[1:]) if code == after}
            if twice:
                raise ValueError(f"more than one entry: {', '.join(sorted(twice))}")
            self._parts = {
                part: {entry.code: entry for entry in sorted(entries, key=lambda entry: entry.code)}
                for part, entries in found.items()
            }
        return self._parts[name]

    def __getitem__(self, code: str) -> Entry:
        for part in PARTS:
            if code in self.part(part):
                return self.part(part)[code]
        raise KeyError(code)

    def __iter__(self) -> Iterator[str]:
        for part in PARTS:
            yield from self.part(part)

    def __len__(self) -> int:
        return sum(len(self.part(part)) for part in PARTS)


CATALOGUE = Catalogue()


def check_end(verdicts: Sequence[Verdict], exit_code: int = 0) -> None:
    """Raises ContractError where another process sent a verdict, or an exit code, that there is not."""
    for each in verdicts:
        if each.code not in CATALOGUE:
            raise codec.ContractError(f"there is no verdict {each.code[:40]!r}")
    if not 0 <= exit_code <= 255:
        raise codec.ContractError(f"no process ends with {exit_code}")


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of a job that ends by this verdict.

    What the gate finds may heal or work elsewhere. The same at a rank's own call was chosen by the script,
    which fails the same way wherever it is tried again: that is what an entry's `in_run` is for.
    """
    entry = CATALOGUE[verdict.code]
    return entry.exit_code if verdict.where != "run" or entry.in_run is None else entry.in_run
