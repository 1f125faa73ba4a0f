"""The model of the job file: every section, key, default and bound, each with its reason.

The loader, the JSON Schema and the reference page are made from these classes. Lists are tuples. Counts and
resources are per node unless the description says otherwise; durations are floats of seconds, quantities ints
of bytes (`fields` says how they are written).
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, create_model, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ddplaunch import targets
from ddplaunch.agent.job_file import rules
from ddplaunch.agent.plan import CHECKS, Occasion, WatchdogPlan
from ddplaunch.errors import UsageError
from ddplaunch.spec.fields import (
    AbsolutePath,
    ByteCount,
    Cores,
    DeviceCount,
    DnsLabel,
    DnsName,
    EnvName,
    GpuType,
    InterfaceName,
    JobName,
    Line,
    NodeCount,
    Paths,
    Port,
    Seconds,
    Section,
    SignalName,
    Word,
    node_range,
)
from ddplaunch.spec.targets import Kubernetes, Local, Slurm


class SecretKey(Section):
    """One key of a Secret in the cluster."""

    name: DnsName = Field(description="Name of the Secret, in the job's namespace.", examples=["s3"])
    key: Word = Field(description="Key inside the Secret.", examples=["access-key"])


class SecretRef(Section):
    """Where a secret's value comes from: one of three places. The value itself is never in the job file."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-whole": True,
            "x-wanted": "{env: NAME}, {file: PATH} or {secret: {name: …, key: …}}",
            "x-hint": "keep a secret's value out of the job file; say where to find it",
        }
    )

    env: EnvName | None = Field(
        default=None, description="Environment variable, read where you run `ddplaunch submit`."
    )
    file: Line | None = Field(
        default=None,
        description="File that contains the value; its last newline is removed.",
        examples=["/home/me/.hf-token"],
    )
    secret: SecretKey | None = Field(
        default=None,
        description="Key of a Kubernetes Secret.",
        examples=[{"name": "s3", "key": "access-key"}],
    )


class Metrics(Section):
    """The job's metrics, which the hub serves in Prometheus' text format."""

    port: Port | None = Field(
        default=None,
        examples=[9400],
        description="Port on node 0 where the hub serves /metrics. By default no port is opened.",
    )
    address: Word | None = Field(
        default=None,
        description="Address on node 0 to listen on. By default all addresses in a pod, and 127.0.0.1 "
        "elsewhere, because anybody who reaches the port can read the metrics.",
    )


if TYPE_CHECKING:
    OccasionName = str
else:
    OccasionName = Literal[Occasion.ALL]


class Notify(Section):
    """One recipient of messages, one sentence each: a webhook, a command, or events."""

    webhook: SecretRef | None = Field(
        default=None,
        description="Where to find the URL (http or https); each message is sent to it by POST. Anybody who "
        "knows such a URL can write to its channel, so it is treated as a secret.",
    )
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None,
        examples=[["mail", "-s", "digits", "me@example.com"]],
        description="Program to run for each message, with its arguments; the message is its standard "
        "input. It runs where the hub runs: on node 0, and in a pod in the hub's container. It is ended "
        "after 10 seconds.",
    )
    events: bool = Field(
        default=False,
        description="Show each message where the scheduler shows the job. On Kubernetes it becomes an Event "
        "of the Job; the pods' service account must be allowed to create Events. On Slurm it becomes the "
        "job's comment, which happens without this key, too, unless you set a comment yourself.",
    )
    format: Literal["json", "slack"] = Field(
        default="json",
        description="Format of a message: `json` is ddplaunch's own and has everything that is known; "
        "`slack` is a JSON object with one text, as Slack, Mattermost and others expect it.",
    )
    when: tuple[OccasionName, ...] = Field(
        default=Occasion.ALL,
        description="When to send a message. By default always; a healthy job sends only `end`.",
    )


API_VERSION = "ddplaunch/v1"

RULE = "rule"
"""The type of pydantic's error for a finding of the rules, whose context holds the finding."""

if TYPE_CHECKING:
    from ddplaunch.spec.document import Node

    CheckName = str
else:
    CheckName = Literal[CHECKS]


class Volume(Section):
    """Storage that every node sees under the same path: exactly one of host_path, claim and empty_dir."""

    name: DnsLabel = Field(description="Name of the volume, unique in the job.")
    mount_path: AbsolutePath = Field(description="Where your program finds it: an absolute path.")
    read_only: bool = Field(
        default=False, description="Mount it read-only. Off by default, because checkpoints are written."
    )
    host_path: AbsolutePath | None = Field(default=None, description="Folder on the node itself.")
    claim: DnsName | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    empty_dir: bool = Field(
        default=False, description="A new, empty folder, deleted when the node's part of the job ends."
    )


class Outputs(Section):
    """The volume where the ranks run on Kubernetes. Elsewhere output files stay where they are written."""

    volume: DnsLabel = Field(
        description="Name of one of the `volumes`, with a claim or a host_path. The ranks run in a folder "
        "on it that belongs to the job and stays the same in all attempts."
    )
    path: Line | None = Field(
        default=None,
        examples=["experiments/digits"],
        description="Folder on that volume where each job gets a folder of its own. By default the top of "
        "the volume.",
    )


class Resources(Section):
    """Resources that each node needs. None by default, so that a first job runs anywhere."""

    gpus: DeviceCount | None = Field(default=None, description="GPUs per node.")
    gpu_type: GpuType | None = Field(
        default=None,
        description="Type of the GPUs, as your cluster calls it. On Slurm it is the type of the generic "
        "resource (`h100`). On Kubernetes it is the value of the machines' label "
        "`kubernetes.gpu_type_label` (`NVIDIA-H100-80GB-HBM3`). By default any type.",
    )
    cpus: Cores | None = Field(
        default=None, description="CPU cores per node, for all its ranks together. Fractions are allowed."
    )
    memory: ByteCount | None = Field(default=None, description="Memory per node, for all its ranks together.")
    shm: ByteCount | None = Field(
        default=None,
        description="Size of /dev/shm per node, where NCCL and DataLoader workers share tensors. By default "
        "the size stays what it is on the target, and the gate checks that it is enough.",
    )
    rdma: DeviceCount | None = Field(default=None, description="RDMA devices per node.")


class Rendezvous(Section):
    """How the nodes' torchruns find one another (torchrun's --rdzv-* flags)."""

    backend: Literal["static", "c10d"] = Field(
        default="static",
        description="torchrun's rendezvous backend. `static` by default, because every node's rank is known "
        "and there is no guessing which node hosts the store.",
    )
    address: Word | None = Field(
        default=None,
        description="Name or address of node 0 by which the other nodes reach it. By default the target "
        "provides it. The gate checks that it works.",
    )
    port: Port | None = Field(
        default=None,
        description="Port of the store on node 0 (MASTER_PORT). By default a free port outside the "
        "ephemeral range is chosen at run time.",
    )
    timeout: Seconds = Field(
        default=600.0,
        description="How long torchrun waits for all nodes. 10m by default, as in torchrun; by then, the "
        "gate has already checked that the nodes reach one another.",
    )
    max_restarts: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="How often torchrun restarts the workers (--max-restarts). What was known of a failure "
        "before a restart is kept; see `diagnose --attempt`.",
    )


class Gate(Section):
    """Checks that every node must pass before torchrun starts."""

    enabled: bool = Field(
        default=True, description="Run the gate. On by default, because it takes seconds and saves hours."
    )
    timeout: Seconds | None = Field(
        default=None,
        description="Time limit for the whole gate. By default 2m, because a resolver may remember for 30 s "
        "that a name is missing; on Kubernetes 10m, because nodes pull their images at different speeds.",
    )
    port: Port | None = Field(
        default=None,
        description="Port of the hub on node 0. By default a free port outside the ephemeral range is "
        "chosen at run time. It is never the rendezvous port, because the live store is not probed.",
    )
    interface: InterfaceName | None = Field(
        default=None,
        description="Exact name of the network interface that the ranks use on every node. By default "
        "ddplaunch finds the one that reaches the other nodes.",
    )
    skip: tuple[CheckName, ...] = Field(
        default=(), description="Checks to skip. None by default, because each check has its reason."
    )
    smoke_test: bool = Field(
        default=False,
        description="After the other checks, let all ranks import torch and run all-reduces from 4 bytes to "
        "16 MiB with the job's own backend. Off by default, because it takes as long as importing torch, "
        "plus a few seconds.",
    )


class Watchdog(Section):
    """When a job that makes no progress is reported, and when it is ended."""

    notice_after: Seconds = Field(
        default=WatchdogPlan.notice_after,
        description="How long no rank may make progress before you get a notice with the verdict. 10s by "
        "default, because a notice does no harm.",
    )
    kill_after: Seconds | Literal["auto", "never"] = Field(
        default="auto",
        description="How long no rank may do anything before the job is ended. The evidence of all live "
        "ranks is saved first. If you give a time, it always counts, even if one rank computes while others "
        "wait. `never` only reports. `auto`, the default, ends nothing that torch would not end: it waits "
        "as long as the longest timeout of the process groups, and at least 10m; ranks that compute while "
        "none waits, and programs without a process group, are not ended.",
    )
    privileges: Literal["none", "ptrace"] = Field(
        default="none",
        description="Privileges for collecting evidence. `ptrace` lets ddplaunch read the stacks of workers "
        "that do not answer. `none` by default, because many clusters forbid it.",
    )


class Resume(Section):
    """How a later attempt continues from the checkpoint of an earlier one."""

    args: tuple[str, ...] = Field(
        default=(),
        examples=[["--resume"]],
        description="Arguments appended to `command` in every attempt except the first. None by default, "
        "because many programs look for a checkpoint themselves.",
    )
    dir: AbsolutePath | None = Field(
        default=None,
        description="Folder for checkpoints. The ranks find it in DDPLAUNCH_RESUME_DIR, the same in all "
        "attempts; another job with the same folder finds the same files. By default it is the folder "
        "`resume` in the job's own folder, on your machine and on Slurm. Pods and containers have no "
        "default.",
    )


class Signal(Section):
    """A signal that every rank gets before the job is ended, so that it can write a checkpoint."""

    model_config = ConfigDict(json_schema_extra={"x-whole": True})

    name: SignalName = Field(
        examples=["USR1"],
        description="The signal, such as USR1 or SIGUSR1. Each rank gets it once, even through other "
        "processes in between. A rank without a handler does not get it, because it would only die.",
    )
    before: Seconds = Field(
        examples=["120s"],
        description="How long before the end the signal is sent: before the time limit of Slurm "
        "(`slurm.time`) or of this machine (`local.time`), or, when a pod is deleted, before SIGTERM.",
    )


class JobSpec(Section):
    """A job file: what to train, on how many nodes, and what to check before and during the run."""

    api_version: Literal["ddplaunch/v1"] = Field(
        alias="apiVersion", description="Version of the job file's format: always ddplaunch/v1."
    )
    name: JobName = Field(
        description="Name of the job. At most 50 characters: Kubernetes appends the node's index and a "
        "suffix, and refuses a pod's name over 63 characters only after the Job exists. The first character "
        "is a letter, because a Service has this name, too.",
    )
    nodes: NodeCount = Field(
        default=1,
        description="Number of nodes. `{min: 2, max: 4}`, or `2:4`, is short for `nodes: 4` and `min_nodes: "
        "2`; the mapping may also contain `newcomers`.",
    )
    min_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        examples=[1],
        description="Number of nodes that are enough, including node 0: at gate.timeout, the gate starts "
        "the job with the nodes that have arrived and passed. By default all nodes are needed.",
    )
    newcomers: Literal["refuse", "join"] = Field(
        default="refuse",
        description="What happens to a node that arrives after the others have started. With `join`, on "
        "Kubernetes, once the job has run for gate.timeout, its ranks get SIGTERM and 30 s for a "
        "checkpoint. The next attempt then includes the new node. This costs the steps since the last "
        "checkpoint.",
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=1024,
        json_schema_extra={"x-hint": "torchrun's gpu, cpu and auto do not work here: write the number"},
        description="Worker processes (ranks) per node, as in torchrun; usually one per GPU.",
    )
    command: tuple[str, ...] = Field(
        min_length=1,
        examples=[["train.py", "--epochs", "3"]],
        json_schema_extra={
            "x-wanted": "a list: the script, then one item for each argument",
            "x-hint": 'for example [train.py, --epochs, "3"]',
        },
        description="The training script and its arguments, without torchrun and without python. With "
        "`launch: none`, a whole command line.",
    )
    launch: Literal["torchrun", "mpi", "srun", "none"] = Field(
        default="torchrun",
        description="What starts the ranks: `torchrun`; `mpi`, which is mpirun or srun for MPI; `srun`, "
        "which is Slurm alone, with one task for each rank; or `none`, where your command runs once on each "
        "node, with NODE_RANK, MASTER_ADDR and MASTER_PORT, and starts the ranks itself.",
    )
    python: Line = Field(
        default="python3",
        description="The Python on the nodes that has torch. `python3` by default, as in most images.",
    )
    image: Word | None = Field(
        default=None, description="Container image to run your program in. Kubernetes needs one."
    )
    source: Paths = Field(
        default=(),
        description="Files and folders that travel with the job, for code that is not in the image: one "
        "path or several, relative to the job file. Each keeps its path. Files in a folder that look "
        "private (`.git`, `.env`, `.ssh`, `*.pem`, `id_rsa` and the like) stay at home unless you name them "
        "here yourself. So does everything that a `.ddplaunchignore` in that folder lists, in git's syntax.",
    )
    env: dict[EnvName, str] = Field(
        default={}, description="Environment variables of the ranks. Values are text."
    )
    secrets: dict[EnvName, SecretRef] = Field(
        default={},
        description="Environment variables whose values are fetched when the job starts. In everything that "
        "ddplaunch itself prints, writes or sends, `[secret NAME]` replaces a value of four characters or "
        "more.",
    )
    volumes: tuple[Volume, ...] = Field(default=(), description="Storage that every node sees.")
    outputs: Outputs | None = Field(
        default=None,
        examples=[{"volume": "runs"}],
        description="Volume where the ranks run on Kubernetes, so that the files they write there are kept.",
    )
    workdir: Line | None = Field(
        default=None,
        description="Folder in which the ranks start. By default the folder with the source; without "
        "`source`, the job file's own folder, or the image's working directory.",
    )
    resources: Resources = Field(default=Resources.model_construct(), description="What each node needs.")
    rendezvous: Rendezvous = Field(
        default=Rendezvous.model_construct(), description="How the nodes' torchruns find one another."
    )
    gate: Gate = Field(default=Gate.model_construct(), description="What is checked before torchrun starts.")
    watchdog: Watchdog = Field(
        default=Watchdog.model_construct(),
        description="When a job without progress is reported, and when it is ended.",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=100,
        description="How often the whole job is submitted again when a node or the network is at fault. 0 "
        "by default, because a person should see the first fault.",
    )
    retry_hangs: bool = Field(
        default=False,
        description="Use `retries` after a hang, too. Off by default, because most hangs are bugs that come "
        "back, and each costs `watchdog.kill_after`. A failure of the program itself is never retried.",
    )
    resume: Resume = Field(
        default=Resume.model_construct(), description="How a later attempt finds its checkpoint."
    )
    signal: Signal | None = Field(
        default=None,
        examples=[{"name": "USR1", "before": "120s"}],
        description="A signal that the ranks get before the job is ended, by its time limit or because a "
        "pod is deleted. If the attempt ends after the signal, another follows, as long as `retries` "
        "allows. By default there is no signal, and the time limit is final.",
    )
    notify: tuple[Notify, ...] = Field(
        default=(),
        max_length=8,
        description="Webhooks and commands that get a message at a notice, at its withdrawal, and at the "
        "end. A message is dropped after five tries; the job never waits for one.",
    )
    metrics: Metrics = Field(
        default=Metrics.model_construct(), description="The job's metrics for Prometheus."
    )
    sweep: dict[Line, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default={},
        examples=[{"env.LR": ["0.1", "0.01"], "command[2]": [3, 10]}],
        description="Keys with several values each, such as `env.LR` or `command[2]`, written as for "
        "`--set`. Every combination becomes a job of its own, at most 1000, named NAME-0, NAME-1, and so "
        "on. The last key changes fastest.",
    )
    kubernetes: Kubernetes = Field(
        default=Kubernetes.model_construct(), description="Settings for Kubernetes only."
    )
    slurm: Slurm = Field(default=Slurm.model_construct(), description="Settings for Slurm only.")
    local: Local = Field(
        default=Local.model_construct(), description="Settings for runs on this machine only."
    )

    _job_file: str = PrivateAttr(default="")
    _sweep_values: dict[str, str] = PrivateAttr(default={})
    _sections: tuple[str, ...] = PrivateAttr(default=())
    _document: Any = PrivateAttr(default=None)

    @property
    def job_file(self) -> str:
        """Return the file that the job was read from, for problems and `source`; "" if built in Python."""
        return self._job_file

    @property
    def sweep_values(self) -> Mapping[str, str]:
        """Return this job's own values in the sweep of its file, as text by key; {} without a sweep."""
        return self._sweep_values

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the keys that are in the job file itself, not in a profile; () for a job built in Python."""
        return self._sections

    def place(self, path: str) -> dict[str, Any]:
        """Return where the value at `path` was written: `file`, `line`, `column`, `option`, as in `Problem`.

        For a value that was not written, such as a default, and for a job built in Python, only `file`.
        """
        file = self._job_file or self.name
        if self._document is not None:
            from ddplaunch.spec import changes, document

            try:
                wanted = changes.read_path(path)
            except ValueError:  # in a pod template, where a container's name takes the place of a number
                return {"file": file}
            node, found = document.find(self._document, wanted)
            if found == wanted:
                at = {"line": node.line, "column": node.column, "option": node.option}
                return {"file": node.file or file, **at}
        return {"file": file}

    def read_from(
        self,
        file: str,
        sweep_values: Mapping[str, str] | None = None,
        sections: tuple[str, ...] = (),
        root: "Node | None" = None,
    ) -> "JobSpec":
        """Return a copy of the job, read from `file` and `root`, with these `sections` and `sweep_values`."""
        made = self.model_copy()
        made._document = root  # noqa: SLF001 - of its own class
        made._sections = sections  # noqa: SLF001 - of its own class
        made._job_file = file  # noqa: SLF001 - of its own class
        made._sweep_values = dict(sweep_values or {})  # noqa: SLF001
        return made

    @model_validator(mode="before")
    @classmethod
    def _range_of_nodes(cls, values: Any) -> Any:
        """Replace a range of nodes with the keys that it is short for. Other values stay as they are."""
        if not isinstance(values, dict) or "min_nodes" in values:
            return values
        written: Any = values.get("nodes")
        apart: dict[str, Any] = {}
        named = isinstance(written, dict) and written.get("newcomers") in ("refuse", "join")
        if named and "newcomers" not in values:  # any other value makes it an invalid range
            apart = {"newcomers": written["newcomers"]}
            written = {key: value for key, value in written.items() if key != "newcomers"}
        given = node_range(written)
        return values if given is None else {**values, "min_nodes": given[0], "nodes": given[1], **apart}

    @model_validator(mode="after")
    def _cross_field_rules(self) -> "JobSpec":
        """Refuse values that are each valid but contradict one another, with all that the rules find."""
        job = self.model_dump()
        if findings := rules.check(job):
            raise ValidationError.from_exception_data("JobSpec", list(map(_error, findings)))
        return self


def _error(finding: rules.Finding) -> InitErrorDetails:
    """Return the finding as an error of pydantic at the first of its paths."""
    kind = PydanticCustomError(RULE, "found {found}, wanted {wanted}", asdict(finding))
    return InitErrorDetails(type=kind, loc=finding.paths[0], input=None)


@cache
def job_model() -> type[JobSpec]:
    """Return `JobSpec` with a section for each target of another package that is installed.

    Raises UsageError when such a target cannot be used.
    """
    sections: dict[str, Any] = {}
    for target in targets.others():
        if target.name in JobSpec.model_fields:
            raise UsageError(
                f"the target {target.name!r} cannot be used: every job file has a key of that name",
                hint="uninstall the Python package that offers it",
            )
        section = target.load(target.section)
        sections[target.name] = (
            section,
            Field(default=section(), description=f"Settings for {target.name} only."),
        )
    return create_model("JobSpec", __base__=JobSpec, **sections) if sections else JobSpec
