"""What the libraries are told on a host of a layout, made at random from one number. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.agent.interfaces.layouts import Layout

FILES = ("/etc/nccl.conf", "PASSWD/.nccl.conf", "HOME/.nccl.conf", "OTHER")
_LONG = "n" * 63
"""A host's name as long as NCCL can hold."""
_LONGEST = f"own.{'n' * 60}"
"""As long as Linux has them."""
_PEERS = (
    *("10.1.1.77 peer", "fd00:1::77 peer6", "10.2.2.77 many", "10.1.1.77 many", f"10.0.1.77 {_LONG}"),
    f"10.1.1.77 {_LONG}tail",
)
_ODD_WORDS = (
    "",
    "e",
    "é",
    *("^", "=", "^=", "=^", ",", ",,", "^,", "=,", ":", "::", "*", "all", " ", "==", "^^"),
)
_MARKS = ("", "", "", "", "#", " ", " #", "\t", "=", "\ufeff", "\0", "export ")
_ENDS = ("\n", "\n", "\n", "\n", "\r\n", "\n\n", "\r", " \n", " # why\n", "\0rest\n", "\r\r\n")
_LINES = ("# a remark\n", "\n", "nonsense\n", "=\n", "A=" + "b" * 5000 + "\n", f"{'C' * 2000}=d\n", "\r\n")


@dataclass
class Setting:
    """What the libraries are told. `files` are named as in FILES, None is a folder; `hosts` is /etc/hosts."""

    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    hosts: str = ""
    name: str = "own"  # of the host


def for_nccl(made: Layout, number: int) -> Setting:
    """Setting `number` for a host of this layout: in its environment, in files, or in several of them."""
    draw = random.Random(f"nccl {number} {made.names}")
    setting = Setting(hosts=_hosts(made, draw))
    texts: dict[str, str] = {}
    for name, value in _variables(made, draw).items():
        for _ in range(draw.choice([1, 1, 2])):
            file = draw.choice([None, None, None, *FILES])
            other = value if draw.random() < 0.7 else _variables(made, draw).get(name, value)
            if file is None:
                setting.environment[name] = value
            else:
                before = draw.choice(_LINES) if draw.random() < 0.2 else ""
                equals = draw.choice(["="] * 12 + [" =", "= ", "=="])
                line = f"{draw.choice(_MARKS)}{name}{equals}{other}{draw.choice(_ENDS)}"
                texts[file] = texts.get(file, "") + before + line
    for file, text in texts.items():
        setting.files[file] = text.rstrip("\r\n") if draw.random() < 0.3 else text
    if draw.random() < 0.03:
        setting.files[draw.choice(FILES)] = None
    if "OTHER" in setting.files or draw.random() < 0.05:
        places = ["OTHER", "OTHER", "OTHER", "", "/nowhere", "~/.nccl.conf", "OTHER/", "/dev/null"]
        setting.environment["NCCL_CONF_FILE"] = draw.choice(places)
    setting.environment["HOME"] = draw.choice(["HOME", "HOME", "HOME", "PASSWD", "/nowhere", "", "~"])
    if draw.random() < 0.05:
        del setting.environment["HOME"]
    return setting


def _variables(made: Layout, draw: random.Random) -> dict[str, str]:
    found = {}
    if draw.random() < 0.6:
        found["NCCL_SOCKET_IFNAME"] = _wanted(made, draw)
    if draw.random() < 0.35:
        families = ["AF_INET", "AF_INET6", "AF_INET6", "AF_INET4", "inet6", "", "AF_INET ", "af_inet6", "6"]
        found["NCCL_SOCKET_FAMILY"] = draw.choice(families)
    if draw.random() < 0.3:
        found["NCCL_COMM_ID"] = _comm_id(made, draw)
    return found


def _wanted(made: Layout, draw: random.Random) -> str:
    def entry() -> str:
        name = draw.choice(
            [*made.names, *made.names, "lo", "docker", "eth", "ib", "virbr", "also1", "nosuch"]
        )
        cut = draw.choice([len(name), len(name), 1, 2, 3])
        name = draw.choice(["", "", "", "", "", "", " ", '"']) + name[:cut]
        return name + draw.choice(["", "", "", "", "", ":1", ":", ":1:2:3", "0", "x", " ", "x" * 60, "\n"])

    if draw.random() < 0.08:
        return draw.choice(_ODD_WORDS)
    if draw.random() < 0.03:
        return "," * draw.randrange(1010, 1026) + entry()  # of a file 1023 bytes are read
    entries = [entry() for _ in range(draw.choice([1, 1, 1, 2, 3, 20]))]
    if draw.random() < 0.2:
        entries.insert(draw.randrange(len(entries) + 1), draw.choice(["", ":1", " "]))
    sign = draw.choice(["", "", "", "^", "^", "=", "=", "^=", "=^", "^^", "==", "^=^"])
    return sign + ",".join(entries)


def _comm_id(made: Layout, draw: random.Random) -> str:
    port = draw.choice([":29500", ":29500", ":0", "", ":", ":99999", ":no"])
    link = draw.choice([*made.names, "nosuch0", "also0", "also1", "lo", "2", ""]) + draw.choice(
        ["", "", ":1"]
    )
    hosts = [*made.ipv4, "10.1.1.77", "10.0.2.5", "192.0.2.77", "127.0.0.9"]
    hosts += ["10.1.333", "167837696", "0.1.1.9", "peer", "peer6", "many", "localhost", "nowhere", "PEER"]
    hosts += ["peer,10.0.0.1", "nowhere,10.0.0.1", "é"]
    hosts += [" 10.0.1.77", "10.0.1.77 ", "fd00:1::77", "::1", "0.0.0.0", "10.0.0.5%eth0", _LONG]
    inside = [*made.ipv6, "fd00:1::99", "fd99::1", "::1", f"fe80::77%{link}", "fe80::77", "::"]
    inside += ["FD00:1:0::99"]
    inside += [f"fd00:1::99%{link}", f"fd00:0::9%{link}", "10.0.0.5", "::ffff:10.0.0.5", "nonsense", "peer6"]
    return draw.choice(
        [
            *(f"{host}{port}" for host in hosts),
            *(f"[{address}]{draw.choice([':29500', '', 'x'])}" for address in inside),
            *("", "x", "[", "[]", ",", ":29500", f",10.1.1.77{port}", "[fd00::1", f"{_LONG}tail:29500"),
        ]
    )


def for_torch(made: Layout, number: int) -> Setting:
    """The same for Gloo and TensorPipe, which look at the host's own name as well."""
    draw = random.Random(f"torch {number} {made.names}")
    setting = Setting(hosts=_hosts(made, draw))
    if draw.random() < 0.2:
        setting.name = draw.choice([_LONGEST, _LONGEST, _LONGEST[:-1], "localhost", "OWN", "10.0.0.5", "1"])
    for variable, more in (("GLOO_SOCKET_IFNAME", [",", ",,"]), ("TP_SOCKET_IFNAME", [])):
        if draw.random() < 0.5:
            names = ["lo", "lo", "eth", "nosuch", "e", "", "", "é", "=eth0", "eth0:1", "^lo", "lo ", " lo"]
            names += [*made.names * 6, *made.ipv4[:1], "also0", "also1"]
            count = draw.choice([1, 1, 1, 2, 3]) if more else 1
            setting.environment[variable] = ",".join(draw.choice(names) for _ in range(count))
            setting.environment[variable] += draw.choice(["", "", "", "", *more])
    return setting


def _hosts(made: Layout, draw: random.Random) -> str:
    """Names of peers, and what the own one, `own` or _LONGEST, leads to: none, one or two of any kind."""
    addresses = [*made.ipv4, *made.ipv6, *made.ipv4, "127.0.1.1", "127.0.0.1", "::1", "10.99.99.99"]
    addresses += ["fd99::99", "0.0.0.0", "::", "127.255.255.255", "224.0.0.1", "::ffff:10.0.0.1"]
    addresses.append("10.0.0.255")
    addresses += [f"fe80::{place + 1}%{name}" for place, name in enumerate(made.names)][:2]
    names = ["own", "own", "own", "own", "own.example own", "OWN", "xown"]
    names = [f"{name} {_LONGEST}" for name in names]
    chosen = draw.sample(addresses, draw.choice([0, 1, 1, 1, 2]))
    own = [f"{address} {draw.choice(names)}" for address in chosen]
    return "\n".join(["127.0.0.1 localhost", *_PEERS, *own]) + "\n"
