"""The rules on ranks that ended: whose end came first, and whose only followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    MAIN,
    NOW,
    PEER_GONE,
    TORCH,
    call,
    dead,
    in_collective,
    in_evaluate,
    in_init,
    in_loader,
    job,
    only,
    raised,
    rank,
    stack,
    victim,
)

from ddplaunch.agent.contract import (
    Collective,
    Exited,
    Frame,
    Group,
    JobEvidence,
    Lost,
    NodeEvidence,
    Process,
    Raised,
    RankEvidence,
    Rendezvous,
    Signalled,
    Stack,
    Verdict,
)
from ddplaunch.agent.diagnosis.run.causes import is_consequence
from ddplaunch.agent.diagnosis.run.decide import judge

GONE = Lost(1, NOW - 10, closed=True, completed=34)


def test_rank_failed_by_its_own_exception() -> None:
    """The rank whose exception is its own is at fault, though the others' exits were seen earlier."""
    verdict = only(
        job(
            victim(0, 0.6),
            victim(1),
            victim(2),
            dead(3, 0.9, code=1, raised=[raised("ValueError", "sample 5 has 7 labels", 0.5)]),
            why="death",
        )
    )

    assert ("rank-failed", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 3 raised ValueError: sample 5 has 7 labels (train.py:61)" == verdict.sentence
    assert (
        f"rank 1 ended 0.5 s later, as a victim: RuntimeError: {PEER_GONE.partition('] ')[2]}"
        in verdict.facts
    )


def test_the_same_failure_of_all_ranks_has_no_victim() -> None:
    """When every rank fails by itself in the same way, all are named."""
    ranks = [
        dead(n, 0.1 * n, code=1, raised=[raised("FileNotFoundError", f"no shard-{n}.bin", 0.1 * n)])
        for n in range(4)
    ]
    verdict = only(job(*ranks, why="death"))

    assert ("rank-failed", [0, 1, 2, 3], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("all ranks raised FileNotFoundError: no shard-0.bin")
    assert "another rank makes the file" not in verdict.hint


@pytest.mark.parametrize("machines", [("one", "one"), ("one", "two")], ids=["one machine", "two"])
def test_a_file_that_only_some_ranks_miss_may_be_made_by_another(machines: tuple[str, str]) -> None:
    """The folder may differ where no machine has ranks of both kinds."""
    missing = raised("FileNotFoundError", "[Errno 2] No such file or directory: '/cache/t.bin'", 0)
    evidence = job(
        victim(0), victim(1), *(dead(n, 0.1, code=1, raised=[missing]) for n in (2, 3)), why="death"
    )
    nodes = [replace(node, machine=name) for node, name in zip(evidence.evidence, machines)]
    verdict = only(replace(evidence, evidence=nodes))

    assert ("rank-failed", [2, 3]) == (verdict.code, verdict.ranks)
    assert verdict.hint.startswith("Not all ranks raised this. If another rank makes the file, ")
    assert (machines[0] != machines[1]) == ("the same folder on all nodes" in verdict.hint)


def test_another_error_of_some_ranks_says_nothing_of_files() -> None:
    verdict = only(job(victim(0), dead(1, 0.1, code=1, raised=[raised("KeyError", "'x'", 0)]), why="death"))

    assert verdict.hint.startswith("Fix ")


def test_a_later_failure_of_another_kind_is_a_victim() -> None:
    """Of two different failures the first is the cause."""
    verdict = only(
        job(
            dead(0, 1, code=1, raised=[raised("KeyError", "'loss'", 3)]),
            dead(1, 2, code=1, raised=[raised("ValueError", "bad", 2)]),
            why="death",
        )
    )

    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_exit_code_without_an_exception() -> None:
    """sys.exit(3) leaves no exception; its last line is told instead."""
    verdict = only(job(dead(0, 0, code=3, last_output="no licence left"), victim(1), why="death"))

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 ended with exit code 3 and no exception (sys.exit or os._exit); its last line: no licence "
        "left" == verdict.sentence
    )


CLEAN_UP = Frame("handle", "/job/train.py", 13)


def test_ranks_that_end_after_a_signal_that_they_handle() -> None:
    """They were asked to; their last lines are facts."""
    asked = [Signalled(10, NOW - 11, CLEAN_UP)]
    ranks = [dead(number, 0.1 * number, code=1, signals=asked, last_output="saved") for number in (0, 1)]
    verdict = only(job(*ranks, why="death"))

    assert verdict.sentence.startswith(
        "all ranks ended with exit code 1 and no exception (sys.exit or os._exit); before that, SIGUSR1 came "
        "to all ranks at "
    )
    assert verdict.sentence.endswith(" (handle, train.py:13)")
    assert "ended for it" in verdict.hint


@pytest.mark.parametrize(
    "came",
    [Signalled(10, NOW - 50), Signalled(10, NOW - 5), Signalled(14, NOW - 11)],
    ids=["long before", "only after its end", "its own timer"],
)
def test_an_exit_code_is_not_put_down_to_any_signal(came: Signalled) -> None:
    verdict = only(job(dead(0, 0, code=3, signals=[came]), victim(1), why="death"))

    assert "came to" not in verdict.sentence
    assert "ended for it" not in verdict.hint


def test_failure_before_init_while_others_wait_there() -> None:
    """Ranks that live and wait for the dead one are its victims, and those torchrun sent away as well."""
    verdict = only(
        job(
            dead(0, 1, signal=15, by_us=True),
            dead(1, 0.5, code=1, raised=[raised("JSONDecodeError", "line 1", 0.4)]),
            rank(2, in_init(), groups=[], initialized=False),
            rank(3, in_init(), groups=[], initialized=False),
            why="death",
        )
    )

    assert ("rank-failed", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_killed() -> None:
    """A SIGKILL that no memory counter explains came from somebody."""
    verdict = only(job(victim(0), victim(1), dead(2, 0, signal=9), victim(3), why="death"))

    assert ("rank-killed", [2], [1], [0, 1, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 2 was killed by SIGKILL" == verdict.sentence
    assert "node 1: the cgroup counted no kill for memory, and the kernel logged none" in verdict.facts


@pytest.mark.parametrize(("after", "culprit"), [(0.3, 1), (0.8, 0)])
def test_sigkill_may_be_the_answer_to_another_end(after: float, culprit: int) -> None:
    """MPI's launcher ends all ranks over the one that crashed, and clocks of two nodes differ a little."""
    verdict = only(job(dead(0, 0, signal=9), dead(1, after, signal=11), why="death", per_node=1))

    assert ("rank-killed", [culprit]) == (verdict.code, verdict.ranks)


def test_rank_crashed_in_native_code() -> None:
    """SIGSEGV is the rank's own doing, and the hint says how to see where."""
    verdict = only(job(victim(0), dead(1, 0, signal=11), why="death"))

    assert ("rank-killed", [1]) == (verdict.code, verdict.ranks)
    assert "PYTHONFAULTHANDLER" in verdict.hint


def test_a_thread_that_outlived_its_program_is_told_how_to_end() -> None:
    """C++'s last words of a program that ended while threads of torch ran: its build is not to blame."""
    words = "terminate called without an active exception"
    verdict = only(job(victim(0), dead(1, 0, signal=6, last_output=words), why="death"))

    assert ("rank-killed", [1]) == (verdict.code, verdict.ranks)
    assert "destroy_process_group()" in verdict.hint


KILLED = "Memory cgroup out of memory: Killed process 1001 (python) total-vm:4101096kB, anon-rss:1048576kB, "


@pytest.mark.parametrize(
    ("told", "held"), [({"oom_kills": 1}, ""), ({"kernel": [KILLED, "oom-kill:…"]}, ", it held 1.0 GiB")]
)
def test_rank_killed_for_memory(told: dict[str, Any], held: str) -> None:
    """The cgroup's count or the kernel's line makes a SIGKILL a kill for memory."""
    verdict = only(job(victim(0), dead(1, 0, signal=9), why="death", memory_limit=16 << 30, **told))

    assert ("rank-killed-memory", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 1 was killed for memory on node 0: limit 16.0 GiB{held}" == verdict.sentence


def test_loader_worker_killed_for_memory() -> None:
    """The worker's death reaches the rank as an exception; the cause is told, not the exception."""
    text = "DataLoader worker (pid 812) is killed by signal: Killed. "
    evidence = job(
        dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death", oom_kills=1
    )
    verdict = only(evidence)

    assert ("rank-killed-memory", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 0's DataLoader worker 812 was killed for memory on node 0" == verdict.sentence


def test_a_loader_worker_that_is_gone_was_not_killed_for_that() -> None:
    """torch says so of one that has called exit, too: nothing speaks of a signal."""
    text = "DataLoader worker (pid(s) 812) exited unexpectedly"
    evidence = job(dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death")
    verdict = only(evidence)

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_exited_early_and_the_others_lost_it() -> None:
    """Exit 0 is no fault by itself; it is when the others then fail for want of that rank."""
    verdict = only(job(victim(0), dead(1, 0, code=0), victim(2), victim(3), why="death"))

    assert ("rank-exited-early", [1], [0], [0, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 needed it" == verdict.sentence


def test_a_rank_that_ends_at_once_is_not_said_to_have_finished_normally() -> None:
    """Its Python did not shut down."""
    gone = dead(1, 0, code=0)
    assert gone.exit is not None
    gone = replace(gone, exit=replace(gone.exit, at_once=True))
    verdict = only(job(victim(0), gone, why="death"))

    assert (
        "rank 1 ended with exit code 0, and without the end of Python, as os._exit(0) ends it, while rank 0 "
        "needed it" == verdict.sentence
    )
    assert "a thread that watches the others" in verdict.hint


@pytest.mark.parametrize(("before", "shown"), [(0.3, True), (60.0, False)])
def test_the_last_line_of_a_rank_that_ended_early_is_shown_if_it_came_just_before(
    before: float, shown: bool
) -> None:
    gone = dead(1, 0, code=0, last_output="nothing to do", last_output_at=NOW - 10 - before)
    verdict = only(job(victim(0), gone, why="death"))

    assert shown == ("rank 1's last line: nothing to do" in verdict.facts)


def test_rank_exited_early_and_the_others_wait() -> None:
    """The same while the others still wait, as with NCCL."""
    verdict = only(job(rank(0), dead(1, 0, code=0), rank(2), rank(3)))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 still wait in all_reduce 17 "
        "(train.py:92)" == verdict.sentence
    )


def test_rank_exited_early_and_the_others_are_at_different_stages_of_failing() -> None:
    """One has raised and is not dead yet, one was sent away and buried by its launcher: both are victims."""
    failing = rank(0, [], raised=[raised("RuntimeError", PEER_GONE, 0.9)], groups=[])
    verdict = only(job(failing, dead(1, 0, code=0), victim(2), dead(3, 1.2, by_us=True), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_exited_early_and_one_was_seen_a_moment_too_early() -> None:
    """It still stood in the last collective of the rank that left; the others were further."""
    left = dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])
    further = replace(victim(0), groups=[Group("0", [], 17, 16)])
    verdict = only(job(further, left, rank(2, called=16), rank(3), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


STARVED = Process(1001, "R", wchan="0", delayed=0.75, ran=0.2)
"""torch's own end, on a machine whose CPUs are busy."""


def test_a_rank_that_ends_slowly_on_a_busy_machine_left_early_and_is_not_starved() -> None:
    left = rank(1, [], called=6, phase="finalizing", initialized=False, process=STARVED)
    verdict = only(job(rank(0), left, rank(2), rank(3)))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 is ending while ranks 0, 2 and 3 still wait in all_reduce 17 (train.py:92)"
        == verdict.sentence
    )
    assert "rank 1: its process group is destroyed, or its Python shuts down" in map(str, verdict.facts)


@pytest.mark.parametrize(
    "more", [{"called": 17}, {"called": 6, "raised": [raised("ValueError", "no batch", 1.0)]}]
)
def test_a_rank_that_ends_and_has_called_as_much_or_raised_did_not_leave_early(more: dict[str, Any]) -> None:
    left = rank(1, [], phase="finalizing", initialized=False, **more)

    assert "rank-exited-early" not in {each.code for each in judge(job(rank(0), left, rank(2), rank(3)))}


def test_who_has_called_all_collectives_has_not_left_early() -> None:
    """A rank that is done is not missing where it was."""
    verdict = only(job(rank(0, called=16), dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])))

    assert "unknown" == verdict.code


def test_the_last_rank_may_take_its_time() -> None:
    """Ranks that are done do not make the one that still saves its model a victim."""
    ranks = [dead(n, 0, code=0) for n in (1, 2, 3)]
    verdict = only(job(rank(0, in_evaluate()), *ranks))

    assert ("rank-in-user-code", [0], []) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_node_that_went_away_is_named_instead_of_its_victims() -> None:
    """When the others lost a peer and one node does not answer any more, that node is told."""
    evidence = replace(job(victim(0), victim(1), why="death"), nodes=2, world_size=4, silent=[1], lost=[GONE])
    verdict = only(evidence)

    assert ("network-lost", [1], [0, 1]) == (verdict.code, verdict.nodes, verdict.victims)
    assert verdict.sentence.startswith("node 1 went away: its agent ended without a word at ")


def test_a_node_that_went_away_is_named_before_the_rest_has_noticed() -> None:
    """Ranks that still compute, or wait for those that are gone, are not taken for the cause."""
    evidence = replace(
        job(rank(0, in_evaluate(), called=16), rank(1), why="death"), nodes=2, silent=[1], lost=[GONE]
    )
    verdict = only(evidence)

    assert ("network-lost", [1], [], [0, 1]) == (verdict.code, verdict.nodes, verdict.ranks, verdict.victims)


def test_a_node_that_fell_silent_is_no_hang_of_those_who_wait() -> None:
    """Not even its kernel answers: the node is told by its name, with what its ranks had done."""
    waits = job(rank(0), rank(1), why="still")
    gone = replace(GONE, closed=False)
    verdict = only(replace(waits, nodes=2, silent=[1], lost=[gone], names=["n1", "n2"]))

    assert ("network-lost", [1], [0, 1]) == (verdict.code, verdict.nodes, verdict.victims)
    assert verdict.sentence.startswith("node 1 (n2) stopped answering at ")
    assert (
        "node 1 (n2) was last heard 10 s ago, 34 collectives done by its ranks together; "
        "not even its kernel acknowledges what is sent to it" == verdict.facts[0]
    )


def test_a_rank_that_failed_before_a_node_went_away_is_the_cause() -> None:
    """A node that goes down later, say because its scheduler ends the job, explains nothing."""
    failed = dead(0, 1, code=1, raised=[raised("ValueError", "bad batch", 1)])
    evidence = job(failed, rank(1), why="death")

    assert "rank-failed" == only(replace(evidence, nodes=2, silent=[1], lost=[replace(GONE, at=NOW)])).code
    assert "network-lost" == only(replace(evidence, nodes=2, silent=[1], lost=[GONE])).code


def test_launch_command_that_fails_before_its_workers() -> None:
    """A launch command that ends badly without having started a rank is told with its own words."""
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 2))
    node = replace(
        node, launch_output=["usage: torchrun [-h]", "torchrun: error: unrecognized arguments: --nprocs"]
    )
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    assert ("launch-failed", [0], []) == (verdict.code, verdict.nodes, verdict.ranks)
    assert (
        "node 0's launch command ended with exit code 2 before it started a worker: "
        "torchrun: error: unrecognized arguments: --nprocs"
    ) == verdict.sentence


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("RuntimeError", PEER_GONE, True),
        (
            "torch.distributed.DistBackendError",
            "NCCL error: remote process exited or there was a network error",
            True,
        ),
        (
            "torch.distributed.DistStoreError",
            "wait timeout after 8000ms, keys: /default_pg/0//cpu//0/2",
            True,
        ),
        ("torch.distributed.elastic.multiprocessing.api.SignalException", "Process 1 got signal: 15", True),
        ("KeyboardInterrupt", "", True),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", False),
        ("RuntimeError", "CUDA out of memory", False),
        ("ValueError", "Connection closed by peer", False),
    ],
)
def test_consequences(kind: str, message: str, expected: bool) -> None:
    """Torch's own network errors are consequences; a user's connection that broke is a cause."""
    assert expected == is_consequence(raised(kind, message, 0))


# --- The rule on SIGBUS: what /dev/shm held decides what is to be mended.


MIB = 1 << 20


def test_a_full_shared_memory_is_to_be_enlarged() -> None:
    """What it held at most counts: with the process its pages have gone."""
    verdict = only(
        job(dead(0, 0, signal=7), victim(1), why="death", shm_size=64 * MIB, shm_used=0, shm_peak=64 * MIB)
    )

    assert ("rank-killed-bus", [0], [0], [1]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 0 was killed by SIGBUS: /dev/shm on node 0 was full (64 MiB of 64 MiB)" == verdict.sentence
    assert "node 0: /dev/shm holds 0 B of 64 MiB, and held 64 MiB at most" in verdict.facts
    assert "--shm-size" in verdict.hint
    assert "mapped file" not in verdict.hint


@pytest.mark.parametrize(("size", "enlarge"), [(64, True), (24 << 10, False)])
def test_a_shared_memory_with_room_leaves_the_mapped_file(size: int, enlarge: bool) -> None:
    """A small one may have been full between two looks; a large one may not."""
    evidence = job(dead(0, 0, signal=7), victim(1), why="death", shm_size=size * MIB, shm_used=12 * MIB)
    verdict = only(evidence)

    assert "was not seen full (12 MiB of " in verdict.sentence
    assert "mapped" in verdict.hint
    assert enlarge == ("--shm-size" in verdict.hint)


def test_an_unknown_shared_memory_is_not_judged() -> None:
    """A bundle of a node whose /dev/shm was not read: both causes stay possible."""
    verdict = only(job(dead(0, 0, signal=7), victim(1), why="death"))

    assert "rank 0 was killed by SIGBUS" == verdict.sentence
    assert "mapped" in verdict.hint
    assert "--shm-size" in verdict.hint


TEXT = (
    "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are"
)


def test_a_loader_worker_is_named_with_its_rank() -> None:
    """torch's message has the worker and the signal."""
    evidence = job(dead(0, 1, code=1, raised=[raised("RuntimeError", TEXT, 0.5)]), victim(1), why="death")
    verdict = only(evidence)

    assert ("rank-killed-bus", [0]) == (verdict.code, verdict.ranks)
    assert "rank 0's DataLoader worker 812 was killed by SIGBUS" == verdict.sentence


@pytest.mark.parametrize(("worker", "code"), [(812, "rank-killed-bus"), (811, "rank-failed")])
def test_the_signal_of_a_loader_worker_may_stand_in_the_cause(worker: int, code: str) -> None:
    """torch says that the worker is gone, from an exception with the signal; another's is not its."""
    gone = raised("RuntimeError", f"DataLoader worker (pid(s) {worker}) exited unexpectedly", 0.5)
    ended = dead(0, 1, code=1, raised=[replace(gone, cause=TEXT)])

    assert code == only(job(ended, victim(1), why="death")).code


@pytest.mark.parametrize("signal", [9, 11])
def test_another_signal_is_no_bus_error(signal: int) -> None:
    """A full /dev/shm beside it changes nothing."""
    evidence = job(dead(0, 0, signal=signal), victim(1), why="death", shm_size=64 * MIB, shm_used=64 * MIB)

    assert "rank-killed" == only(evidence).code


# --- ranks that ended for want of another: who held them up, by what the dying said.


def test_watchdog_that_gives_up_is_a_victim() -> None:
    """NCCL's watchdog aborts the waiting rank; the one that waits nowhere is to blame."""
    text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"
    evidence = job(
        dead(0, 0, signal=6, last_output=f"  what():  {text}"), rank(1, in_evaluate(), called=16), why="death"
    )

    verdict = only(evidence)

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)


def test_timed_out_peers_do_not_hide_the_rank_that_hangs() -> None:
    """With a short timeout the victims die first; the living rank in its own code is at fault."""
    text = "Timed out waiting 8000ms for recv operation to complete"
    gone = [dead(n, n, code=1, raised=[raised("RuntimeError", text, n)], groups=[]) for n in (0, 1, 2)]
    verdict = only(job(*gone, rank(3, in_evaluate(), called=16), why="death"))

    assert ("rank-in-user-code", [3]) == (verdict.code, verdict.ranks)


def test_mismatch_told_by_the_dying() -> None:
    """Gloo aborts on another size; the flight recorders of those that still answered name the odd rank."""
    words = "Received data size doesn't match. Is there a distributed collective mismatch in your code?"
    said = dead(1, 0, signal=6, last_output=f"  what():  {words}")
    with_records = job(
        rank(0, collectives=[call(17, "all_reduce", [16])]),
        said,
        rank(2, collectives=[call(17, "all_reduce", [64])]),
        rank(3, collectives=[call(17, "all_reduce", [16])]),
        why="death",
    )
    without = job(victim(0), said, why="death")

    assert ("collective-mismatch", [2], [0, 1, 3]) == (
        only(with_records).code,
        only(with_records).ranks,
        only(with_records).victims,
    )
    assert ("collective-mismatch", [], [], 0.5) == (
        only(without).code,
        only(without).ranks,
        only(without).victims,
        only(without).confidence,
    )


def compared(number: int, op: str, peer: int, other: str) -> RankEvidence:
    """A rank that ended because torch has compared its call with its peer's."""
    shape = "TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default)))"
    mine, his = (f"CollectiveFingerPrint(SequenceNumber=5, OpType={each}, {shape}" for each in (op, other))
    message = (
        f"Detected mismatch between collectives on ranks. Rank {number} is running collective: {mine}, "
        f"but Rank {peer} is running collective: {his}."
    )
    return dead(number, 0, code=1, raised=[raised("RuntimeError", message, 0, line=10 + number)])


def test_mismatch_told_by_detail() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL stops all ranks with both calls in words: the odd one is named."""
    verdict = only(
        job(
            compared(0, "ALLREDUCE", 2, "BROADCAST"),
            compared(1, "ALLREDUCE", 0, "ALLREDUCE"),
            compared(2, "BROADCAST", 0, "ALLREDUCE"),
            per_node=3,
            why="death",
        )
    )

    assert ("collective-mismatch", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "at collective 5 rank 2 called broadcast [4] (train.py:12)" in verdict.sentence


def test_a_rank_that_others_name_and_nobody_has_seen_is_in_its_camp() -> None:
    """Its node was lost before it could tell anything."""
    seen = job(
        compared(0, "ALLREDUCE", 2, "ALLREDUCE"), compared(1, "BROADCAST", 2, "ALLREDUCE"), why="death"
    )
    verdict = only(replace(seen, nodes=2, world_size=3, silent=[1]))

    assert ("collective-mismatch", [1]) == (verdict.code, verdict.ranks)


def test_a_rank_that_was_sent_away_held_the_others_up() -> None:
    """Peers gave up after a timeout, and torchrun ended the rank that held them: its last stack tells."""
    text = "Timed out waiting 5000ms for recv operation to complete"
    frames = in_collective()[0].frames
    gave_up = [
        dead(n, 1, code=1, raised=[replace(raised("RuntimeError", text, 1), frames=frames)]) for n in (0, 1)
    ]
    held = replace(rank(2, in_loader(), called=16), alive=False, exit=Exited(NOW, signal=15, by_us=True))
    verdict = only(job(*gave_up, held, per_node=3, why="death"))

    assert ("rank-in-dataloader", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)


def _of_a_group(number: int, seq: int, **more: Any) -> RankEvidence:
    """A rank that torchrun has ended, or that failed for want of another, with its last call in the ring."""
    failed = [raised("RuntimeError", PEER_GONE, 1)] if number else []
    last = Collective("0", seq, "all_reduce", state="raised" if number else "returned", frames=[MAIN])
    passed = Rendezvous("env", NOW - 60, passed=True)
    values = {"raised": failed, "calls": [last], "rendezvous": passed, "by_us": not number, **more}
    return dead(number, 1, code=1 if number else None, signal=None if number else 15, **values)


def test_a_living_rank_that_has_destroyed_its_group_is_why_the_others_lost_it() -> None:
    """Not if its group is still there, if it had called as much, or if it raised something itself."""
    victims = [_of_a_group(1, 33), _of_a_group(2, 33)]

    def judged(seq: int, **more: Any) -> Verdict:
        return only(job(_of_a_group(0, seq, **more), *victims, per_node=3, why="death"))

    verdict = judged(32, initialized=False)
    assert ("rank-exited-early", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "rank 0 destroyed its process group after all_reduce 32 (train.py:40), while ranks 1 and 2 needed it "
        "in all_reduce 33 (train.py:40)"
    )
    others = [judged(32), judged(33, initialized=False)]
    others += [judged(32, initialized=False, raised=[raised("RuntimeError", PEER_GONE, 0)])]
    assert [[]] * 3 == [each.ranks for each in others]


def test_a_rank_that_works_is_not_blamed_for_a_broken_connection() -> None:
    """Somewhere a peer went away; that a rank stood in its own code at that moment means nothing."""
    verdict = only(
        job(victim(0), rank(1, in_evaluate(), called=16, still_for=0.0, stuck_for=0.5), why="death")
    )

    assert ("rank-failed", [], 0.4) == (verdict.code, verdict.ranks, verdict.confidence)


def test_sigterm_while_its_exception_was_told() -> None:
    """A victim that torchrun ended while it raised is no second culprit of the SIGTERM that began it all."""
    began = dead(2, 0, signal=15)
    hit = dead(3, 0.6, signal=15, raised=[raised("RuntimeError", PEER_GONE, 0.1)])
    verdict = only(job(victim(0), victim(1), began, hit, why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert verdict.sentence.startswith("rank 2 ended by SIGTERM")


def test_victims_without_a_known_cause() -> None:
    """When every failure is another's fault and no rank's own is known, no rank is accused."""
    verdict = only(job(victim(0, 2.0), victim(1, 1.0), why="death"))

    assert ("rank-failed", [], [], [0, 1]) == (verdict.code, verdict.nodes, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 1 was the first to fail")
    assert "another rank is at fault, and which one is not known" in verdict.sentence


def test_an_end_that_was_not_seen_stands_beside_its_victims() -> None:
    """A supervisor that was away for a while sees only that a rank is gone, and when it came back itself."""
    gone = dead(2, 0)
    verdict = only(job(victim(0, 6.0), victim(1, 6.0), gone, victim(3, 6.0), why="death"))

    assert ("rank-failed", [], [0, 1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 2 ended, and its exit code was not seen" in verdict.facts


def test_sigterm_by_torchrun_is_no_cause() -> None:
    """A SIGTERM beside another rank's bad end is torchrun's, also when its cause was seen a moment later."""
    verdict = only(job(dead(0, 0, code=0), rank(1), victim(2, 1.1), dead(3, 1.0, signal=15), why="death"))

    assert ("rank-exited-early", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


# --- What the hook's ring has kept of each rank's calls, for ranks whose recorder died with them.


WORDS = (
    "  what():  Received data size doesn't match. Is there a distributed collective mismatch in your code?"
)


def called(seq: int, op: str = "all_reduce", size: int = 16, line: int = 92) -> Collective:
    """A call that has not returned."""
    frames = [Frame("step", "/job/train.py", line)]
    return Collective("0", seq, op, [[size]], ["float32"], frames=frames, state="entered")


def aborted(number: int, *calls: Collective, **more: Any) -> RankEvidence:
    """A rank that Gloo has ended."""
    return dead(number, 0, signal=6, last_output=WORDS, calls=list(calls), **more)


def test_a_mismatch_is_found_in_what_the_dead_have_called() -> None:
    """Gloo aborts a rank, the others die with it, and no recorder answered: the odd one is named."""
    odd = called(17, size=64, line=88)
    ranks = [victim(0), aborted(1, called(17)), victim(2), victim(3)]
    kept = {0: called(17), 2: odd, 3: called(17)}
    evidence = [
        RankEvidence(**{**vars(each), "calls": [kept[each.rank]]}) if each.rank in kept else each
        for each in ranks
    ]
    verdict = only(job(*evidence, why="death"))

    assert ("collective-mismatch", [2], [0, 1, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at collective 17 rank 2 called all_reduce [64] (train.py:88), "
        "the others all_reduce [16] (train.py:92)"
    )


def test_a_collective_called_past_torchs_python_is_waited_in() -> None:
    """As Lightning Fabric's barrier: the stack ends at the user's line, at which the ring has a call."""
    barrier = called(1, "monitored_barrier", line=35)
    here, elsewhere = (stack(Frame("step", "/job/train.py", line)) for line in (35, 40))
    evaluates = rank(0, in_evaluate(), called=0)
    one, two, gone = [
        rank(number, stacks, called=0, calls=[barrier])
        for number, stacks in ((1, here), (2, here), (2, elsewhere))
    ]
    verdict, both = only(job(evaluates, one, two)), only(job(evaluates, one, gone))

    assert ("rank-in-user-code", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert [0, 2] == both.ranks


def test_calls_and_records_are_never_compared() -> None:
    """DistributedDataParallel's own reductions are counted by torch's recorder, and by no ring."""
    recorded = rank(0, collectives=[call(17, "all_reduce", [1000])])
    verdicts = judge(job(recorded, aborted(1, called(17, "broadcast", 4)), why="death"))

    assert [(verdict.code, verdict.ranks, verdict.confidence) for verdict in verdicts] == [
        ("collective-mismatch", [], 0.5)
    ]


def in_backward(number: int, seq: int = 16, line: int = 80) -> RankEvidence:
    """A rank whose DDP sums up gradients; the last call of the program's own, `seq`, has returned."""
    engine = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113)
    backward = Frame("backward", f"{TORCH}/_tensor.py", 623)
    calls = [replace(called(seq), state="returned")]
    return rank(number, stack(engine, backward, Frame("train", "/job/train.py", line)), calls=calls)


def test_a_call_beside_the_others_backward_is_named() -> None:
    """DDP's collectives have no line: that the others have not made the call shows who is alone."""
    ranks = [aborted(0, called(17)), *map(in_backward, (1, 2, 3))]
    verdict = only(job(*ranks, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 17 of the program rank 0 called all_reduce [16] (train.py:92), the others backward "
        "(train.py:80)"
    )
    assert only(job(*ranks[:2], why="death")).ranks == [0, 1]  # of two, either may be wrong


@pytest.mark.parametrize(
    "third",
    [
        in_backward(2, seq=17),
        in_backward(2, line=81),
        rank(2, in_evaluate(), calls=[replace(called(16), state="returned")]),
        victim(2),
    ],
    ids=["has made it", "in another backward", "in no collective", "unknown"],
)
def test_a_call_beside_a_backward_proves_nothing_of_other_ranks(third: RankEvidence) -> None:
    """Where one is elsewhere, the calls of the others do not show which is wrong."""
    verdicts = judge(job(aborted(0, called(17)), in_backward(1), third, in_backward(3), why="death"))

    assert "collective-mismatch" not in [verdict.code for verdict in verdicts if verdict.ranks]


def without_calls(number: int, **more: Any) -> RankEvidence:
    """A rank whose program calls no collective itself, in DDP's backward."""
    return replace(in_backward(number), calls=[], **more)


def test_a_first_call_beside_the_others_backward_is_named() -> None:
    """DDP alone, and `if rank == 0: dist.all_reduce(…)`: the others have called nothing."""
    ranks = [aborted(0, called(1, size=1)), *map(without_calls, (1, 2, 3))]
    second = [aborted(0, called(2, size=1)), *map(without_calls, (1, 2, 3))]
    unseen = [*ranks[:3], without_calls(3, stack_source="py-spy")]
    verdict = only(job(*ranks, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 1 of the program rank 0 called all_reduce [1] (train.py:92), the others backward "
        "(train.py:80)"
    )
    assert [] == only(job(*second, why="death")).ranks
    assert [] == only(job(*unseen, why="death")).ranks  # without a hook nobody knows what it has called


def in_torchs_own(name: str, line: int) -> list[Stack]:
    """The main thread in a collective of a function of torch, past the functions that the program calls."""
    return stack(
        Frame("wait_tensor", f"{TORCH}/distributed/_functional_collectives.py", 149),
        Frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
        Frame(name, f"{TORCH}/distributed/checkpoint/state_dict.py", 1000),
        Frame("inner", f"{TORCH}/utils/_contextlib.py", 120),
        Frame("train", "/job/train.py", line),
    )


def crashed(number: int, stacks: list[Stack], **more: Any) -> RankEvidence:
    """A rank that Gloo has ended, with where its main thread was."""
    return replace(aborted(number, **more), stacks=stacks, stack_source="crash")


def test_a_function_of_torch_beside_the_others_call_is_named() -> None:
    """FSDP: rank 0 alone gathers the state, the others go on to their next call."""
    gathers = crashed(0, in_torchs_own("get_model_state_dict", 24))
    failed = replace(called(1, "all_gather_into_tensor", line=20), state="raised")
    others = [replace(victim(number), calls=[failed]) for number in (1, 2, 3)]
    verdict = only(job(gathers, *others, why="death"))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at call 1 of the program rank 0 called get_model_state_dict (train.py:24), "
        "the others all_gather_into_tensor [16] (train.py:20)"
    )


def test_two_functions_of_torch_are_told_apart_by_their_lines() -> None:
    """Neither is in the ring. Ranks that have not made as many calls are out of step somewhere else."""
    gathers = crashed(0, in_torchs_own("get_model_state_dict", 24))
    others = [rank(number, in_torchs_own("unshard", 20)) for number in (1, 2, 3)]
    verdict = only(job(gathers, *others, why="death"))
    ahead = replace(others[2], calls=[replace(called(1), state="returned")])

    assert ("collective-mismatch", [0], 0.8) == (verdict.code, verdict.ranks, verdict.confidence)
    assert verdict.sentence == (
        "rank 0 called get_model_state_dict (train.py:24), the others unshard (train.py:20)"
    )
    for silent in (
        [gathers, *others[:2], ahead],
        [gathers, *others[:2], rank(3, in_torchs_own("unshard", 21))],
        [gathers, *(rank(number, in_torchs_own("get_model_state_dict", 24)) for number in (1, 2, 3))],
        [gathers, *others[:2], rank(3, in_evaluate())],
    ):
        assert [] == only(job(*silent, why="death")).ranks


def test_where_a_rank_that_names_nobody_was_is_told() -> None:
    verdict = only(job(crashed(0, in_torchs_own("get_model_state_dict", 24)), victim(1), why="death"))

    assert verdict.sentence.startswith("rank 0 ended (train.py:24) because the ranks called different")
    assert "rank 0 was in train (train.py:24)" in verdict.facts


def test_where_a_rank_crashed_is_told() -> None:
    """The thread that crashed is the user's, or none of Python's."""
    frames = stack(Frame("load", "/job/data.py", 12))
    python, native = (
        replace(dead(1, 0, signal=11), stacks=[replace(frames[0], crashed=each)], stack_source="crash")
        for each in (True, False)
    )
    stale = replace(python, stack_source="hook", stacks=frames)
    bare = replace(native, stacks=[replace(frames[0], frames=[])])
    told, native_told, unknown, bare_told = (
        only(job(victim(0), each, why="death")) for each in (python, native, stale, bare)
    )

    assert "rank 1 was killed by SIGSEGV (data.py:12)" == told.sentence
    assert "rank 1 crashed in <module> (train.py:50) > main (train.py:40) > load (data.py:12)" in told.facts
    assert "rank 1 was killed by SIGSEGV" == native_told.sentence == unknown.sentence
    own = "rank 1 crashed in native code's own thread; its main thread"
    assert (
        f"{own} was in <module> (train.py:50) > main (train.py:40) > load (data.py:12)" in native_told.facts
    )
    assert f"{own} ran no Python" in bare_told.facts
    assert not any("data.py" in fact for fact in unknown.facts)


def test_equal_calls_blame_nobody() -> None:
    """The ranks' own calls agree: the mismatch was in what no ring shows."""
    evidence = job(
        aborted(0, called(17)), aborted(1, called(17)), victim(2), rank(3, calls=[called(17)]), why="death"
    )
    verdict = only(evidence)

    assert ("collective-mismatch", [], 0.5) == (verdict.code, verdict.ranks, verdict.confidence)


def test_a_recorder_that_agrees_is_believed() -> None:
    """While ranks wait and answer, torch's own numbers decide, and the ring is not asked."""
    waits = [
        rank(number, collectives=[call(17, "all_reduce")], calls=[called(9, size=4 + number)])
        for number in range(2)
    ]

    assert [verdict.code for verdict in judge(job(*waits))] == ["unknown"]


def test_the_line_is_that_of_the_call() -> None:
    """A rank that has gone on since is not shown where it stands now."""
    waits = [
        rank(number, calls=[called(17, "broadcast" if number == 2 else "all_reduce", line=60 + number // 2)])
        for number in range(3)
    ]

    assert only(job(*waits, per_node=3)).sentence == (
        "at collective 17 rank 2 called broadcast [16] (train.py:61), "
        "the others all_reduce [16] (train.py:60)"
    )


def test_a_killed_rank_shows_where_it_was() -> None:
    """What it called last and where, whether it stood in there or had come back."""
    recv = Collective("0", 1, "recv", p2p=True, peer=0, frames=[Frame("step", "/job/train.py", 13)])
    for state, fact in (
        ("entered", "rank 1 was in recv from rank 0 (train.py:13)"),
        ("returned", "rank 1 had come back from recv from rank 0 (train.py:13)"),
    ):
        killed = dead(1, 0, signal=9, calls=[replace(recv, state=state)])

        assert fact in only(job(victim(0), killed, why="death")).facts


# --- What a rank or a command wrote last, in the verdict on its end.


LINES = [f"line {number}" for number in range(14)]


def test_a_rank_without_an_exception_is_quoted() -> None:
    """Ten lines at most, the newest last."""
    failed = dead(1, 1, code=3, last_output="line 13", last_lines=LINES)
    verdict = only(job(rank(0), failed, why="death"))

    assert ["the last lines of rank 1:", *(f"| line {number}" for number in range(4, 14))] == verdict.facts[
        :11
    ]


def test_a_killed_rank_is_quoted() -> None:
    """What it was doing when the signal came stands in its log alone."""
    verdict = only(job(rank(0), dead(1, 1, signal=11, last_lines=["loads libfoo.so"]), why="death"))

    assert ["the last lines of rank 1:", "| loads libfoo.so"] == verdict.facts[:2]


def test_a_traceback_is_not_quoted_twice() -> None:
    """The sentence has it; what was written before it is quoted."""
    lines = ["reads shard 7", "Traceback (most recent call last):", '  File "train.py", line 61']
    error = raised("ValueError", "bad batch", 1)
    verdict = only(job(rank(0), dead(1, 1, code=1, raised=[error], last_lines=lines), why="death"))

    assert "| reads shard 7" in verdict.facts
    assert not any("Traceback" in fact for fact in verdict.facts)


def test_a_command_that_is_no_rank_is_quoted() -> None:
    """A script that fails before it starts a rank has no other witness."""
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 3))
    node = replace(node, launch_output=["preparing", "", "cannot open data.bin"])
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    expected = ["the last lines of node 0's launch command:", "| preparing", "| cannot open data.bin"]
    assert expected == verdict.facts


def test_nothing_is_quoted_of_a_victim() -> None:
    """Only the cause is read for its words."""
    ended = dead(0, 2, signal=15, by_us=True, last_lines=["still training"])
    failed = dead(1, 1, code=3, last_lines=["out of data"])
    verdict = only(job(ended, failed, why="death"))

    assert "| out of data" in verdict.facts
    assert "| still training" not in verdict.facts


# --- A job that was stopped from outside, beside ranks that were killed one by one.


SAID = [
    "W1122 1 torch/distributed/elastic/agent/server/api.py: Received 15 death signal, shutting down workers",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 812 got signal: 15",
]


def launched(evidence: JobEvidence, node: int, end: Exited, said: list[str]) -> JobEvidence:
    """With the end of that node's launch command."""
    nodes = [
        replace(each, launch_exit=end, launch_output=said) if each.node == node else each
        for each in evidence.evidence
    ]
    return replace(evidence, evidence=nodes)


def test_torchrun_was_sent_sigterm() -> None:
    """It ends its ranks by the same signal, and no rank is at fault; nor are those of other nodes."""
    evidence = job(dead(0, 1, signal=15), dead(1, 1.1, signal=15), victim(2), victim(3), why="death")
    verdict = only(launched(evidence, 0, Exited(NOW - 9, 1), SAID))

    assert ("node-evicted", [0], [], [0, 1, 2, 3]) == (
        verdict.code,
        verdict.nodes,
        verdict.ranks,
        verdict.victims,
    )
    assert "the launch command of node 0 ended by SIGTERM, and the sender is unknown" == verdict.sentence


def test_a_launch_command_that_a_signal_ended() -> None:
    """SIGTERM asks for an end; SIGKILL and a crash are failures."""
    ranks = [dead(0, 1, signal=15), dead(1, 1.1, signal=15)]
    codes = [
        only(launched(job(*ranks, why="death"), 0, Exited(NOW - 9, signal=number), [])).code
        for number in (15, 9)
    ]

    assert ["node-evicted", "launch-failed"] == codes


def test_all_ranks_were_sent_the_signal() -> None:
    """A closed terminal takes them all; torchrun would have sent SIGTERM."""
    verdict = only(job(dead(0, 1, signal=1), dead(1, 1.2, signal=1), why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert "all ranks ended by SIGHUP, which came from outside: no rank had failed before" == verdict.sentence


def test_a_keyboard_interrupt_of_all_ranks() -> None:
    """Ctrl-C goes to the whole process group."""
    ends = [dead(n, 1, code=1, raised=[raised("KeyboardInterrupt", "", 1)]) for n in range(2)]

    assert "node-evicted" == only(job(*ends, why="death")).code


def test_one_rank_that_was_sent_the_signal() -> None:
    """The others are sent away because of it, or still stand: it is not accused, the sender is in doubt."""
    sent_away = dead(1, 1.5, signal=15, by_us=True)
    found = [
        only(job(dead(0, 1, signal=15), other, why="death"))
        for other in (sent_away, rank(1), dead(1, 1.1, signal=15))
    ]

    assert [("node-evicted", [], [0, 1])] * 3 == [(one.code, one.ranks, one.victims) for one in found]
    assert [0.5, 0.5, 0.9] == [one.confidence for one in found]
    assert (
        "rank 0 ended by SIGTERM, and the sender is unknown: no rank had failed before" == found[0].sentence
    )


def test_a_rank_that_missed_the_one_that_was_stopped() -> None:
    """It had raised for want of its peer when its launcher sent it away."""
    missed = dead(1, 1.5, signal=15, raised=[raised("RuntimeError", PEER_GONE, 1.3)])
    verdict = only(job(dead(0, 1, signal=15), missed, why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert verdict.sentence.startswith("rank 0 ended by SIGTERM")


@pytest.mark.parametrize("fault", [{"code": 3}, {"signal": 9}, {"signal": 11}])
def test_a_rank_that_failed_on_another_node_is_why_its_launcher_ends_the_rest(fault: dict[str, int]) -> None:
    """mpirun sends SIGTERM to the ranks of all nodes once one has ended badly."""
    verdict = only(
        job(dead(2, 1, **fault), dead(0, 1.2, signal=15), dead(1, 1.2, signal=15), rank(3), why="death")
    )

    assert [2] == verdict.ranks
    assert verdict.code in ("rank-failed", "rank-killed")


def test_a_launch_command_that_was_killed_takes_its_ranks_along() -> None:
    """SIGTERM is how they learn of it."""
    evidence = job(dead(0, 1.1, signal=15), dead(1, 1.2, signal=15), why="death")

    assert "launch-failed" == only(launched(evidence, 0, Exited(NOW - 9, signal=9), [])).code


def test_ranks_that_were_sent_away_after_a_failure() -> None:
    """A rank that had failed before is the cause, whatever ended the launch command later."""
    failed = dead(0, 1, code=1, raised=[raised("ValueError", "bad batch", 1)])
    evidence = job(failed, dead(1, 6, signal=15), why="death")

    assert "rank-failed" == only(launched(evidence, 0, Exited(NOW, 1), SAID)).code


def test_ranks_that_nobody_saw_are_not_judged() -> None:
    """Two of four ended by the signal: one of the others may have failed before."""
    evidence = replace(job(dead(0, 1, signal=1), dead(1, 1, signal=1), why="death"), world_size=4)
    verdict = only(evidence)

    assert ("node-evicted", [], 0.5) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "no rank of those seen had failed before" in verdict.sentence


@pytest.mark.parametrize(
    ("number", "silent", "code"),
    [(15, [], "unknown"), (1, [], "node-evicted"), (15, [1], "node-evicted")],
    ids=["its launcher may have sent it", "no launcher sends it", "the other is on a node that is silent"],
)
def test_a_rank_that_was_never_seen_may_be_the_reason(number: int, silent: list[int], code: str) -> None:
    """It was killed as soon as it lived, say, and its launcher has then sent the others away."""
    nodes = 1 + len(silent)
    evidence = replace(
        job(dead(1, 1, signal=number), why="death"), nodes=nodes, world_size=2 * nodes, silent=silent
    )

    assert code == only(evidence).code


NO_WORKER = "DataLoader worker (pid(s) 812) exited unexpectedly"
TOLD = Frame("told", "/job/train.py", 14)


def without_worker(number: int, *signals: Signalled, message: str = NO_WORKER) -> RankEvidence:
    """A rank that has noticed the end of its worker, and what came to it before."""
    return dead(number, 6, code=1, raised=[raised("RuntimeError", message, 6)], signals=list(signals))


def test_a_signal_that_ranks_handle_and_that_ended_their_workers_came_from_outside() -> None:
    came = Signalled(15, NOW - 9.5, TOLD)
    verdict = only(job(without_worker(0, came), without_worker(1, came), why="death"))

    assert ("node-evicted", [], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "SIGTERM came to all ranks, which handle it (told, train.py:14), and ended DataLoader workers of "
        "ranks 0 and 1" == verdict.sentence
    )
    assert "worker_init_fn" in verdict.hint


def test_a_broken_connection_to_a_worker_is_its_end_as_well() -> None:
    """torch hands over tensors by it. The look at rank 1 was before the signal."""
    recv = Frame("_recv", "/opt/env/lib/python3.11/multiprocessing/connection.py", 395)
    load = Frame("__next__", f"{TORCH}/utils/data/dataloader.py", 725)
    broke = Raised("ConnectionResetError", "[Errno 104] reset", NOW - 8, [recv, load], False, "hook")
    first = dead(0, 2.1, code=1, raised=[broke], signals=[Signalled(15, NOW - 9.5, TOLD)])
    verdict = only(job(first, without_worker(1), why="death"))
    without = only(job(replace(first, signals=[]), without_worker(1), why="death"))

    assert ("node-evicted", 0.5) == (verdict.code, verdict.confidence)
    assert verdict.sentence.endswith(
        "handles it (told, train.py:14), and ended DataLoader workers of ranks 0 and 1"
    )
    assert "rank-failed" == without.code


@pytest.mark.parametrize(
    "rank_of",
    [
        without_worker(0),
        without_worker(0, Signalled(15, NOW - 90, TOLD)),
        without_worker(0, Signalled(10, NOW - 9.5, TOLD)),
        without_worker(0, Signalled(15, NOW - 9.5, TOLD), message="cannot decode"),
    ],
    ids=["no signal", "long before", "one that asks for a checkpoint", "no worker has ended"],
)
def test_a_worker_that_ends_without_a_signal_before_is_a_failure(rank_of: RankEvidence) -> None:
    assert "rank-failed" == only(job(rank_of, victim(1), why="death")).code
