"""Mentions: data in a text, spelled out where it is printed, and made by nobody but us."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import CheckIn, Event, Verdict, codec
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text import mentions

NAMES = ["n0.lab", "n1.lab", "n2.lab", "n3.lab", "n4.lab"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (subjects.ranks([3]), "rank 3"),
        (subjects.ranks([5, 2]), "ranks 2 and 5"),
        (subjects.ranks([0, 1, 2, 3, 7]), "ranks 0-3 and 7"),
        (subjects.ranks([]), "no rank"),
        (subjects.node(2), "node 2"),
        (subjects.node(2, NAMES), "node 2 (n2)"),
        (subjects.node(2, [], "10.0.0.5"), "node 2 (10.0.0.5)"),
        (subjects.node(2, NAMES, "10.0.0.5"), "node 2 (n2, 10.0.0.5)"),
        (subjects.nodes([1, 2], NAMES), "nodes 1 (n1) and 2 (n2)"),
        (subjects.nodes(range(5), NAMES), "nodes 0-4"),
        (subjects.nodes([1, 2], ["127.0.0.1"] * 3), "nodes 1 and 2"),
    ],
)
def test_a_mention_is_spelled_out(text: str, shown: str) -> None:
    """Numbers as ranges, a few nodes with their names."""
    assert f"{shown}: done" == mentions.filled(f"{text}: done")


def test_a_verdict_keeps_its_template() -> None:
    """People read the sentence; over the wire goes what it was made of, and facts are spelled out at once."""
    node = subjects.node(2, NAMES)
    verdict = Verdict(
        "node-missing", f"{node} never came", "gate", facts=[f"{node}: gone"], hint=f"ask {node}"
    )
    again = codec.load(Verdict, codec.dump(verdict))

    assert ("node 2 (n2) never came", ["node 2 (n2): gone"], "ask node 2 (n2)") == (
        verdict.sentence,
        verdict.facts,
        verdict.hint,
    )
    assert verdict == again
    assert "node 2 (n2 on w2) never came" == again.on({1: "w1", 2: "w2"}).sentence
    assert {"2": "w2"} == again.on({1: "w1", 2: "w2"}).machines
    assert (
        "node 2 (n2 on w2) never came (and 1 more)" == again.on({2: "w2"}).continued(" (and 1 more)").sentence
    )


def test_a_finished_sentence_stays_as_it_is() -> None:
    """A bundle of an older agent has no template."""
    old = {"code": "node-missing", "sentence": "node 2 (n2 on w2) never came", "where": "gate"}
    verdict = codec.load(Verdict, old)

    assert (old["sentence"], None) == (verdict.sentence, verdict.template)
    assert verdict == verdict.on({2: "w9"})
    assert old.items() <= codec.dump(verdict).items()
    assert not {"template", "machines"} & codec.dump(verdict).keys()


@pytest.mark.parametrize(
    "template", [f"{subjects.node(1, NAMES)} is well", "no mention", mentions.START, "\x1b[2J" + mentions.END]
)
def test_a_template_that_is_not_the_sentence_s_is_dropped(template: str) -> None:
    """Whoever sends both cannot have one read and the other printed."""
    sent = {"code": "slow", "sentence": "rank 0 is slow", "where": "run", "template": template}
    assert ("rank 0 is slow", None) == (
        codec.load(Verdict, sent).sentence,
        codec.load(Verdict, sent).template,
    )


def test_no_text_from_outside_makes_a_mention() -> None:
    """Whatever is read is escaped, in free shapes as well; only a template may have mentions."""
    forged = subjects.node(2, NAMES)
    event = codec.load(Event, {"at": 0.0, "kind": "notice", "text": f"{forged} is to blame"})
    body = {"node": 0, "host": "a", "nodes": 1, "nproc_per_node": 1, "address": "", "ports": {}, "at": 0}
    check_in = codec.load(CheckIn, {**body, "facts": {"names": {"own": [forged]}}})

    assert "\\ufdd0node\\ufdd12\\ufdd2n2\\ufdd3 is to blame" == event.text
    assert event.text == f"{check_in.facts['names']['own'][0]} is to blame"
    assert event.text == Verdict("slow", event.text, "run").sentence


def test_a_broken_mention_is_shown_as_what_it_is() -> None:
    """A name that holds marks, or a text that was cut, leaves no mark unescaped."""
    odd = Verdict("slow", subjects.node(1, ["a", f"b{mentions.END}\x1b"]) + mentions.START, "run")
    whole = Verdict("slow", subjects.node(1, ["a", "b\x1b"]), "run")

    assert odd.sentence.isprintable()
    assert "node 1 (b\\x1b)" == whole.sentence
    assert whole.template is not None


@pytest.mark.parametrize("limit", range(30))
def test_a_text_is_cut_as_it_is_read(limit: int) -> None:
    """A mention is whole or spelled out as far as there is room."""
    text = f"on {subjects.node(1, NAMES)} and {subjects.ranks([1, 2, 3])}"
    assert mentions.filled(text)[:limit] == mentions.filled(mentions.cut(text, limit))
