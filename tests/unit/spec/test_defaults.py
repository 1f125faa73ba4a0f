"""Defaults of a profile below a job file: what counts, and where a problem is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.spec import changes, config, load
from ddplaunch.spec.problems import SpecError

HEAD: dict[str, Any] = {"apiVersion": "ddplaunch/v1", "name": "digits", "command": ["train.py"]}
STATIC = {"rendezvous": {"backend": "static"}}
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(0, 9),
        "env": st.dictionaries(st.sampled_from("ABC"), st.sampled_from("xyz"), min_size=1),
        "slurm": st.fixed_dictionaries(
            {}, optional={"partition": st.sampled_from("pq"), "extra": st.just(["--requeue"])}
        ),
    },
)


def profile(job: dict[str, Any]) -> config.Profile:
    """Return the profile `p` with these defaults."""
    text = yaml.safe_dump({"profiles": {"p": {"job": job}}})
    return config.parse(text, "c.yaml", ["local"]).profiles["p"]


def parsed(job: dict[str, Any], defaults: dict[str, Any], *sets: str) -> Any:
    """Return the job of that file over those defaults."""
    text = yaml.safe_dump({**HEAD, **job}).encode()
    (found,) = load.parse_all(text, "job.yaml", [changes.read(each) for each in sets], profile(defaults))
    return found


def joined(low: Any, high: Any) -> Any:
    """Return both, `high` where they differ."""
    if not isinstance(low, dict) or not isinstance(high, dict):
        return high
    return {**low, **high, **{key: joined(low[key], high[key]) for key in low.keys() & high.keys()}}


@given(VALUES, VALUES, st.sampled_from([None, 7]))
def test_a_profile_yields_to_the_job_file_and_that_to_set(
    low: dict[str, Any], high: dict[str, Any], retries: int | None
) -> None:
    """Key by key: the job is that of one file which says all of it."""
    sets = [] if retries is None else [f"retries={retries}"]
    wanted = joined(joined(low, high), {} if retries is None else {"retries": retries})

    assert parsed(wanted, {}).model_dump() == parsed(high, low, *sets).model_dump()


def test_a_list_and_a_secret_take_the_place_of_the_default_whole() -> None:
    """Of a secret's sources one alone may be given."""
    low = {"secrets": {"K": {"env": "K"}}, "slurm": {"extra": ["--a"]}}
    found = parsed({"secrets": {"K": {"file": "/k"}}, "slurm": {"extra": ["--b"]}}, low)

    assert ("/k", None) == (found.secrets["K"].file, found.secrets["K"].env)
    assert ("--b",) == found.slurm.extra


def test_set_removes_a_default() -> None:
    assert parsed({}, {"slurm": {"partition": "p"}}, "slurm.partition=null").slurm.partition is None


def test_a_sweep_takes_the_place_of_a_default() -> None:
    """The other defaults are in each of its jobs."""
    text = yaml.safe_dump({**HEAD, "sweep": {"env.LR": ["1", "2"]}}).encode()
    jobs = load.parse_all(text, "job.yaml", [], profile({"env": {"LR": "0", "X": "x"}}))

    assert [{"LR": "1", "X": "x"}, {"LR": "2", "X": "x"}] == [job.env for job in jobs]


def test_a_bad_default_is_reported_once_with_the_line_of_the_configuration() -> None:
    """Beside what is wrong with the job file itself."""
    with pytest.raises(SpecError) as refused:
        parsed({"retries": -1}, {"slurm": {"tme": "1h"}})

    first, second = sorted(refused.value.problems, key=lambda each: each.file)
    assert ("c.yaml", 5, "profiles.p.job.slurm.tme") == (first.file, first.line, first.path)
    assert ("job.yaml", "retries") == (second.file, second.path)


@pytest.mark.parametrize("key", config.NOT_DEFAULTS)
def test_what_one_job_is_stands_in_no_profile(key: str) -> None:
    """A default for it would change every job without a word."""
    with pytest.raises(SpecError, match=rf"profiles\.p\.job\.{key}: found this key in a profile"):
        parsed({}, {key: HEAD.get(key, 1)})


@pytest.mark.parametrize(("low", "high", "file"), [(STATIC, {}, "c.yaml"), ({}, STATIC, "job.yaml")])
def test_a_rule_names_the_file_that_breaks_it(low: dict[str, Any], high: dict[str, Any], file: str) -> None:
    """The value is right by itself, and wrong beside the range of nodes in the job file."""
    with pytest.raises(SpecError) as refused:
        parsed({"nodes": 2, "min_nodes": 1, **high}, low)

    assert [file] == [each.file for each in refused.value.problems]


def test_a_section_of_a_profile_is_none_of_the_job_file(tmp_path: Path) -> None:
    """What chooses the target is what the job file itself says."""
    defaults, path = profile({"slurm": {"partition": "p"}}), tmp_path / "job.yaml"
    found = []
    sections: list[dict[str, object]] = [{}, {"slurm": {}}]
    for own in sections:
        path.write_text(yaml.safe_dump({**HEAD, **own}))
        found.append("slurm" in load.load(path, [], defaults).sections)

    assert [False, True] == found
