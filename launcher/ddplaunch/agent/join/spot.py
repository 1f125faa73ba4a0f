"""Works out which node this is, how many there are, and where node 0 is, from options and variables. Pure.

Options come first, then the launcher's arguments, PET_* and MASTER_*, then the scheduler's variables.
Contradictions and missing values are refused, all in one sentence.

`accelerate launch` and `deepspeed` have their own options for what torchrun calls nnodes, node_rank,
master_addr and master_port. Only their command line is read, not accelerate's file of defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from ddplaunch.agent.platforms import scheduler_variables
from ddplaunch.agent.platforms.scheduler_variables import Fact
from ddplaunch.agent.system import torchrun
from ddplaunch.agent.text.printable import HintedError
from ddplaunch.agent.text.quantities import count


class _Launcher(NamedTuple):
    name: str
    switches: frozenset[str]  # options without a value; all others have one
    meanings: Mapping[str, str]  # its option: torchrun's


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ACCELERATE = _Launcher(
    "accelerate",
    _set(
        "cpu debug downcast_bf16 dynamo_use_dynamic dynamo_use_fullgraph dynamo_use_regional_compilation "
        "enable_cpu_affinity fp8_use_autocast_during_eval h help m module multi_gpu no_python no_tpu_cluster "
        "q quiet same_network tpu tpu_cluster tpu_use_sudo use_deepspeed use_fsdp use_megatron_lm "
        "use_parallelism_config"
    ),
    {
        "num_machines": "nnodes",
        "machine_rank": "node_rank",
        "main_process_ip": "master_addr",
        "main_process_port": "master_port",
    },
)
_DEEPSPEED = _Launcher(
    "deepspeed",
    _set(
        "bind_cores_to_rank force_multi h help module no_local_rank no_python no_ssh no_ssh_check q quiet "
        "save_pid"
    ),
    {
        "num_nodes": "nnodes",
        "node_rank": "node_rank",
        "master_addr": "master_addr",
        "master_port": "master_port",
    },
)
_ONE_NODE = _DEEPSPEED._replace(switches=_DEEPSPEED.switches - {"save_pid"})
"""On each node `deepspeed` starts deepspeed.launcher.launch. There, --save_pid takes a value."""
_STARTS = (
    (("accelerate", "launch"), _ACCELERATE),
    (("accelerate-launch",), _ACCELERATE),
    (("-m", "accelerate.commands.launch"), _ACCELERATE),
    (("deepspeed",), _DEEPSPEED),
    (("-m", "deepspeed.launcher.runner"), _DEEPSPEED),
    (("-m", "deepspeed.launcher.launch"), _ONE_NODE),
)


def node_options(command: Sequence[str]) -> dict[str, Fact]:
    """Return the options of the command line, by torchrun's name for each one. A switch is ""."""
    options = torchrun.torchrun_options(command)
    if options is not None:
        return {
            name: Fact(value, f"torchrun's --{name.replace('_', '-')}={value}")
            for name, value in options.items()
        }
    other = _other(command)
    if other is None:
        return {}
    launcher, words = other
    given = torchrun.read_options(words, launcher.switches)
    return {
        torchruns: Fact(given[own], f"{launcher.name}'s --{own}={given[own]}")
        for own, torchruns in launcher.meanings.items()
        if given.get(own)
    }


def _other(command: Sequence[str]) -> Optional[tuple[_Launcher, Sequence[str]]]:
    """Return the launcher in the command, if it is not torchrun, and the words after it."""
    for place, word in enumerate(command):
        for start, launcher in _STARTS:
            if (os.path.basename(word), *command[place + 1 : place + len(start)]) == start:
                return launcher, command[place + len(start) :]
    return None


_C10D_PORT = "29400"
"""torchrun's default port, if --rdzv-endpoint has none."""


class CannotJoinError(HintedError):
    """The node cannot join. The message is one sentence, and `hint` has the remedy."""


class Options(NamedTuple):
    """Options of `run --join` itself."""

    nodes: Optional[int] = None
    node_rank: Optional[int] = None
    master: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class Spot:
    """One node's place in the job."""

    node: int
    nodes: int
    master: str  # name or address at which the other nodes reach node 0
    master_addr: Optional[str] = None  # for the ranks; None: the gate finds one
    master_port: Optional[int] = None  # None: node 0's gate chooses one
    names: list[str] = field(default_factory=list)  # those of all nodes, if the scheduler has them
    occasion: str = ""  # the same on all nodes of this job, but different for the user's other jobs
    rdzv_id: Optional[str] = None  # torchrun's, where that is the occasion
    attempt: int = 0


def find(options: Options, command: Sequence[str], environment: Mapping[str, str], host: str = "") -> Spot:
    """Return this node's place. `host`: this machine's full name. Raises CannotJoinError."""
    return _Search(options, command, environment, host).spot()


def nodes_of_command(command: Sequence[str], environment: Mapping[str, str]) -> Optional[Fact]:
    """Return this command's number of nodes, with its source; None if it is 1 or unknown."""
    search = _Search(Options(), command, environment, "")
    fact = next(filter(None, search.node_counts()), None)
    number = _count(fact.value) if fact and not search.standalone else None
    return fact._replace(value=str(number)) if fact and number and number > 1 else None


class _Search:
    def __init__(
        self, options: Options, command: Sequence[str], environment: Mapping[str, str], host: str
    ) -> None:
        self._options = options
        self._words = node_options(command)
        self._environment = environment
        self._scheduler = scheduler_variables.read(environment, host)
        self._problems: list[str] = []

    def spot(self) -> Spot:
        nodes = self._number("nodes", self._options.nodes, self.node_counts())
        ranks = self._node_ranks()
        node = self._number("node rank", self._options.node_rank, ranks)
        if self._options.node_rank is None and next(filter(None, ranks), None) is self._scheduler.node:
            self._problems.extend(self._scheduler.problems)
        address, port = self._meeting()
        names = self._scheduler.names if nodes == len(self._scheduler.names) else []
        master = self._options.master or address or self._scheduler.master
        if nodes == 1:
            node, master = node or 0, master or "127.0.0.1"
        if nodes is not None and node is not None and node >= nodes:
            self._problems.append(f"there is no node {node} in a job of {count(nodes, 'node')}")
        if self.standalone:
            self._problems.append("torchrun's --standalone is for one node")
        self._refuse_problems()
        if nodes is None or node is None or not master:
            raise self._missing(nodes, node, master)
        return Spot(
            node=node,
            nodes=nodes,
            master=master,
            master_addr=address or self._options.master,
            master_port=port,
            names=names,
            occasion=self._occasion(),
            rdzv_id=None if self._scheduler.job else self._occasion() or None,
            attempt=self._scheduler.attempt,
        )

    # ---------------------------------------------------------------- sources, strongest first

    @property
    def standalone(self) -> bool:
        return "standalone" in self._words

    def node_counts(self) -> list[Optional[Fact]]:
        return [self._word("nnodes"), self._pet("nnodes"), self._scheduler.nodes]

    def _node_ranks(self) -> list[Optional[Fact]]:
        return [self._word("node_rank"), self._pet("node_rank"), self._scheduler.node]

    def _meeting(self) -> tuple[Optional[str], Optional[int]]:
        """Return node 0's address and port for the ranks, if the user has set them."""
        endpoint, backend = self._torchrun("rdzv_endpoint"), self._torchrun("rdzv_backend")
        kind = backend.value if backend else torchrun.STATIC
        if kind not in (torchrun.STATIC, torchrun.C10D):
            return None, self._options.port  # the endpoint belongs to another program, such as etcd
        if endpoint is not None:
            address, port = _endpoint(endpoint, _C10D_PORT if kind == torchrun.C10D else "")
            return address, self._number("port", self._options.port, [port])
        # With c10d, torchrun ignores --master-addr.
        own = [self._torchrun(name) for name in ("master_addr", "master_port")]
        named, numbered = own if kind == torchrun.STATIC else (None, None)
        named = named or self._variable("MASTER_ADDR")
        numbered = numbered or self._variable("MASTER_PORT")
        return named.value if named else None, self._number("port", self._options.port, [numbered])

    def _torchrun(self, name: str) -> Optional[Fact]:
        return self._word(name) or self._pet(name)

    def _word(self, name: str) -> Optional[Fact]:
        fact = self._words.get(name)
        return fact if fact and fact.value else None

    def _pet(self, name: str) -> Optional[Fact]:
        return self._variable(f"PET_{name.upper()}")

    def _variable(self, name: str) -> Optional[Fact]:
        value = self._environment.get(name)
        return Fact(value, f"{name}={value}") if value else None

    def _occasion(self) -> str:
        """Return the scheduler's own name for the job; without a scheduler, torchrun's id tells jobs apart.

        Nodes that the scheduler has put together meet, and the gate can say that their ids differ.
        """
        ours = self._torchrun("rdzv_id")
        return self._scheduler.job or (ours.value if ours else "")

    # ---------------------------------------------------------------- numbers

    def _number(self, what: str, option: Optional[int], sources: Sequence[Optional[Fact]]) -> Optional[int]:
        """Return the option, otherwise the first source's number. A launcher's own argument must agree with
        it.
        """
        facts = [fact for fact in sources if fact is not None]
        if option is not None:
            word = next((fact for fact in facts if fact in self._words.values()), None)
            number = _count(word.value) if word else None
            if word and number is not None and number != option:
                self._problems.append(f"{what} {option} contradicts {word.source}")
            return option
        if not facts:
            return None
        number = _count(facts[0].value)
        if number is None and not _is_range(facts[0].value):
            self._problems.append(f"{facts[0].source} is not a number")
        return number

    def _refuse_problems(self) -> None:
        if self._problems:
            raise CannotJoinError(
                f"this node cannot join: {'; '.join(self._problems)}",
                "set each value in one place only; `ddplaunch run --help` lists the options",
            )

    def _missing(self, nodes: Optional[int], node: Optional[int], master: Optional[str]) -> CannotJoinError:
        wanted = [
            (nodes, "the number of nodes", "--nodes"),
            (node, "the rank of this node", "--node-rank"),
            (master or None, "the name or address of node 0", "--master"),
        ]
        absent = [(what, option) for value, what, option in wanted if value is None]
        whats = [what for what, _ in absent]
        text = " and ".join(filter(None, [", ".join(whats[:-1]), whats[-1]]))
        given = ", ".join(option for _, option in absent)
        return CannotJoinError(
            f"this node cannot join: {text} {'are' if len(absent) > 1 else 'is'} not given",
            f"add {given} before `--`; torchrun's arguments, PET_* variables, {scheduler_variables.WAYS} "
            "set them as well",
        )


def _endpoint(endpoint: Fact, default: str) -> tuple[str, Optional[Fact]]:
    """Return the endpoint's host, and its port, which may be missing."""
    host, colon, port = endpoint.value.rpartition(":")
    if not colon or host.endswith(":") or "]" in port:
        host, port = endpoint.value, default
    return host.strip("[]"), endpoint._replace(value=port) if port else None


def _count(text: str) -> Optional[int]:
    """Return the number in `2`, or in torchrun's `2:2`; None for a real range, or for no number."""
    least, colon, most = text.partition(":")
    return int(least) if least.isdecimal() and (not colon or least == most) else None


def _is_range(text: str) -> bool:
    least, colon, most = text.partition(":")
    return bool(colon) and least.isdecimal() and most.isdecimal()
