"""Several hosts on this machine: namespaces with their own names, addresses and files, on one switch."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

_numbers = itertools.count()

_ENTER = """
set -e
hostname "$1"; files=$2; shift 2
for file in "$files"/*; do mount --bind "$file" "/etc/${file##*/}"; done
if [ -n "$SHM_SIZE" ]; then mount -t tmpfs -o "size=$SHM_SIZE" tmpfs /dev/shm; fi
if [ -n "$FULL_DISK" ]; then
    mount -t tmpfs -o size=1M tmpfs "$FULL_DISK"
    dd if=/dev/zero of="$FULL_DISK/full" bs=64k 2>/dev/null || true
fi
if [ -n "$RDMA" ]; then mount --bind "$RDMA/sys/class" /sys/class; fi
if [ -n "$GPU$RDMA" ]; then  # a file is all that a check looks for
    dev=$(mktemp -d -p "${files%/*}")
    cp -a /dev/null /dev/zero /dev/urandom /dev/tty "$dev"
    mkdir "$dev/shm"
    if [ -n "$GPU" ]; then cp -a /dev/null "$dev/$GPU"; fi
    if [ -n "$RDMA" ]; then cp -r "$RDMA/dev/infiniband" "$dev"; fi
    mount --bind "$dev" /dev
fi
exec "$@"
"""


def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    tools = [tool for tool in ("ip", "nft", "nsenter", "unshare") if shutil.which(tool) is None]
    if tools:
        return f"needs {', '.join(tools)} (packages iproute2, nftables, util-linux)"
    probe = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "the kernel gives no namespaces here"


def run(*words: str) -> None:
    """Fails with what the command said."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


class Host:
    """One of them. `environment` is given to whatever is started there."""

    def __init__(self, name: str, namespace: str, address: str, files: Path) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address
        self.files = files
        self.environment: dict[str, str] = {}
        self.limits: list[str] = []  # words that take something from whatever is started there

    @property
    def words(self) -> list[str]:
        """What comes before a command that shall run on this host."""
        enter = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts"]
        names = ("SHM_SIZE", "FULL_DISK", "GPU", "RDMA")
        settings = [f"{name}={self.environment.get(name, '')}" for name in names]
        return [*self.limits, *enter, "env", *settings, "sh", "-c", _ENTER, "sh", self.name, str(self.files)]

    def hosts(self, names: dict[str, str]) -> None:
        """Its /etc/hosts, also for what runs there already."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        (self.files / "hosts").write_text("\n".join(lines) + "\n")

    def firewall(self, *rules: str, hook: str = "input") -> None:
        """Rules of nft(8) for what comes in, or goes out."""
        kind = "nat" if hook == "nat" else "filter"
        place = "output" if hook == "nat" else hook
        table = f"add table ip t; add chain ip t {hook} {{ type {kind} hook {place} priority 0; }}"
        text = "; ".join([table, *(f"add rule ip t {hook} {rule}" for rule in rules)])
        run("ip", "netns", "exec", self.namespace, "nft", text)

    def open(self) -> None:
        """No rule is left."""
        run("ip", "netns", "exec", self.namespace, "nft", "flush", "ruleset")


class Network:
    """`count` hosts n0, n1, … that reach and know each other."""

    def __init__(self, count: int, folder: Path) -> None:
        self._prefix = f"ddp{os.getpid()}x{next(_numbers)}"
        self._namespaces: list[str] = []
        self.hosts: list[Host] = []
        switch = self._namespace("sw")
        run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "switch", "up")
        names = {f"n{index}": f"10.77.0.{index + 1}" for index in range(count)}
        for index, (name, address) in enumerate(names.items()):
            namespace = self._namespace(str(index))
            end = ["name", "eth0", "netns", namespace]
            run("ip", "-n", switch, "link", "add", f"p{index}", "type", "veth", "peer", *end)
            run("ip", "-n", switch, "link", "set", f"p{index}", "master", "switch", "up")
            run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("ip", "-n", namespace, "link", "set", link, "up")
            files = folder / f"etc-{name}"
            files.mkdir()
            (files / "nsswitch.conf").write_text("hosts: files\npasswd: files\n")
            host = Host(name, namespace, address, files)
            host.hosts(names)
            self.hosts.append(host)

    def _namespace(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        run("ip", "netns", "add", namespace)
        self._namespaces.append(namespace)
        return namespace

    def close(self) -> None:
        """Nothing is left of it."""
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False)
