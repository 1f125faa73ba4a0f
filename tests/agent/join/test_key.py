"""Where a node's key comes from, and which ones are refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddplaunch.agent.join import key
from ddplaunch.agent.join.spot import CannotJoinError, Spot
from ddplaunch.agent.platforms import places

SPOT = Spot(1, 2, "n0")
SECRET = "a secret of thirty-two characters"


def obtain(spot: Spot = SPOT, file: Path | None = None, **environment: str) -> str:
    """Outside of Slurm."""
    return key.obtain(spot, None if file is None else str(file), 29401, environment, 1.0, print).secret


def written(path: Path, text: str = SECRET, mode: int = 0o600) -> Path:
    """A file with a key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


def test_all_ways_to_one_secret_lead_to_one_key(tmp_path: Path) -> None:
    file = written(tmp_path / "ddplaunch" / "key")

    keys = {obtain(DDPLAUNCH_KEY=SECRET), obtain(file=file), obtain(XDG_CONFIG_HOME=str(tmp_path))}

    assert 1 == len(keys)
    assert SECRET not in keys


def test_another_job_of_the_same_secret_has_another_key() -> None:
    other = replace(SPOT, occasion="slurm 8.0")

    assert obtain(DDPLAUNCH_KEY=SECRET) != obtain(other, DDPLAUNCH_KEY=SECRET)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(CannotJoinError, match="is open to other users"):
        obtain(file=written(tmp_path / "key", mode=mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_another_users_key_file_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "key")
    os.chown(file, 65534, 65534)

    with pytest.raises(CannotJoinError, match="is open to other users"):
        obtain(file=file)


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    for text in ("", "secret"):
        with pytest.raises(CannotJoinError, match=f"has {len(text)} characters, wanted 16"):
            obtain(DDPLAUNCH_KEY=text)
        with pytest.raises(CannotJoinError, match=f"has {len(text)} characters, wanted 16"):
            obtain(file=written(tmp_path / "key", text))


def test_a_node_without_a_key_is_told_all_ways_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(CannotJoinError) as caught:
        obtain(XDG_CONFIG_HOME=str(tmp_path))

    home = f"{tmp_path}/ddplaunch/key"
    assert f"there is no DDPLAUNCH_KEY, no --key-file and no {home}" in str(caught.value)
    assert f"head -c 32 /dev/urandom | base64 > {home}" in caught.value.hint


def test_one_node_alone_needs_no_key(tmp_path: Path) -> None:
    alone = Spot(0, 1, "127.0.0.1")

    assert obtain(alone, XDG_CONFIG_HOME=str(tmp_path)) != obtain(alone, XDG_CONFIG_HOME=str(tmp_path))


def test_the_desk_for_the_key_stands_beside_the_gate_port() -> None:
    """Without one, all nodes of a job find the same port, and those of another job another."""
    other = replace(SPOT, occasion="slurm 8.0")

    assert 29401 == key.server_port(SPOT, 29400, 29400)
    assert key.server_port(SPOT, None, 1) == key.server_port(replace(SPOT, node=0), None, 1)
    assert key.server_port(SPOT, None, 1) != key.server_port(other, None, 1)


def test_the_desk_for_the_key_never_stands_at_the_hubs_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it did for root's step 31900008.0 of Slurm: both are numbers by chance."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    spot = replace(SPOT, occasion="slurm 31900008.0")
    hub = places.hub_port("run", 0, spot.occasion.encode())

    assert hub == key.server_port(spot, None, 1)
    assert hub != key.server_port(spot, None, hub)
