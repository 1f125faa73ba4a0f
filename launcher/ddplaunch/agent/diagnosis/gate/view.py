"""The facts about all nodes that the rules of the gate read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshResult, Verdict
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.saying import Sayable, Subject, say

V = TypeVar("V", bound=Hashable)


@dataclass(frozen=True)
class GateView:
    """Nodes are those of the hub's own plan."""

    plan: JobPlan
    check_ins: dict[int, CheckIn]
    waited: float = 0.0  # seconds since the hub began to wait
    missing: list[int] = field(default_factory=list)  # empty until waiting for them is over
    vanished: list[int] = field(default_factory=list)  # of the missing: had checked in, and went away
    stopped: list[int] = field(default_factory=list)  # of the vanished: they reported a signal to stop
    stalled: list[int] = field(default_factory=list)  # they announced a check-in that does not come
    unreached: dict[int, Verdict] = field(
        default_factory=dict
    )  # why nodes say that they do not reach the hub
    strays: list[CheckIn] = field(default_factory=list)  # claim a place that is taken, or that there is not
    refused: list[str] = field(default_factory=list)  # addresses of those who do not know the job's key
    mesh: list[MeshResult] = field(default_factory=list)  # what failed, or passed with a remark
    passed: dict[str, dict[str, int]] = field(default_factory=dict)  # the rest, see `paths`
    library: list[MeshResult] = field(default_factory=list)  # paths beside it

    def checks(self, name: str) -> bool:
        """Whether the job wants this check."""
        return name not in self.plan.gate.skip

    def node(self, number: int) -> Subject:
        """'node 2 (n3)'."""
        return subjects.node(number, self.plan.names)

    def nodes(self, numbers: Iterable[int]) -> Subject:
        """'nodes 1 (n2) and 2 (n3)'."""
        return subjects.nodes(numbers, self.plan.names)

    def rest(self, known: Iterable[int], odd: Iterable[int]) -> Sayable:
        """Return the name of the one in `known` that is not `odd`, or 'the others' when there are several."""
        found = set(known) - set(odd)
        return self.nodes(found) if len(found) == 1 else "the others"

    def differing(self, what: str, values: dict[int, str]) -> list[Sayable]:
        """Return the note '{what}: node 2 (n3) 16, elsewhere 8'; none where all `values` are the same."""
        right, odd = odd_ones(values) if values else ("", {})
        parts = [say(self.nodes(who), f" {value}, ") for value, who in odd.items()]
        return [say(f"{what}: ", *parts, f"elsewhere {right}")] if parts else []

    def met_at(self, number: int) -> set[str]:
        """Addresses by which the gate knows a node; node 0 may have come to its own hub by loopback."""
        found = {self.check_ins[number].address}
        if number == 0:
            found |= {c.facts.get("hub", {}).get("reached_at", "") for c in self.check_ins.values()}
        return found


def home(check_in: CheckIn) -> tuple[str, str]:
    """Nodes with the same home share a loopback interface."""
    return check_in.machine, check_in.netns


def addresses(check_in: CheckIn, name: str) -> list[str]:
    """Return the addresses of `name` as the node resolves it; none when it does not, or was not asked."""
    found: list[str] = check_in.facts.get("names", {}).get("addresses", {}).get(name, [])
    return found


def odd_ones(values: dict[int, V]) -> tuple[V, dict[V, list[int]]]:
    """Return what most nodes say (in a tie, the lowest), and who says otherwise. `values` is not empty."""
    counts = Counter(values.values())
    right = max((values[node] for node in sorted(values)), key=lambda value: counts[value])
    odd: dict[V, list[int]] = {}
    for node in sorted(values):
        if values[node] != right:
            odd.setdefault(values[node], []).append(node)
    return right, odd
