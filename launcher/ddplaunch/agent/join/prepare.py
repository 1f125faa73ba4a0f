"""Builds the input of `agent.local` for this node: a plan, the key, the address of the hub."""

from __future__ import annotations

import socket
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

from ddplaunch.agent.contract import Env, GatePlan, JobPlan, WatchdogPlan
from ddplaunch.agent.join import key, spot
from ddplaunch.agent.platforms import places, scheduler_variables
from ddplaunch.agent.transport.endpoints import Endpoint


class JoinedJob(NamedTuple):
    """The plan, and this node's own part. `key_server`: node 0's arguments of `agent.pyz keys`."""

    plan: JobPlan
    node: int
    environment: dict[str, str]
    key_server: list[str]


def prepare(
    arguments: Namespace,
    command: Sequence[str],
    name: str,
    watchdog: WatchdogPlan,
    environment: Mapping[str, str],
    log: Callable[[str], None],
) -> JoinedJob:
    """Return this node's part; may wait for node 0's key. Raises CannotJoinError, munge.NoKeyError."""
    options = spot.Options(arguments.nodes, arguments.node_rank, arguments.master, arguments.port)
    place = spot.find(options, command, environment, _full_name())
    # Not by the key: a node with a wrong key must reach the hub, which reports it.
    port = arguments.gate_port or places.hub_port(name, place.attempt, place.occasion.encode())
    key_port = key.server_port(place, arguments.gate_port, port)
    secret = key.obtain(place, arguments.key_file, key_port, environment, arguments.gate_timeout, log)
    plan = JobPlan(
        job=name,
        nodes=place.nodes,
        nproc_per_node=None,
        launch=[],
        command=list(command),
        names=place.names,
        master_addr=place.master_addr,
        master_port=place.master_port,
        watchdog=watchdog,
        platform=scheduler_variables.platform(environment),
        gate=GatePlan(timeout=arguments.gate_timeout, port=port, joined=True),
    )
    own = {
        Env.KEY: secret.secret,
        Env.ATTEMPT: str(place.attempt),
        Env.HUB: str(Endpoint(place.master, port)),
    }
    key_server = [] if secret.port is None else ["--port", str(secret.port), "--occasion", place.occasion]
    log(f"node {place.node} of {place.nodes}; node 0 is {place.master}")
    return JoinedJob(plan, place.node, own, key_server)


def _full_name() -> str:
    """Return this pod's full name, POD.SERVICE.NAMESPACE.svc.DOMAIN, which stands in its /etc/hosts."""
    name = socket.gethostname()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError:
        return name
    return next((each for words in lines for each in words[1:] if each.startswith(f"{name}.")), name)
