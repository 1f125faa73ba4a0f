"""The sections of the job file that only one target reads, in that target's own words."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from ddplaunch.spec.kinds import (
    DnsLabel,
    DnsName,
    Line,
    Seconds,
    Section,
    SlurmTime,
    UserId,
    WholeSeconds,
    Word,
)


class Toleration(Section, frozen=True, kw_only=True):
    """A taint that the job's pods tolerate, in Kubernetes' own words."""

    key: Annotated[Word | None, Meta(description="Key of the taint; without it, all taints.")] = None
    operator: Annotated[
        Literal["Exists", "Equal"], Meta(description="How the value is compared; Equal, as in Kubernetes.")
    ] = "Equal"
    value: Annotated[str | None, Meta(description="Value of the taint, for Equal.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        Meta(description="Effect of the taint; without it, all effects."),
    ] = None
    toleration_seconds: Annotated[
        WholeSeconds | None, Meta(description="For NoExecute: seconds until eviction; without it, never.")
    ] = None


class TopologySpread(Section, frozen=True, kw_only=True):
    """How the nodes of the job are spread over the cluster's zones or racks."""

    key: Annotated[Word, Meta(description="Label of the topology, such as topology.kubernetes.io/zone.")]
    max_skew: Annotated[int, Meta(description="Most that two domains may differ by, in pods.", ge=1)] = 1
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"],
        Meta(description="What to do when it cannot be met; DoNotSchedule, as in Kubernetes."),
    ] = "DoNotSchedule"


class Kubernetes(Section, frozen=True, kw_only=True):
    """What only Kubernetes knows."""

    namespace: Annotated[
        DnsLabel | None, Meta(description="Namespace of the job; by default that of the current context.")
    ] = None
    service_account: Annotated[
        DnsName | None,
        Meta(description="Service account of the pods; they need no API access, so none by default."),
    ] = None
    queue: Annotated[DnsName | None, Meta(description="Kueue LocalQueue that admits the job.")] = None
    jobset: Annotated[
        bool, Meta(description="Render a JobSet in place of a Job; off, because a Job needs no operator.")
    ] = False
    priority_class: Annotated[DnsName | None, Meta(description="PriorityClass of the pods.")] = None
    node_selector: Annotated[dict[Word, str], Meta(description="Labels that a cluster node must carry.")] = (
        field(default_factory=dict)
    )
    tolerations: Annotated[tuple[Toleration, ...], Meta(description="Taints that the pods tolerate.")] = ()
    labels: Annotated[dict[Word, str], Meta(description="Labels added to every object of the job.")] = field(
        default_factory=dict
    )
    annotations: Annotated[dict[Word, str], Meta(description="Annotations added to every pod.")] = field(
        default_factory=dict
    )
    image_pull_secrets: Annotated[
        tuple[DnsName, ...], Meta(description="Secrets with which the image is pulled.")
    ] = ()
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Meta(description="When the image is pulled; by default Kubernetes decides by the tag."),
    ] = None
    host_network: Annotated[
        bool,
        Meta(
            description="Use the network of the machine; off, because two jobs then meet on one set of ports."
        ),
    ] = False
    network_policy: Annotated[
        Literal["ports", "pods", "none"],
        Meta(
            description="NetworkPolicy of the pods. `ports`, the default, closes the ports of the hub and of "
            "`rendezvous.port` to all but the job's pods, and leaves all others open; `pods` lets them reach "
            "one another and DNS and nothing else, for namespaces that deny all; `none` adds no policy."
        ),
    ] = "ports"
    topology_spread: Annotated[
        TopologySpread | None, Meta(description="Spread the pods over zones or racks.")
    ] = None
    networks: Annotated[
        tuple[Word, ...],
        Meta(description="Further networks (Multus NetworkAttachmentDefinitions) of each pod."),
    ] = ()
    gpu_resource: Annotated[
        Word, Meta(description="Name of the resource that `resources.gpus` counts; NVIDIA's by default.")
    ] = "nvidia.com/gpu"
    rdma_resource: Annotated[
        Word | None,
        Meta(
            description="Name of the resource that `resources.rdma` counts, as the cluster's device plugin "
            "calls it."
        ),
    ] = None
    cluster_domain: Annotated[
        DnsName | None, Meta(description="DNS domain of the cluster; by default read inside the pod.")
    ] = None
    restricted: Annotated[
        bool,
        Meta(
            description="Meet the `restricted` Pod Security Standard in full; off, because images that run "
            "as root do not survive it."
        ),
    ] = False
    run_as_user: Annotated[
        UserId | None,
        Meta(description="User id of the containers, which also owns the volumes; by default the image's."),
    ] = None
    active_deadline: Annotated[
        Seconds | None,
        Meta(
            description="Time after which Kubernetes ends the job, counted from its start; none by default: "
            "the watchdog ends what does not move, after its evidence is safe."
        ),
    ] = None
    ttl: Annotated[
        Seconds | None,
        Meta(
            description="Time after which Kubernetes deletes the finished job with its logs; none by "
            "default, so that nothing is lost before it was read."
        ),
    ] = None
    pod_template: Annotated[
        dict[str, Any],
        Meta(
            description="Merged over the rendered pod template as Kubernetes merges a strategic merge "
            "patch, for whatever has no key of its own here. Init containers of yours run before the gate."
        ),
    ] = field(default_factory=dict)
    version: Annotated[
        Annotated[str, Meta(pattern=r"^1\.\d+$", extra={"wanted": 'a quoted version such as "1.31"'})] | None,
        Meta(
            description="Kubernetes version to render for; by default the cluster is asked when submitting."
        ),
    ] = None


class Container(Section, frozen=True, kw_only=True):
    """The container in which Slurm runs the trainer."""

    runtime: Annotated[
        Literal["none", "pyxis", "apptainer"],
        Meta(description="Container runtime; none, because a plain node is what every cluster has."),
    ] = "none"
    image: Annotated[
        Line | None, Meta(description="Image in the runtime's own notation; by default the job's `image`.")
    ] = None
    mounts: Annotated[
        tuple[
            Annotated[
                str, Meta(pattern=r"^[^:\s]+(:[^:\s]+){0,2}$", extra={"wanted": "SRC:DST or SRC:DST:ro"})
            ],
            ...,
        ],
        Meta(description="Folders of the node that the container sees, as SRC:DST or SRC:DST:ro."),
    ] = ()


class Slurm(Section, frozen=True, kw_only=True):
    """What only Slurm knows; each key is the sbatch option of the same name."""

    partition: Annotated[Word | None, Meta(description="Partition, or several with commas.")] = None
    account: Annotated[Word | None, Meta(description="Account that is charged.")] = None
    qos: Annotated[Word | None, Meta(description="Quality of service.")] = None
    time: Annotated[
        SlurmTime | None,
        Meta(description="Time limit: a duration, or Slurm's own hh:mm:ss; by default the partition's."),
    ] = None
    constraint: Annotated[Line | None, Meta(description="Features that a node must have.")] = None
    reservation: Annotated[Word | None, Meta(description="Reservation to run in.")] = None
    nodelist: Annotated[Word | None, Meta(description="Nodes to use, in Slurm's notation.")] = None
    exclude: Annotated[Word | None, Meta(description="Nodes to leave out, in Slurm's notation.")] = None
    comment: Annotated[Line | None, Meta(description="Comment kept with the job.")] = None
    mpi: Annotated[
        Word | None,
        Meta(
            description="With launch: mpi, srun starts the ranks with this --mpi=TYPE, such as pmix; by "
            "default mpirun does."
        ),
    ] = None
    extra: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=r"^-[^\r\n]+$",
                    extra={"wanted": "an sbatch option such as --gres=gpu:8, without #SBATCH before it"},
                ),
            ],
            ...,
        ],
        Meta(description="Further sbatch options, one each, as they stand after #SBATCH."),
    ] = ()
    container: Annotated[Container, Meta(description="Container of the trainer.")] = Container()


class Local(Section, frozen=True, kw_only=True):
    """What only a run on this machine knows: nothing, so far."""
