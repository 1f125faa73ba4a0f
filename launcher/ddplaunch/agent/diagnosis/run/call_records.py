"""Reads the calls of a rank, even a dead one, that the hook's ring and torch's flight recorder have.

They are calls of collectives, of sends and receives, and of init_process_group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Rendezvous, Setting, Stack
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system import phrases
from ddplaunch.agent.system.resolve import is_loopback, numeric

ADDRESS, PORT, WORLD = "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"
_ANY = ("0.0.0.0", "::")
OWN_GROUP = (
    "Give the thread a process group of its own: call `group = dist.new_group()` on all ranks in the main "
    "thread, before the thread starts, and give `group=group` to its calls. Or make its calls in the thread "
    "that trains."
)
"""A hint, for a thread that calls collectives of a group beside the one that trains."""

CallLine = tuple[str, str, int]
"""Operation, file and line of a call."""


def call_line(call: Collective) -> CallLine:
    """Return what tells one call of the program from another, on any node."""
    frame = call.frames[0]
    return call.op, stacks.shared(frame.file), frame.line


def last(rank: RankEvidence) -> list[str]:
    """'rank 2 was in recv from rank 0 (train.py:13)', as a fact; none if no call is known."""
    if not rank.calls:
        return []
    call = rank.calls[-1]
    place = described(call)
    if call.state in ("entered", "waiting"):
        return [f"rank {rank.rank} was in {place}"]
    return [f"rank {rank.rank} had come back from {place}"] if call.state == "returned" else []


def last_frames(rank: RankEvidence) -> list[Frame]:
    """Return where its main thread raised, otherwise where it crashed or is now."""
    raised = [each.frames for each in rank.raised if not each.handled]
    return raised[-1] if raised else stacks.main(rank.stacks)


def is_in(rank: RankEvidence, call: Collective) -> bool:
    """Whether it is in this call, or has died of an exception from the call."""
    died_of_it = call.state == "raised" and any(not each.handled for each in rank.raised)
    return call.state in ("entered", "waiting") or died_of_it


def is_open(call: Collective) -> bool:
    """Whether its rank may be in it still. torch's recorder calls one that has failed done."""
    return call.state not in ("returned", "issued", "waited", "completed") and not call.done


def waited_for(rank: RankEvidence) -> Optional[Collective]:
    """Return the asynchronous call in whose `wait` the rank's main thread is; None if none is known."""
    return next((call for call in reversed(rank.calls) if call.state == "waiting"), None)


def entered(rank: RankEvidence, site: Optional[Frame]) -> str:
    """Return the collective that the line `site` called on a group itself, past torch's Python; '': none."""
    call = rank.calls[-1] if rank.calls else None
    if call is None or site is None or call.p2p or call.state != "entered" or not call.frames:
        return ""
    return call.op if (call.frames[0].file, call.frames[0].line) == (site.file, site.line) else ""


def is_within(rank: RankEvidence) -> bool:
    """Whether the program's last call of a collective has not returned."""
    return bool(rank.calls) and rank.calls[-1].state == "entered" and not rank.calls[-1].p2p


def thread_in(rank: RankEvidence, call: Collective) -> Optional[Stack]:
    """Return the thread that is at the line of the call; None: it is not known which.

    Of a call that no line of the program has made, it is the one thread that is in such a call, and has none
    either.
    """
    if call.frames:
        there = [stack for stack in rank.stacks if call.frames[0] in stack.frames]
    else:
        op = call.op.rpartition(":")[2]
        there = [
            stack
            for stack in rank.stacks
            if stacks.calls(stack.frames, op) and not stacks.users(stack.frames)
        ]
    return there[0] if len(there) == 1 else None


def in_other_thread(rank: RankEvidence, call: Collective) -> bool:
    """Whether a thread that the program has started beside the main one is in this call.

    Autograd's threads do not count: the main one, in backward, is in their calls as well.
    """
    thread = thread_in(rank, call)
    return thread is not None and not thread.main and stacks.is_pythons(thread.frames)


def described(call: Collective) -> str:
    """'recv from rank 0 (train.py:13)'."""
    return f"{named(call)}{phrases.at(stacks.user_frame(call.frames))}"


def named(call: Collective) -> str:
    """'all_reduce 17', 'recv from rank 0', 'send to rank 3'."""
    if not call.p2p:
        return f"{call.op} {call.seq}"
    way = "from" if "recv" in call.op else "to"
    peer = "any rank" if call.peer is None or call.peer < 0 else f"rank {call.peer}"
    return f"{call.op} {way} {peer}"


@dataclass(frozen=True)
class Call:
    """One process that has called init_process_group."""

    node: int
    process: RankEvidence
    made: Rendezvous

    @property
    def rank(self) -> int:
        """Return the number that the process claims."""
        return self.process.rank if self.made.rank is None else self.made.rank

    @property
    def world_size(self) -> Optional[int]:
        return self.process.world_size if self.made.world_size is None else self.made.world_size

    @property
    def waits(self) -> bool:
        """Whether it is still in the call, or was when the process ended."""
        return not self.made.passed and not self.process.initialized

    @property
    def by_network(self) -> bool:
        return self.made.method in ("env", "tcp", "store") and bool(self.made.address)

    @property
    def loops_back(self) -> bool:
        """Whether it leads to the machine on which it was made."""
        own = [is_loopback(address) or address in _ANY for address in self.addresses]
        return self.by_network and bool(own) and all(own)

    @property
    def addresses(self) -> list[str]:
        """Return the master's addresses as the call's node resolves its name."""
        address = self.made.address
        return self.made.resolved or ([address] if numeric(address) else [])

    @property
    def endpoint(self) -> str:
        """'n1:29500', '[fd00::1]:29500', or the path of a file."""
        address = f"[{self.made.address}]" if ":" in self.made.address else self.made.address
        return self.made.file or (address if self.made.port is None else f"{address}:{self.made.port}")

    @property
    def is_chosen(self) -> bool:
        """Whether the program itself has chosen where the call leads."""
        return self.made.method != "env" or any(self.changed(name) for name in (ADDRESS, PORT))

    @property
    def given_port(self) -> Optional[str]:
        """Return the port that its launcher gave it, "" if that gave none; None if it is not known."""
        setting = self.changed(PORT)
        if setting is not None:
            return setting.given
        return None if self.made.given_port is None else str(self.made.given_port)

    @property
    def is_astray(self) -> bool:
        """Whether torchrun keeps the job's store, and the program chose another port, where nobody opens one.

        Since torch 2.15, rank 0 opens one at any place but torchrun's own.
        """
        return self.made.agent_store and self.given_port not in (None, str(self.made.port))

    def changed(self, name: str) -> Optional[Setting]:
        """Return the program's own setting of this variable, if it differs from its launcher's."""
        for setting in self.made.settings:
            if self.made.method == "env" and setting.name == name and setting.value != setting.given:
                return setting
        return None

    def choice(self, name: str) -> str:
        """'train.py:9 sets MASTER_ADDR to n7', 'train.py:9 calls init_process_group with tcp://n7:29500'."""
        made = self.made
        setting = self.changed(name)
        if setting is not None:
            return f"{line(setting.frame)} sets {name} to {setting.value}"
        if made.method == "env":
            return f"{name} is {made.address if name == ADDRESS else made.port}"
        if made.method == "store":
            return f"{line(made.frame)} gives init_process_group a store at {self.endpoint}"
        return f"{line(made.frame)} calls init_process_group with {made.method}://{self.endpoint}"


def line(frame: Optional[Frame]) -> str:
    """'train.py:9', or 'the script' if the line is not known."""
    return f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame is not None else "the script"
