"""The model of the job file: every section, key, default and bound, each with its reason.

The loader, the JSON Schema and the reference page are made from these classes. Lists are tuples. Counts and
resources are per node unless the description says otherwise; durations are floats of seconds, quantities ints
of bytes (`kinds` says how they are written).
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta, field

from ddplaunch.spec.kinds import (
    AbsolutePath,
    ByteCount,
    Cores,
    DeviceCount,
    DnsLabel,
    DnsName,
    EnvName,
    Line,
    Port,
    Seconds,
    Section,
    Word,
)
from ddplaunch.spec.targets import Kubernetes, Local, Slurm

API_VERSION = "ddplaunch/v1"

CheckName = Literal[
    "configuration",
    "names",
    "service",
    "port",
    "mesh",
    "interpreter",
    "versions",
    "interfaces",
    "gpus",
    "backend",
    "rdma",
    "memlock",
    "shm",
    "memory",
    "cpu",
    "disk",
    "clock",
]
CHECKS: tuple[str, ...] = get_args(CheckName)
"""The names of the gate's checks, in the order in which they run and are printed."""


class SecretKey(Section, frozen=True, kw_only=True):
    """One key of a Secret that the cluster keeps."""

    name: Annotated[DnsName, Meta(description="Name of the Secret, in the job's namespace.")]
    key: Annotated[Word, Meta(description="Key inside the Secret.")]


class SecretRef(Section, frozen=True, kw_only=True):
    """Where a secret's value comes from: one of three. The value itself never stands in the file."""

    env: Annotated[
        EnvName | None,
        Meta(description="Variable of the environment in which `ddplaunch submit` is called."),
    ] = None
    file: Annotated[
        Line | None, Meta(description="File whose content, without its last newline, is the value.")
    ] = None
    secret: Annotated[SecretKey | None, Meta(description="Key of a Kubernetes Secret.")] = None


class Volume(Section, frozen=True, kw_only=True):
    """Storage that every node of the job sees under one path; exactly one of host_path, claim, empty_dir."""

    name: Annotated[DnsLabel, Meta(description="Name of the volume, unique in the job.")]
    mount_path: Annotated[AbsolutePath, Meta(description="Where the trainer finds it: an absolute path.")]
    read_only: Annotated[
        bool, Meta(description="Mount it read-only; off, because checkpoints are written.")
    ] = False
    host_path: Annotated[AbsolutePath | None, Meta(description="Folder of the node itself.")] = None
    claim: Annotated[DnsName | None, Meta(description="Name of a PersistentVolumeClaim.")] = None
    empty_dir: Annotated[
        bool, Meta(description="A fresh, empty folder that vanishes with the node's job.")
    ] = False


class Resources(Section, frozen=True, kw_only=True):
    """What each node must have; nothing is asked for by default, so that a first job runs anywhere."""

    gpus: Annotated[DeviceCount | None, Meta(description="GPUs per node.")] = None
    cpus: Annotated[
        Cores | None, Meta(description="CPU cores per node, for all its ranks; fractions are allowed.")
    ] = None
    memory: Annotated[ByteCount | None, Meta(description="Memory per node, for all its ranks.")] = None
    shm: Annotated[
        ByteCount | None,
        Meta(
            description="Size of /dev/shm per node, where NCCL and DataLoader workers share tensors; when "
            "not given, the target's own size stays and the gate judges it."
        ),
    ] = None
    rdma: Annotated[DeviceCount | None, Meta(description="RDMA devices per node.")] = None


class Rendezvous(Section, frozen=True, kw_only=True):
    """How the torchrun agents of the nodes find one another (torchrun's --rdzv-* flags)."""

    backend: Annotated[
        Literal["static", "c10d"],
        Meta(
            description="torchrun's rendezvous backend; static by default, because the node ranks are known "
            "and nothing is left to guess who hosts the store."
        ),
    ] = "static"
    address: Annotated[
        Word | None,
        Meta(
            description="Name or address of node 0 as the other nodes reach it; by default the target says, "
            "and the gate proves it."
        ),
    ] = None
    port: Annotated[
        Port | None,
        Meta(
            description="Port of the store on node 0 (MASTER_PORT); by default one is chosen at run time "
            "outside the ephemeral range and proved free."
        ),
    ] = None
    timeout: Annotated[
        Seconds,
        Meta(
            description="How long torchrun waits for all nodes; 10m, which is torchrun's own, since the "
            "gate has already proved the way."
        ),
    ] = 600.0
    max_restarts: Annotated[
        int,
        Meta(
            description="Restarts of the workers by torchrun (--max-restarts); 0, because a restart hides "
            "whose failure came first.",
            ge=0,
            le=1000,
        ),
    ] = 0


class Gate(Section, frozen=True, kw_only=True):
    """What must be proved on every node before torchrun starts."""

    enabled: Annotated[
        bool, Meta(description="Run the gate; on, because it costs seconds and saves hours.")
    ] = True
    timeout: Annotated[
        Seconds | None,
        Meta(
            description="Wall clock for the whole gate; by default 2m, which outlasts a resolver that "
            "remembers a missing name for 30 s, and 10m on Kubernetes, where nodes pull their images at "
            "different speeds."
        ),
    ] = None
    port: Annotated[
        Port | None,
        Meta(
            description="Port of the hub on node 0; by default one is chosen at run time outside the "
            "ephemeral range. Never the rendezvous port: the live store is not probed."
        ),
    ] = None
    interface: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^[^\s^=,:/]{1,15}$",
                extra={"wanted": "the exact name of one interface, such as eth0"},
            ),
        ]
        | None,
        Meta(
            description="Exact name of the network interface that the ranks use on every node; by default "
            "the one that reaches the peers is found."
        ),
    ] = None
    skip: Annotated[
        tuple[CheckName, ...],
        Meta(description="Checks that are left out; none, because each has its reason."),
    ] = ()
    smoke_test: Annotated[
        bool,
        Meta(
            description="After the other checks, let all ranks import torch and add up, from 4 bytes to "
            "16 MiB, by the job's own backend; off, because that takes as long as torch takes to import, "
            "and a few seconds."
        ),
    ] = False


class Watchdog(Section, frozen=True, kw_only=True):
    """When a job that stops moving is spoken of, and when it is ended."""

    notice_after: Annotated[
        Seconds,
        Meta(
            description="Time without any progress on any rank until the notice with the verdict; 10s, "
            "because a notice harms nobody."
        ),
    ] = 10.0
    kill_after: Annotated[
        Seconds | Literal["never"],
        Meta(
            description="Time without any progress until the job is ended, after the evidence of all live "
            "ranks is safe; `never` only speaks. Ranks that burn CPU and show nothing new have half as much "
            "again, unless one alone does so and all others wait for it. 10m, which is NCCL's own timeout."
        ),
    ] = 600.0
    privileges: Annotated[
        Literal["none", "ptrace"],
        Meta(
            description="What the evidence may ask of the system: `ptrace` lets the sampler read the stacks "
            "of workers that do not answer; `none`, because many clusters forbid it."
        ),
    ] = "none"


class JobSpec(Section, frozen=True, kw_only=True):
    """A job file: what to train, on how many nodes, and what must hold before and while it runs."""

    api_version: Annotated[
        Literal["ddplaunch/v1"], Meta(description="Version of this file's form: always ddplaunch/v1.")
    ] = field(name="apiVersion")
    name: Annotated[
        str,
        Meta(
            description="Name of the job. At most 50 characters, since Kubernetes appends the node's index "
            "and a suffix and refuses a pod's name over 63 only when the job already stands; a "
            "letter first, since it names a Service too.",
            pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
            max_length=50,
            extra={"wanted": "at most 50 lower-case letters, digits and '-', a letter first", "slug": True},
        ),
    ]
    nodes: Annotated[
        int, Meta(description="Number of nodes; 1, where everything begins.", ge=1, le=10_000)
    ] = 1
    nproc_per_node: Annotated[
        int,
        Meta(
            description="Worker processes (ranks) per node, as in torchrun; one per GPU is usual.",
            ge=1,
            le=1024,
            extra={"hint": "torchrun's gpu, cpu and auto are not known here: write the number"},
        ),
    ] = 1
    command: Annotated[
        tuple[str, ...],
        Meta(
            description="The training script and its arguments, without torchrun and without python.",
            min_length=1,
            examples=[["train.py", "--epochs", "3"]],
            extra={
                "wanted": "a list: the script, then one item for each argument",
                "hint": 'for example [train.py, --epochs, "3"]',
            },
        ),
    ]
    launch: Annotated[
        Literal["torchrun", "mpi"],
        Meta(description="What starts the ranks; torchrun, or mpirun/srun for MPI."),
    ] = "torchrun"
    python: Annotated[
        Line, Meta(description="The Python that has torch, on the nodes; python3 is what images have.")
    ] = "python3"
    image: Annotated[
        Word | None, Meta(description="Container image of the trainer; Kubernetes needs one.")
    ] = None
    source: Annotated[
        tuple[Line, ...],
        Meta(
            description="Files and folders that travel with the job, for code that is not in the image: one "
            "path or several, relative to the job file. Of a folder, what looks private (`.git`, `.env`, "
            "`.ssh`, `*.pem`, `id_rsa` and the like) stays at home unless it is named here itself, and so "
            "does what a `.ddplaunchignore` in that folder names, in git's syntax. A link must stay in its "
            "folder.",
            extra={"one_or_many": True, "wanted": "a path or a list of paths"},
            extra_json_schema={"x-written-as": ["string", "array"], "pattern": r"^[^\r\n]+$"},
        ),
    ] = ()
    env: Annotated[
        dict[EnvName, str], Meta(description="Environment variables of the ranks; values are text.")
    ] = field(default_factory=dict)
    secrets: Annotated[
        dict[
            EnvName,
            Annotated[
                SecretRef,
                Meta(
                    extra={
                        "wanted": "{env: NAME}, {file: PATH} or {secret: {name: …, key: …}}",
                        "hint": "a secret's value never stands in the job file; say where it is to be found",
                    }
                ),
            ],
        ],
        Meta(
            description="Environment variables whose values are fetched when the job starts. What ddplaunch "
            "itself prints, writes or sends shows `[secret NAME]` in place of a value of four characters or "
            "more."
        ),
    ] = field(default_factory=dict)
    volumes: Annotated[tuple[Volume, ...], Meta(description="Storage that every node sees.")] = ()
    workdir: Annotated[
        Line | None, Meta(description="Folder in which the ranks start; by default where the source lies.")
    ] = None
    resources: Annotated[Resources, Meta(description="What each node must have.")] = Resources()
    rendezvous: Annotated[Rendezvous, Meta(description="How the nodes' torchruns find one another.")] = (
        Rendezvous()
    )
    gate: Annotated[Gate, Meta(description="What is proved before torchrun starts.")] = Gate()
    watchdog: Annotated[
        Watchdog, Meta(description="When a job that stops moving is spoken of, and ended.")
    ] = Watchdog()
    retries: Annotated[
        int,
        Meta(
            description="Whole-job resubmissions when a node or the network is at fault; 0, because a "
            "person should see the first fault.",
            ge=0,
            le=100,
        ),
    ] = 0
    kubernetes: Annotated[Kubernetes, Meta(description="What only Kubernetes knows.")] = field(
        default_factory=Kubernetes
    )
    slurm: Annotated[Slurm, Meta(description="What only Slurm knows.")] = Slurm()
    local: Annotated[Local, Meta(description="What only a run on this machine knows.")] = Local()

    @property
    def world_size(self) -> int:
        """Number of ranks of the whole job."""
        return self.nodes * self.nproc_per_node
