"""Hosts made at random: links and addresses, all from one number. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

NAMES = (
    *("eth0", "eth1", "ens5", "eno1", "enp94s0np0", "enp94s0np1", "eth10", "bond0", "bond0.100"),
    *("ibp129s0f1np1v0", "ib0", "ib1", "ibp12s0", "ibs3f0np0"),
    *("docker0", "docker_gwbridge", "br-1f2e3d4c5b6a", "virbr0", "virbr0-nic", "cni0", "flannel.1"),
    "cali0a1b2c3",
    *("lo0", "lowlat0", "localnet", "wg0", "tun0", "tailscale0", "team0", "net1", "e", "p1p1", "kube-ipvs0"),
)
KINDS = ("veth", "veth", "veth", "bridge", "bridge", "macvlan", "tun", "ifb")


@dataclass
class Layout:
    """Commands of `ip -batch`, and what they mean to make."""

    commands: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ipv4: list[str] = field(default_factory=list)
    ipv6: list[str] = field(default_factory=list)


def layout(number: int) -> Layout:
    """Number `number`: none to five links beside loopback, or, of ten hosts one, twenty or all there are."""
    draw = random.Random(f"layout {number}")
    made = Layout()
    if draw.random() < 0.93:
        made.commands.append("link set lo up")
    for address in draw.sample(
        ["10.200.0.1/32", "127.0.0.53/8", "fd53::53/128"], draw.choice([0, 0, 0, 1, 2])
    ):
        made.commands.append(f"addr add {address} dev lo")
    count = draw.choice([20, len(NAMES)]) if draw.random() < 0.1 else draw.choice([0, 1, 2, 2, 3, 4, 5])
    for place, name in enumerate(draw.sample(NAMES, count)):
        _link(made, draw, place, name)
    return made


def _link(made: Layout, draw: random.Random, place: int, name: str) -> None:
    kind = draw.choice(KINDS)
    mac = f"02:{place:02x}:" + ":".join(f"{draw.randrange(256):02x}" for _ in range(4))
    add = made.commands.append
    if kind == "veth":
        add(f"link add {name} address {mac} type veth peer name veth{place}p")
    elif kind == "macvlan" and made.names:
        add(f"link add {name} link {draw.choice(made.names)} address {mac} type macvlan mode bridge")
    elif kind == "tun":
        add(f"tuntap add {name} mode {draw.choice(['tun', 'tap'])}")
    else:
        kind = "ifb" if kind == "ifb" else "bridge"
        add(f"link add {name} address {mac} type {kind}")
    if draw.random() < 0.35:
        add(f"link set {name} addrgenmode none")
    if draw.random() < 0.1:
        add(f"link property add dev {name} altname also{place}")
    commands = _addresses(made, draw, place, name, kind)
    if draw.random() < 0.8:
        commands.insert(draw.choice([0, len(commands)]), f"link set {name} up")
    if kind == "veth":
        commands += _other_end(made, draw, place)
    made.commands += commands
    made.names.append(name)


def _other_end(made: Layout, draw: random.Random, place: int) -> list[str]:
    commands = []
    if draw.random() < 0.5:
        commands.append(f"link set veth{place}p addrgenmode none")
    if draw.random() < 0.8:
        commands.append(f"link set veth{place}p up")
    elif made.names and draw.random() < 0.3:
        commands.append(f"link set veth{place}p master {draw.choice(made.names)}")
    return commands


def _addresses(made: Layout, draw: random.Random, place: int, name: str, kind: str) -> list[str]:
    commands = []
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        start = draw.choice([*[f"10.{draw.randrange(3)}"] * 8, "169.254", "0.1"])
        address = f"{start}.{draw.randrange(3)}.{draw.randrange(1, 250)}"
        label = draw.choice(["", "", "", f":{draw.randrange(3)}", draw.choice(["0", "x"])])
        label = f" label {name}{label}" if label and len(name) < 13 else ""
        if kind == "tun" and draw.random() < 0.5:
            mask = draw.choice(["", "", "/24"])
            commands.append(f"addr add {address} peer 10.250.0.{draw.randrange(1, 250)}{mask} dev {name}")
        else:
            commands.append(f"addr add {address}/{draw.choice([8, 16, 24, 24, 31, 32])} dev {name}{label}")
        made.ipv4.append(address)
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        address = f"fd00:{draw.randrange(3)}::{place + 1:x}:{draw.randrange(1, 4)}"
        old = draw.choice(["", "", "", " preferred_lft 0"])
        commands.append(f"addr add {address}/{draw.choice([64, 64, 48, 128])} dev {name} nodad{old}")
        made.ipv6.append(address)
    if draw.random() < 0.15:
        commands.append(f"addr add fe80::{place + 1}/64 dev {name} nodad")
    return commands
