"""Check: the node's configuration, and environment variables that contradict it."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from typing import Any

from ddplaunch.agent.checks import network
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult, Env
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.system import secrets, torchrun
from ddplaunch.agent.text.quantities import count

_COMPARED = ("NCCL_", "GLOO_", "TORCH_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_PLACE = {f"PET_{name}" for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")}
"""Options by which a controller, such as Kubeflow's, gives each node its place."""


def check_configuration(context: Context) -> CheckResult:
    """FAIL if there is no node index or no secret; UNKNOWN for what torchrun or NCCL may dislike."""
    plan = context.plan
    variables = {**context.environment, **plan.env}
    told = {**read.settings(variables, predict.NEWEST), **variables}
    facts: dict[str, Any] = {
        "environment": {k: v for k, v in sorted(told.items()) if k.startswith(_COMPARED)},
        "gpus": network.has_gpus(),
    }
    if plan.gate.joined and plan.nodes > 1:
        facts["torchrun"] = _torchrun(context, variables)
    if context.node >= plan.nodes:
        return failed(
            "configuration",
            "world-size-differs",
            f"started as node {context.node} of a job of {count(plan.nodes, 'node')}",
            wanted=f"a node index from 0 to {plan.nodes - 1}",
            hint="start as many agents as the job file has nodes",
            **facts,
        )
    try:
        _find_secrets(context)
    except secrets.MissingSecretError as error:
        return failed("configuration", "secret-missing", str(error), hint=error.hint, **facts)
    interface = plan.gate.interface
    interfaces = sorted(name for _, name in socket.if_nameindex())
    if interface and interface not in interfaces:
        return unknown(
            "configuration",
            f"no interface {interface} here, only {', '.join(interfaces)}",
            hint="`gate.interface` in the job file must be one that every node has",
            **facts,
        )
    options = {name for name in variables if name.startswith("PET_")}
    options -= _PLACE if options >= _PLACE else set()
    if options:
        return unknown(
            "configuration",
            f"{', '.join(sorted(options))} will change torchrun's options",
            hint="torchrun reads every PET_ variable as an option; unset what was not meant for this job",
            **facts,
        )
    ranks = f" x {plan.nproc_per_node}" if plan.nproc_per_node else ""
    observed = f"node {context.node} of {count(plan.nodes, 'node')}{ranks}"
    preset = [name for name in _RANK_VARIABLES if variables.get(name)]
    if preset:
        observed += f"; {', '.join(preset)} of the environment will be replaced"
    return passed("configuration", observed, **facts)


_RESOLVER_PATIENCE = 2.0


def _torchrun(context: Context, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return how the user's own torchrun will look for its peers; nothing if the command is another one.

    What is left out is filled in at the launch, alike on all nodes.
    """
    filled = {"PET_NNODES": str(context.plan.nodes), "PET_MASTER_PORT": "0"}
    found = torchrun.read_torchrun(0, context.plan.command, {**filled, **variables})
    if found is None:
        return {}
    if found.backend == torchrun.C10D and found.endpoint and found.opens_store is None:
        host, port = torchrun.split_endpoint(found.endpoint)
        opens = torchrun.guesses_host(host, _RESOLVER_PATIENCE)
        if not opens and port.isdecimal() and holder_of_port(int(port)) is not None:
            opens = None  # the user may have started a store there already
        found = dataclasses.replace(found, opens_store=opens)
    name = found.local_addr or torchrun.full_name(_RESOLVER_PATIENCE)
    return {**dataclasses.asdict(found), "name": name}


def _find_secrets(context: Context) -> None:
    """Raise MissingSecretError if one is missing. A pod's gate cannot tell: only the trainer has them."""
    if context.environment.get(Env.TERMINATION):
        return
    for name, reference in context.plan.secrets.items():
        secrets.value(name, reference, context.environment)
