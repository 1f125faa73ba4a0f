"""Slurm's reasons in a person's words."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ddplaunch.backends.slurm.parse import Partition, SlurmJob
from ddplaunch.backends.slurm.pending import PartitionFacts, Why, explain

ALONE = PartitionFacts()
LAB = PartitionFacts(
    Partition("gpu", nodes=4, most_nodes=3, least_nodes=2, most_time=7200.0),
    [("n1", "allocated", ""), ("n2", "idle", ""), ("n3", "down", "Not responding"), ("n4", "drained", "fan")],
)

BAD = "n3 is down, Not responding; n4 is drained, fan"
FREE = "it waits for 2 nodes to become free in partition gpu"


def why(reason: str, facts: PartitionFacts = ALONE, **changes: Any) -> Why:
    """Of job 7, which wants two nodes of partition gpu."""
    seen = SlurmJob(7, "PENDING", reason, partition="gpu", nodes=2)
    return explain(dataclasses.replace(seen, **changes), facts)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Slurm has not considered it yet"),
        ("Resources", "it waits for 2 nodes to become free in partition gpu"),
        ("Priority", "other jobs come first in partition gpu"),
        ("(Priority)", "other jobs come first in partition gpu"),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "nodes that it needs are down, drained or reserved"),
        ("ReqNodeNotAvail(Unavailable:n3)", "Slurm gives the reason 'ReqNodeNotAvail(Unavailable:n3)'"),
        ("BadConstraints", "no node has everything that it requests"),
        ("Dependency", "it waits for another job"),
        (
            "DependencyNeverSatisfied",
            "it will never start: the job that it waits for did not end as required",
        ),
        ("JobHeldUser", "it is held"),
        ("JobHeldAdmin", "an administrator holds it"),
        ("job requeued in held state", "it is held"),
        ("launch failed requeued held", "a node could not start it, so Slurm requeued it"),
        ("launch_failed_requeued_held", "a node could not start it, so Slurm requeued it"),
        ("user env retrieval failed requeued held", "a node could not start it"),
        ("JobHoldMaxRequeue", "it was requeued so often that Slurm holds it"),
        ("ReservationDeleted", "its reservation was deleted"),
        ("PartitionDown", "partition gpu starts no jobs now"),
        ("InvalidAccount", "its account is not valid"),
        ("AccountNotAllowed", "its account may not use partition gpu"),
        (
            "Job's account not permitted to use this partition (vip allows boss not lab)",
            "it will never start: Job's account not permitted to use this partition (vip allows",
        ),
        (
            "QOSGrpNodeLimit",
            "all running jobs of its QOS together are at the limit of nodes (QOSGrpNodeLimit)",
        ),
        ("QOSGrpGRES", "all running jobs of its QOS together are at the limit of GPUs"),
        (
            "AssocGrpGRESMinutes",
            "all running jobs of its account together are at the limit of GPUs times minutes",
        ),
        ("QOSMaxJobsPerUserLimit", "its QOS allows no more jobs at once (QOSMaxJobsPerUserLimit)"),
        ("QOSMaxGRESPerUser", "its QOS allows no more GPUs at once"),
        ("QOSMaxNodePerJobLimit", "it requests more nodes than its QOS allows per job"),
        ("AssocMaxWallDurationPerJobLimit", "it requests more time than its account allows per job"),
        ("QOSMinGRES", "it requests fewer GPUs than its QOS requires"),
        ("MaxGRESPerAccount", "the jobs of its account are at the limit of GPUs"),
        ("QOSJobLimit", "its QOS allows no more jobs at once"),
        ("QOSResourceLimit", "its QOS allows no more"),
        ("Zebra", "Slurm gives the reason 'Zebra'"),
    ],
)
def test_each_reason_of_slurm_is_a_sentence(reason: str, text: str) -> None:
    found, hint, _ = why(reason)

    assert found.startswith(text)
    assert bool(hint) == bool(reason)
    assert not found.endswith(".")


@pytest.mark.parametrize(
    ("reason", "facts", "changes", "text"),
    [
        ("Resources", LAB, {}, f"{FREE}; 1 of 4 is idle, 1 down, 1 drained"),
        ("Resources", ALONE, {"nodes": 1, "partition": ""}, "it waits for 1 node to become free"),
        ("ReqNodeNotAvail", LAB, {}, f"nodes that it needs are down, drained or reserved: {BAD}"),
        ("PartitionNodeLimit", LAB, {"nodes": 5}, "it requests 5 nodes, but partition gpu has 4"),
        (
            "PartitionNodeLimit",
            LAB,
            {"nodes": 4},
            "it requests 4 nodes, but partition gpu allows a job at most 3",
        ),
        (
            "PartitionNodeLimit",
            LAB,
            {"nodes": 1},
            "it requests 1 node, but partition gpu requires at least 2",
        ),
        (
            "PartitionConfig",
            LAB,
            {"nodes": 3},
            f"it requests 3 nodes, more than are available in partition gpu now: {BAD}",
        ),
        (
            "PartitionTimeLimit",
            LAB,
            {},
            "its time limit is above the limit of partition gpu, which is 02:00:00",
        ),
        ("PartitionTimeLimit", ALONE, {}, "its time limit is above the limit of partition gpu"),
        ("Dependency", ALONE, {"dependency": "afterok:6"}, "it waits until job 6 has succeeded"),
        (
            "Dependency",
            ALONE,
            {"dependency": "afterok:6(unfulfilled),afterany:8_*(unfulfilled)"},
            "it waits until job 6 has succeeded and job 8 has ended",
        ),
        (
            "Dependency",
            ALONE,
            {"dependency": "after:6+10(unfulfilled)?afternotok:8_3(failed)?afternotok:9(unfulfilled)"},
            "it waits until job 6 has started or job 9 has failed",
        ),
        (
            "Dependency",
            ALONE,
            {"dependency": "singleton(unfulfilled)"},
            "it waits until no other job of its name and its user runs or waits",
        ),
        ("Dependency", ALONE, {"dependency": "afterdark:6"}, "it waits for another job: afterdark:6"),
        (
            "DependencyNeverSatisfied",
            ALONE,
            {"dependency": "afterok:6(failed),afterok:8(unfulfilled),afternotok:9(failed)"},
            "it will never start: job 6 has not succeeded and job 9 has not failed",
        ),
    ],
)
def test_what_is_known_of_the_partition_is_told(
    reason: str, facts: PartitionFacts, changes: dict[str, object], text: str
) -> None:
    """How many nodes there are, which are down and why, where the limit lies."""
    assert text == why(reason, facts, **changes)[0]


@pytest.mark.parametrize(
    ("reason", "changes", "never"),
    [
        ("Resources", {}, False),
        ("PartitionTimeLimit", {}, True),
        ("PartitionTimeLimit", {"partition": "gpu,all"}, False),
        ("PartitionNodeLimit", {"nodes": 5}, True),
        ("PartitionNodeLimit", {"nodes": 3}, False),
        ("QOSMaxNodePerJobLimit", {}, True),
        ("QOSMaxJobsPerUserLimit", {}, False),
        ("QOSGrpNodeLimit", {}, False),
        ("BadConstraints", {}, True),
        ("InvalidAccount", {}, True),
        ("InvalidAccount", {"partition": "gpu,all"}, True),
        ("AccountNotAllowed", {}, True),
        ("Job's account not permitted to use this partition (vip allows boss not lab)", {}, True),
        ("ReservationDeleted", {}, True),
        ("", {"state": "RESV_DEL_HOLD"}, True),
        ("Deadline", {}, True),
        ("Dependency", {}, False),
        ("DependencyNeverSatisfied", {}, True),
        ("DependencyNeverSatisfied", {"partition": "gpu,all"}, True),
        ("JobHeldUser", {}, False),
        ("JobHeldAdmin", {}, False),
        ("launch failed requeued held", {}, False),
        ("PartitionDown", {}, False),
        ("ReqNodeNotAvail", {}, False),
        ("Zebra", {}, False),
    ],
)
def test_only_a_job_that_no_waiting_lets_start_is_one_to_cancel(
    reason: str, changes: dict[str, object], never: bool
) -> None:
    """One that is held may be released, one that only waits keeps its turn, and of several partitions one may
    still take it.
    """
    found = why(reason, LAB, **changes)

    assert never == found.never
    assert never == ("`ddplaunch cancel slurm://7`" in found.hint) or "," in str(changes)


@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        ("CONFIGURING", "None", "its nodes n[1-2] are being started or prepared"),
        ("REQUEUE_HOLD", "launch failed requeued held", "a node could not start it"),
        ("REQUEUE_HOLD", "", "it is held"),
        ("SPECIAL_EXIT", "", "it is held"),
        ("REQUEUED", "", "it was requeued"),
        ("RESV_DEL_HOLD", "", "its reservation was deleted, and it is held"),
    ],
)
def test_a_state_that_tells_more_than_its_reason_is_told(state: str, reason: str, text: str) -> None:
    """Nodes that boot, and jobs that Slurm put back."""
    assert why(reason, state=state, node_list="n[1-2]")[0].startswith(text)


@pytest.mark.parametrize(("days", "expected"), [(0.5, True), (365, False)])
def test_when_slurm_expects_it_to_start(days: float, expected: bool) -> None:
    """Behind a job without a time limit that would be in a year, which says nothing."""
    at = 1_700_000_000.0
    text = why("Resources", submitted=at, started=at + days * 86400)[0]

    assert expected == ("; Slurm expects it to start at 20" in text)
