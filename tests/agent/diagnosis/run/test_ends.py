"""The rules on ranks that ended: whose end came first, and whose only followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    NOW,
    PEER_GONE,
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
    victim,
)

from ddplaunch.agent.contract import (
    Exited,
    Frame,
    Lost,
    NodeEvidence,
    RankEvidence,
    Signalled,
)
from ddplaunch.agent.diagnosis.run.causes import is_consequence

GONE = Lost(1, NOW - 10, closed=True, completed=34)


@pytest.mark.parametrize(
    ("group", "ranks"), [("<ProcessGroup object at 0x7f4e{}cf0>", [1, 3]), ("<group {}>", [1])]
)
def test_ranks_that_raise_alike_differ_in_addresses_alone(group: str, ranks: list[int]) -> None:
    text = f"Global rank 1 is not part of group {group}"
    ended = [
        dead(n, 0.9, code=1, raised=[raised("ValueError", text.format(named), 0.5)])
        for n, named in ((1, "be"), (3, "a0"))
    ]
    verdict = only(job(victim(0, 0.6), victim(2), *ended, why="death"))

    assert ("rank-failed", ranks) == (verdict.code, verdict.ranks), verdict.sentence


def test_of_ranks_that_all_raise_there_are_no_others_to_speak_of() -> None:
    both = [dead(n, 0.9, code=1, raised=[raised("NameError", "x", 0.5)]) for n in (0, 1)]
    alone = replace(job(*both, why="death"), world_size=2)

    assert "other ranks" not in only(alone).hint
    assert "other ranks" in only(job(both[0], victim(1, 0.6), why="death")).hint


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


MISSED = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 6000 ms\\n Original exception: Timed out"
ERRORS = "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv"


def test_a_rank_that_monitored_barrier_has_missed_is_the_cause_though_it_came_later_and_ended_last() -> None:
    """Who ended first only heard of it from rank 0; and that is all that the others know."""

    def ended(number: int, at: float, message: str, came: float) -> RankEvidence:
        barrier = replace(call(1, "monitored_barrier"), at=NOW + came, state="raised")
        failed = [raised("RuntimeError", message.format(number), at)]
        return dead(number, at, code=1, raised=failed, calls=[barrier])

    late = ended(1, 2.0, PEER_GONE, -1)
    others = [ended(2, 0.0, ERRORS, -14), ended(3, 0.1, ERRORS, -14)]
    verdict = only(job(ended(0, 0.2, MISSED, -14), late, *others, why="death"))

    assert ("rank-in-user-code", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 came too late to monitored_barrier (train.py:61), 13 s after rank 0: rank 0 waited 6.0 s, as "
        "the call's timeout says" == verdict.sentence
    )
    unseen = only(job(ended(0, 0.2, ERRORS, -14), late, *others, why="death"))
    assert [] == unseen.ranks


@pytest.mark.parametrize(
    ("message", "is_model"),
    [
        (
            "[1]: params[2] in this process with sizes [9, 32] appears not to match sizes of the same param",
            True,
        ),
        ("DDP expects same model across all ranks, but Rank 1 has 4 params", True),
        ("shape mismatch", False),
    ],
)
def test_parameters_that_are_not_those_of_the_others_come_from_another_model(
    message: str, is_model: bool
) -> None:
    verdict = only(
        job(victim(0), dead(1, 0, code=1, raised=[raised("RuntimeError", message, 0)]), why="death")
    )

    assert [1] == verdict.ranks
    assert is_model == ("must be the same on all ranks" in verdict.hint)


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


def test_a_kernel_log_that_nobody_could_read_has_logged_nothing_that_is_known() -> None:
    evidence = job(victim(0), victim(1), dead(2, 0, signal=9), victim(3), why="death")
    hidden = [replace(node, missing=["kernel log: permission denied"]) for node in evidence.evidence]

    said = "the cgroup counted no kill for memory, and what the kernel logged was not seen"
    assert f"node 1: {said}" in only(replace(evidence, evidence=hidden)).facts


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


@pytest.mark.parametrize(("number", "told"), [(10, True), (12, False)])
def test_a_signal_that_killed_a_loader_worker_and_came_to_its_rank_too_is_to_be_ignored_there(
    number: int, told: bool
) -> None:
    text = "DataLoader worker (pid 812) is killed by signal: User defined signal 1. "
    failed = dead(
        0,
        1,
        code=1,
        raised=[raised("RuntimeError", text, 0.5)],
        signals=[Signalled(number, NOW - 10, CLEAN_UP)],
    )
    verdict = only(job(failed, victim(1), why="death"))

    said = "rank 0's DataLoader worker 812 was killed by SIGUSR1"
    assert ("rank-killed", [0]) == (verdict.code, verdict.ranks)
    assert f"{said}{', which rank 0 got as well and handles' * told}" == verdict.sentence.partition(" (")[0]
    assert told == ("`signal.signal(signal.SIGUSR1, signal.SIG_IGN)` in worker_init_fn" in verdict.hint)


def test_a_loader_worker_that_is_gone_was_not_killed_for_that() -> None:
    """torch says so of one that has called exit, too: nothing speaks of a signal."""
    text = "DataLoader worker (pid(s) 812) exited unexpectedly"
    evidence = job(dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death")
    verdict = only(evidence)

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)


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
    ("last", "hint"),
    [
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "join_timeout"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "on all nodes together"),
        ("ValueError: RendezvousTimeoutError is not known", ""),
    ],
)
def test_what_torchrun_says_of_its_rendezvous_has_a_hint_of_its_own(last: str, hint: str) -> None:
    """The lines are those of torchrun 2.15 with --rdzv-conf join_timeout=3 and no second node."""
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 1))
    node = replace(node, launch_output=["    raise RendezvousTimeoutError", last])
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    assert hint in verdict.hint
    assert bool(hint) != verdict.hint.startswith("`ddplaunch logs`")


@pytest.mark.parametrize(
    ("port", "holder", "words"),
    [
        (
            29500,
            "pid 812 (python serve.py, user bob)",
            "port 29500: pid 812 (python serve.py, user bob) has it",
        ),
        (29500, "", "port 29500: another process has it"),
        (0, "", "its port: another process has it"),
    ],
)
def test_a_launch_command_whose_port_is_taken_is_told_with_its_holder(
    port: int, holder: str, words: str
) -> None:
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 1))
    node = replace(node, launch_port=port, launch_port_holder=holder)
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    assert ("port-in-use", [0], []) == (verdict.code, verdict.nodes, verdict.ranks)
    assert f"node 0's launch command could not listen on {words}" == verdict.sentence
    assert "--standalone" in verdict.hint


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


IN_WORKER = """\
Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 375, in _worker_loop
    data = fetcher.fetch(index)
  File "/job/data.py", line 30, in __getitem__
    return self.labels[index]
           ~~~~~~~~~~~^^^^^^^
KeyError: 7
"""


def test_an_exception_of_a_loader_worker_is_told_with_its_own_line() -> None:
    """The rank's own traceback ends in the loop over the loader."""
    verdict = only(
        job(dead(0, 1, code=1, raised=[raised("KeyError", IN_WORKER, 0.5)]), victim(1), why="death")
    )

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 raised KeyError: Caught KeyError in DataLoader worker process 0: KeyError: 7 (data.py:30)"
        == verdict.sentence
    )
    assert verdict.hint.startswith("Fix __getitem__ (data.py:30)")


OF_RANK = """\
CheckpointException ranks:dict_keys([{}])
Traceback (most recent call last): (RANK 1)
  File "/opt/env/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py", line 194, in reduce
    local_data = map_fun()
RuntimeError: Missing key in checkpoint state_dict: reader.
"""


@pytest.mark.parametrize(("named", "culprits"), [("1", [1]), ("0, 1, 2", [0, 1, 2]), ("7", [0, 1, 2])])
def test_of_a_checkpoint_that_all_ranks_give_up_the_rank_that_has_failed_is_named(
    named: str, culprits: list[int]
) -> None:
    text = OF_RANK.format(named)
    both = [dead(n, 1, code=1, raised=[raised("CheckpointException", text, 0.5)]) for n in range(3)]
    verdict = only(replace(job(*both, why="death", per_node=3), world_size=3))

    assert ("rank-failed", culprits) == (verdict.code, verdict.ranks)
    whose = " for rank 1" if named == "1" else ""
    assert (
        f"all ranks raised CheckpointException{whose}: RuntimeError: Missing key in checkpoint state_dict: "
        "reader. (train.py:61)"
    ) == verdict.sentence


def test_of_a_checkpoint_of_some_ranks_the_numbers_may_be_those_of_their_group() -> None:
    text = OF_RANK.format("1")
    some = [dead(n, 1, code=1, raised=[raised("CheckpointException", text, 0.5)]) for n in (1, 2)]

    assert [1, 2] == only(job(victim(0), *some, why="death")).ranks


def test_a_worker_whose_own_alarm_went_off_is_told_so() -> None:
    text = TEXT.replace("Bus error", "Alarm clock")
    verdict = only(
        job(dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death")
    )

    assert "rank 0's DataLoader worker 812 was killed by SIGALRM" == verdict.sentence
    assert verdict.hint.startswith("A timer of the program went off")


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
