"""Check: the RDMA devices of sysfs exist and are up, and NCCL may use them.

Sources: Documentation/ABI/stable/sysfs-class-infiniband of Linux; of github.com/NVIDIA/nccl the folder
src/transport/net_ib, for which ports it takes and which address (GID) of them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.interfaces import nccl, read
from ddplaunch.agent.system import phrases

_ABSENT_HINT = (
    "`ibv_devices` on that machine: is the driver loaded? A container must be given /dev/infiniband, too: by "
    "a device plugin, or `docker run --device /dev/infiniband`"
)
_HCA_HINT = "`ibv_devices` lists the names; a name counts as the beginning of one unless it stands behind `=`"
_DOWN_HINT = "`ibstat` on that machine: the cable, the switch's port, of InfiniBand the subnet manager"
_GID_HINT = (
    "`show_gids` lists those that are set; leave NCCL_IB_GID_INDEX out, and NCCL 2.21 or newer finds the "
    "right one on each node by itself"
)
_ADDRESS_HINT = (
    "the device's network interface needs an IP address, and in a container it must be inside: by Multus, or "
    "with the host's network"
)


class Port(NamedTuple):
    """A port of an RDMA device that this process may open."""

    device: str
    number: int
    state: str  # "ACTIVE"; of one that is down the cable's, too: "DOWN, Disabled"
    rate: str  # "100 Gb/sec (4X EDR)"
    ethernet: bool  # RoCE
    gids: dict[int, str]  # of those that are set: "RoCE v2 of eth2", by index

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        return f"{self.device} port {self.number}"


def check(context: Context, root: str = "/") -> CheckResult:
    """FAIL where the job asks for RDMA, or NCCL will take it and fail; else NCCL does without, unasked."""
    asked = context.plan.resources.rdma or 0
    told = _told(context)
    here = ports(root)
    devices = sorted({port.device for port in here})
    taken = [port for port in here if _takes(told.get("NCCL_IB_HCA", ""), port)]
    active = [port for port in taken if port.active]
    used = _is_used(context, told, here, root)
    facts: dict[str, Any] = {"devices": devices, "active": len(active), "gid": _gids(told, active)}
    facts["used"] = used
    shown = ", ".join(f"{port} {port.state} {port.rate}" for port in here) or "no RDMA device"
    if asked and not devices:
        hidden = sorted(map(os.path.basename, glob.glob(f"{root}sys/class/infiniband/*")))
        said = (
            f"{phrases.listing(hidden)}: no file in /dev/infiniband" if hidden else "no RDMA device is here"
        )
        return failed("rdma", "gpu-missing", said, f"RDMA devices: {asked}", _ABSENT_HINT, **facts)
    if not used:
        return passed("rdma", shown, **facts)
    empty = _without_index(told, active)
    if empty:
        has = ", ".join(map(str, sorted(empty[0].gids))) or "none"
        said = f"NCCL_IB_GID_INDEX={_index(told)} is empty on {_listed(empty)}, which has {has}"
        if len(empty) == len(active):
            return failed("rdma", "rdma-unfit", said, hint=_GID_HINT, **facts)
        return unknown("rdma", said, _GID_HINT, **facts)  # it may be one that no GPU is near to
    problem, hint = _problem(told, taken, min(asked or len(taken), len(devices)))
    if problem and asked:
        return failed("rdma", "rdma-unfit", problem, f"RDMA devices: {asked}", hint, **facts)
    if problem:
        return unknown("rdma", problem, hint, **facts)
    if len(devices) < asked and platforms.named(context.plan.platform).has_device_plugins:
        hint = "a device plugin may count one device several times"
        return unknown("rdma", f"{shown}; the job asks for {asked}", hint, **facts)
    if len(devices) < asked:
        said = f"only {phrases.listing(devices)} {phrases.one_or(devices, 'is', 'are')} here"
        return failed("rdma", "gpu-missing", said, f"RDMA devices: {asked}", _ABSENT_HINT, **facts)
    return passed("rdma", shown, **facts)


def is_used(context: Context, root: str = "/") -> bool:
    """Whether the ranks will send by RDMA: the job asks for it, or NCCL takes it without being asked."""
    return _is_used(context, _told(context), ports(root), root)


def _is_used(context: Context, told: Mapping[str, str], here: list[Port], root: str) -> bool:
    if context.plan.resources.rdma:
        return True
    off = told.get("NCCL_IB_DISABLE", "0") != "0" or told.get("NCCL_NET", "IB").upper() != "IB"
    on_gpus = "NVIDIA" in gpus.devices(root) and not context.plan.mpi
    return on_gpus and not off and any(port.active for port in here)


def ports(root: str = "/") -> list[Port]:
    """Return the ports of all devices with a file in /dev/infiniband, ordered by name."""
    verbs = glob.glob(f"{root}sys/class/infiniband_verbs/uverbs*")
    opened = {
        _line(f"{each}/ibdev")
        for each in verbs
        if os.path.exists(f"{root}dev/infiniband/{os.path.basename(each)}")
    }
    found = []
    for place in sorted(glob.glob(f"{root}sys/class/infiniband/*/ports/*")):
        device, _, number = place.split("/")[-3:]
        if device in opened:
            found.append(_port(place, device, int(number)))
    return found


def _port(place: str, device: str, number: int) -> Port:
    state = _line(f"{place}/state").rpartition(": ")[2]  # "4: ACTIVE"
    if state != "ACTIVE":
        state = f"{state}, {_line(f'{place}/phys_state').rpartition(': ')[2]}"
    gids = {}
    for path in glob.glob(f"{place}/gids/*"):
        index = os.path.basename(path)
        if _line(path).strip("0:"):
            kind, owner = (_line(f"{place}/gid_attrs/{what}/{index}") for what in ("types", "ndevs"))
            gids[int(index)] = f"{kind} of {owner}" if owner else kind
    ethernet = _line(f"{place}/link_layer") == "Ethernet"
    return Port(device, number, state, _line(f"{place}/rate"), ethernet, gids)


def _line(path: str) -> str:
    """Empty where there is none: the kernel refuses to tell what belongs to another network namespace."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _told(context: Context) -> dict[str, str]:
    return read.settings({**context.environment, **context.plan.env}, nccl.NEWEST)


def _takes(wanted: str, port: Port) -> bool:
    """Whether NCCL_IB_HCA, in the form [^][=]DEVICE[:PORT],…, takes the port."""
    unless = wanted.startswith("^")
    rest = wanted[unless:]
    exact = rest.startswith("=")
    entries = [entry.partition(":")[::2] for entry in rest[exact:].split(",") if entry]
    hit = not entries or any(
        (port.device == name if exact else port.device.startswith(name))
        and number.partition(":")[0] in ("", str(port.number))
        for name, number in entries
    )
    return hit != unless


def _index(told: Mapping[str, str]) -> int:
    """-1: NCCL looks for the right one itself."""
    try:
        return int(told.get("NCCL_IB_GID_INDEX", "-1"))
    except ValueError:
        return -1


def _without_index(told: Mapping[str, str], active: list[Port]) -> list[Port]:
    index = _index(told)
    return [port for port in active if port.ethernet and index >= 0 and index not in port.gids]


def _gids(told: Mapping[str, str], active: list[Port]) -> str:
    """Return what the index that NCCL was given stands for: 'RoCE v2'. Peers must mean the same by it."""
    kinds = {port.gids.get(_index(told), "").partition(" of ")[0] for port in active if port.ethernet}
    return ", ".join(sorted(kinds - {""}))


def _problem(told: Mapping[str, str], taken: list[Port], wanted: int) -> tuple[str, str]:
    """Return the problem and a hint; both empty when at least `wanted` of these ports carry something."""
    if not taken:
        return f"NCCL_IB_HCA={told.get('NCCL_IB_HCA')} matches no device here", _HCA_HINT
    down = [port for port in taken if not port.active]
    mute = [port for port in taken if port.active and port.ethernet and not port.gids]
    if len(taken) - len(down) - len(mute) >= wanted:
        return "", ""
    if mute:
        return (
            f"{_listed(mute)} of RoCE {phrases.one_or(mute, 'has', 'have')} no address (GID) here",
            _ADDRESS_HINT,
        )
    return phrases.listing([f"{port} is {port.state}" for port in down]), _DOWN_HINT


def _listed(found: list[Port]) -> str:
    return phrases.listing([*map(str, found)])
