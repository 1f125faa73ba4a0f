"""RDMA devices of real machines, as their owners have shown them, laid out as the kernel lays them out.

`ibstatus` and `show_gids` are scripts that print files of /sys/class/infiniband; here they are files again.
What is left out repeats what is shown.
"""

from __future__ import annotations

from pathlib import Path

ROCE = """
Infiniband device 'mlx5_0' port 1 status:
        state:           4: ACTIVE
        phys state:      5: LinkUp
        rate:            100 Gb/sec (4X EDR)
        link_layer:      Ethernet
Infiniband device 'mlx5_1' port 1 status:
        state:           4: ACTIVE
        phys state:      5: LinkUp
        rate:            100 Gb/sec (4X EDR)
        link_layer:      Ethernet
"""
"""ibstatus, in issue 1866 of github.com/NVIDIA/nccl."""
HOST_GIDS = """
mlx5_0  1       0       fe80:0000:0000:0000:a288:c2ff:fe5b:03ec                 v1      ens3np0
mlx5_0  1       1       fe80:0000:0000:0000:a288:c2ff:fe5b:03ec                 v2      ens3np0
mlx5_0  1       2       0000:0000:0000:0000:0000:ffff:0b00:0048 11.0.0.72       v1      ens3np0
mlx5_0  1       3       0000:0000:0000:0000:0000:ffff:0b00:0048 11.0.0.72       v2      ens3np0
mlx5_1  1       0       fe80:0000:0000:0000:a288:c2ff:fe5b:0374                 v1      ens2np0
mlx5_1  1       1       fe80:0000:0000:0000:a288:c2ff:fe5b:0374                 v2      ens2np0
mlx5_1  1       2       0000:0000:0000:0000:0000:ffff:0b00:0049 11.0.0.73       v1      ens2np0
mlx5_1  1       3       0000:0000:0000:0000:0000:ffff:0b00:0049 11.0.0.73       v2      ens2np0
"""
"""show_gids on a machine, in issue 192 of github.com/NVIDIA/nccl-tests."""
POD_GIDS = """
mlx5_0  1       4       fe80:0000:0000:0000:a4ed:ccff:fe8b:1994                 v1      net1
mlx5_0  1       5       fe80:0000:0000:0000:a4ed:ccff:fe8b:1994                 v2      net1
mlx5_0  1       6       0000:0000:0000:0000:0000:ffff:0a98:000c 10.152.0.12     v1      net1
mlx5_0  1       7       0000:0000:0000:0000:0000:ffff:0a98:000c 10.152.0.12     v2      net1
mlx5_1  1       4       fe80:0000:0000:0000:9459:9bff:fe54:7704                 v1      net2
mlx5_1  1       5       fe80:0000:0000:0000:9459:9bff:fe54:7704                 v2      net2
mlx5_1  1       6       0000:0000:0000:0000:0000:ffff:0a98:040c 10.152.4.12     v1      net2
mlx5_1  1       7       0000:0000:0000:0000:0000:ffff:0a98:040c 10.152.4.12     v2      net2
"""
"""show_gids in a pod whose addresses are not where they are in other pods, in issue 1573 of NVIDIA/nccl."""
HALF_DOWN = """
Infiniband device 'mlx4_0' port 1 status:
        state:           1: DOWN
        phys state:      3: Disabled
        rate:            10 Gb/sec (4X SDR)
        link_layer:      InfiniBand
Infiniband device 'mlx4_0' port 2 status:
        state:           4: ACTIVE
        phys state:      5: LinkUp
        rate:            56 Gb/sec (4X FDR)
        link_layer:      InfiniBand
"""
"""Pull request 847 of github.com/linux-rdma/rdma-core, where ibstat says the same in its own words."""
EFA = """
Infiniband device 'efa_0' port 1 status:
        state:           4: ACTIVE
        link_layer:      Unknown
"""
"""Pull request 884 of github.com/linux-rdma/rdma-core has the files of an EFA; no more of them is shown."""
_EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
_TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
_NAMES = {"state": "state", "phys state": "phys_state", "rate": "rate", "link_layer": "link_layer"}


def sysfs(root: Path, ibstatus: str, show_gids: str = "", files: bool = True) -> str:
    """The root folder of a machine that shows this; without `files` its /dev/infiniband is empty."""
    port = root
    devices: list[str] = []
    for line in ibstatus.strip().splitlines():
        name, _, value = line.strip().partition(":")
        if line.startswith("Infiniband"):
            _, device, rest = name.split("'")
            devices += [] if device in devices else [device]
            port = root / "sys/class/infiniband" / device / "ports" / rest.split()[1]
            for slot in range(16):
                _write(port / f"gids/{slot}", _EMPTY)
        else:
            _write(port / _NAMES[name], value.strip())
    for number, device in enumerate(devices):
        _write(root / f"sys/class/infiniband_verbs/uverbs{number}/ibdev", device)
        if files:
            _write(root / f"dev/infiniband/uverbs{number}", "")
    for line in show_gids.strip().splitlines():
        device, place, index, gid, *_, kind, owner = line.split()
        port = root / "sys/class/infiniband" / device / "ports" / place
        _write(port / f"gids/{index}", gid)
        _write(port / f"gid_attrs/types/{index}", _TYPES[kind])
        _write(port / f"gid_attrs/ndevs/{index}", owner)
    return f"{root}/"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
