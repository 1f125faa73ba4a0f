"""Text that speaks of nodes and ranks, which are data in it until it is spelled out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddplaunch.agent.contract import Fact, Source, Verdict, codec
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text import saying
from ddplaunch.agent.text.saying import Sayable, Subject, joined, listed, say, spelled

NAMES = ["n0.lab", "n1.lab", "n2.lab", "n3.lab", "n4.lab"]


@pytest.mark.parametrize(
    ("subject", "shown"),
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
def test_a_subject_is_spelled_out(subject: Subject, shown: str) -> None:
    """Numbers as ranges, a few nodes with their names; in a text, and in a string as well."""
    assert f"{shown}: done" == spelled(say(subject, ": done")) == f"{subject}: done"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (say("a", "b"), ("ab",)),
        (say("", say("a", say()), "b"), ("ab",)),
        (joined("; ", ["a", say("b"), "c"]), ("a; b; c",)),
        (joined("; ", []), ()),
        (listed(["a"]), ("a",)),
        (listed(["a", "b"]), ("a and b",)),
        (listed(["a", say("b"), "c"]), ("a, b and c",)),
    ],
)
def test_equal_texts_are_equal(text: saying.Text, shown: saying.Text) -> None:
    """However they were put together: words that follow one another are one."""
    assert shown == text


def test_a_verdict_keeps_its_subjects() -> None:
    """People read the sentence; over the wire goes what it was made of as well."""
    node = subjects.node(2, NAMES)
    verdict = Verdict.of(
        "node-missing", say(node, " never came"), "gate", facts=[f"{node}: gone"], hint=f"ask {node}"
    )
    again = codec.load(Verdict, json.loads(codec.text(verdict)))

    seen = verdict.sentence, verdict.facts, verdict.hint
    assert ("node 2 (n2) never came", ["node 2 (n2): gone"], "ask node 2 (n2)") == seen
    assert verdict == again
    assert "node 2 (n2 on w2) never came" == again.on({1: "w1", 2: "w2"}).sentence
    assert {2: "w2"} == again.on({1: "w1", 2: "w2"}).machines
    assert (
        "node 2 (n2 on w2) never came (and 1 more)" == again.on({2: "w2"}).continued(" (and 1 more)").sentence
    )
    placed = again.on({2: "w2"})
    assert placed == codec.load(Verdict, codec.dump(placed))


def test_a_fact_keeps_its_source() -> None:
    """Beside the facts as people read them, which have been the same in every version."""
    source = Source("stacks by hook", "ranks 0-2", "stacks of nodes 0-1 in bundle.json")
    verdict = Verdict.of("slow", "it is slow", "run", facts=["so it is", Fact("ranks 0-2 wait", source)])
    written = codec.dump(verdict)

    assert ["so it is", "ranks 0-2 wait"] == verdict.facts == written["facts"]
    assert [None, "ranks 0-2"] == [each and each["of"] for each in written["sources"]]
    assert verdict == codec.load(Verdict, written)
    assert "stacks by hook of ranks 0-2; stacks of nodes 0-1 in bundle.json" == str(source)
    assert "sources" not in codec.dump(Verdict.of("slow", "it is slow", "run", facts=["so it is"]))


def test_a_finished_sentence_stays_as_it_is() -> None:
    """A bundle of an older agent has no subjects, or has them in a form of its own."""
    old = {"code": "node-missing", "sentence": "node 2 (n2 on w2) never came", "where": "gate"}
    verdict = codec.load(Verdict, {**old, "template": "\ufdd0node\ufdd12\ufdd3 never came"})

    assert (old["sentence"], (old["sentence"],)) == (verdict.sentence, verdict.text)
    assert verdict == verdict.on({2: "w9"})
    assert old.items() <= codec.dump(verdict).items()
    assert not {"text", "sources", "machines"} & codec.dump(verdict).keys()


@pytest.mark.parametrize(
    "text",
    [
        ["rank 1 is slow"],
        [{"rank": [[1, 1]]}, " is slow"],
        [{"rank": [[0, 0, "\x1b[2J"]]}, " is slow"],
        [{"cow": [[0, 0]]}, " is slow"],
        [{"rank": [[0, 0]], "node": []}, " is slow"],
        [{"rank": [[0]]}, " is slow"],
        [{"rank": [["0", "0"]]}, " is slow"],
        [{"rank": [[True, True]]}, " is slow"],
        [{"rank": [[5, 0]]}, " is slow"],
        [{"rank": 0}, " is slow"],
        [None],
        [[]],
    ],
)
def test_a_text_that_is_not_the_sentence_s_is_dropped(text: list[Any]) -> None:
    """Whoever sends both cannot have one read and the other printed."""
    sent = {"code": "slow", "sentence": "rank 0 is slow", "where": "run", "text": text}
    verdict = codec.load(Verdict, sent)

    assert ("rank 0 is slow", ("rank 0 is slow",)) == (verdict.sentence, verdict.text)


@pytest.mark.parametrize("machines", [{"0": "w0\x1b"}, {"-1": "w"}, {"9" * 5000: "w"}, {"x": "w"}])
def test_machines_change_no_sentence_that_is_read(machines: dict[str, str]) -> None:
    """They are those of the sentence, or none."""
    verdict = Verdict.of("slow", say(subjects.node(0, NAMES), " is slow"), "run")
    found = codec.load(Verdict, {**codec.dump(verdict), "machines": machines})

    assert "node 0 (n0) is slow" == found.sentence
    assert {} == found.machines


def test_all_that_a_verdict_says_is_printable() -> None:
    """A name, a word or a fact may be what a rank has written."""
    odd = say(subjects.node(1, ["a", "b\x1b"]), " \ufdd0 says \x07")
    source = Source("\x1b", "\x1b", "\x1b")
    verdict = Verdict.of("slow\r", odd, "run", facts=["\x07", Fact("\r", source)], hint="\x1b[2J")
    said = [verdict.code, verdict.sentence, *verdict.facts, verdict.hint, str(verdict.because[1].source)]

    assert "node 1 (b\\x1b) \\ufdd0 says \\x07" == verdict.sentence
    assert all(map(str.isprintable, said))
    assert verdict.continued("\x1b").sentence.isprintable()
    assert verdict == codec.load(Verdict, codec.dump(verdict))


def test_a_quoted_subject_is_words() -> None:
    """What somebody has printed stays what it is, however it looks."""
    quoted: Sayable = "rank 0 said: node 2 (n2) never came"
    assert [] == Verdict.of("slow", quoted, "run").named


@pytest.mark.parametrize("limit", range(30))
def test_a_text_is_cut_as_it_is_read(limit: int) -> None:
    """A subject is whole, or spelled out as far as there is room."""
    text = say("on ", subjects.node(1, NAMES), " and ", subjects.ranks([1, 2, 3]))
    assert spelled(text)[:limit] == spelled(saying.cut(text, limit))
