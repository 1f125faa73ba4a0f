"""The job's shared secret, for nodes that are started by hand.

The key is given (DDPLAUNCH_KEY, --key-file), or made for this run and sent from node 0 to the others through
MUNGE, which every Slurm has, or read from a file in the user's home folder. A node without a key does not
join: a hub without one would obey strangers.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Env
from ddplaunch.agent.join import munge
from ddplaunch.agent.join.spot import CannotJoinError, Spot
from ddplaunch.agent.platforms import scheduler_variables
from ddplaunch.agent.system import ports

_SHORTEST = 16
"""Characters. A shorter key can be guessed from recorded traffic."""
_MAKE = "head -c 32 /dev/urandom | base64"


class Key(NamedTuple):
    secret: str
    port: Optional[int] = None  # of node 0's key server; None: the other nodes have the key


def obtain(
    spot: Spot,
    file: Optional[str],
    port: int,
    environment: Mapping[str, str],
    seconds: float,
    log: Callable[[str], None],
) -> Key:
    """Return the job's key, the same on all nodes; may wait `seconds` for node 0, at its `server_port`.

    Raises CannotJoinError, or munge.NoKeyError when the key cannot pass from node 0 to the others.
    """
    given = environment.get(Env.KEY)
    if given is not None:
        return Key(_of_job(_checked(given, Env.KEY), spot))
    if file is not None:
        return Key(_of_job(_checked(read(file), file), spot))
    if spot.nodes == 1:
        return Key(os.urandom(32).hex())
    if scheduler_variables.is_slurms(environment) and munge.is_there():
        if spot.node == 0:
            munge.check_port(port)
            return Key(os.urandom(32).hex(), port)
        return Key(munge.ask(spot, port, seconds, log))
    home = home_file(environment)
    if os.path.exists(home):
        return Key(_of_job(_checked(read(home), home), spot))
    raise CannotJoinError(
        f"this node cannot join without a key: there is no {Env.KEY}, no --key-file and no {home}",
        f"make one with `(umask 077; mkdir -p {os.path.dirname(home)}; {_MAKE} > {home})` on one node, and "
        f"copy it to the others unless they share the folder; or give all nodes the same {Env.KEY}",
    )


def home_file(environment: Mapping[str, str]) -> str:
    """Return the path of the user's key for all jobs."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "ddplaunch", "key")


def server_port(spot: Spot, gate_port: Optional[int], hub_port: int) -> int:
    """Return node 0's port for the key: the one after the hub's if that is set, else one by job and user."""
    if gate_port is not None:
        return gate_port + 1
    seed = f"ddplaunch key {os.geteuid()} {spot.occasion} {spot.attempt}"
    # Of 23000 jobs one would have its hub there, too.
    return next(port for port in ports.sequence(seed.encode(), ports.EPHEMERAL) if port != hub_port)


def read(path: str) -> str:
    """Return the key in a file that only its user can read, as with ssh. Raises CannotJoinError."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(4096)
    except OSError as error:
        raise CannotJoinError(
            f"this node cannot join: the key in {path} cannot be read: {error.strerror}",
            "give --key-file a file that is there on every node",
        ) from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CannotJoinError(
            f"this node cannot join: the key in {path} is open to other users",
            f"`chown {os.geteuid()} {path}; chmod 600 {path}`; make a new key if somebody may have read it",
        )
    return text.strip()


def _checked(key: str, source: str) -> str:
    if len(key) < _SHORTEST:
        raise CannotJoinError(
            f"this node cannot join: the key of {source} has {len(key)} characters, wanted {_SHORTEST}",
            f"`{_MAKE}` prints a good one",
        )
    return key


def _of_job(key: str, spot: Spot) -> str:
    """Return a key of this job alone, so that two jobs with the same key do not meet."""
    return hmac.new(key.encode(), f"join {spot.occasion}".encode(), hashlib.sha256).hexdigest()
