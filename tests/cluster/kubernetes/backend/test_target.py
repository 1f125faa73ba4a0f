"""Where a job goes for which no target is named, and what a profile gives it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.cluster import Cluster

TRAINS = "print('trained', flush=True)\n"


class Profile:
    """The user's configuration, whose default profile is that of this cluster."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ddplaunch" / "config.yaml"

    def write(self, **job: object) -> None:
        """Makes these keys its defaults."""
        self.path.parent.mkdir()
        profile = {"target": "kubernetes", "job": job}
        self.path.write_text(yaml.safe_dump({"default": "lab", "profiles": {"lab": profile}}))


@pytest.fixture(name="profile")
def _profile(cli: Cli, tmp_path: Path) -> Profile:
    """None stands in it yet."""
    cli.environment |= {"XDG_CONFIG_HOME": str(tmp_path), "DDPLAUNCH_PROFILE": ""}
    return Profile(tmp_path)


@pytest.fixture(name="place")
def _place(cluster: Cluster, namespace: str) -> str:
    """As a line on stderr names it."""
    context = cluster.kubectl("config", "current-context").strip()
    return f"to kubernetes: context {context}, namespace {namespace}"


@pytest.mark.whole
def test_a_profile_names_it_with_all_that_is_the_clusters(
    cli: Cli, write: Write, profile: Profile, place: str, namespace: str
) -> None:
    """The job file says nothing of Kubernetes, and runs on this machine without the profile."""
    path = write("digits", TRAINS, nodes=1)
    spec = yaml.safe_load(path.read_text())
    profile.write(**{key: spec.pop(key) for key in ("image", "kubernetes")})
    path.write_text(yaml.safe_dump(spec))
    code, out, said = cli("submit", path, "--wait")

    assert (0, f"kubernetes://{namespace}/digits\n") == (code, out), said
    assert said.startswith(f"profile lab of {profile.path}\n{place}; profile lab\n")
    assert "[0/0] trained" in said
