"""Why a job does not start, as a real Slurm has it; and what is not even sent."""

from __future__ import annotations

import pytest
from tests.cluster.slurm.backend.conftest import FOREVER, Login, Make, wait
from tests.cluster.slurm.cluster import Cluster

from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.slurm.backend import SlurmBackend
from ddplaunch.errors import ClusterError

pytestmark = pytest.mark.slurm

SHORT = "PartitionName=short Nodes=n[1-2] MaxTime=10 MaxNodes=1 State=UP"


def told(cluster: Cluster, backend: SlurmBackend, handle: Handle, begin: str) -> Job:
    """The job, once its detail begins so."""
    job = wait(cluster, backend, handle, lambda job: job.detail.startswith(begin))
    assert State.PENDING is job.state
    return job


def take_all(cluster: Cluster, backend: SlurmBackend, job: Make) -> Handle:
    """A job that has all three nodes."""
    handle = backend.submit(job(FOREVER, "--exclusive", "--time=60", name="large", nodes=3))
    wait(cluster, backend, handle, lambda job: job.status)
    return handle


def test_who_waits_for_nodes_hears_how_many_are_free(
    cluster: Cluster, backend: SlurmBackend, job: Make
) -> None:
    """Who waits for nodes hears how many there are; who stands behind him, that he does."""
    take_all(cluster, backend, job)
    first, second = (backend.submit(job("", "--exclusive", nodes=2)) for _ in range(2))

    nodes = "2 nodes to become free in partition all; 0 of 3 are idle"
    assert "nothing is wrong" in told(cluster, backend, first, f"it waits for {nodes}").hint
    assert "nothing is wrong" in told(cluster, backend, second, "other jobs come first in partition all").hint


REASONS = {
    "--hold": ("it is held", "its owner can release it with `scontrol release {id}`"),
    "--begin=now+1hour": ("it may not start before 20", "it was submitted this way"),
    "--dependency=afterok:{other}": ("it waits until job {other} has succeeded", "nothing is wrong"),
    "--dependency=afternotok:{done}": (
        "it will never start: job {done} has not failed",
        "`ddplaunch cancel slurm://{id}`",
    ),
    "--licenses=matlab:2": ("it waits for licences that other jobs use", "scontrol show licenses"),
    "--nodelist=n3": (
        "nodes that it needs are down, drained or reserved: n3 is drained, broken fan",
        "sinfo",
    ),
    "--partition=shut": ("partition shut starts no jobs now", "another `slurm.partition`"),
}


def test_each_reason_of_slurm_is_a_sentence_with_what_to_do(
    cluster: Cluster, backend: SlurmBackend, job: Make
) -> None:
    """A job for each, all in the queue at once."""
    cluster.configure("Licenses=matlab:2", "PartitionName=shut Nodes=n1 State=DOWN")
    cluster.login(["scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=broken fan"])
    other = backend.submit(job(FOREVER, "--licenses=matlab:2", name="other"))
    wait(cluster, backend, other, lambda job: job.status)
    done = backend.submit(job("", name="done", ended=0))
    wait(cluster, backend, done, lambda job: job.state.ended)
    ids = {"other": other.path, "done": done.path}
    handles = {option: backend.submit(job("", option.format(**ids))) for option in REASONS}

    for option, (begin, hint) in REASONS.items():
        found = told(cluster, backend, handles[option], begin.format(**ids))
        assert hint.format(id=handles[option].path) in found.hint, option
        assert found.never_starts == ("never" in begin), option


def test_what_slurm_takes_though_it_can_never_start(
    cluster: Cluster, backend: SlurmBackend, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent by hand, it waits for ever, and the hint says so."""
    cluster.configure(SHORT)
    monkeypatch.setattr("ddplaunch.backends.slurm.pending.problems", lambda *_: [])
    short = "--partition=short"
    handles = {
        "it requests 2 nodes, but partition short allows a job at most 1": job("", short, nodes=2),
        "it requests 4 nodes, but partition all has 3": job("", nodes=4),
        "its time limit is above the limit of partition short, which is 00:10:00": job(
            "", short, "--time=20"
        ),
    }
    for begin, rendered in handles.items():
        try:
            handle = backend.submit(rendered)
        except ClusterError as refusal:
            if "there are not enough nodes that have everything" in refusal.message:
                continue  # Slurm 24.11 refuses one of them
            raise

        found = told(cluster, backend, handle, begin)
        assert found.never_starts
        assert f"the job can never start as it is: `ddplaunch cancel {handle}`" in found.hint


def test_a_node_that_cannot_start_it(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """A prolog that fails puts the job back and holds it."""
    cluster.configure("Prolog=/bin/false")
    handle = backend.submit(job("", "--requeue"))

    found = told(cluster, backend, handle, "a node could not start it")
    assert f"then `scontrol release {handle.path}`" in found.hint


def test_what_can_never_start_is_not_sent(
    cluster: Cluster, backend: SlurmBackend, job: Make, login: Login
) -> None:
    """The message names the limit, and Slurm has no new job; one that fits one of two partitions is sent."""
    cluster.configure(SHORT)
    for script, message in (
        (job("", "--partition=shrt"), "there is no partition shrt: did you mean short?"),
        (job("", nodes=4), "the job asks for 4 nodes, and partition all has 3"),
        (
            job("", "-pshort -t 0-1"),
            "the job's time limit is 0-1, and that of partition short is 00:10:00",
        ),
    ):
        with pytest.raises(ClusterError) as caught:
            backend.submit(script)
        assert [f"    {message}"] == caught.value.message.splitlines()[1:]
    assert (0, []) == (login.count("sbatch"), backend.jobs())
    assert not any((cluster.shared / "state").rglob("*.sbatch"))

    assert backend.submit(job("", "-p all,short -t 20")).path.isdigit()


def test_a_partition_of_the_environment_counts(
    cluster: Cluster, backend: SlurmBackend, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch puts SBATCH_PARTITION above the script, so we do."""
    monkeypatch.setenv("SBATCH_PARTITION", "zebra")

    with pytest.raises(ClusterError, match="there is no partition zebra"):
        backend.submit(job("", "--partition=all"))


REFUSED = {
    "--constraint=a100": "no node has the features",
    "--reservation=mine": "there is no such reservation",
    "--nodelist=n9": "it names a node that does not exist",
    "--gres=gpu:8": "there are not enough nodes that have everything",
    "--gres=tpu:1": "there are no such GPUs",
    "--mem=9T": "no node has that much memory",
    "--licenses=zebra": "there are no such licences",
}


def test_what_sbatch_refuses_is_told_in_words(cluster: Cluster, backend: SlurmBackend, job: Make) -> None:
    """The message says why, and what sbatch said itself; nothing is remembered of it."""
    for option, why in REFUSED.items():
        with pytest.raises(ClusterError) as caught:
            backend.submit(job("", option))

        first, *rest = caught.value.message.splitlines()
        assert first.startswith(f"Slurm refused the job: {why}"), option
        assert ["    sbatch: "] == [line[:12] for line in rest]
        assert caught.value.hint
    assert [] == list((cluster.shared / "state/slurm").iterdir())


def test_a_folder_that_cannot_be_written_is_an_error(backend: SlurmBackend, job: Make) -> None:
    """Before anything is sent."""
    backend.records.folder.parent.mkdir(parents=True, exist_ok=True)
    backend.records.folder.write_text("a file where the folder should be")

    with pytest.raises(ClusterError, match=r"the job's folder cannot be written: .*slurm"):
        backend.submit(job(""))
    backend.records.folder.unlink()
