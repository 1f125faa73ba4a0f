"""The user's configuration: what is read, and what is refused with its place."""

from __future__ import annotations

import pytest

from ddplaunch.spec import config
from ddplaunch.spec.problems import SpecError

TARGETS = ["local", "slurm", "kubernetes"]
GOOD = """\
default: gpu
profiles:
  gpu:
    target: slurm
    job: {slurm: {partition: gpu}}
  bare: {}
"""


def test_profiles_are_read_with_their_targets() -> None:
    """A profile may have neither target nor defaults."""
    found = config.parse(GOOD, "c.yaml", TARGETS)

    assert "gpu" == found.default
    assert {"gpu": "slurm", "bare": ""} == {name: each.target for name, each in found.profiles.items()}
    assert [False, True] == [each.job is None for each in found.profiles.values()]


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n"])
def test_an_empty_file_has_no_profiles(text: str) -> None:
    """A file of comments is how one begins."""
    assert config.Config("c.yaml") == config.parse(text, "c.yaml", TARGETS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile: {}", "c.yaml:1:1: profile: unknown key, wanted one of default, profiles"),
        ("profiles: [a]", "c.yaml:1:11: profiles: found a list, wanted a mapping"),
        ("profiles: {a: {target: slrm}}", "did you mean slurm?"),
        ("profiles: {a: {slurm: {}}}", "keys of the job file go below `job`"),
        ("default: b\nprofiles: {a: {}}", 'c.yaml:1:10: default: found "b", wanted one of a'),
        ("default: b", "wanted no such key, because there are no profiles"),
        ("profiles: {none: {}}", "`--profile none` means no profile"),
        ("profiles: {a: {job: 3}}", "profiles.a.job: found 3, wanted a mapping"),
        ("profiles: {a: {}, a: {}}", "found this key a second time"),
        ("a: [", "found"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        config.parse(text, "c.yaml", TARGETS)

    assert message in str(refused.value)


def test_its_schema_takes_defaults_and_no_keys_of_one_job() -> None:
    """What `ddplaunch schema config` prints for editors."""
    job = config.json_schema()["properties"]["profiles"]["additionalProperties"]["properties"]["job"]

    assert [] == job["required"]
    assert "slurm" in job["properties"]
    assert set() == set(config.NOT_DEFAULTS) & set(job["properties"])
