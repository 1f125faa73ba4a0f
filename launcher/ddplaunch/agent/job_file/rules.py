"""Rules across fields: values that are right by themselves but wrong together. Pure.

Each rule is a small function of the job file as plain data, with its defaults, that yields what it finds. A
finding names every path that the rule looked at, first the one to correct, so that nothing is said about a
value that only takes the place of a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Union

from ddplaunch.agent.job_file.defaults import RENDEZVOUS
from ddplaunch.agent.job_file.units import format_duration, format_quantity
from ddplaunch.agent.plan import KILL_AFTER

Job = Mapping[str, Any]
"""The keys of a job file with plain data, times in seconds and amounts in bytes. Keys with a default are
there."""

Path = tuple[Union[str, int], ...]
"""Where something is in the job file: `("volumes", 0, "name")`."""

Problem = tuple[str, str, str, str]
"""Where, what was found, what is wanted, and a hint."""

SIGNALS = ("ALRM", "HUP", "INT", "QUIT", "TERM", "URG", "USR1", "USR2", "XCPU")
"""Signals that a job file may name for its ranks: programs can handle them, and none of them means a
crash."""

POD_GATE_TIMEOUT = 600.0
"""Seconds for the gate on Kubernetes by default, because nodes pull their images at different speeds."""

_SECRET_WORDS = ("env", "file", "secret", "name", "key")
"""The keys of a secret, which messages may repeat."""

EPHEMERAL = (32768, 60999)
"""Linux's default net.ipv4.ip_local_port_range: the kernel hands these out to any outgoing connection."""

_OWNED = {
    "RANK": "",
    "LOCAL_RANK": "",
    "GROUP_RANK": "",
    "NODE_RANK": "",
    "WORLD_SIZE": "set nodes and nproc_per_node",
    "LOCAL_WORLD_SIZE": "set nproc_per_node",
    "GROUP_WORLD_SIZE": "set nodes",
    "MASTER_ADDR": "set rendezvous.address, if it must be set at all",
    "MASTER_PORT": "set rendezvous.port, if it must be set at all",
}
_OWNED_PREFIXES = ("DDPLAUNCH_", "PET_", "TORCHELASTIC_")

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun")
_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")

_OWNED_SBATCH = {
    "-N": "nodes",
    "--nodes": "nodes",
    "-n": "nodes and nproc_per_node",
    "--ntasks": "nodes and nproc_per_node",
    "--ntasks-per-node": "nproc_per_node",
    "-J": "name",
    "--job-name": "name",
    "--export": "env",
    "--signal": "signal",
}


@dataclass(frozen=True)
class Finding:
    """A rule's answer. `paths` is every value on which it rests, first the one to correct."""

    paths: tuple[Path, ...]
    found: str
    wanted: str
    hint: str = ""
    code: str = ""


Rule = Callable[[Job], Iterator[Finding]]


def check(job: Job) -> list[Finding]:
    """Return what all rules find, in the order of RULES."""
    return [finding for rule in RULES for finding in rule(job)]


def elastic(job: Job) -> Iterator[Finding]:
    """Refuse what a job that starts with only some of its nodes cannot have."""
    least, most, at = job.get("min_nodes"), job["nodes"], ("nodes",)
    if least is None:
        if job.get("newcomers") == "join":
            yield Finding((("newcomers",), at), "join", "a range of nodes", "as in nodes: {min: 2, max: 4}")
        return
    if least >= most:
        hint = "for a fixed number, write the number alone"
        yield Finding((at, ("min_nodes",)), f"{least} to {most} nodes", "min below max", hint)
    backend = job["rendezvous"]["backend"]
    if job["launch"] != "torchrun":
        hint = "only torchrun can start a job with fewer nodes than the most it may have"
        yield Finding((at, ("launch",)), f"a range with launch: {job['launch']}", "a number", hint)
    elif backend != "c10d":
        hint = "torchrun's static rendezvous waits for a fixed number of nodes"
        paths = (("rendezvous", "backend"), at)
        yield Finding(paths, f"{backend} with a range of nodes", "backend: c10d", hint)
    if not job["gate"]["enabled"]:
        hint = "the gate decides which nodes the job starts with"
        yield Finding((("gate", "enabled"), at), "false with a range of nodes", "true", hint)
    if job["gate"]["smoke_test"]:
        hint = "the smoke test is a collective of all ranks, and an elastic job may not have all of them"
        yield Finding((("gate", "smoke_test"), at), "true with a range of nodes", "false", hint)


def ports(job: Job) -> Iterator[Finding]:
    """Yield ports that need root, or that the kernel may give to somebody else first."""
    for section in ("rendezvous", "gate", "metrics"):
        path, port = (section, "port"), job[section].get("port")
        if port is None:
            continue
        if port < 1024:
            yield Finding((path,), f"{port}", "a port from 1024 to 32767", "ports below 1024 need root")
        if EPHEMERAL[0] <= port <= EPHEMERAL[1]:
            hint = (
                f"{EPHEMERAL[0]} to {EPHEMERAL[1]} are ephemeral: any outgoing connection may take one; "
                "leave the port out to get a free one"
            )
            yield Finding((path,), f"{port}", "a port from 1024 to 32767", hint, "port-ephemeral")


def one_port_each(job: Job) -> Iterator[Finding]:
    """Refuse a second use of the gate's port: the hub listens on it as long as the job lives."""
    port = job["gate"].get("port")
    if port is not None and port == job["rendezvous"].get("port"):
        yield Finding(
            (("gate", "port"), ("rendezvous", "port")),
            f"{port}, which is rendezvous.port",
            "a port of its own",
            "the hub keeps its port while torchrun's store uses its own",
        )
    metrics = job["metrics"].get("port")
    for section in ("gate", "rendezvous"):
        if metrics is not None and metrics == job[section].get("port"):
            yield Finding(
                (("metrics", "port"), (section, "port")),
                f"{metrics}, which is {section}.port",
                "a port of its own",
            )


def address_without_port(job: Job) -> Iterator[Finding]:
    """Refuse an address such as `host:29500`, which would be looked up as a name."""
    if match := re.fullmatch(r"([^:]+):([0-9]+)", job["rendezvous"].get("address") or ""):
        hint = f"write address: {match[1]} and port: {match[2]}"
        yield Finding((("rendezvous", "address"),), "a port in it", "a name or an address alone", hint)


def a_gpu_for_each_rank(job: Job) -> Iterator[Finding]:
    """Refuse fewer GPUs than ranks, which hang or fail in NCCL when they share one. `gpus: 0` is a CPU job; a
    type alone asks for none.
    """
    gpus = job["resources"].get("gpus") or 0
    if (gpus or job["resources"].get("gpu_type")) and gpus < job["nproc_per_node"]:
        yield Finding(
            (("resources", "gpus"), ("nproc_per_node",)),
            f"{gpus}",
            f"at least nproc_per_node, which is {job['nproc_per_node']}",
            "each rank needs a GPU; write gpus: 0 if the ranks use none",
        )


def shm_is_memory(job: Job) -> Iterator[Finding]:
    """Yield a finding if /dev/shm, which counts as memory, is larger than the memory limit."""
    shm, memory = job["resources"].get("shm"), job["resources"].get("memory")
    if shm and memory and shm > memory:
        yield Finding(
            (("resources", "shm"), ("resources", "memory")),
            format_quantity(shm),
            f"at most resources.memory, which is {format_quantity(memory)}",
            "files in /dev/shm count as memory: a job that filled it would be killed",
        )


def notice_before_kill(job: Job) -> Iterator[Finding]:
    """Refuse a notice that would come after the end and help nobody."""
    notice, kill = job["watchdog"]["notice_after"], job["watchdog"]["kill_after"]
    kill = KILL_AFTER if kill == "auto" else kill
    if not isinstance(kill, str) and notice >= kill:
        yield Finding(
            (("watchdog", "notice_after"), ("watchdog", "kill_after")),
            format_duration(notice),
            f"less than watchdog.kill_after, which is {format_duration(kill)}",
            "the notice comes first, then the evidence, then the end",
        )


def restarts_need_c10d(job: Job) -> Iterator[Finding]:
    """Refuse restarts with torchrun's static rendezvous: it hands out ranks once, so a second round of
    several nodes never meets.
    """
    restarts = job["rendezvous"]["max_restarts"]
    if restarts and job["rendezvous"]["backend"] == "static" and job["nodes"] > 1:
        yield Finding(
            (("rendezvous", "max_restarts"), ("rendezvous", "backend"), ("nodes",)),
            f"{restarts} with the static backend",
            "0, or backend: c10d",
            "nodes cannot meet again through a static rendezvous: set backend: c10d, or use retries",
        )


def rendezvous_is_torchruns(job: Job) -> Iterator[Finding]:
    """Refuse torchrun's rendezvous for other launchers: mpirun brings its ranks together itself, and the rest
    read MASTER_ADDR and MASTER_PORT at most.
    """
    launch = job["launch"]
    given = {key: value for key, value in job["rendezvous"].items() if value is not None}
    wanted, hint = "none", "remove the section: MPI brings its ranks together itself"
    if launch != "mpi":
        given = {key: value for key, value in given.items() if key not in ("address", "port")}
        wanted, hint = "only address and port", "remove the other keys: they are torchrun's own"
    if launch != "torchrun" and given != RENDEZVOUS:
        found = "settings of torchrun's rendezvous"
        yield Finding((("rendezvous",), ("launch",)), found, f"{wanted} with launch: {launch}", hint)


def owned_variables(job: Job) -> Iterator[Finding]:
    """Refuse variables that torchrun or ddplaunch sets for each rank."""
    for section in ("env", "secrets"):
        for name in job[section]:
            if name in _OWNED or name.startswith(_OWNED_PREFIXES):
                hint = _OWNED.get(name) or "remove it"
                yield Finding(((section, name),), "a name that ddplaunch sets itself", "another name", hint)


def env_or_secret(job: Job) -> Iterator[Finding]:
    """Refuse a name that is both in env and in secrets."""
    for name in job["secrets"]:
        if name in job["env"]:
            yield Finding(
                (("secrets", name), ("env", name)), "a name that is also in env", "it in one of the two"
            )


def interface_names(job: Job) -> Iterator[Finding]:
    """Refuse interface names that NCCL (prefixes) or Gloo (exact names) would ignore without saying so."""
    nccl = job["env"].get("NCCL_SOCKET_IFNAME", "")
    at: Path = ("env", "NCCL_SOCKET_IFNAME")
    if len(nccl) == 1:
        hint = "NCCL ignores a value of one character and uses any interface that it finds"
        yield Finding((at,), f'"{nccl}"', "a name or a prefix of two characters or more", hint)
    elif nccl.startswith("=^"):
        yield Finding((at,), f'"{nccl}"', "^= in this order", "NCCL takes =^ for a name that begins with ^")
    elif re.search(r"\s", nccl):
        yield Finding(
            (at,), f'"{nccl}"', "names separated by commas, without spaces", "NCCL does not remove spaces"
        )
    gloo = job["env"].get("GLOO_SOCKET_IFNAME", "")
    if len(gloo) == 1 or re.search(r"[\^=\s]", gloo):
        yield Finding(
            (("env", "GLOO_SOCKET_IFNAME"),),
            f'"{gloo}"',
            "exact names separated by commas, such as eth0",
            "unlike NCCL, Gloo has no prefixes, no ^ and no =, and it ignores a value of one character",
        )
    family = job["env"].get("NCCL_SOCKET_FAMILY", "AF_INET")
    if family not in ("AF_INET", "AF_INET6"):
        hint = "NCCL silently ignores any other value"
        yield Finding((("env", "NCCL_SOCKET_FAMILY"),), f'"{family}"', "AF_INET or AF_INET6", hint)


def script_alone(job: Job) -> Iterator[Finding]:
    """Refuse a launcher, Python or torchrun's flags before the script: the launcher runs the command
    itself.
    """
    if not job["command"]:
        return
    first, *rest = job["command"]
    name = first.rpartition("/")[2]
    at: tuple[Path, ...] = (("command", 0), ("launch",))
    wanted = "the script and its arguments only"
    if job["launch"] == "none":
        yield from _a_program(first, name)
    elif name in _LAUNCHERS:
        yield Finding(at, f'"{first}"', wanted, _launcher(job))
    elif job["launch"] == "torchrun" and _PYTHON.fullmatch(name):
        what = "begin with -m" if rest[:1] == ["-m"] else f"begin with {rest[0] if rest else 'the script'}"
        yield Finding(at, f'"{first}"', wanted, f"{what}; the key `python` names another Python")
    elif job["launch"] == "torchrun" and first.startswith("-") and first != "-m":
        hint = "torchrun's flags have keys of their own here: nodes, nproc_per_node, rendezvous"
        yield Finding(at, f'"{first}"', wanted, hint)
    elif not rest and re.search(r"\.py\s+\S", first):
        words = ", ".join(
            word if re.fullmatch(r"[a-z_./-]+", word) else f'"{word}"' for word in first.split()
        )
        yield Finding(at, f'"{first}"', "one item for each word", f"write [{words}]")


def _launcher(job: Job) -> str:
    """Return the hint for a command that begins with a launcher."""
    itself = {"torchrun": "torchrun", "mpi": "mpirun or srun"}.get(job["launch"], "srun")
    return f"ddplaunch calls {itself} itself; with `launch: none` your command is the launcher"


def _a_program(first: str, name: str) -> list[Finding]:
    """Return a finding for a command that lacks Python before it, or that starts the ranks of all nodes."""
    at: tuple[Path, ...] = (("command", 0), ("launch",))
    if first.startswith("-") or (name == first and first.endswith(".py")):
        hint = f"the command runs as it is written: write python3, then {first}"
        return [Finding(at, f'"{first}"', "a program with launch: none", hint)]
    if name in ("mpirun", "mpiexec", "srun"):
        hint = "every node would start the ranks of all nodes; launch: srun and launch: mpi start them once"
        return [Finding(at, f'"{first}"', "a program that starts the ranks of its own node", hint)]
    return []


def one_source_of_a_secret(job: Job) -> Iterator[Finding]:
    """Refuse two sources of one secret, which would leave open which one counts."""
    for name, ref in job["secrets"].items():
        yield from _one_source(("secrets", name), ref)


def _one_source(path: Path, reference: Job) -> list[Finding]:
    given = [key for key in ("env", "file", "secret") if reference.get(key) is not None]
    found = " and ".join(given) or "no source"
    return [] if len(given) == 1 else [Finding((path,), found, "exactly one of env, file, secret")]


def recipients(job: Job) -> Iterator[Finding]:
    """Refuse a recipient that is nobody or several, and a URL with two sources."""
    for index, each in enumerate(job["notify"]):
        at: Path = ("notify", index)
        given = [key for key in ("webhook", "command", "events") if each.get(key) not in (None, False)]
        if len(given) != 1:
            found = " and ".join(given) or "no recipient"
            yield Finding((at,), found, "exactly one of webhook, command, events")
        if not each.get("when", True):
            yield Finding(((*at, "when"),), "an empty list", "at least one occasion", "or leave the key out")
        if (webhook := each.get("webhook")) is not None:
            yield from _one_source((*at, "webhook"), webhook)


def volumes(job: Job) -> Iterator[Finding]:
    """Refuse a volume of no kind or of several kinds, and two volumes at one path."""
    names: set[str] = set()
    paths: set[str] = set()
    for index, volume in enumerate(job["volumes"]):
        at: Path = ("volumes", index)
        given = [key for key in ("host_path", "claim", "empty_dir") if volume.get(key)]
        if len(given) != 1:
            found = " and ".join(given) or "no storage"
            yield Finding((at,), found, "exactly one of host_path, claim, empty_dir")
        for key, value, seen in (
            ("name", volume["name"], names),
            ("mount_path", volume["mount_path"], paths),
        ):
            if value in seen:
                yield Finding(((*at, key),), f'"{value}" a second time', f"a {key} of its own")
            seen.add(value)


def tolerations(job: Job) -> Iterator[Finding]:
    """Yield what the Kubernetes API refuses only when the rest of the job is there already."""
    for index, toleration in enumerate(job["kubernetes"]["tolerations"]):
        operator = toleration.get("operator") or "Equal"
        at: Path = ("kubernetes", "tolerations", index)
        if operator == "Exists" and toleration.get("value") is not None:
            yield Finding(((*at, "value"),), "a value with operator: Exists", "no value, or operator: Equal")
        if operator == "Equal" and toleration.get("key") is None:
            yield Finding((at,), "no key with operator: Equal", "a key, or operator: Exists")
        if toleration.get("toleration_seconds") is not None and toleration.get("effect") != "NoExecute":
            found = "toleration_seconds without effect: NoExecute"
            yield Finding(
                ((*at, "toleration_seconds"),), found, "effect: NoExecute, or no toleration_seconds"
            )


def sbatch_options(job: Job) -> Iterator[Finding]:
    """Refuse options that ddplaunch writes itself: sbatch would let the last one win."""
    for index, option in enumerate(job["slurm"]["extra"]):
        key = _OWNED_SBATCH.get(re.split(r"[=\s]", option)[0])
        if key:
            yield Finding((("slurm", "extra", index),), f'"{option}"', f"the key {key} of the job file")


def outputs(job: Job) -> Iterator[Finding]:
    """Refuse a volume that is not one of the job's, or that keeps nothing."""
    given = job.get("outputs")
    if given is None:
        return
    at: Path = ("outputs", "volume")
    names = [volume["name"] for volume in job["volumes"]]
    if given["volume"] not in names:
        hint = (
            "for example volumes: [{name: runs, mount_path: /runs, claim: runs}], and outputs: {volume: runs}"
        )
        yield Finding((at, ("volumes",)), f'"{given["volume"]}"', "the name of one of `volumes`", hint)
    for index, volume in enumerate(job["volumes"]):
        paths: tuple[Path, ...] = (at, ("volumes", index))
        if volume["name"] != given["volume"]:
            continue
        if volume.get("empty_dir"):
            hint = "an empty_dir is deleted with its node's part of the job"
            yield Finding(paths, f"{volume['name']}, an empty_dir", "a claim or a host_path", hint)
        if volume.get("read_only"):
            yield Finding(
                paths, f"{volume['name']}, which is read_only", "a volume that the ranks can write to", ""
            )
    if ".." in (given.get("path") or "").split("/"):
        yield Finding((("outputs", "path"),), "a path with '..'", "a folder on the volume")


def signal_before_limit(job: Job) -> Iterator[Finding]:
    """Refuse a signal that would be due before the job begins."""
    before = (job.get("signal") or {}).get("before")
    for section in ("slurm", "local"):
        limit = (job.get(section) or {}).get("time")
        if before is not None and limit is not None and before >= limit:
            wanted = f"less than {section}.time, which is {format_duration(limit)}"
            hint = "the ranks get the signal this long before the time limit"
            paths = (("signal", "before"), (section, "time"))
            yield Finding(paths, format_duration(before), wanted, hint)


def container_has_a_runtime(job: Job) -> Iterator[Finding]:
    """Refuse an image that nothing would run."""
    container = job["slurm"]["container"]
    if container["runtime"] == "none" and (container.get("image") or container["mounts"]):
        yield Finding(
            (("slurm", "container"), ("slurm", "container", "runtime")),
            "an image or mounts without a runtime",
            "runtime: pyxis, apptainer, singularity or oci",
        )


RULES: tuple[Rule, ...] = (
    elastic,
    ports,
    one_port_each,
    address_without_port,
    a_gpu_for_each_rank,
    shm_is_memory,
    notice_before_kill,
    restarts_need_c10d,
    rendezvous_is_torchruns,
    owned_variables,
    env_or_secret,
    interface_names,
    script_alone,
    one_source_of_a_secret,
    recipients,
    volumes,
    outputs,
    tolerations,
    sbatch_options,
    signal_before_limit,
    container_has_a_runtime,
)
"""Every cross-field rule. A rule that is not in this list never runs."""


def join(path: Path) -> str:
    """Return `("volumes", 0, "name")` as `volumes[0].name`.

    It leaves out what follows a `=` in a key and, below `secrets`, everything that is neither a variable's
    name nor a known key: a value in the wrong place may be a secret.
    """
    text = ""
    for depth, step in enumerate(path):
        if path[0] == "secrets" and depth and not _known_in_secrets(step, depth):
            break
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step.partition("=")[0]
            text += f".{name}" if text else name
    return text


def _known_in_secrets(step: Union[str, int], depth: int) -> bool:
    name = str(step).partition("=")[0]
    return name in _SECRET_WORDS if depth > 1 else name.isidentifier()
