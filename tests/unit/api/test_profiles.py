"""Which profile holds, and which target is meant where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch import api

CONFIG = """\
default: gpu
profiles:
  gpu: {target: slurm, job: {slurm: {partition: gpu}}}
  any: {job: {retries: 1}}
"""
HEAD = "apiVersion: ddplaunch/v1\nname: digits\ncommand: [train.py]\n"
KUBECONFIG = """\
current-context: prod
contexts:
- {name: prod, context: {cluster: c, namespace: research}}
"""


@pytest.fixture(name="config", autouse=True)
def _config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration, and a machine without any scheduler."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("DDPLAUNCH_PROFILE", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    path = tmp_path / "ddplaunch" / "config.yaml"
    path.parent.mkdir()
    path.write_text(CONFIG)
    return path


def sbatch(folder: Path) -> None:
    """Put an sbatch on PATH."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").write_text("#!/bin/sh\n")
    (folder / "bin" / "sbatch").chmod(0o755)


def chosen(folder: Path, sections: str = "", profile: str = "none") -> api.Choice:
    """Return the choice for a job file with these sections."""
    (folder / "job.yaml").write_text(HEAD + sections)
    return api.choose([api.load(folder / "job.yaml", profile=profile)], api.profile(profile))


def name(asked: str | None = None, to: str | None = None) -> str | None:
    """Return the name of the profile that holds."""
    found = api.profile(asked, to)
    return None if found is None else found.name


def test_the_command_line_comes_before_the_variable_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`none` is none in both."""
    assert "gpu" == name()
    monkeypatch.setenv("DDPLAUNCH_PROFILE", "any")
    assert ["any", "gpu", None] == [name(), name("gpu"), name("none")]
    monkeypatch.setenv("DDPLAUNCH_PROFILE", "none")
    assert name() is None


def test_a_default_profile_of_another_target_does_not_hold() -> None:
    """Who writes `--to local` gets no paths of a cluster; a profile without a target holds everywhere."""
    assert [None, "gpu", "any"] == [name(to="local"), name(to="slurm"), name("any", "local")]
    with pytest.raises(api.UsageError, match="the profile gpu is for slurm, not for local"):
        name("gpu", "local")


def test_an_unknown_profile_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    """The message names the variable, where that has named it, and the file."""
    with pytest.raises(api.UsageError, match="no profile 'gqu' in") as refused:
        name("gqu")
    assert "one of gpu, any, or none" == refused.value.hint

    config.unlink()
    assert name() is None
    monkeypatch.setenv("DDPLAUNCH_PROFILE", "gpu")
    with pytest.raises(api.UsageError, match="DDPLAUNCH_PROFILE: there is no profile 'gpu'"):
        name()


def test_none_reads_no_configuration(config: Path) -> None:
    """A broken one is in nobody's way then."""
    config.write_bytes(b"\xff")

    assert name("none") is None
    with pytest.raises(api.SpecError, match="cannot be read"):
        name()


def test_the_target_of_the_profile_comes_first(tmp_path: Path) -> None:
    """Even where the job file has a section of another."""
    assert ("slurm", "profile gpu") == chosen(tmp_path, "kubernetes: {}\n", "gpu")


def test_the_only_section_is_meant_where_jobs_can_be_sent_there(tmp_path: Path) -> None:
    """Else this machine, and a word about it."""
    nowhere = ("local", "jobs cannot be sent to slurm from this machine")
    assert nowhere == chosen(tmp_path, "slurm: {time: 1h}\n")
    sbatch(tmp_path)
    target, why = chosen(tmp_path, "slurm: {time: 1h}\n")
    assert "slurm" == target
    assert "sbatch is on PATH; the job file has a section slurm; use --to local to run it here" == why


def test_kubernetes_is_said_with_its_context_and_namespace(tmp_path: Path) -> None:
    """The job's own namespace before that of the context; a kubeconfig without a context counts as none."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    target, why = chosen(tmp_path, "kubernetes: {}\n")
    assert ("kubernetes", "context prod, namespace research") == (target, why.partition(";")[0])
    assert "namespace mine;" in chosen(tmp_path, "kubernetes: {namespace: mine}\n").why

    for text in ("contexts: []\n", "current-context: gone\n", ": [", "[]"):
        (tmp_path / "kubeconfig").write_text(text)
        assert "local" == chosen(tmp_path, "kubernetes: {}\n").target


def test_no_section_and_two_sections_stay_on_this_machine(tmp_path: Path) -> None:
    """Without one there is nothing to say; a section of the profile alone is none of the job file."""
    sbatch(tmp_path)

    assert ("local", "") == chosen(tmp_path)
    assert ("local", "") == chosen(tmp_path, profile="any")
    assert "local" == chosen(tmp_path, "slurm: {}\nkubernetes: {}\n").target
