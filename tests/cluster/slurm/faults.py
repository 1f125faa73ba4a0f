"""What can go wrong with a machine, done to it; `clear_faults` undoes all of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from functools import partial

from tests.cluster.slurm import box, settings
from tests.cluster.slurm.machines import CONTROLLER, Machines


class Faults(Machines):
    """Machines that can be broken."""

    def power_off(self, node: str) -> None:
        """Everything on the node is gone at once, and its network with it."""
        broken = self._forget(node)
        box.kill(broken.first)
        broken.bury()

    def power_on(self, node: str) -> None:
        """Boot a node that was powered off."""
        self._power_on(node)
        self.start_slurmd(node)

    def freeze(self, node: str) -> None:
        """Stop all its processes, slurmd too; connections stay open, and its kernel answers for them."""
        self.run(node, ["sh", "-c", "kill -STOP -1"])

    def thaw(self, node: str) -> None:
        """Let them go on. On a node without a process of its own, kill(1) finds nobody to tell."""
        self.run(node, ["sh", "-c", "kill -CONT -1 2>&- || true"])

    def link(self, node: str, up: bool) -> None:
        """The node's cable, pulled or put back."""
        self._ip(CONTROLLER, f"link set veth-{node} {'up' if up else 'down'}")

    def nft(self, node: str, *rules: str, hook: str = "input", sparing_slurm: bool = True) -> None:
        """Rules of nft(8) for what comes into the node (`hook` input) or leaves it (output).

        Slurm's own connections are let through, unless not even they shall be spared.
        """
        spare = [f"tcp {side} {settings.SLURM_PORTS} accept" for side in ("dport", "sport") if sparing_slurm]
        chain = f"inet faults {hook}"
        head = ["add table inet faults", f"add chain {chain} {{ type filter hook {hook} priority 0; }}"]
        lines = [*head, *(f"add rule {chain} {rule}" for rule in [*spare, *rules])]
        self.run(node, ["nft", "--file", "-"], stdin="\n".join(lines) + "\n")

    def fill(self, node: str, place: str) -> None:
        """Leave no room in the node's /tmp or /dev/shm."""
        self.run(node, ["mount", "-o", "remount,size=4k", place])

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL to the node's daemon alone; jobs go on."""
        self._end_daemon(node, "slurmd", signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        """Start the node's daemon, as at boot."""
        self._start_daemon(node, "slurmd", "-N", node)

    def stop_controller(self) -> None:
        """End the controller's daemon in order, for it saves its state only then; jobs go on."""
        self._end_daemon(CONTROLLER, "slurmctld", signal.SIGTERM)

    def start_controller(self) -> None:
        """Start the controller's daemon with what it remembers."""
        self._start_daemon(CONTROLLER, "slurmctld")

    def restart_controller(self) -> None:
        """As its administrator would."""
        self.stop_controller()
        self.start_controller()

    def _end_daemon(self, machine: str, daemon: str, number: int) -> None:
        for pid in self._daemons(machine, daemon):
            with contextlib.suppress(ProcessLookupError):  # its children have its name for a moment
                os.kill(pid, number)
            self.until(partial(_is_gone, pid), f"{daemon} is gone", 20)

    def _daemons(self, machine: str, daemon: str) -> list[int]:
        near = self._first(machine) if machine != CONTROLLER else self._first("holder")
        return [pid for pid, words in box.processes(near).items() if words.split()[:1] == [daemon]]

    def clear_faults(self) -> None:
        """Power, cables, firewalls, names, devices and daemons as they were at the start."""
        for node in self.nodes:
            if node not in self._boxes:
                self.power_on(node)
            self.thaw(node)
            self.link(node, up=True)
            for place in ("/tmp", "/dev/shm"):
                self.run(node, ["mount", "-o", f"remount,size={box.ROOM}", place])
        for machine in self.machines:
            self.hosts(machine).write_text(settings.hosts(self.nodes))
            self.run(machine, ["nft", "flush", "ruleset"])
            self._remove_devices(machine)
            self.run(machine, ["ip", "link", "set", "lo", "up"])
        if not self._daemons(CONTROLLER, "slurmctld"):
            self.start_controller()
        for node in self.nodes:
            if not self._daemons(node, "slurmd"):
                self.start_slurmd(node)

    def _remove_devices(self, machine: str) -> None:
        shown = json.loads(self.run(machine, ["ip", "-json", "link"]).stdout)
        own = ("lo", "eth0", "switch", "veth-")
        for device in shown:
            if not device["ifname"].startswith(own):
                self._ip(machine, f"link del {device['ifname']}")
        if machine != CONTROLLER:
            self.run(machine, ["tc", "qdisc", "del", "dev", "eth0", "root"], check=False)


def _is_gone(pid: int) -> bool:
    return not box.alive(pid)
