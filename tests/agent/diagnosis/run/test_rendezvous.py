"""The rules on calls of init_process_group: what they prove."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import C10D, dead, in_collective, in_evaluate, only, raised, rank, stack
from tests.agent.diagnosis.build_calls import blamed, caller, localhost, nodes, sets

from ddplaunch.agent.contract import Frame, JobEvidence, RankEvidence, Torchrun, Verdict
from ddplaunch.agent.diagnosis.run import decide


def at_call(evidence: JobEvidence) -> Verdict:
    """The one verdict on calls that have just been made; a hang gets the same."""
    (verdict,) = decide.never_meet(evidence)
    (later,) = decide.judge(replace(evidence, why="still"))
    assert (verdict.code, verdict.ranks) == (later.code, later.ranks)
    return verdict


def test_a_name_that_does_not_resolve() -> None:
    """The script's line, its value and the job's own master."""
    wrong: dict[str, Any] = {
        "address": "wrong.address",
        "unresolved": "NXDOMAIN",
        "settings": sets(MASTER_ADDR="wrong.address"),
    }
    verdict = at_call(nodes([caller(0, 2, **wrong)], [caller(1, 2, **wrong)]))

    assert ("dns-not-found", [0, 1], [0, 1], []) == blamed(verdict)
    assert "train.py:9 sets MASTER_ADDR to wrong.address, which does not resolve; the job's master is n1" == (
        verdict.sentence
    )
    assert "Delete the line" in verdict.hint


def test_a_name_that_torchrun_has_chosen_is_torchruns_to_change() -> None:
    """With c10d no variable of the user's matters: one torchrun gives all ranks its machine's name."""
    name: dict[str, Any] = {"address": "n1.lan", "agent_store": True}
    ranks = [caller(0, 2, resolved=["10.0.0.1"], **name), caller(1, 2, unresolved="NXDOMAIN", **name)]
    job = nodes(*[[replace(each, launcher=7)] for each in ranks], why="still")

    def hint(run: Torchrun) -> str:
        evidence = [replace(node, torchruns=[run]) for node in job.evidence]
        return decide.judge(replace(job, evidence=evidence))[0].hint

    assert "--local-addr" in hint(Torchrun(7, backend="c10d", endpoint="n1:29400"))
    assert "Set MASTER_ADDR" in hint(Torchrun(7, endpoint="n1:29500"))
    assert "Set MASTER_ADDR" in hint(Torchrun(8, backend="c10d"))


def elastic(first: RankEvidence, second: RankEvidence) -> JobEvidence:
    """Of two nodes, with a c10d torchrun on each."""
    job = nodes([replace(first, launcher=7)], [replace(second, launcher=7)], why="still")
    run = Torchrun(7, nnodes="1:3", backend="c10d", endpoint="n2:29400", has_started=True)
    return replace(job, evidence=[replace(node, torchruns=[run]) for node in job.evidence])


def test_an_address_that_torchrun_keeps_over_a_restart_is_told_with_the_new_one() -> None:
    """Rank 0's node has left, and c10d has numbered the others anew."""
    new = caller(0, 2, address="n2", port=40001, resolved=["10.0.0.2"], agent_store=True)
    old = caller(1, 2, address="n0", port=40000, resolved=["10.0.0.9"], agent_store=True)
    verdict = at_call(elastic(replace(old, restart=1), new))

    assert ("master-is-not-node-zero", [1], [0], [0]) == blamed(verdict)
    assert "rank 1 still looks for rank 0 at n0:40000, as before the restart; it is at n2:40001 now" == (
        verdict.sentence
    )
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in verdict.hint
    assert "before the restart" not in decide.judge(elastic(old, new))[0].sentence


def test_rank_0_of_c10d_may_be_on_any_node() -> None:
    """Both look for it there; nothing is wrong with the address, whatever keeps them."""
    there: dict[str, Any] = {"address": "n2", "port": 40001, "resolved": ["10.0.0.2"], "agent_store": True}
    job = elastic(caller(1, 2, **there), caller(0, 2, **there))

    assert [] == decide.never_meet(job)
    assert "master-is-not-node-zero" != decide.judge(job)[0].code


def test_a_name_on_one_node_only() -> None:
    """Who resolves it is a victim."""
    name = {"address": "head", "settings": sets(MASTER_ADDR="head")}
    evidence = nodes(
        [caller(0, 2, resolved=["10.0.0.1"], **name)], [caller(1, 2, unresolved="NXDOMAIN", **name)]
    )
    verdict = at_call(evidence)

    assert ("dns-not-found", [1], [1], [0]) == blamed(verdict)
    assert "does not resolve on node 1 (n2)" in verdict.sentence


def test_a_launchers_name_may_still_appear() -> None:
    """Nothing is said at the call; once the ranks hang, it is why."""
    late = [[caller(n, 2, address="job-0.job", unresolved="NXDOMAIN")] for n in (0, 1)]

    assert [] == decide.never_meet(nodes(*late))
    (verdict,) = decide.judge(nodes(*late, why="still"))
    assert "dns-not-found" == verdict.code


def test_localhost_on_two_nodes() -> None:
    """Each node waits for itself, and all ranks have called so."""
    verdict = at_call(nodes([localhost(0), localhost(1)], [localhost(2), localhost(3)]))

    assert ("master-is-loopback", [0, 1, 2, 3], [0, 1], []) == blamed(verdict)
    assert (
        "train.py:9 sets MASTER_ADDR to localhost: each of the 2 nodes waits for itself; "
        "the job's master is n1" == verdict.sentence
    )


def test_localhost_on_the_node_without_the_store() -> None:
    """Node 0 may call itself localhost; node 1 may not."""
    verdict = at_call(nodes([localhost(0), localhost(1)], [caller(2), localhost(3)]))

    assert ("master-is-loopback", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert "node 1 (n2) waits for itself" in verdict.sentence


RUN = Frame("wait", "/opt/env/lib/python3.11/subprocess.py", 1264)


def with_inner(number: int = 0, launcher: int = 1000, **made: Any) -> JobEvidence:
    """Rank 0 waits for a program that has called init_process_group, and rank 1 for rank 0."""
    outer, other = (
        replace(caller(each, 2, passed=True), initialized=True, stacks=in_collective(), groups=rank(0).groups)
        for each in (0, 1)
    )
    outer = replace(outer, stacks=stack(RUN, Frame("evaluate", "/job/train.py", 24)))
    inner = replace(caller(number, **{"world": 2, **made}), pid=2000, launcher=launcher)
    return nodes([outer, other, inner], why="still", world_size=2)


def test_a_program_that_joins_in_its_ranks_place() -> None:
    (verdict,) = decide.judge(with_inner())
    (passed,) = decide.judge(with_inner(passed=True))
    (node,) = with_inner().evidence
    both = [*node.ranks, replace(caller(1, 2), pid=2001, launcher=1001)]
    left = [replace(each, initialized=False) for each in node.ranks]

    for ranks in (both, left):  # of all ranks, or after the rank's own group: it may be right
        assert "rank-duplicate" not in [
            each.code for each in decide.judge(nodes(ranks, why="still", world_size=2))
        ]
    assert ("rank-duplicate", [0], [0], [1]) == blamed(verdict)
    assert (
        "rank 0 has started a program that joins the job as rank 0 once more (train.py:12), "
        "and waits for it in evaluate (train.py:24)" == verdict.sentence == passed.sentence
    )


@pytest.mark.parametrize(
    "evidence",
    [
        with_inner(launcher=1),
        with_inner(number=1),
        with_inner(port=29501),
        with_inner(address="10.0.0.2"),
    ],
    ids=["another's child", "another rank", "a store of its own", "on another machine"],
)
def test_a_program_with_a_job_of_its_own_joins_none(evidence: JobEvidence) -> None:
    assert "rank-duplicate" not in [verdict.code for verdict in decide.judge(evidence)]


def test_a_port_where_no_rank_opens_a_store() -> None:
    """Under torchrun all ranks are clients of torchrun's own store, on one machine too."""
    settings = sets(MASTER_PORT="12345")
    ranks = [localhost(n, world=2, port=12345, settings=settings, agent_store=True) for n in (0, 1)]
    verdict = at_call(nodes(ranks))

    assert ("rendezvous-overridden", [0, 1], [0], []) == blamed(verdict)
    assert (
        "train.py:9 sets MASTER_PORT to 12345, where no rank opens a store: torchrun keeps the job's at "
        "port 29500" == verdict.sentence
    )


URL: dict[str, Any] = {"method": "tcp", "port": 12345, "agent_store": True}
"""A port that the program gives init_process_group, where torch before 2.15 expects torchrun's store."""


def test_a_port_in_the_url_where_no_rank_opens_a_store() -> None:
    verdict = at_call(nodes([localhost(n, world=2, given_port=29500, **URL) for n in (0, 1)]))

    assert ("rendezvous-overridden", [0, 1]) == (verdict.code, verdict.ranks)
    assert (
        "train.py:12 calls init_process_group with tcp://localhost:12345, where no rank opens a store: "
        "torchrun keeps the job's at port 29500" == verdict.sentence
    )
    assert "without `init_method`" in verdict.hint


def test_the_url_of_torchruns_own_store_is_right() -> None:
    evidence = nodes([localhost(n, world=2, given_port=12345, **URL) for n in (0, 1)])

    assert [] == decide.never_meet(evidence)


def test_a_port_with_another_jobs_store() -> None:
    """Under torchrun all ranks would join it."""
    made = {
        "port": 12345,
        "settings": sets(MASTER_PORT="12345"),
        "agent_store": True,
        "holder": "pid 8 (python)",
    }
    verdict = at_call(nodes([localhost(0, world=2, **made), localhost(1, world=2, **made)]))

    assert ("store-shared", [0, 1]) == (verdict.code, verdict.ranks)
    assert "held by pid 8 (python)" in verdict.sentence


def test_a_port_that_is_held() -> None:
    """Rank 0 cannot open its store there; the others are victims."""
    url: dict[str, Any] = {"method": "tcp", "port": 12345}
    verdict = at_call(nodes([caller(0, 2, holder="pid 8 (nc)", **url)], [caller(1, 2, **url)]))

    assert ("port-in-use", [0], [0], [1]) == blamed(verdict)
    assert (
        "train.py:12 calls init_process_group with tcp://10.0.0.1:12345, which on node 0 (n1) is held by "
        "pid 8 (nc)" == verdict.sentence
    )


def test_of_two_that_claim_a_rank_the_one_that_was_given_another_number_is_named() -> None:
    calls = [caller(n, 4, rank=min(n, 2), given_rank=n) for n in range(4)]
    verdict = at_call(nodes([replace(each, rank=min(each.rank, 2)) for each in calls]))

    assert ("rank-duplicate", [3], [0, 1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "rank 2 is claimed twice: pid 1003 on node 0 (n1), to which the launcher gave RANK=3, joins as "
        "rank 2 (train.py:12)"
    )


def test_a_port_that_the_other_rank_0_holds() -> None:
    """The number is what is wrong, not the port."""
    url: dict[str, Any] = {"method": "tcp", "port": 12345, "rank": 0}
    verdict = at_call(
        nodes([caller(0, 2, holder="pid 8 (python)", **url), replace(caller(0, 2, **url), pid=8)])
    )

    assert ("rank-duplicate", [0]) == (verdict.code, verdict.ranks)


def test_a_rank_that_dies_of_a_held_port() -> None:
    """Its exception alone proves it, and the death gets the exact code."""
    made = caller(0, 2, settings=sets(MASTER_PORT="12345"), port=12345).rendezvous
    error = raised("torch.distributed.DistNetworkError", "port: 12345, code: -98, name: EADDRINUSE", 1)
    evidence = nodes(
        [dead(0, 2, code=1, raised=[error], initialized=False, rendezvous=made)],
        [caller(1, 2, settings=sets(MASTER_PORT="12345"), port=12345)],
        why="death",
    )
    (verdict,) = decide.judge(evidence)

    assert ("port-in-use", [0], [0], [1]) == blamed(verdict)


def test_an_address_of_another_node() -> None:
    """Rank 0, which opens the store, runs elsewhere."""
    made = {"address": "n2", "resolved": ["10.0.0.2"], "settings": sets(MASTER_ADDR="n2")}
    verdict = at_call(nodes([caller(0, 2, **made)], [caller(1, 2, **made)]))

    assert "master-is-not-node-zero" == verdict.code
    assert (
        "train.py:9 sets MASTER_ADDR to n2, an address of node 1 (n2): the store is on node 0 (n1); "
        "the job's master is n1" == verdict.sentence
    )


def test_an_address_of_nobody() -> None:
    """A load balancer might lead from it to the right node: that shows in time."""
    made = {"address": "10.9.9.9", "settings": sets(MASTER_ADDR="10.9.9.9")}
    evidence = nodes([caller(0, 2, **made)], [caller(1, 2, **made)])

    assert [] == decide.never_meet(evidence)
    (verdict,) = decide.judge(replace(evidence, why="still"))
    assert "master-is-not-node-zero" == verdict.code
    assert verdict.confidence < 0.9


def test_a_rank_counted_on_each_node() -> None:
    """LOCAL_RANK begins at 0 on every node."""
    twice = [[caller(n, 2, rank=0)] for n in (0, 1)]
    twice[1][0] = replace(twice[1][0], rank=0, local_rank=0)
    verdict = at_call(nodes(*twice))

    assert ("rank-duplicate", [0], [0, 1]) == (verdict.code, verdict.ranks, verdict.nodes)
    assert (
        "rank 0 is claimed twice: rank 0 by pid 1000 on node 0 (n1) and pid 1001 on node 1 (n2) "
        "(train.py:12); LOCAL_RANK counts from 0 on every node" == verdict.sentence
    )


def test_world_sizes_that_differ() -> None:
    """Who calls with another size than the job's is named."""
    verdict = at_call(nodes([caller(0), caller(1)], [caller(2), caller(3, 5)]))

    assert ("world-size-differs", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert (
        "rank 3 calls init_process_group with world size 5 (train.py:12), the others with 4"
        == verdict.sentence
    )


def test_more_ranks_than_there_are() -> None:
    """All have called, all wait, and the job has no more; said once nothing moves."""
    evidence = nodes([caller(0, 4), caller(1, 4)])

    assert [] == decide.never_meet(evidence)
    (verdict,) = decide.judge(replace(evidence, why="still"))
    assert "world-size-differs" == verdict.code
    assert "with world size 4; the job has 2 ranks" in verdict.sentence


def test_more_ranks_than_the_launcher_has_started() -> None:
    """Behind `ddplaunch run` no job file says how many there are; WORLD_SIZE does, if all are here."""
    two = nodes([caller(0, 4, given_world=2), caller(1, 4, given_world=2)])
    one_is_missing = nodes([caller(0, 4, given_world=3), caller(1, 4, given_world=3)])
    not_told = nodes([caller(0, 4), caller(1, 4)])

    codes = [
        [verdict.code for verdict in decide.judge(replace(each, why="still", world_size=None))]
        for each in (two, one_is_missing, not_told)
    ]
    assert [["world-size-differs"], ["unknown"], ["unknown"]] == codes


def test_a_program_that_sets_another_world_size_than_the_launcher_is_named_with_its_line() -> None:
    own = [replace(sets(WORLD_SIZE="4")[0], given="2")]
    ranks = [caller(n, 4, settings=own) for n in (0, 1)]
    (verdict,) = decide.judge(replace(nodes(ranks), why="still", world_size=None))

    assert "world-size-differs" == verdict.code
    assert verdict.sentence.startswith(
        "train.py:9 sets WORLD_SIZE to 4; the job has 2 ranks, and all of them wait"
    )


def test_ranks_that_go_to_different_ports() -> None:
    """Who leaves the launcher's is named."""
    away = caller(3, port=29511, settings=sets(MASTER_PORT="29511"))
    verdict = at_call(nodes([caller(0), caller(1)], [caller(2), away]))

    assert ("rendezvous-overridden", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert (
        "rank 3 goes to 10.0.0.1:29511 (train.py:9 sets MASTER_PORT to 29511), the others go to "
        "10.0.0.1:29500" == verdict.sentence
    )


def test_one_of_two_goes_elsewhere() -> None:
    """The launcher's own place is the right one, though there is no majority."""
    away = caller(1, 2, port=29511, settings=sets(MASTER_PORT="29511"))
    verdict = at_call(nodes([caller(0, 2)], [away]))

    assert ("rendezvous-overridden", [1]) == (verdict.code, verdict.ranks)


def test_backends_that_differ() -> None:
    """The rare one is named; of two neither is accused with certainty."""
    verdict = at_call(nodes([caller(0), caller(1)], [caller(2), caller(3, backend="nccl")]))
    (open_,) = decide.never_meet(nodes([caller(0, 2)], [caller(1, 2, backend="nccl")]))

    assert ("environment-differs", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert "rank 3 asks for backend nccl (train.py:12), the others for gloo" == verdict.sentence
    assert open_.confidence <= 0.5


def passed(process: RankEvidence) -> RankEvidence:
    """The same rank, once its call has returned."""
    assert process.rendezvous is not None
    return replace(process, rendezvous=replace(process.rendezvous, passed=True))


def compares(number: int, **made: Any) -> RankEvidence:
    """A rank in init_process_group, where it makes the group by which DETAIL compares calls."""
    frames = [Frame("_create_process_group_wrapper", C10D, 6721), Frame("init_process_group", C10D, 2721)]
    return replace(caller(number, **made), stacks=stack(*frames, Frame("main", "/job/train.py", 12)))


def through(number: int, **made: Any) -> RankEvidence:
    """A rank in its first collective."""
    meets = passed(caller(number, **made))
    return replace(meets, stacks=in_collective(), phase="first collective", initialized=True)


DETAIL = sets(TORCH_DISTRIBUTED_DEBUG="DETAIL")
OFF = sets(TORCH_DISTRIBUTED_DEBUG="OFF")


def test_a_rank_that_alone_asks_for_detail_waits_for_the_others_for_ever() -> None:
    one = only(nodes([compares(0, settings=DETAIL), through(1)], [through(2), through(3)], why="still"))

    assert ("environment-differs", [0]) == (one.code, one.ranks)
    assert one.sentence.startswith(
        "rank 0 has TORCH_DISTRIBUTED_DEBUG=DETAIL, ranks 1-3 do not: train.py:9 sets it."
    )
    all_but_one = [compares(n) for n in (0, 1, 2)]
    other = only(nodes(all_but_one[:2], [all_but_one[2], through(3, settings=OFF)], why="still"))
    assert ("environment-differs", [3]) == (other.code, other.ranks)
    half = [compares(n, settings=DETAIL) for n in (0, 1)]
    tie = only(nodes(half, [through(2), through(3)], why="still"))
    assert ([0, 1, 2, 3], 0.5) == (tie.ranks, tie.confidence)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (compares(0), through(1)),  # from outside, maybe to both
        (compares(0, settings=DETAIL), through(1, settings=DETAIL)),
        (caller(0, settings=DETAIL), through(1)),  # elsewhere in the call
        (compares(0, settings=DETAIL), compares(1, settings=DETAIL)),
    ],
)
def test_detail_accuses_nobody_unless_it_is_known_that_the_others_do_without(
    first: RankEvidence, second: RankEvidence
) -> None:
    found = decide.judge(nodes([first], [second], why="still"))

    assert "environment-differs" not in {verdict.code for verdict in found}


@pytest.mark.parametrize(
    "message",
    [
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "nccl2 requires at least one CUDA device",
    ],
)
def test_nccl_without_a_gpu(message: str) -> None:
    """torch says so by an exception; the node and the line are named."""
    error = raised("ValueError", message, 1)
    ranks = [
        dead(n, 2, code=1, raised=[error], initialized=False, rendezvous=caller(n, 2).rendezvous)
        for n in (0, 1)
    ]
    (verdict,) = decide.judge(nodes(ranks, why="death"))

    assert ("backend-unfit", [0, 1], [0], []) == blamed(verdict)
    assert "train.py:12 asks for NCCL, and torch sees no GPU on node 0 (n1)" == verdict.sentence


def test_one_node_runs_another_file() -> None:
    """Said when all wait and nothing else explains it."""
    evidence = nodes(
        [caller(0, script="a"), caller(1, script="a")], [caller(2, script="a"), caller(3, script="b")]
    )
    (verdict,) = decide.judge(replace(evidence, why="still"))

    assert ("environment-differs", [3]) == (verdict.code, verdict.ranks)


def test_a_file_that_each_machine_has() -> None:
    """/tmp is most often each machine's own."""
    made: dict[str, Any] = {"method": "file", "address": "", "port": None, "file": "/tmp/meet"}
    evidence = nodes([caller(0, 2, **made)], [caller(1, 2, **made)])

    assert [] == decide.never_meet(evidence)
    (verdict,) = decide.judge(replace(evidence, why="still"))
    assert "rendezvous-overridden" == verdict.code
    assert "file:///tmp/meet" in verdict.sentence


@pytest.mark.parametrize("why", ["still", "death"])
def test_a_file_that_an_earlier_run_has_left(why: str) -> None:
    """All found keys in it. Where one found none, they are this job's own; and a call in time may succeed."""
    url: dict[str, Any] = {"method": "file", "address": "", "port": None, "file": "/share/meet"}
    used = [caller(n, 2, file_used=True, **url) for n in (0, 1)]
    verdict = only(nodes(used, why=why))

    assert ("store-shared", [0, 1]) == (verdict.code, verdict.ranks)
    assert verdict.sentence == (
        "train.py:12 calls init_process_group with file:///share/meet: the file held the keys of an earlier "
        "run when the first rank came"
    )
    assert [] == decide.never_meet(nodes(used))
    assert "store-shared" != only(nodes([caller(0, 2, **url), used[1]], why="still")).code


def test_a_choice_that_the_gate_has_not_tried() -> None:
    """The last word where all wait at an address of their own choice that seems right."""
    made = {"port": 12345, "settings": sets(MASTER_PORT="12345")}
    evidence = nodes([caller(0, 2, **made)], [caller(1, 2, **made)])

    assert [] == decide.never_meet(evidence)
    (verdict,) = decide.judge(replace(evidence, why="still"))
    assert "rendezvous-overridden" == verdict.code
    assert "the gate has proved n1:29500" in verdict.sentence


# --- Calls of init_process_group that work, or may: nothing is said about them, or something better.


def silent(evidence: JobEvidence) -> None:
    """No word about the calls, now or once they have hung."""
    assert [] == decide.never_meet(evidence)
    codes = {verdict.code for verdict in decide.judge(replace(evidence, why="still"))}
    assert codes <= {"unknown", "rank-late-to-init", "rank-in-user-code"}


RIGHT = {
    "as torchrun wants it": nodes([caller(0), caller(1)], [caller(2), caller(3)]),
    "localhost on one machine": nodes(
        [localhost(0), localhost(1)], [localhost(2), localhost(3)], one_machine=True, master_addr=""
    ),
    "localhost, of which it is not known whether it is one machine": replace(
        (strange := nodes([localhost(0, world=2)], [localhost(1, world=2)], master_addr="")),
        evidence=[replace(node, machine="") for node in strange.evidence],
    ),
    "another name of the same node": nodes(
        [caller(0, 2, address="head", resolved=["127.0.1.1"])],
        [caller(1, 2, address="n1", resolved=["10.0.0.1"])],
    ),
    "a job of its own on each node": nodes(
        [localhost(n, world=2, rank=n) for n in (0, 1)],
        [replace(localhost(n, world=2, rank=n), local_rank=n) for n in (0, 1)],
        master_addr="",
    ),
    "the launcher's values, set once more": nodes(
        [
            caller(n, 2, settings=sets(MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"), agent_store=True)
            for n in (0, 1)
        ]
    ),
    "timeouts that differ": nodes([caller(0, 2, timeout=60.0)], [caller(1, 2, timeout=1800.0)]),
    "backends by another name, or with one more": nodes(
        [caller(0, 3), caller(1, 3, backend="cpu:gloo")], [caller(2, 3, backend="cpu:gloo,cuda:nccl")]
    ),
    "a restarted rank": nodes(
        [
            dead(0, -5, code=1, by_us=True, rendezvous=caller(0, 2).rendezvous),
            replace(caller(0, 2), pid=4000),
            caller(1, 2),
        ],
        world_size=2,
    ),
}
"""Calls that work, or that may work: nothing may be said about them."""


@pytest.mark.parametrize("name", RIGHT)
def test_calls_that_work(name: str) -> None:
    """Silence, at the call and later."""
    silent(RIGHT[name])


def test_calls_that_have_returned() -> None:
    """What has worked is right, however odd it looks."""
    odd = nodes([passed(localhost(0, world=2))], [passed(localhost(1, world=2))])

    assert [] == decide.never_meet(odd)


def test_a_call_that_a_silent_node_has_told_of() -> None:
    """It may have returned long ago."""
    evidence = nodes(
        [passed(caller(0, 2))], [caller(1, 2, unresolved="NXDOMAIN", settings=sets(MASTER_ADDR="x"))]
    )

    assert [] == decide.never_meet(replace(evidence, silent=[1]))


def test_a_rank_that_failed_before_its_call() -> None:
    """Its own exception is what ended the job, whatever the others' calls say."""
    error = raised("ValueError", "no such file", 1)
    evidence = nodes(
        [localhost(0), localhost(1)], [localhost(2), dead(3, 2, code=1, raised=[error])], why="death"
    )
    (verdict,) = decide.judge(evidence)

    assert ("rank-failed", [3]) == (verdict.code, verdict.ranks)


def test_a_rank_that_is_late_is_named_before_a_guess() -> None:
    """What calls only suggest comes after a rank that has not called."""
    made = {"port": 12345, "settings": sets(MASTER_PORT="12345")}
    late = rank(1, in_evaluate(), groups=[], initialized=False)
    (verdict,) = decide.judge(nodes([caller(0, 2, **made)], [late], why="still"))

    assert ("rank-late-to-init", [1]) == (verdict.code, verdict.ranks)


def test_ranks_that_were_not_seen_may_yet_come() -> None:
    """One of four is there, as when a busy machine starts them: an address of its own is no fault."""
    made = {"port": 12345, "settings": sets(MASTER_PORT="12345")}
    verdicts = decide.judge(nodes([caller(2, 4, **made)], why="still", world_size=None))

    assert "rendezvous-overridden" not in [verdict.code for verdict in verdicts]


def test_only_odd_calls_are_worth_a_look() -> None:
    """A job that leaves all to its launcher asks no node for evidence."""
    assert not decide.is_odd_start(RIGHT["as torchrun wants it"])
    assert decide.is_odd_start(nodes([localhost(0)], [localhost(1)]))
    assert decide.is_odd_start(nodes([caller(0)], [caller(1, rank=0)]))
    assert decide.is_odd_start(nodes([caller(0)], [caller(1, 5)]))
