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
    """One key of a Secret that the cluster keeps."""

    name: DnsName = Field(description="Name of the Secret, in the job's namespace.", examples=["s3"])
    key: Word = Field(description="Key inside the Secret.", examples=["access-key"])


class SecretRef(Section):
    """Source of a secret's value: one of three. The value itself never stands in the file."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-whole": True,
            "x-wanted": "{env: NAME}, {file: PATH} or {secret: {name: …, key: …}}",
            "x-hint": "a secret's value never stands in the job file; say where it is to be found",
        }
    )

    env: EnvName | None = Field(
        default=None, description="Variable of the environment in which `ddplaunch submit` is called."
    )
    file: Line | None = Field(
        default=None,
        description="File whose content, without its last newline, is the value.",
        examples=["/home/me/.hf-token"],
    )
    secret: SecretKey | None = Field(
        default=None,
        description="Key of a Kubernetes Secret.",
        examples=[{"name": "s3", "key": "access-key"}],
    )


class Metrics(Section):
    """Figures of the job in Prometheus' text format, which the hub serves."""

    port: Port | None = Field(
        default=None,
        examples=[9400],
        description="Port of node 0 at which the hub serves /metrics; by default none is opened.",
    )
    address: Word | None = Field(
        default=None,
        description="Address of node 0 to listen on; by default all of a pod's, and elsewhere 127.0.0.1, "
        "because all who reach the port can read the figures.",
    )


if TYPE_CHECKING:
    OccasionName = str
else:
    OccasionName = Literal[Occasion.ALL]


class Notify(Section):
    """One recipient, which gets one message of one sentence at a time: a webhook, a command, or events."""

    webhook: SecretRef | None = Field(
        default=None,
        description="Where the URL (http or https) is to be found to which each message is sent by POST. "
        "Who knows such a URL can write to its channel, so it is treated as a secret.",
    )
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None,
        examples=[["mail", "-s", "digits", "me@example.com"]],
        description="Program with its arguments that is run for each message, with the message on its "
        "standard input, where the hub runs: on node 0, in a pod in the hub's container. It is ended after "
        "10 seconds.",
    )
    events: bool = Field(
        default=False,
        description="Show each message where the scheduler shows the job: on Kubernetes as an Event of the "
        "Job, which the pods' service account must be allowed to create; on Slurm as the job's comment, "
        "which it becomes without being asked unless the job has one of its own.",
    )
    format: Literal["json", "slack"] = Field(
        default="json",
        description="What a message is: our own JSON with all that is known, or `slack` for what Slack, "
        "Mattermost and others take: a JSON object with one text.",
    )
    when: tuple[OccasionName, ...] = Field(
        default=Occasion.ALL,
        description="Occasions of a message; all, of which a healthy job has `end` alone.",
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
    """Storage that every node of the job sees under one path; exactly one of host_path, claim, empty_dir."""

    name: DnsLabel = Field(description="Name of the volume, unique in the job.")
    mount_path: AbsolutePath = Field(description="Where the trainer finds it: an absolute path.")
    read_only: bool = Field(
        default=False, description="Mount it read-only; off, because checkpoints are written."
    )
    host_path: AbsolutePath | None = Field(default=None, description="Folder of the node itself.")
    claim: DnsName | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    empty_dir: bool = Field(
        default=False, description="A fresh, empty folder that vanishes with the node's job."
    )


class Outputs(Section):
    """Storage of a Kubernetes cluster on which the ranks run; elsewhere what they write is kept as it is."""

    volume: DnsLabel = Field(
        description="Name of one of `volumes`, with a claim or a host_path. The ranks run in a folder of the "
        "job's own on it, the same in all attempts."
    )
    path: Line | None = Field(
        default=None,
        examples=["experiments/digits"],
        description="Folder on that volume in which each job gets its own; by default the volume itself.",
    )


class Resources(Section):
    """Resources that each node must have; none by default, so that a first job runs anywhere."""

    gpus: DeviceCount | None = Field(default=None, description="GPUs per node.")
    gpu_type: GpuType | None = Field(
        default=None,
        description="Type of these GPUs, by the name that the cluster has for it: on Slurm the type of the "
        "generic resource (`h100`), on Kubernetes the value of the machines' label "
        "`kubernetes.gpu_type_label` (`NVIDIA-H100-80GB-HBM3`). By default any.",
    )
    cpus: Cores | None = Field(
        default=None, description="CPU cores per node, for all its ranks; fractions are allowed."
    )
    memory: ByteCount | None = Field(default=None, description="Memory per node, for all its ranks.")
    shm: ByteCount | None = Field(
        default=None,
        description="Size of /dev/shm per node, where NCCL and DataLoader workers share tensors; when "
        "not given, the target's own size stays and the gate judges it.",
    )
    rdma: DeviceCount | None = Field(default=None, description="RDMA devices per node.")


class Rendezvous(Section):
    """Way in which the torchrun agents of the nodes find one another (torchrun's --rdzv-* flags)."""

    backend: Literal["static", "c10d"] = Field(
        default="static",
        description="torchrun's rendezvous backend; static by default, because the node ranks are known "
        "and nothing is left to guess who hosts the store.",
    )
    address: Word | None = Field(
        default=None,
        description="Name or address of node 0 as the other nodes reach it; by default the target says, "
        "and the gate proves it.",
    )
    port: Port | None = Field(
        default=None,
        description="Port of the store on node 0 (MASTER_PORT); by default one is chosen at run time "
        "outside the ephemeral range and proved free.",
    )
    timeout: Seconds = Field(
        default=600.0,
        description="How long torchrun waits for all nodes; 10m, which is torchrun's own, since the gate "
        "has already proved the way.",
    )
    max_restarts: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Restarts of the workers by torchrun (--max-restarts). What failed before a restart is "
        "kept, see `diagnose --attempt`.",
    )


class Gate(Section):
    """Checks that every node must pass before torchrun starts."""

    enabled: bool = Field(
        default=True, description="Run the gate; on, because it costs seconds and saves hours."
    )
    timeout: Seconds | None = Field(
        default=None,
        description="Wall clock for the whole gate; by default 2m, which outlasts a resolver that "
        "remembers a missing name for 30 s, and 10m on Kubernetes, where nodes pull their images at "
        "different speeds.",
    )
    port: Port | None = Field(
        default=None,
        description="Port of the hub on node 0; by default one is chosen at run time outside the "
        "ephemeral range. Never the rendezvous port: the live store is not probed.",
    )
    interface: InterfaceName | None = Field(
        default=None,
        description="Exact name of the network interface that the ranks use on every node; by default "
        "the one that reaches the peers is found.",
    )
    skip: tuple[CheckName, ...] = Field(
        default=(), description="Checks that are left out; none, because each has its reason."
    )
    smoke_test: bool = Field(
        default=False,
        description="After the other checks, let all ranks import torch and add up, from 4 bytes to 16 "
        "MiB, by the job's own backend; off, because that takes as long as torch takes to import, and a "
        "few seconds.",
    )


class Watchdog(Section):
    """Limits for a job that makes no progress: when that is reported, and when the job is ended."""

    notice_after: Seconds = Field(
        default=WatchdogPlan.notice_after,
        description="Time without any progress on any rank until the notice with the verdict; 10s, "
        "because a notice harms nobody.",
    )
    kill_after: Seconds | Literal["auto", "never"] = Field(
        default="auto",
        description="Time in which no rank does anything until the job is ended, after the evidence of all "
        "live ranks is safe. A time is kept, also where a rank computes while others wait; `never` only "
        "speaks. `auto`, because then nothing ends that torch would not end: as long as the longest timeout "
        "of the process groups, and never less than 10m; ranks that compute while none waits, and programs "
        "without a group, are not ended.",
    )
    privileges: Literal["none", "ptrace"] = Field(
        default="none",
        description="What the evidence may ask of the system: `ptrace` lets the sampler read the stacks "
        "of workers that do not answer; `none`, because many clusters forbid it.",
    )


class Resume(Section):
    """The way in which a later attempt goes on from the checkpoint of an earlier one."""

    args: tuple[str, ...] = Field(
        default=(),
        examples=[["--resume"]],
        description="Arguments that are appended to `command` in every attempt but the first; none, because "
        "many programs look for a checkpoint by themselves.",
    )
    dir: AbsolutePath | None = Field(
        default=None,
        description="Folder for checkpoints, which the ranks find in DDPLAUNCH_RESUME_DIR, the same in all "
        "attempts; another job that names it finds the same files. By default the folder `resume` of the "
        "job's own folder, locally and on Slurm; pods and containers have none of their own.",
    )


class Signal(Section):
    """A signal for every rank before the job is ended, so that it can write a checkpoint."""

    model_config = ConfigDict(json_schema_extra={"x-whole": True})

    name: SignalName = Field(
        examples=["USR1"],
        description="The signal, such as USR1 or SIGUSR1. Each rank gets it once, whatever stands between; "
        "a rank without a handler for it does not, because it would only die.",
    )
    before: Seconds = Field(
        examples=["120s"],
        description="Time from the signal to the end: to the time limit of Slurm (`slurm.time`) or of this "
        "machine (`local.time`), or, once a pod is deleted, to SIGTERM.",
    )


class JobSpec(Section):
    """A job file: what to train, on how many nodes, and what must hold before and while it runs."""

    api_version: Literal["ddplaunch/v1"] = Field(
        alias="apiVersion", description="Version of this file's form: always ddplaunch/v1."
    )
    name: JobName = Field(
        description="Name of the job. At most 50 characters, since Kubernetes appends the node's index "
        "and a suffix and refuses a pod's name over 63 only when the job already stands; a letter first, "
        "since it names a Service too.",
    )
    nodes: NodeCount = Field(
        default=1,
        description="Number of nodes; 1, where everything begins. `{min: 2, max: 4}`, or `2:4`, is short for "
        "`nodes: 4` and `min_nodes: 2`; `newcomers` may stand there, too.",
    )
    min_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        examples=[1],
        description="Nodes, node 0 among them, that suffice: the gate starts the job with those that have "
        "come and passed by gate.timeout. By default all nodes are needed.",
    )
    newcomers: Literal["refuse", "join"] = Field(
        default="refuse",
        description="What becomes of a node of the range that comes when the others have started. `join`: on "
        "Kubernetes, once the job has run for gate.timeout, its ranks get SIGTERM and 30 s for a checkpoint, "
        "and the next attempt begins with the newcomer: it costs the steps since the last checkpoint.",
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=1024,
        json_schema_extra={"x-hint": "torchrun's gpu, cpu and auto are not known here: write the number"},
        description="Worker processes (ranks) per node, as in torchrun; one per GPU is usual.",
    )
    command: tuple[str, ...] = Field(
        min_length=1,
        examples=[["train.py", "--epochs", "3"]],
        json_schema_extra={
            "x-wanted": "a list: the script, then one item for each argument",
            "x-hint": 'for example [train.py, --epochs, "3"]',
        },
        description="The training script and its arguments, without torchrun and without python; with "
        "`launch: none` a whole command line.",
    )
    launch: Literal["torchrun", "mpi", "srun", "none"] = Field(
        default="torchrun",
        description="What starts the ranks: torchrun; `mpi`, mpirun or srun for MPI; `srun`, Slurm alone, "
        "one task for each rank; `none`, the command itself, which is started once on each node, with "
        "NODE_RANK, MASTER_ADDR and MASTER_PORT.",
    )
    python: Line = Field(
        default="python3", description="The Python that has torch, on the nodes; python3 is what images have."
    )
    image: Word | None = Field(
        default=None, description="Container image of the trainer; Kubernetes needs one."
    )
    source: Paths = Field(
        default=(),
        description="Files and folders that travel with the job, for code that is not in the image: one "
        "path or several, relative to the job file. Each keeps its path. Of a folder, what looks private "
        "(`.git`, `.env`, `.ssh`, `*.pem`, `id_rsa` and the like) stays at home unless it is named here "
        "itself, and so does what a `.ddplaunchignore` in that folder names, in git's syntax.",
    )
    env: dict[EnvName, str] = Field(
        default={}, description="Environment variables of the ranks; values are text."
    )
    secrets: dict[EnvName, SecretRef] = Field(
        default={},
        description="Environment variables whose values are fetched when the job starts. What ddplaunch "
        "itself prints, writes or sends shows `[secret NAME]` in place of a value of four characters or "
        "more.",
    )
    volumes: tuple[Volume, ...] = Field(default=(), description="Storage that every node sees.")
    outputs: Outputs | None = Field(
        default=None,
        examples=[{"volume": "runs"}],
        description="Volume on which the ranks run on Kubernetes, so that what they write there stays.",
    )
    workdir: Line | None = Field(
        default=None,
        description="Folder in which the ranks start; by default where the source lies, and without "
        "`source` the job file's own folder, or the image's.",
    )
    resources: Resources = Field(default=Resources(), description="What each node must have.")
    rendezvous: Rendezvous = Field(
        default=Rendezvous(), description="How the nodes' torchruns find one another."
    )
    gate: Gate = Field(default=Gate(), description="What is proved before torchrun starts.")
    watchdog: Watchdog = Field(
        default=Watchdog(), description="When a job without any progress is reported, and when it is ended."
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Whole-job resubmissions when a node or the network is at fault; 0, because a person "
        "should see the first fault.",
    )
    retry_hangs: bool = Field(
        default=False,
        description="Let `retries` follow a hang, too; off, because most hangs are bugs that come back, and "
        "each costs `watchdog.kill_after`. A failure of the program itself is never followed by a retry.",
    )
    resume: Resume = Field(default=Resume(), description="How a later attempt finds its checkpoint.")
    signal: Signal | None = Field(
        default=None,
        examples=[{"name": "USR1", "before": "120s"}],
        description="A signal for the ranks before the job is ended by its time limit, or because a pod is "
        "deleted. An attempt that ends after it is followed by another, as far as `retries` go. By default "
        "none, and a time limit is the end.",
    )
    notify: tuple[Notify, ...] = Field(
        default=(),
        max_length=8,
        description="Webhooks and commands that get a message at a notice, its withdrawal and the end. "
        "A message is dropped after five tries; the job never waits for one.",
    )
    metrics: Metrics = Field(default=Metrics(), description="The job's figures for Prometheus.")
    sweep: dict[Line, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default={},
        examples=[{"env.LR": ["0.1", "0.01"], "command[2]": [3, 10]}],
        description="Keys with several values each, such as `env.LR` or `command[2]`, as for `--set`: every "
        "combination is a job of its own, at most 1000, by the names NAME-0, NAME-1, …; the last key changes "
        "fastest.",
    )
    kubernetes: Kubernetes = Field(default=Kubernetes(), description="What only Kubernetes knows.")
    slurm: Slurm = Field(default=Slurm(), description="What only Slurm knows.")
    local: Local = Field(default=Local(), description="What only a run on this machine knows.")

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
                f"the target {target.name!r} cannot be used: that is a key of every job file",
                hint="uninstall the Python package that offers it",
            )
        section = target.load(target.section)
        sections[target.name] = (
            section,
            Field(default=section(), description=f"What only {target.name} knows."),
        )
    return create_model("JobSpec", __base__=JobSpec, **sections) if sections else JobSpec
