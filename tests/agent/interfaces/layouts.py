"""Hosts made at random: links, addresses, names and settings, all from one number. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

NAMES = (
    *(
        "eth0",
        "eth1",
        "ens5",
        "eno1",
        "enp94s0np0",
        "enp94s0np1",
        "bond0",
        "ib0",
        "ib1",
        "ibp12s0",
        "ibs3f0np0",
    ),
    *(
        "docker0",
        "docker_gwbridge",
        "br-1f2e3d4c5b6a",
        "virbr0",
        "virbr0-nic",
        "cni0",
        "flannel.1",
        "cali0a1b2c3",
    ),
    *("lo0", "lowlat0", "localnet", "wg0", "tun0", "tailscale0", "team0", "net1", "e", "p1p1", "kube-ipvs0"),
)
KINDS = ("veth", "veth", "veth", "bridge", "bridge", "macvlan", "tun", "ifb")
FILES = ("/etc/nccl.conf", "PASSWD/.nccl.conf", "HOME/.nccl.conf", "OTHER")


@dataclass
class Layout:
    """Commands of `ip -batch`, and what they mean to make."""

    commands: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ipv4: list[str] = field(default_factory=list)
    ipv6: list[str] = field(default_factory=list)


@dataclass
class Setting:
    """What the libraries are told. `files` are named as in FILES; `hosts` is /etc/hosts."""

    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    hosts: str = ""


def layout(number: int) -> Layout:
    """Number `number`: none to four links beside loopback, or, of ten hosts one, twenty."""
    draw = random.Random(f"layout {number}")
    made = Layout()
    if draw.random() < 0.93:
        made.commands.append("link set lo up")
    for address in draw.sample(
        ["10.200.0.1/32", "127.0.0.53/8", "fd53::53/128"], draw.choice([0, 0, 0, 1, 2])
    ):
        made.commands.append(f"addr add {address} dev lo")
    count = 20 if draw.random() < 0.1 else draw.choice([0, 1, 2, 2, 3, 4, 5])
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
    commands = _addresses(made, draw, place, name, kind)
    if draw.random() < 0.8:
        commands.insert(draw.choice([0, len(commands)]), f"link set {name} up")
    if kind == "veth":
        if draw.random() < 0.5:
            commands.append(f"link set veth{place}p addrgenmode none")
        if draw.random() < 0.8:
            commands.append(f"link set veth{place}p up")
        elif made.names and draw.random() < 0.3:
            commands.append(f"link set veth{place}p master {draw.choice(made.names)}")
    made.commands += commands
    made.names.append(name)


def _addresses(made: Layout, draw: random.Random, place: int, name: str, kind: str) -> list[str]:
    commands = []
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        address = f"10.{draw.randrange(3)}.{draw.randrange(3)}.{draw.randrange(1, 250)}"
        label = draw.choice(["", "", "", f" label {name}:{draw.randrange(3)}"]) if len(name) < 13 else ""
        if kind == "tun" and draw.random() < 0.5:
            commands.append(f"addr add {address} peer 10.250.0.{draw.randrange(1, 250)} dev {name}")
        else:
            commands.append(f"addr add {address}/{draw.choice([8, 16, 24, 24, 31, 32])} dev {name}{label}")
        made.ipv4.append(address)
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        address = f"fd00:{draw.randrange(3)}::{place + 1:x}:{draw.randrange(1, 4)}"
        commands.append(f"addr add {address}/{draw.choice([64, 64, 48, 128])} dev {name} nodad")
        made.ipv6.append(address)
    if draw.random() < 0.15:
        commands.append(f"addr add fe80::{place + 1}/64 dev {name} nodad")
    return commands


def for_nccl(made: Layout, number: int) -> Setting:
    """Setting `number` for a host of this layout: in its environment, in files, or in several of them."""
    draw = random.Random(f"nccl {number} {made.names}")
    setting = Setting(hosts=_hosts(made, draw))
    for name, value in _variables(made, draw).items():
        for _ in range(draw.choice([1, 1, 2])):
            file = draw.choice([None, None, None, *FILES])
            other = value if draw.random() < 0.7 else _variables(made, draw).get(name, value)
            if file is None:
                setting.environment[name] = value
            else:
                mark = draw.choice(["", "", "", "#", " "])
                end = draw.choice(["\n", "\n", "\n", "\r\n", "\n\n"])
                setting.files[file] = setting.files.get(file, "") + f"{mark}{name}={other}{end}"
    for file in setting.files:
        if draw.random() < 0.3:
            setting.files[file] = setting.files[file].rstrip("\n")
    if "OTHER" in setting.files or draw.random() < 0.05:
        setting.environment["NCCL_CONF_FILE"] = draw.choice(["OTHER", "OTHER", "OTHER", "", "/nowhere"])
    setting.environment["HOME"] = draw.choice(["HOME", "HOME", "HOME", "PASSWD", "/nowhere"])
    if draw.random() < 0.05:
        del setting.environment["HOME"]
    return setting


def _variables(made: Layout, draw: random.Random) -> dict[str, str]:
    found = {}
    if draw.random() < 0.6:
        found["NCCL_SOCKET_IFNAME"] = _wanted(made, draw)
    if draw.random() < 0.35:
        families = ["AF_INET", "AF_INET6", "AF_INET6", "AF_INET4", "inet6", "", "AF_INET "]
        found["NCCL_SOCKET_FAMILY"] = draw.choice(families)
    if draw.random() < 0.3:
        found["NCCL_COMM_ID"] = _comm_id(made, draw)
    return found


def _wanted(made: Layout, draw: random.Random) -> str:
    def entry() -> str:
        name = draw.choice([*made.names, *made.names, "lo", "docker", "eth", "ib", "virbr", "nosuch"])
        cut = draw.choice([len(name), len(name), 1, 2, 3])
        return name[:cut] + draw.choice(["", "", "", "", ":1", ":", "x", " "])

    if draw.random() < 0.08:
        return draw.choice(["", "e", "^", "=", "^=", "=^", ",", ",,", "^,", "=,", ":", "::", "*", "all"])
    entries = [entry() for _ in range(draw.choice([1, 1, 1, 2, 3, 20]))]
    if draw.random() < 0.1:
        entries.insert(draw.randrange(len(entries) + 1), draw.choice(["", ":1", " "]))
    return draw.choice(["", "", "", "^", "^", "=", "=", "^=", "=^"]) + ",".join(entries)


def _comm_id(made: Layout, draw: random.Random) -> str:
    port = draw.choice([":29500", ":29500", ":0", ""])
    names = [*made.names, "nosuch0"]
    return draw.choice(
        [
            *(
                f"{address}{port}"
                for address in [*made.ipv4, "10.1.1.77", "10.0.2.5", "192.0.2.77", "127.0.0.9"]
            ),
            *(f"[{address}]:29500" for address in [*made.ipv6, "fd00:1::99", "fd99::1", "::1"]),
            *(f"[fe80::77%{name}]:29500" for name in draw.sample(names, 1)),
            *(
                "[fe80::77]:29500",
                f"peer{port}",
                f"peer6{port}",
                f"nowhere{port}",
                "",
                "x",
                f",10.1.1.77{port}",
                "[fd00::1",
            ),
        ]
    )


def for_torch(made: Layout, number: int) -> Setting:
    """The same for Gloo and TensorPipe, which look at the host's own name as well."""
    draw = random.Random(f"torch {number} {made.names}")
    setting = Setting(hosts=_hosts(made, draw))
    for variable, more in (("GLOO_SOCKET_IFNAME", [","]), ("TP_SOCKET_IFNAME", [])):
        if draw.random() < 0.5:
            names = [*made.names * 6, "lo", "lo", "eth", "nosuch", "e", "", "=eth0", "eth0:1", "^lo"]
            count = draw.choice([1, 1, 1, 2, 3]) if more else 1
            setting.environment[variable] = ",".join(draw.choice(names) for _ in range(count))
            setting.environment[variable] += draw.choice(["", "", "", *more])
    return setting


def _hosts(made: Layout, draw: random.Random) -> str:
    """Names of peers, and what the host's own name, `own`, leads to: nothing, or one or two of many kinds."""
    lines = ["10.1.1.77 peer", "fd00:1::77 peer6"]
    addresses = [
        *made.ipv4,
        *made.ipv6,
        *made.ipv4,
        "127.0.1.1",
        "127.0.0.1",
        "::1",
        "10.99.99.99",
        "fd99::99",
    ]
    addresses += [f"fe80::{place + 1}%{name}" for place, name in enumerate(made.names)][:2]
    lines += [f"{address} own" for address in draw.sample(addresses, draw.choice([0, 1, 1, 1, 2]))]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"
