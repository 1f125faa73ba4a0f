"""The rules on ranks that live: who holds the others up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    LOADER,
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
)
from tests.agent.diagnosis.run.build_branches import FILE, source

from ddplaunch.agent.contract import (
    Collective,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Process,
    Raised,
    RankEvidence,
    Stack,
    Verdict,
)
from ddplaunch.agent.diagnosis.run.decide import judge


def blamed(verdict: Verdict) -> tuple[str, list[int], list[int], list[int]]:
    """Code, culprit ranks, culprit nodes, victims."""
    return verdict.code, verdict.ranks, verdict.nodes, verdict.victims


def test_rank_late_to_init() -> None:
    """Who has not called init_process_group is named, with its place; who stands in it is a victim."""
    loading = stack(Frame("load_dataset", "/job/data.py", 31))
    before: dict[str, Any] = {"groups": [], "initialized": False, "phase": "init_process_group"}
    verdict = only(
        job(
            rank(0, in_init(), **before),
            rank(1, in_init(), **before),
            rank(2, loading, **before),
            rank(3, in_init(), **before),
        )
    )

    assert ("rank-late-to-init", [2], [1], [0, 1, 3]) == blamed(verdict)
    assert (
        "rank 2 never reached init_process_group; rank 2 is in load_dataset (data.py:31)" == verdict.sentence
    )


def test_ranks_that_were_never_started_are_late_too() -> None:
    """A node without workers is named by the ranks that it should have."""
    waiting = [rank(n, in_init(), groups=[], initialized=False) for n in (0, 1)]
    evidence = replace(
        job(*waiting),
        nodes=2,
        world_size=4,
        evidence=[*job(*waiting).evidence, NodeEvidence(1, "n1", NOW, "rendezvous")],
    )
    verdict = only(evidence)

    assert ("rank-late-to-init", [2, 3], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "of ranks 2 and 3 no process has been seen" in verdict.sentence


def test_all_in_init_and_nobody_late_is_unknown() -> None:
    """When all stand in init_process_group, no rank is to blame."""
    verdict = only(job(*(rank(n, in_init(), groups=[], initialized=False) for n in range(4))))

    assert ("unknown", [], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("all ranks wait in init_process_group (train.py:40) and nothing moves")


def test_one_rank_of_several_that_waits() -> None:
    """The verb is that of one rank."""
    waits = rank(0, in_init(), groups=[], initialized=False)
    verdict = only(replace(job(waits, per_node=1), nodes=2, silent=[1]))

    assert verdict.sentence.startswith("rank 0 waits in init_process_group (train.py:40)")


def test_rank_in_dataloader_with_its_worker() -> None:
    """The rank that waits for its batch is named, with the worker that is blocked and where."""
    task = stack(
        Frame("__getitem__", "/job/data.py", 20),
        Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54),
        Frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 375),
        Frame("__next__", LOADER, 725),
    )
    idle = stack(
        Frame("get", "/opt/env/lib/python3.11/multiprocessing/queues.py", 113),
        Frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 335),
    )
    workers = [
        Process(811, "S", role="loader", stacks=idle, wchan="poll_schedule_timeout"),
        Process(812, "D", role="loader", stacks=task, wchan="nfs_wait"),
    ]
    verdict = only(job(rank(0), rank(1), rank(2), rank(3, in_loader(), called=16, children=workers)))

    assert ("rank-in-dataloader", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert (
        "rank 3 is in DataLoader.__next__ (train.py:40); its worker 812 is in __getitem__ (data.py:20), "
        "blocked in the kernel (nfs_wait), the others wait in all_reduce 17 (train.py:92)"
    ) == verdict.sentence
    assert "rank 3's worker 811: waits for work" in verdict.facts
    assert "ranks 0-2 have called 17 collectives" in verdict.facts
    assert "rank 3 has called 16 collectives" in verdict.facts


def test_rank_that_loads_in_its_own_process() -> None:
    """With num_workers=0 the user's own line below the loader is told."""
    loading = stack(
        Frame("__getitem__", "/job/data.py", 20),
        Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54),
        Frame("_next_data", LOADER, 785),
        Frame("__next__", LOADER, 725),
    )
    verdict = only(job(rank(0, loading, called=16), rank(1)))

    assert ("rank-in-dataloader", [0]) == (verdict.code, verdict.ranks)
    assert "it loads in its own process, in __getitem__ (data.py:20)" in verdict.sentence


def test_rank_in_user_code() -> None:
    """A rank that is behind and stands in its own code holds the others up."""
    verdict = only(job(rank(0, in_evaluate(), called=16, stuck_for=96.0), rank(1), rank(2), rank(3)))

    assert ("rank-in-user-code", [0], [0], [1, 2, 3]) == blamed(verdict)
    assert "keep it shorter than `watchdog.kill_after`" in verdict.hint
    assert (
        "rank 0 has been in evaluate (eval.py:140) for 96 s, the others wait in all_reduce 17 (train.py:92)"
        == verdict.sentence
    )
    assert 0.95 == verdict.confidence


def test_two_holders_of_two_kinds_are_two_verdicts() -> None:
    """Each holder is told by its own rule, and neither is the other's victim."""
    verdicts = judge(
        job(rank(0, in_evaluate(), called=16), rank(1, in_loader(), called=16), rank(2), rank(3))
    )

    assert [("rank-in-dataloader", [1], [2, 3]), ("rank-in-user-code", [0], [2, 3])] == [
        (verdict.code, verdict.ranks, verdict.victims) for verdict in verdicts
    ]


def test_backward_of_ddp_is_waiting_by_its_counters() -> None:
    """DDP waits inside backward(), where no frame of torch.distributed shows; the counters tell."""
    backward = stack(Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113))
    waiting = [
        rank(n, backward, groups=[Group("0", [], 17, 16)], collectives=[call(17, "all_reduce")])
        for n in (1, 2, 3)
    ]
    verdict = only(job(rank(0, in_evaluate(), called=16), *waiting))

    assert ("rank-in-user-code", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "the others wait in all_reduce 17 (train.py:40)" in verdict.sentence


def test_a_rank_in_backward_without_counters_is_not_blamed() -> None:
    """Its hook did not answer, and py-spy cannot see whether DDP waits in there: the others wait, too."""
    backward = stack(Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1113))
    hidden = [rank(n, backward, groups=[], initialized=None) for n in (0, 1)]
    verdict = only(job(*hidden, rank(2)))

    assert ("unknown", []) == (verdict.code, verdict.ranks)


def test_stacks_alone_are_enough() -> None:
    """Without counters the stacks decide, with less confidence."""
    verdict = only(
        job(rank(0, in_evaluate(), groups=[], initialized=None), rank(1, groups=[], initialized=None))
    )

    assert ("rank-in-user-code", [0], [1], 0.8) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )


def test_counters_alone_name_the_rank_and_not_the_place() -> None:
    """Without stacks the rank that is behind is still named, and the verdict says what is missing."""
    ranks = [rank(0, [], called=16), *(rank(n, [], groups=[Group("0", [], 17, 16)]) for n in (1, 2, 3))]
    verdict = only(job(*ranks))

    assert ("unknown", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 0 is behind the others, but no stack shows where; missing: ")


def test_a_rank_of_another_group_is_not_to_blame() -> None:
    """Who is not a member of the blocked group does not hold it up."""
    group = Group("1", [0, 1], 5, 4)
    members = [rank(n, groups=[Group("0", [0, 1, 2], 9, 9), group]) for n in (0,)]
    late = rank(
        1, in_evaluate(), groups=[Group("0", [0, 1, 2], 9, 9), replace(group, enqueued=4, completed=4)]
    )
    bystander = rank(2, in_evaluate(), groups=[Group("0", [0, 1, 2], 9, 9)])
    verdict = only(job(*members, late, bystander, per_node=3))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_collective_mismatch_blames_the_minority() -> None:
    """Same number, different operation: the odd rank is named, with both calls and their places."""
    verdict = only(
        job(
            *(
                rank(n, collectives=[call(16, "all_reduce", done=True), call(17, "all_reduce")])
                for n in (0, 1, 2)
            ),
            rank(
                3,
                in_collective("broadcast", 88),
                collectives=[call(16, "all_reduce", done=True), call(17, "broadcast")],
            ),
        )
    )

    assert ("collective-mismatch", [3], [1], [0, 1, 2]) == blamed(verdict)
    assert (
        "at collective 17 rank 3 called broadcast [4] (train.py:88), the others all_reduce [4] (train.py:92)"
        == verdict.sentence
    )


def test_mismatch_of_two_blames_both() -> None:
    """One against one is no majority: both are named, nobody is a victim, and the confidence is lower."""
    verdict = only(
        job(
            rank(0, in_collective("barrier", 12), collectives=[call(17, "barrier", [0])]),
            rank(1, collectives=[call(17, "all_reduce")]),
        )
    )

    assert ("collective-mismatch", [0, 1], [0], []) == blamed(verdict)
    assert verdict.confidence < 0.8
    assert (
        "at collective 17 rank 0 called barrier [0] (train.py:12) and rank 1 called all_reduce [4] "
        "(train.py:92)"
    ) == verdict.sentence


def test_shapes_and_types_must_agree_too() -> None:
    """The same operation with another shape or type is a mismatch; a root's different tensor is not."""
    shapes = [rank(n, collectives=[call(17, "all_reduce", [64 if n == 2 else 16])]) for n in range(4)]
    types = [
        rank(n, collectives=[call(17, "all_reduce", dtype="Half" if n == 2 else "Float")]) for n in range(4)
    ]
    roots = [rank(n, collectives=[call(17, "gather", [64 if n == 2 else 16])]) for n in range(4)]

    assert ("collective-mismatch", [2]) == (only(job(*shapes)).code, only(job(*shapes)).ranks)
    assert "all_reduce [4] Half" in only(job(*types)).sentence
    assert "unknown" == only(job(*roots)).code


def at_line(line: int, entry: Collective) -> Collective:
    """The call as it is recorded with the user's line."""
    return replace(entry, frames=[Frame("step", "/job/train.py", line)])


def test_a_tie_in_shape_is_broken_by_who_changed_it() -> None:
    """Of two ranks that agreed at that line before, the one that comes with another size is at fault."""
    before = [at_line(30, call(16, "all_reduce", [16], done=True))]
    verdict = only(
        job(
            rank(0, collectives=[*before, at_line(30, call(17, "all_reduce", [64]))]),
            rank(1, collectives=[*before, at_line(30, call(17, "all_reduce", [16]))]),
        )
    )

    assert ("collective-mismatch", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)


@pytest.mark.parametrize("line", [29, 30])  # a loop over parameters sends them from one line, DDP from none
def test_a_shape_that_changes_with_each_call_breaks_no_tie(line: int) -> None:
    """Where two models differ, each parameter has its own shape: neither rank has changed anything."""
    before = [
        at_line(line, call(15, "broadcast", [8, 4], done=True)),
        at_line(line, call(16, "broadcast", [16], done=True)),
    ]
    verdict = only(
        job(
            rank(0, collectives=[*before, at_line(30, call(17, "broadcast", [64]))]),
            rank(1, collectives=[*before, at_line(30, call(17, "broadcast", [16]))]),
        )
    )

    assert ("collective-mismatch", [0, 1]) == (verdict.code, verdict.ranks)
    assert 0.7 >= verdict.confidence


QUEUE = (
    Frame("recv_bytes", "/opt/env/lib/python3.11/multiprocessing/connection.py", 216),
    Frame("get", "/opt/env/lib/python3.11/multiprocessing/queues.py", 103),
)


def with_child(stacks: list[Stack], **facts: Any) -> JobEvidence:
    """Rank 1 stands so, and has a child; the others wait for it."""
    child = Process(812, **{"state": "Z", "command": "python", **facts})
    return job(rank(0), rank(1, stacks, called=16, children=[child]), kernel=["Killed process 812 (python)"])


def test_a_child_that_is_dead_is_named_before_who_waits_for_it() -> None:
    killed = only(with_child(stack(*QUEUE), exit_signal=9))
    failed = only(with_child(stack(*QUEUE), exit_code=1))
    gone = only(with_child(stack(*QUEUE), state="X", name="tokenizer", exit_signal=9))

    assert ("rank-in-user-code", [1], [0], [0]) == blamed(killed)
    assert killed.sentence == (
        "rank 1's child process 812 was killed by SIGKILL, and rank 1 has been in main (train.py:40) "
        "for 11 s, the other waits in all_reduce 17 (train.py:92)"
    )
    assert "node 0's kernel: Killed process 812 (python)" in killed.facts
    assert "process 812" in killed.hint
    assert failed.sentence.startswith(
        "rank 1's child process 812 ended with exit code 1, and rank 1 has been in"
    )
    assert gone.sentence.startswith(
        "rank 1's child process 812 (tokenizer) was killed by SIGKILL, and rank 1"
    )


CHILDS_END = Frame("_bootstrap", "/opt/env/lib/python3.11/multiprocessing/process.py", 314)


def printed(*frames: Frame) -> Raised:
    """A traceback in what a rank and its children print."""
    return Raised("KeyError", "'bike'", NOW - 11, [Frame("work", "/job/train.py", 7), *frames], True, "log")


def test_what_a_child_has_printed_at_its_end_is_why_it_has_ended_and_not_caught_by_the_rank() -> None:
    child = Process(812, state="Z", command="python", exit_code=1)
    ranks = [
        rank(0),
        rank(1, stack(*QUEUE), called=16, children=[child], raised=[printed(CHILDS_END)]),
    ]
    verdict = only(job(*ranks))

    assert verdict.sentence.startswith(
        "rank 1's child process 812 ended with exit code 1 after KeyError: 'bike' (train.py:7), and rank 1"
    )
    assert "rank-in-user-code" == verdict.code
    # Nothing says that it is the child's.
    own = only(job(ranks[0], replace(ranks[1], raised=[printed()])))
    assert ("exception-swallowed", [1]) == (own.code, own.ranks)
    # Of two children that have ended, it is not known which one printed it.
    two = replace(ranks[1], children=[child, replace(child, pid=813)])
    assert "KeyError" not in only(job(ranks[0], two)).sentence


@pytest.mark.parametrize(
    "evidence",
    [
        with_child(stack(*QUEUE)),
        with_child(stack(*QUEUE), state="S"),
        with_child(in_evaluate(), exit_signal=9),
        with_child(stack(), exit_signal=9),
        with_child(stack(*QUEUE), state="X", exit_signal=15),
    ],
    ids=["it ended well", "it lives", "the rank waits for a thread", "for nothing", "asked to end"],
)
def test_a_child_for_which_a_rank_does_not_wait_is_no_cause(evidence: JobEvidence) -> None:
    verdict = only(evidence)

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert "812" not in verdict.sentence + verdict.hint


def test_what_a_rank_handles_that_others_have_handled_as_well_is_a_fact() -> None:
    """The `except` in which it is may go on, so the exception need not be the cause."""
    handles = raised("ValueError", "vocabulary of 32001", -1, handled=True)
    evidence = job(
        rank(0, raised=[handles]), rank(1, in_evaluate(), 16, raised=[handles], in_flight=[handles])
    )
    verdict = only(evidence)

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert "rank 1 handles ValueError: vocabulary of 32001 (train.py:61)" == verdict.facts[0]


def test_a_rank_whose_program_came_by_dash_c_is_in_its_script() -> None:
    """Code that a package has made is `<string>` too, and is no program: it is not the outermost frame."""
    program = Frame("<module>", "<string>", 1)
    made = Frame("__init__", "<string>", 3)
    verdicts = [
        only(job(rank(0), rank(1, [Stack("MainThread", True, frames)], called=16)))
        for frames in ([program], [made, Frame("main", FILE, 3)])
    ]

    assert verdicts[0].sentence.startswith("rank 1 has been in the script (<string>:1) for ")
    assert verdicts[1].sentence.startswith("rank 1 has been in main (train.py:3) for ")


RETRY = "for pause in pauses: try: return read() except OSError: time.sleep(pause)"


def retrying(failure: str, message: str, line: str) -> Verdict:
    """The verdict on a rank that is in the handler of this exception, at a line with this text."""
    here = Frame("read", "/job/data.py", 38)
    tried = Raised(failure, message, NOW - 11, [replace(here, line=36)], True, "hook")
    waits = rank(1, stack(here), called=16, raised=[tried], in_flight=[tried])
    return only(job(rank(0), waits, rank(2), per_node=3, lines={"/job/data.py:38": line}))


def test_a_rank_that_sleeps_before_it_tries_again_has_not_gone_on_without_the_others() -> None:
    verdict = retrying("OSError", "[Errno 116] Stale file handle: 'nfs-2'", RETRY)

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert "rank 1 has been in read (data.py:38), trying again after OSError: [Errno 116]" in verdict.sentence
    assert "exception-swallowed" == retrying("OSError", "no more", "log(error)").code


FETCH = """\
def fetch():
    for wait in waits:
        try:
            return read()
        except OSError:
            if wait > 9: raise
            print("again", wait)
            time.sleep(wait)
            {}

def late():
    try:
        return read()
    except OSError:
        time.sleep(wait)
"""


@pytest.mark.parametrize(
    ("line", "last", "again"),
    [(8, "wait += 1", True), (8, "continue", True), (8, "break", False), (15, "pass", False)],
)
def test_a_handler_tries_again_if_a_loop_goes_on_around_it_and_its_try(
    line: int, last: str, again: bool
) -> None:
    text = FETCH.format(last)
    here = Frame("fetch" if line == 8 else "late", FILE, line)
    tried = Raised(
        "OSError", "stale", NOW - 11, [replace(here, line=line - 4 if line == 8 else 13)], True, "hook"
    )
    waits = rank(1, stack(here), called=16, raised=[tried], in_flight=[tried])
    slept = {f"{FILE}:{line}": "time.sleep(wait)"}
    functions = source(text, line)
    verdict = only(job(rank(0), waits, rank(2), per_node=3, lines=slept, functions=functions))

    assert again == (", trying again after OSError: stale" in verdict.sentence), verdict.sentence
    assert again == (verdict.code != "exception-swallowed")

    cut = {f"{FILE}:{line}": "for wait in waits: try: return read() except OSError: print("}
    asleep = replace(waits, process=Process(501, "S", wchan="hrtimer_nanosleep"))
    same = only(job(rank(0), asleep, rank(2), per_node=3, lines=cut, functions=functions))
    assert verdict.code == same.code


def test_who_left_a_lock_file_behind_is_not_known() -> None:
    """The rank tries to make it, again and again. The others wait for it, but it is not to blame."""
    verdict = retrying("FileExistsError", "[Errno 17] File exists: '/data/tags.lock'", RETRY)

    assert ("rank-in-user-code", [], [0, 1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 waits for the lock on /data/tags.lock in read (data.py:38); whoever has made this file has "
        "not removed it" in verdict.sentence
    )


def test_exception_swallowed_by_a_rank_out_of_step() -> None:
    """A mismatch of a rank that has caught an exception of its own is that exception's doing."""
    verdict = only(
        job(
            *(rank(n, collectives=[call(40, "all_reduce")], called=40) for n in (0, 1, 3)),
            rank(
                2,
                in_collective("barrier", 26),
                called=40,
                collectives=[call(40, "barrier")],
                raised=[raised("ValueError", "corrupt record 7", -300, handled=True)],
            ),
        )
    )

    assert ("exception-swallowed", [2], [1], [0, 1, 3]) == blamed(verdict)
    assert (
        "rank 2 caught ValueError (train.py:61) and went on without the others; at collective 40 they are "
        "out of step" == verdict.sentence
    )
    assert "rank 2 caught ValueError: corrupt record 7" in verdict.facts


def test_exception_swallowed_by_a_rank_that_stays_in_its_handler() -> None:
    """A holder that caught an exception just before the stop is told by it, not by where it stands."""
    caught = raised("TimeoutError", "object store", -1, handled=True)
    verdict = only(job(rank(0), rank(1, in_evaluate(), called=16, raised=[caught]), rank(2), rank(3)))

    assert ("exception-swallowed", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def trying(number: int, times: int, message: str = PEER_GONE, state: str = "raised") -> RankEvidence:
    """A rank that sleeps between two tries of monitored_barrier."""
    line = Frame("meet", "/job/train.py", 11)
    tries = [Collective("0", seq, "monitored_barrier", state="raised", frames=[line]) for seq in range(times)]
    tries[-1:] = [replace(each, state=state) for each in tries[-1:]]
    failed = [raised("RuntimeError", message, -1, handled=True)]
    return rank(number, stack(Frame("meet", "/job/train.py", 14)), 10, calls=tries, raised=failed)


@pytest.mark.parametrize(("source", "printed"), [("hook", 0), ("log", 1)])
def test_what_a_library_has_caught_by_itself_was_not_swallowed(source: str, printed: int) -> None:
    """As a Pool does while it waits. What a process has printed may be of a child that the rank waits for."""
    inner = [Frame("next", "/usr/lib/python3.11/multiprocessing/pool.py", 856)]
    caught = Raised("IndexError", "pop from an empty deque", NOW - 11, inner, True, source)
    verdict = only(job(rank(0), rank(1, in_evaluate(), called=16, raised=[caught]), rank(2), rank(3)))

    assert "rank-in-user-code" == verdict.code
    assert printed == sum("has printed IndexError: pop from an empty" in str(fact) for fact in verdict.facts)


def test_who_has_not_come_to_a_barrier_that_is_tried_again_is_named() -> None:
    verdict = only(job(trying(0, 8), rank(1, in_evaluate(), called=10), trying(2, 7), per_node=3))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 is in evaluate (eval.py:140), and has not come to monitored_barrier (train.py:11), which "
        "ranks 0 and 2 have tried at least 8 times: it raised each time" == verdict.sentence
    )
    assert verdict.hint.startswith("A timeout closes the group's connections")


def test_a_barrier_that_all_ranks_try_again_is_their_own_fault() -> None:
    verdict = only(job(trying(0, 8), trying(1, 3)))

    assert ("exception-swallowed", [0, 1]) == (verdict.code, verdict.ranks)
    assert (
        "ranks 0 and 1 have tried monitored_barrier (train.py:11) at least 8 times, and it raised each time"
        == verdict.sentence
    )


@pytest.mark.parametrize(
    "tries",
    [
        trying(0, 1),
        trying(0, 8, message="world size 3"),
        trying(0, 2, state="returned"),
        rank(0, in_evaluate(), 10),
    ],
    ids=["once", "refused", "it went well", "none"],
)
def test_a_barrier_that_no_timeout_has_ended_is_not_tried_in_vain(tries: RankEvidence) -> None:
    verdict = only(job(tries, rank(1, in_evaluate(), called=10)))

    assert "tried" not in verdict.sentence


BOOTSTRAP = Frame("_bootstrap_inner", "/opt/env/lib/python3.11/threading.py", 1045)
PREPARE = [Frame("prepare", "/job/data.py", 33), Frame("run", "/opt/env/lib/python3.11/threading.py", 982)]


@pytest.mark.parametrize(
    ("frame", "on_lock", "beside", "told"),
    [
        (Frame("wait", "/opt/env/lib/python3.11/threading.py", 327), True, False, True),
        (Frame("wait", "/opt/env/lib/python3.11/threading.py", 331), False, False, False),  # with a timeout
        (Frame("wait", "/opt/env/lib/python3.11/threading.py", 327), True, True, False),
        (Frame("load", "/job/train.py", 12), True, False, False),
    ],
)
def test_who_waits_for_a_thread_and_has_none_waits_for_ever(
    frame: Frame, on_lock: bool, beside: bool, told: bool
) -> None:
    main = Stack("MainThread", True, [frame, Frame("get", "/job/train.py", 43)], on_lock=on_lock)
    filler = [Stack("filler", False, [Frame("fill", "/job/train.py", 80)])] if beside else []
    evidence = job(rank(0), rank(1, [main, *filler], 16, stack_source="hook"), rank(2), rank(3))
    sentences = " ".join(str(verdict.sentence) for verdict in judge(evidence))

    assert told == (
        "in get (train.py:43), waiting for another thread (its program has none) for" in sentences
    )


def of_thread(after: float = -1) -> Raised:
    """What Python prints when it ends a thread."""
    return Raised("KeyError", "'text'", NOW - 10 + after, [*PREPARE, BOOTSTRAP], True, "log")


def at_queue(number: int, **more: Any) -> RankEvidence:
    """A rank that waits for the batch of one of its threads."""
    wait = Frame("wait", "/opt/env/lib/python3.11/threading.py", 327)
    get = Frame("get", "/opt/env/lib/python3.11/queue.py", 171)
    return rank(number, stack(wait, get, Frame("train", "/job/train.py", 44)), called=16, **more)


def test_an_exception_that_ended_a_thread_was_not_caught() -> None:
    verdict = only(job(at_queue(0, raised=[of_thread()]), rank(1)))

    assert ("exception-swallowed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "KeyError: 'text' (data.py:33) has ended a thread of rank 0; now rank 0 is in train (train.py:44)"
        == verdict.sentence
    )
    assert "the thread of rank 0 was in prepare (data.py:33)" in verdict.facts
    assert verdict.hint.startswith("An exception ends its thread alone.")


def test_what_ended_a_thread_of_each_rank_is_told_although_no_rank_waits_for_another() -> None:
    verdict = only(job(at_queue(0, raised=[of_thread()]), at_queue(1, raised=[of_thread()])))

    assert ("exception-swallowed", [0, 1]) == (verdict.code, verdict.ranks)


@pytest.mark.parametrize(
    "waits",
    [
        at_queue(0),
        at_queue(0, raised=[of_thread(-500)]),
        at_queue(0, raised=[raised("KeyError", "'a'", -1, True)]),
    ],
    ids=["nothing was raised", "long ago", "caught"],
)
def test_a_rank_that_waits_for_a_thread_that_lives_is_in_its_own_code(waits: RankEvidence) -> None:
    verdict = only(job(waits, at_queue(1)))

    assert "rank-in-user-code" == verdict.code


def test_an_old_or_common_exception_explains_nothing() -> None:
    """What was caught long before the stop, or by all ranks, is not the reason."""
    old = raised("ImportError", "no apex", -500, handled=True)
    common = raised("UserWarning", "batch 7", -1, handled=True)
    evidence = job(
        rank(0, raised=[common]), rank(1, in_evaluate(), called=16, raised=[old, common]), rank(2), rank(3)
    )

    assert ["rank-in-user-code"] == [verdict.code for verdict in judge(evidence)]


def test_unknown_says_where_all_stand_and_what_is_missing() -> None:
    """All in one collective, nothing moves: no rank is accused."""
    verdict = only(job(rank(0), rank(1), missing=["py-spy: not permitted (ptrace)"]))

    assert ("unknown", [], [], 0.0) == (verdict.code, verdict.ranks, verdict.victims, verdict.confidence)
    assert (
        "all ranks wait in all_reduce 17 (train.py:92) and nothing moves; missing: node 0: py-spy: not "
        "permitted (ptrace)" == verdict.sentence
    )


def test_the_network_is_suspected_only_when_every_rank_was_seen() -> None:
    """A node that did not answer may have called something else: it is missing, and no culprit."""
    whole = job(rank(0), rank(1), rank(2), rank(3))
    half = replace(whole, evidence=whole.evidence[:1], silent=[1], world_size=None)

    assert "look at the network" in only(whole).hint
    verdict = only(half)
    assert ("unknown", []) == (verdict.code, verdict.nodes)
    assert "look at the network" not in verdict.hint
    assert verdict.sentence.startswith("ranks 0 and 1 wait in all_reduce 17")
    assert "node 1 did not answer" in verdict.sentence


def test_ranks_of_nodes_that_do_not_answer_are_not_called_unseen() -> None:
    """They may have been seen before; where all nodes answer, there is none."""
    nobody = job()

    assert only(nobody).sentence.startswith("no rank has been seen; missing: ")
    unheard = replace(nobody, evidence=[], silent=[0])
    assert "no rank has reported anything; missing: node 0 did not answer" in only(unheard).sentence


def test_healthy_job_has_no_verdict() -> None:
    """Asked about a job whose steps are quick, there is nothing to say."""
    moving: dict[str, Any] = {"still_for": 0.1, "stuck_for": 0.2, "step_times": [0.01]}

    assert [] == judge(job(rank(0, **moving), rank(1, in_evaluate(), **moving), why="asked"))


def test_mismatch_is_told_even_while_something_moves() -> None:
    """Ranks out of step never meet again: asked, it is told although one of them prints now and then."""
    ranks = [
        rank(0, collectives=[call(17, "all_reduce")], stuck_for=130.0),
        rank(1, in_collective("broadcast"), collectives=[call(17, "broadcast")], stuck_for=130.0),
        rank(2, in_evaluate(), called=16, still_for=0.0, stuck_for=1.0),
    ]

    assert ["collective-mismatch"] == [
        verdict.code for verdict in judge(job(*ranks, why="asked", per_node=3))
    ]


def test_ranks_that_only_receive_have_called_no_collective() -> None:
    """Their last operation is given, with whom it is for; a count of 0 collectives would say nothing."""
    receives = [Collective("0", 1, "gloo:recv 0<-1", [[4]], ["Float"], p2p=True, peer=1)]
    sends = [Collective("0", 1, "send", [[4]], ["Float"], p2p=True, peer=0)]
    evidence = job(
        rank(0, in_collective("recv"), 0, groups=[Group("0")], collectives=receives),
        rank(1, in_evaluate(), 0, groups=[Group("0")], collectives=sends),
    )
    facts = only(evidence).facts

    assert "rank 0 has called no collective, and recv from rank 1 last" in facts
    assert "rank 1 has called no collective, and send to rank 0 last" in facts


def test_a_script_that_joins_its_spawned_ranks_is_not_to_blame() -> None:
    """They may import torch for a minute. Where others wait for it, as for a step, it is."""
    joins = stack(
        Frame("select", "/opt/python/lib/python3.11/selectors.py", 415),
        Frame("join", "/opt/env/lib/python3/site-packages/torch/multiprocessing/spawn.py", 149),
        Frame("<module>", "/job/train.py", 51),
    )

    assert "unknown" == only(job(rank(0, joins, called=0, initialized=False))).code
    assert ("rank-in-user-code", [1]) == (
        (verdict := only(job(rank(0), rank(1, joins, called=16)))).code,
        verdict.ranks,
    )


# --- Ranks that wait for a key in torch's store, or for a file: who waits is not blamed beside who works.


LINES = {
    "/job/keys.py:7": 'store.wait(["ready"])',
    "/job/keys.py:9": 'value = self._store.get(f"shard-{n}")',
    "/job/keys.py:11": 'store.set("ready", "1")',
    "/job/keys.py:13": "while not os.path.exists(done): time.sleep(1)",
    "/job/keys.py:16": "for _ in range(600): if done.is_file(): break time.sleep(1)",
    "/job/keys.py:19": "while True: step() time.sleep(1)",
}


def at_store(number: int, line: int = 7, **more: Any) -> RankEvidence:
    """A rank at a line of keys.py. A call of the store has no frame: it is native code."""
    return rank(number, stack(Frame("fetch", "/job/keys.py", line)), **{"called": 16, **more})


def at_work(number: int, **more: Any) -> RankEvidence:
    """A rank in its own code."""
    return rank(number, in_evaluate(), **{"called": 16, **more})


def with_lines(*ranks: RankEvidence) -> JobEvidence:
    """A job that has sent the lines at which its ranks stand."""
    return job(*ranks, lines=LINES)


def test_who_waits_for_a_key_is_not_blamed_beside_who_works() -> None:
    """Two calls of two names, and a rank that waits for all of them."""
    verdict = only(with_lines(at_store(0), at_work(1), at_store(2, 9), rank(3)))

    assert ("rank-in-user-code", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 0 is in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence
    assert "rank 2 is in fetch (keys.py:9), waiting for a key in the store" in verdict.sentence


def test_where_nobody_is_in_a_collective_who_works_is_the_cause() -> None:
    """All others wait for a key that it sets."""
    verdict = only(with_lines(at_work(0), at_store(1), at_store(2), at_store(3)))

    assert ("rank-in-user-code", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_before_the_start_alike() -> None:
    """Ranks may use a store of their own before init_process_group."""
    before: dict[str, Any] = {"groups": [], "initialized": False, "called": 0}
    there = [rank(number, in_init(), **before) for number in (2, 3)]
    verdict = only(with_lines(at_store(0, **before), at_work(1, **before), *there))

    assert ("rank-late-to-init", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_key_that_nobody_else_can_set_is_the_cause() -> None:
    """All others wait in a collective for the rank that waits for the key; one may have removed it."""
    verdict = only(with_lines(rank(0), at_store(1), rank(2)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert 0.7 == verdict.confidence
    assert "rank 1 has been in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence


@pytest.mark.parametrize(
    ("keys", "said"),
    [(["ready/1"], "the key ready/1 in the store"), (["a", "b"], "the keys a, b in the store")],
)
def test_a_key_that_the_hook_has_read_is_named(keys: list[str], said: str) -> None:
    """Also where the line does not show that it is a store's."""
    verdict = only(job(rank(0), at_store(1, 99, keys=keys), rank(2)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 1 has been in fetch (keys.py:99), waiting for {said} for 11 s" in verdict.sentence


def test_a_key_that_all_others_wait_for_is_most_likely_for_the_remaining_rank_to_set() -> None:
    """Ranks that wait for other keys may wait for one another."""
    one = only(job(*(at_store(n, 99, keys=["ready/1"]) for n in (1, 2)), rank(0), per_node=3))
    two = only(job(*(at_store(n, 99, keys=[f"ready/{n}"]) for n in (1, 2)), rank(0), per_node=3))

    assert ([0], [1, 2], 0.7) == (one.ranks, one.victims, one.confidence)
    assert one.sentence.endswith(
        "waiting for the key ready/1 in the store for 11 s, the other waits in all_reduce 17 (train.py:92); "
        "rank 0 has not set it"
    )
    assert ([1, 2], [0]) == (two.ranks, two.victims)


def test_of_ranks_that_all_wait_for_keys_at_one_line_those_who_have_other_names_are_named() -> None:
    def waiting(*keys: str, lines: tuple[int, ...] = (99, 99, 99)) -> Verdict:
        waits = [at_store(n, line, keys=[key]) for n, (key, line) in enumerate(zip(keys, lines))]
        return only(job(*waits, per_node=3))

    verdict = waiting("epoch/4/2", "epoch/4/2", "epoch/5/0")

    assert ([2], [0, 1], 0.7) == (verdict.ranks, verdict.victims, verdict.confidence)
    assert (
        "rank 2 has been in fetch (keys.py:99), waiting for the key epoch/5/0 in the store"
        in verdict.sentence
    )
    assert "the same names" in verdict.hint
    for other in (waiting("a", "b", "c"), waiting("a", "a", "b", lines=(99, 99, 98))):
        assert [0, 1, 2] == other.ranks


def test_of_ranks_that_all_wait_for_the_same_nobody_is_at_fault() -> None:
    verdict = only(job(*(at_store(number, 99, keys=["a"]) for number in range(3)), per_node=3))

    assert ("rank-in-user-code", [], [0, 1, 2]) == (verdict.code, verdict.ranks, verdict.victims)


def test_of_a_file_alike_if_no_other_node_may_have_it_in_a_folder_of_its_own() -> None:
    def polling(*files: str, per_node: int = 3) -> Verdict:
        waiting = [at_store(number, 13, awaited_file=file) for number, file in enumerate(files, 1)]
        return only(job(*waiting, rank(0), per_node=per_node, lines=LINES))

    one = polling("/data/done", "/data/done")

    assert ([0], [1, 2], 0.7) == (one.ranks, one.victims, one.confidence)
    assert one.sentence.endswith("; it is for rank 0 to write it, most likely")
    for other in (
        polling("/data/done", "/data/done", per_node=2),
        polling("/data/1", "/data/2"),
        polling("/data/done", ""),
        polling("", ""),
    ):
        assert [1, 2] == other.ranks


def test_ranks_that_each_wait_for_a_file_of_their_own_are_told_to_compare_the_names() -> None:
    def polling(first: str, second: str) -> str:
        ranks = [at_store(1, 13, awaited_file=first), at_store(2, 13, awaited_file=second)]
        return only(job(*ranks, rank(0), per_node=3, lines=LINES)).hint

    assert "see what its name is made of here" in polling("/data/a1.json", "/data/b2.json")
    for hint in (polling("/data/a1.json", "/other/b2.json"), polling("/data/a1.json", "")):
        assert "name is made of" not in hint


def test_what_its_gpu_has_not_done_does_not_hide_that_it_waits_for_a_key() -> None:
    """Calls of NCCL return at once. The others have made all of theirs, and ended: they are not blamed.

    So it was on an H100, with NCCL 2.28.9 and torch 2.11.
    """
    pending = [Group("0", [0, 1, 2], 20, 6)]
    gone = [dead(number, 4, code=0) for number in (0, 2)]
    verdict = only(with_lines(gone[0], at_store(1, groups=pending, backend="nccl"), gone[1]))

    assert ("rank-in-user-code", [1], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 has been in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence


@pytest.mark.parametrize("line", [13, 16])
def test_who_looks_for_a_file_again_and_again_waits_for_it(line: int) -> None:
    """The one at work may write it."""
    verdict = only(with_lines(at_store(0, line), at_work(1), rank(2)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 0 is in fetch (keys.py:{line}), waiting for a file" in verdict.sentence

    named = only(with_lines(at_store(0, line, awaited_file="/data/index"), at_work(1), rank(2)))
    assert f"rank 0 is in fetch (keys.py:{line}), waiting for the file /data/index" in named.sentence


@pytest.mark.parametrize("line", [11, 19])
def test_who_sets_a_key_or_sleeps_for_no_file_waits_for_nobody(line: int) -> None:
    """It is blamed like any rank at work."""
    assert [0, 1] == only(with_lines(at_store(0, line), at_work(1), rank(2))).ranks


def test_without_the_line_nothing_is_known_of_a_key() -> None:
    """Both are named."""
    assert [0, 1] == only(job(at_store(0), at_work(1), rank(2))).ranks


# --- torch.compile


def in_compiler(*inner: Frame) -> list[Stack]:
    """A rank whose compiled function is called in train()."""
    return stack(*inner, Frame("train", "/job/train.py", 24))


def test_a_rank_that_compiles_alone_is_said_to_compile() -> None:
    compiling = in_compiler(
        Frame("tp_getattro_impl", f"{TORCH}/_dynamo/variables/misc.py", 1561),
        Frame("_compile", f"{TORCH}/_dynamo/convert_frame.py", 1400),
        Frame("compile_wrapper", f"{TORCH}/_dynamo/eval_frame.py", 900),
    )
    verdict = only(job(rank(0), rank(1, compiling, called=16)))

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert (
        "rank 1 has been in train (train.py:24), in the compiler of torch.compile, for 11 s, the other waits "
        "in all_reduce 17 (train.py:92)" == verdict.sentence
    )
    assert "TORCH_LOGS=recompiles" in verdict.hint


def test_compiled_code_that_runs_is_not_said_to_be_compiled() -> None:
    running = in_compiler(
        Frame("forward", "/job/model.py", 7),
        Frame("compile_wrapper", f"{TORCH}/_dynamo/eval_frame.py", 900),
    )
    verdict = only(job(rank(0), rank(1, running, called=16)))

    assert "rank-in-user-code" == verdict.code
    assert "compile" not in verdict.sentence + verdict.hint
