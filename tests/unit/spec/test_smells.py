"""A secret that stands in a job file is seen by its name; nothing else is taken for one."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.spec.load import exposed, note

_SECRETS = [
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "SECRET",
    "API_KEY",
    "ACCESS_KEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
]
_PREFIX = st.sampled_from(["", "HF_", "WANDB_", "aws_secret_", "Redis_", "X2_"])


@given(_PREFIX, st.sampled_from(_SECRETS), st.sampled_from(["", "2", "_1"]), st.booleans())
def test_a_name_that_ends_like_a_secret_is_one(prefix: str, word: str, number: str, lower: bool) -> None:
    """Whatever stands before it, in any case."""
    name = f"{prefix}{word.lower() if lower else word}{number}"

    assert [name] == exposed({name: "s3cr3t"})


@pytest.mark.parametrize(
    "name", ["PGPASSWORD", "authToken", "AWS_SECRET_ACCESS_KEY", "SSH_PASSPHRASE", "openaiApiKey"]
)
def test_names_of_the_wild_are_found(name: str) -> None:
    assert [name] == exposed({name: "s3cr3t"})


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PAD_TOKEN",
        "EOS_TOKEN_ID",
        "KEYBOARD",
        "MONKEY",
        "SORT_KEY",
        "SECRET_NAME",
        "TOKEN_FILE",
        "PASSWORD_LENGTH",
        "AWS_ACCESS_KEY_ID",
        "SECRETARY",
        "OLDPWD",
        "BYPASS",
        "AUTHOR",
    ],
)
def test_names_that_only_look_alike_are_left_alone(name: str) -> None:
    """A note about what is no secret would be read once, and then no more."""
    assert [] == exposed({name: "anything at all"})


@given(
    st.text(string.ascii_letters + string.digits + "_"),
    st.sampled_from(["_FILE", "_PATH", "_ID", "_URL", "S"]),
)
def test_what_is_about_a_secret_is_none(stem: str, end: str) -> None:
    """Its file, its number, its address."""
    assert [] == exposed({f"{stem}TOKEN{end}": "anything"})


@pytest.mark.parametrize(
    "value", ["", " ", "/run/secrets/token", "~/token", "../token", "file:/token", "true", "NO", "none"]
)
def test_values_that_give_nothing_away_are_left_alone(value: str) -> None:
    assert [] == exposed({"HF_TOKEN": value})


def test_the_note_says_what_to_write_instead() -> None:
    assert "`secrets: {HF_TOKEN: {env: HF_TOKEN}}`" in note("HF_TOKEN")
