"""Secrets are found in what leaves a node, in every form that programs give them, and nothing else is."""

from __future__ import annotations

import base64
import json
import urllib.parse

import pytest

from ddplaunch.agent.contract import Frame, NodeEvidence, Raised, RankEvidence, Stack, Verdict
from ddplaunch.agent.platforms import termination
from ddplaunch.agent.system import secrets, subjects
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor
from ddplaunch.agent.text.saying import say

VALUE = "pä/s\"s\\wo+rd'1 = x"
MARK = "[secret TOKEN]"


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        repr(VALUE)[1:-1],
        ascii(VALUE)[1:-1],
        json.dumps(VALUE)[1:-1],
        repr(VALUE.encode())[2:-1],
        urllib.parse.quote(VALUE),
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote_plus(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_value_is_found_in_every_form(form: str) -> None:
    """As it is, escaped by repr or JSON, in a URL, in base64."""
    assert f"login({MARK}) failed" == Redactor({"TOKEN": VALUE}).hide(f"login({form}) failed")


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
def test_a_header_of_basic_authentication_does_not_decode(before: str) -> None:
    """In base64 together with a user's name it looks otherwise, by how long that is."""
    coded = base64.b64encode(f"{before}{VALUE}:x".encode()).decode()
    shown = Redactor({"TOKEN": VALUE}).hide(f"Basic {coded}")

    left = shown.removeprefix("Basic ").partition(MARK)
    assert MARK in shown
    assert 2 * 4 + len(before) * 2 >= len(left[0]) + len(left[2])


KEY = {"TOKEN": "-----BEGIN KEY-----\n  MIIEvQIBADAN\n}\n-----END KEY-----\n"}
HORSE = {"TOKEN": "correct-horse-battery"}


@pytest.mark.parametrize(
    ("values", "text", "shown"),
    [
        (KEY, "MIIEvQIBADAN|}|x", f"{MARK}|}}|x"),
        (HORSE, "password=correct-horse-ba", f"password={MARK}"),  # messages and last lines are bounded
        (HORSE, "correct", "correct"),
        (HORSE, "correct-horse, of course", "correct-horse, of course"),
        ({"A": "secret", "B": "secret-longer"}, "secret-longer secret", "[secret B] [secret A]"),
        ({"A": "abc", "B": "", "C": "1\n2\n"}, "abcdef12", "abcdef12"),
    ],
    ids=[
        *("a line", "its beginning", "too little", "in a sentence", "one in another and in marks"),
        "too short",
    ],
)
def test_a_value_is_found_by_a_line_or_its_beginning_and_no_other_text(
    values: dict[str, str], text: str, shown: str
) -> None:
    assert shown == Redactor(values).hide(text)


def test_evidence_is_searched_whole_and_stays_evidence() -> None:
    """Every text of it, however deep; words by which nodes are judged stay, even if a secret equals one."""
    redactor = Redactor({"TOKEN": "running", "KEY": "10.0.0.7"})
    frames = [Frame("running", "/running/10.0.0.7.py", 3)]
    rank = RankEvidence(
        0,
        0,
        7,
        True,
        phase="running",
        raised=[Raised("E", "it is running", 1.0, frames)],
        stacks=[Stack("10.0.0.7", True, frames)],
        last_lines=["running"],
    )
    found = redactor.hide(NodeEvidence(0, "n1", 2.0, "running", [rank], addresses=["10.0.0.7"]))

    hidden = [Frame(MARK, f"/{MARK}/[secret KEY].py", 3)]
    (seen,) = found.ranks
    assert ("running", "running", ["10.0.0.7"]) == (found.phase, seen.phase, found.addresses)
    assert [Raised("E", f"it is {MARK}", 1.0, hidden)] == seen.raised
    assert ([Stack("[secret KEY]", True, hidden)], [MARK]) == (seen.stacks, seen.last_lines)
    assert {"phase": "running", "x": [{"y": MARK}, 7, None]} == redactor.hide(
        {"phase": "running", "x": [{"y": "running"}, 7, None]}
    )


def test_a_verdict_keeps_the_ranks_in_its_text() -> None:
    """They are data between the words, and the container's last words are made of them."""
    text = say(subjects.ranks([1, 2]), f" raised ValueError: {VALUE}")
    found = Redactor({"TOKEN": VALUE}).hide(Verdict.of(code="rank-failed", sentence=text, where="run"))

    assert f"ranks 1 and 2 raised ValueError: {MARK}" == found.sentence
    assert f"ValueError: {MARK}" in termination.text(1, [found])


def test_a_job_without_secrets_pays_nothing() -> None:
    """Its messages are not even walked through."""
    body = {"beat": {"node": 0}}

    assert NO_SECRETS.hide(body) is body


def test_what_this_process_cannot_have_it_need_not_hide() -> None:
    """In a pod only the trainer's container has the values."""
    references = {"A": {"env": "A"}, "B": {"env": "B"}}

    assert "[secret A] other" == secrets.redactor(references, {"A": "value"}).hide("value other")
