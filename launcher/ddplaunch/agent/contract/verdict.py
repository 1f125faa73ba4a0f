"""A verdict: the shape in which all parts of ddplaunch hand on what is wrong and whose fault it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Optional, Union

from ddplaunch.agent.contract.words import Where
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.saying import Sayable, Subject, Text, named, packed, safe, say, spelled, unpacked


@dataclass(frozen=True)
class Source:
    """The records from which a fact was made."""

    collector: str  # 'stacks by hook'
    of: str  # 'ranks 0-2'
    place: str  # in the bundle: 'stacks of nodes 0-1 in bundle.json'

    def __str__(self) -> str:
        return f"{self.collector} of {self.of}; {self.place}"


@dataclass(frozen=True)
class Fact:
    """A sentence of a verdict's evidence. `source`: None where it stands in no record of its own."""

    text: str
    source: Optional[Source] = None


_NUMBER = re.compile(r"[0-9]{1,9}")
AnyFact = Union[str, Fact]
"""A fact, or the text of one that has no source."""


@dataclass(frozen=True)
class Verdict:
    """A cause, its culprits, and the facts. `of` makes one: its texts are printable, whoever they quote."""

    code: str
    text: Text
    where: Where
    nodes: list[int] = field(default_factory=list)  # culprits
    ranks: list[int] = field(default_factory=list)  # culprits, global ranks
    victims: list[int] = field(default_factory=list)  # global ranks that only wait or died of another's fault
    confidence: float = 1.0
    because: list[Fact] = field(default_factory=list)  # its evidence, one sentence each
    hint: str = ""
    machines: Mapping[int, str] = field(default_factory=dict)  # by node, of those that the sentence names
    json_form: ClassVar[type]  # see `plan.codec`

    @classmethod
    def of(
        cls,
        code: str,
        sentence: Sayable,
        where: Where,
        nodes: Iterable[int] = (),
        ranks: Iterable[int] = (),
        victims: Iterable[int] = (),
        confidence: float = 1.0,
        facts: Iterable[AnyFact] = (),
        hint: str = "",
    ) -> Verdict:
        """Return the verdict that says `sentence`, with all that it says printable."""
        return cls(
            printable(code),
            safe(say(sentence)),
            where,
            [*nodes],
            [*ranks],
            [*victims],
            confidence,
            [*map(_fact, facts)],
            printable(hint),
        )

    @property
    def sentence(self) -> str:
        """Return what is wrong, in one sentence for people."""
        return spelled(self.text, self.machines)

    @property
    def facts(self) -> list[str]:
        """Return the evidence as people read it."""
        return [fact.text for fact in self.because]

    @property
    def cause(self) -> tuple[str, Text]:
        """Return what is equal for the same cause, wherever its nodes are."""
        return self.code, self.text

    @property
    def named(self) -> list[list[int]]:
        """Return the nodes that the sentence gives by name, subject by subject."""
        return named(self.text)

    def saying(self, *text: Sayable) -> Verdict:
        """Return the verdict with another sentence."""
        return replace(self, text=safe(say(*text)))

    def continued(self, *text: Sayable) -> Verdict:
        """Return the verdict with more at the end of its sentence."""
        return self.saying(self.text, *text)

    def with_facts(self, facts: Iterable[AnyFact]) -> Verdict:
        """Return the verdict with more facts behind its own."""
        return replace(self, because=[*self.because, *map(_fact, facts)])

    def on(self, machines: Mapping[int, str]) -> Verdict:
        """Return the verdict with the machines of the nodes that its sentence names, where they are known."""
        nodes = sorted({node for nodes in self.named for node in nodes})
        known = {node: machines[node] for node in nodes if node in machines}
        return replace(self, machines={**known, **self.machines})

    def written(self) -> Written:
        """Return the verdict in the shape of its JSON."""
        sources = [fact.source for fact in self.because]
        return Written(
            self.code,
            self.sentence,
            self.where,
            self.nodes,
            self.ranks,
            self.victims,
            self.confidence,
            self.facts,
            self.hint,
            packed(self.text) if any(isinstance(each, Subject) for each in self.text) else None,
            sources if any(sources) else None,
            {str(node): machine for node, machine in self.machines.items()} or None,
        )


@dataclass(frozen=True)
class Written:
    """A verdict in JSON: what people read, and beside it what that was made of."""

    code: str
    sentence: str
    where: Where
    nodes: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)
    confidence: float = 1.0
    facts: list[str] = field(default_factory=list)
    hint: str = ""
    text: Optional[list[Any]] = None  # of the sentence, as `packed` makes it; None: it has no subjects
    sources: Optional[list[Optional[Source]]] = None  # of the facts, in their order
    machines: Optional[dict[str, str]] = None

    def read(self) -> Verdict:
        """Return the verdict. Whoever sends a sentence and another text has the sentence read and no text."""
        sources = self.sources or []
        verdict = Verdict.of(
            self.code,
            self.sentence,
            self.where,
            self.nodes,
            self.ranks,
            self.victims,
            self.confidence,
            [Fact(text, sources[at] if at < len(sources) else None) for at, text in enumerate(self.facts)],
            self.hint,
        )
        text = safe(unpacked(self.text) or ())
        known = (self.machines or {}).items()
        machines = {int(node): name for node, name in known if _NUMBER.fullmatch(node)}
        made = replace(verdict, text=text, machines=machines)
        return made if made.sentence == verdict.sentence else verdict


Verdict.json_form = Written


def _fact(fact: AnyFact) -> Fact:
    text, source = (fact, None) if isinstance(fact, str) else (fact.text, fact.source)
    if source is not None:
        source = Source(printable(source.collector), printable(source.of), printable(source.place))
    return Fact(printable(text), source)
