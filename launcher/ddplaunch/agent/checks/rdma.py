"""Check: the RDMA devices in sysfs exist and are up, and NCCL may use them.

Sources: Documentation/ABI/stable/sysfs-class-infiniband in Linux; src/transport/net_ib in
github.com/NVIDIA/nccl, for which ports it takes, and which of their addresses (GID).
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
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.quantities import listing

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
    state: str  # "ACTIVE"; for a port that is down also the cable's: "DOWN, Disabled"
    rate: str  # "100 Gb/sec (4X EDR)"
    ethernet: bool  # RoCE
    gids: dict[int, str]  # those that are set, by index: "RoCE v2 of eth2"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        return f"{self.device} port {self.number}"


def check_rdma(context: Context, root: str = "/") -> CheckResult:
    """FAIL if the job asks for RDMA that does not work, or if NCCL will take it and fail."""
    requested = context.plan.resources.rdma or 0
    settings = _settings(context)
    here = ports(root)
    devices = sorted({port.device for port in here})
    taken = [port for port in here if _takes(settings.get("NCCL_IB_HCA", ""), port)]
    active = [port for port in taken if port.active]
    used = _is_used(context, settings, here, root)
    facts: dict[str, Any] = {"devices": devices, "active": len(active), "gid": _gids(settings, active)}
    facts["used"] = used
    shown = ", ".join(f"{port} {port.state} {port.rate}" for port in here) or "no RDMA device"
    if requested and not devices:
        hidden = sorted(map(os.path.basename, glob.glob(f"{root}sys/class/infiniband/*")))
        observed = f"{listing(hidden)}: no file in /dev/infiniband" if hidden else "no RDMA device is here"
        return failed("rdma", "gpu-missing", observed, f"RDMA devices: {requested}", _ABSENT_HINT, **facts)
    if not used:
        return passed("rdma", shown, **facts)
    empty = _without_index(settings, active)
    if empty:
        has = ", ".join(map(str, sorted(empty[0].gids))) or "none"
        observed = f"NCCL_IB_GID_INDEX={_index(settings)} is empty on {_listed(empty)}, which has {has}"
        if len(empty) == len(active):
            return failed("rdma", "rdma-unfit", observed, hint=_GID_HINT, **facts)
        return unknown("rdma", observed, _GID_HINT, **facts)  # no GPU may be near that device
    problem, hint = _problem(settings, taken, min(requested or len(taken), len(devices)))
    if problem and requested:
        return failed("rdma", "rdma-unfit", problem, f"RDMA devices: {requested}", hint, **facts)
    if problem:
        return unknown("rdma", problem, hint, **facts)
    if len(devices) < requested and platforms.named(context.plan.platform).has_device_plugins:
        hint = "a device plugin may count one device several times"
        return unknown("rdma", f"{shown}; the job asks for {requested}", hint, **facts)
    if len(devices) < requested:
        observed = f"only {listing(devices)} {phrases.one_or(devices, 'is', 'are')} here"
        return failed("rdma", "gpu-missing", observed, f"RDMA devices: {requested}", _ABSENT_HINT, **facts)
    return passed("rdma", shown, **facts)


def is_used(context: Context, root: str = "/") -> bool:
    """Whether the ranks will send by RDMA, because the job asks for it or NCCL takes it by default."""
    return _is_used(context, _settings(context), ports(root), root)


def _is_used(context: Context, settings: Mapping[str, str], here: list[Port], root: str) -> bool:
    if context.plan.resources.rdma:
        return True
    off = settings.get("NCCL_IB_DISABLE", "0") != "0" or settings.get("NCCL_NET", "IB").upper() != "IB"
    on_gpus = "NVIDIA" in gpus.count_devices(root) and not context.plan.mpi
    return on_gpus and not off and any(port.active for port in here)


def ports(root: str = "/") -> list[Port]:
    """Return the ports of all devices with a file in /dev/infiniband, ordered by name."""
    verbs = glob.glob(f"{root}sys/class/infiniband_verbs/uverbs*")
    opened = {
        _line(f"{each}/ibdev")
        for each in verbs
        if os.path.exists(f"{root}dev/infiniband/{os.path.basename(each)}")
    }
    result = []
    for place in sorted(glob.glob(f"{root}sys/class/infiniband/*/ports/*")):
        device, _, number = place.split("/")[-3:]
        if device in opened:
            result.append(_port(place, device, int(number)))
    return result


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
    """Return the file's text; "" if it cannot be read, for example because it is in another network
    namespace.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _settings(context: Context) -> dict[str, str]:
    return read.settings({**context.environment, **context.plan.env}, predict.NEWEST)


def _takes(wanted: str, port: Port) -> bool:
    """Whether NCCL_IB_HCA, in the form [^][=]DEVICE[:PORT],…, includes the port."""
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


def _index(settings: Mapping[str, str]) -> int:
    """Return NCCL's GID index; -1: NCCL finds the right one itself."""
    try:
        return int(settings.get("NCCL_IB_GID_INDEX", "-1"))
    except ValueError:
        return -1


def _without_index(settings: Mapping[str, str], active: list[Port]) -> list[Port]:
    index = _index(settings)
    return [port for port in active if port.ethernet and index >= 0 and index not in port.gids]


def _gids(settings: Mapping[str, str], active: list[Port]) -> str:
    """Return which kind of address is at NCCL's GID index: 'RoCE v2'. It must be the same on all nodes."""
    kinds = {port.gids.get(_index(settings), "").partition(" of ")[0] for port in active if port.ethernet}
    return ", ".join(sorted(kinds - {""}))


def _problem(settings: Mapping[str, str], taken: list[Port], wanted: int) -> tuple[str, str]:
    """Return the problem and a hint; both are empty if at least `wanted` of these ports work."""
    if not taken:
        return f"NCCL_IB_HCA={settings.get('NCCL_IB_HCA')} matches no device here", _HCA_HINT
    down = [port for port in taken if not port.active]
    mute = [port for port in taken if port.active and port.ethernet and not port.gids]
    if len(taken) - len(down) - len(mute) >= wanted:
        return "", ""
    if mute:
        return (
            f"{_listed(mute)} of RoCE {phrases.one_or(mute, 'has', 'have')} no address (GID) here",
            _ADDRESS_HINT,
        )
    return listing([f"{port} is {port.state}" for port in down]), _DOWN_HINT


def _listed(some: list[Port]) -> str:
    return listing([*map(str, some)])
