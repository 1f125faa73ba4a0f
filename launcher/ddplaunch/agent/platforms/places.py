"""Where a job runs: machines and addresses of its nodes and of the hub, and its handle, by the environment.

Where all nodes are started from one template, the names are a pattern: {node} stands for a node's number,
{domain} for the cluster's DNS domain, which a pod reads in its resolv.conf. Port 0 is a port that every node
derives from the job's key.

A pod's name is not a machine: where a node's name does not give the machine, it is added.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence

from ddplaunch.agent.contract import Env, JobPlan, NodeStatus
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.platforms.kubernetes import KUBERNETES
from ddplaunch.agent.platforms.slurm import SLURM
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.printable import HintedError
from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.endpoints import Endpoint

RESOLV_CONF = "/etc/resolv.conf"
_NODE, _DOMAIN = "{node}", "{domain}"


def node_variable(environment: Mapping[str, str]) -> str:
    """Return the name of the variable that holds this node's number: ours, otherwise the scheduler's."""
    return Env.NODE if environment.get(Env.NODE) else slurm.NODE


class UnplacedError(HintedError):
    """An address is missing in the environment. `hint` has the remedy."""


def names(plan: JobPlan, environment: Mapping[str, str], resolv_conf: str = RESOLV_CONF) -> list[str]:
    """Return the names of all nodes in order, the plan's if it has any; otherwise []. Raises
    UnplacedError.
    """
    value = environment.get(Env.NAMES, "")
    if plan.names or not value:
        return list(plan.names)
    value = _with_domain(value, Env.NAMES, resolv_conf)
    if _NODE in value:
        return [value.replace(_NODE, str(node)) for node in range(plan.nodes)]
    names = value.split(",")
    if len(names) != plan.nodes:
        raise UnplacedError(
            f"{Env.NAMES} names {len(names)} nodes, the job has {plan.nodes}: {value}",
            f"name each node once, in order, or write one name with {_NODE} in it",
        )
    return names


def hub(
    plan: JobPlan, attempt: int, key: bytes, environment: Mapping[str, str], resolv_conf: str = RESOLV_CONF
) -> list[Endpoint]:
    """Return the hub's names and addresses, in the order in which to try them. Raises UnplacedError."""
    value = environment.get(Env.HUB, "")
    try:
        addresses = endpoints.parse(_with_domain(value, Env.HUB, resolv_conf))
    except ValueError:
        wanted = "wanted host:port of the hub, or several with commas"
        raise UnplacedError(
            f"{Env.HUB} is {value!r}; {wanted}", "by this address a node finds the hub on node 0"
        ) from None
    return [Endpoint(host, port or hub_port(plan.job, attempt, key)) for host, port in addresses]


def hub_port(job: str, attempt: int, key: bytes) -> int:
    """Return the port that each node of this attempt derives. Two jobs on one machine seldom share it.

    `key`: the job's, or another value that its nodes know and other jobs do not.
    """
    from ddplaunch.agent.system import ports

    return ports.sequence(f"{job} {attempt} hub".encode() + key, ports.EPHEMERAL)[0]


def domain(resolv_conf: str = RESOLV_CONF) -> str:
    """Return the cluster's DNS domain: for `search default.svc.cluster.local …` it is `cluster.local`."""
    try:
        with open(resolv_conf, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    suffixes = [word.rstrip(".") for line in lines if line[:1] == ["search"] for word in line[1:]]
    for suffix in sorted(suffixes, key=len):
        _, separator, rest = f".{suffix}".partition(".svc.")
        if separator:
            return rest
    return ""


def _with_domain(value: str, variable: str, resolv_conf: str) -> str:
    if _DOMAIN not in value:
        return value
    own = domain(resolv_conf)
    if not own:
        raise UnplacedError(
            f"{resolv_conf} does not name the cluster's domain, which {variable} needs: it has no "
            "`search … svc.DOMAIN`",
            "the pod's dnsPolicy must be ClusterFirst (with hostNetwork ClusterFirstWithHostNet); or name "
            "the domain, `kubernetes.cluster_domain`",
        )
    return value.replace(_DOMAIN, own)


def handle(plan: JobPlan, folder: str, environment: Mapping[str, str]) -> str:
    """Return `target://path`; "" if nothing here says it."""
    if plan.platform == KUBERNETES.name:
        path = os.path.join(environment.get(Env.NAMESPACE, ""), plan.job)
        return f"kubernetes://{path}" if environment.get(Env.NAMESPACE) else ""
    if plan.platform == SLURM.name:
        number = environment.get("SLURM_JOB_ID")
        return f"slurm://{number}" if number else ""
    name, number = os.path.split(os.path.abspath(folder))
    is_ours = os.path.basename(name) == plan.job and number.isdigit()
    return f"local://{plan.job}/{number}" if is_ours else ""


_ON = " on "


def host() -> str:
    """'n3', and of a pod 'digits-2 on worker2', unless it has its machine's own network and name."""
    name, machine = socket.gethostname(), os.environ.get(Env.MACHINE, "")
    return f"{name}{_ON}{machine}" if machine not in ("", name) else name


def known_machines(nodes: Iterable[NodeStatus]) -> dict[int, str]:
    """Return by node the machines of the pods, where they are known."""
    machines = {each.node: each.host.partition(_ON)[2] for each in nodes}
    return {node: machine for node, machine in machines.items() if machine}


def names_with_machines(names: Sequence[str], machines: Mapping[int, str]) -> list[str]:
    """Return the job's names as people read them, those of pods with their machines."""
    short = [subjects.name(node, names) or name for node, name in enumerate(names)]
    return [f"{name}{_ON}{machines[node]}" if node in machines else name for node, name in enumerate(short)]


def boot_id() -> str:
    """Return the kernel's boot id, the same in all containers of a machine, or else the host name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def network_namespace() -> str:
    """Return the network namespace; "" where it cannot be read."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
