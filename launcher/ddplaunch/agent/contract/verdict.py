"""A verdict: the shape in which all parts of ddplaunch hand on what is wrong and whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from ddplaunch.agent.contract.words import Where
from ddplaunch.agent.text import mentions
from ddplaunch.agent.text.mentions import Template
from ddplaunch.agent.text.printable import printable


@dataclass(frozen=True)
class Verdict:
    """A cause, its culprits, and the facts. The texts are printable, although they may quote a rank.

    A rule writes its texts with mentions of nodes and ranks. Facts and hint are spelled out at once. The
    sentence keeps its `template`, from which it is made again when `machines` become known.
    """

    code: str
    sentence: str
    where: Where
    nodes: list[int] = field(default_factory=list)  # culprits
    ranks: list[int] = field(default_factory=list)  # culprits, global ranks
    victims: list[int] = field(default_factory=list)  # global ranks that only wait or died of another's fault
    confidence: float = 1.0
    facts: list[str] = field(default_factory=list)  # its evidence, one sentence each
    hint: str = ""
    template: Optional[Template] = None  # the sentence with its mentions; None where it has none
    machines: Optional[dict[str, str]] = None  # by node, of those that the sentence names

    def __post_init__(self) -> None:
        own = mentions.safe(self.sentence)
        template = own if mentions.any_in(own) else mentions.safe(self.template or "")
        sentence = mentions.filled(template or own, self.machines or {})
        if sentence != own and not mentions.any_in(own):
            template, sentence = "", own  # another sentence has taken its place
        for name, value in (
            ("code", printable(self.code)),
            ("sentence", sentence),
            ("facts", [printable(mentions.filled(fact)) for fact in self.facts]),
            ("hint", printable(mentions.filled(self.hint))),
            ("template", Template(template) if template else None),
        ):
            object.__setattr__(self, name, value)

    @property
    def wording(self) -> str:
        """Return the sentence with its mentions, where it has some: without machines."""
        return self.template or self.sentence

    @property
    def cause(self) -> tuple[str, str]:
        """Return what is equal for the same cause, wherever its nodes are."""
        return self.code, self.wording

    @property
    def named(self) -> list[list[int]]:
        """Return the nodes that the sentence gives by name, mention by mention."""
        return mentions.named(self.wording)

    def continued(self, text: str) -> Verdict:
        """Return the verdict with more at the end of its sentence."""
        return replace(self, sentence=self.wording + text)

    def on(self, machines: Mapping[int, str]) -> Verdict:
        """Return the verdict with the machines of the nodes that its sentence names, where they are known."""
        named = {node for nodes in self.named for node in nodes}
        known = {str(node): machines[node] for node in sorted(named) if node in machines}
        known.update(self.machines or {})
        return replace(self, sentence=self.wording, machines=known) if known else self
