"""Ranks of which no stack could be read: threads, sockets and waits in the kernel may tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    TORCH,
    dead,
    in_collective,
    in_evaluate,
    in_init,
    job,
    only,
    raised,
    rank,
    stack,
)
from tests.agent.diagnosis.run.build_outside import UNCOUNTED, accused, asked, calls

from ddplaunch.agent.contract import (
    Collective,
    Frame,
    Group,
    JobEvidence,
    LastActs,
    NodeEvidence,
    Phase,
    Posture,
    Process,
    RankEvidence,
    Rendezvous,
    Setting,
    Stack,
)
from ddplaunch.agent.contract.words import PhaseName
from ddplaunch.agent.diagnosis.run.decide import judge


def blind(number: int, wchan: str, wakeups: float = 0.0, **more: Any) -> RankEvidence:
    """A rank of which no stack was read."""
    process = Process(1000 + number, "S", wchan=wchan, wakeups=wakeups)
    return rank(number, [], **{"groups": [], "process": process, **more})


def test_who_sleeps_by_itself_is_told_without_stacks() -> None:
    """No collective waits there."""
    ranks = [blind(0, "futex_do_wait"), blind(1, "hrtimer_nanosleep"), blind(2, "futex_do_wait")]
    verdict = only(asked(*ranks))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 sleeps in the kernel (hrtimer_nanosleep), where no collective waits" in verdict.sentence


@pytest.mark.parametrize("other", ["futex_do_wait", "do_epoll_wait", ""])
def test_nobody_is_told_without_stacks_where_the_kernel_does_not(other: str) -> None:
    """A rank that waits for a socket may wait for another rank."""
    assert [] == accused(blind(0, "futex_do_wait"), blind(1, other))


def test_a_sleeper_is_not_told_where_others_wait_for_a_socket() -> None:
    """They may be in init_process_group, or read what is no rank's."""
    assert [] == accused(blind(0, "do_epoll_wait"), blind(1, "hrtimer_nanosleep"))


def test_a_sleeper_that_looks_again_and_again_is_not_told() -> None:
    """NCCL's blocking wait sleeps between two looks at its collective."""
    assert [] == accused(blind(0, "futex_do_wait"), blind(1, "hrtimer_nanosleep", wakeups=900.0))


@pytest.mark.parametrize(
    ("mine", "state", "counted", "is_told"),
    [
        (21, "returned", 22, True),
        (21, "entered", 22, False),
        (20, "returned", 22, False),
        (22, "returned", 22, False),
        (21, "returned", 24, False),
    ],
)
def test_who_never_came_to_a_call_in_which_others_gave_up(
    mine: int, state: str, counted: int, is_told: bool
) -> None:
    """By calls alone. Not if it was in a call itself, or if torch made others, in which it may have been."""
    text = "Timed out waiting 6000ms for recv operation to complete"
    last = Collective("0", 22, "all_reduce", state="raised", frames=[Frame("main", "/job/train.py", 10)])
    frames = in_collective()[0].frames
    gave_up = [
        dead(
            n,
            1,
            code=1,
            raised=[replace(raised("RuntimeError", text, 1), frames=frames)],
            calls=[last],
            groups=[Group("0", [], counted, counted)],
        )
        for n in (0, 2)
    ]
    held = dead(1, 2, signal=15, by_us=True, calls=[replace(last, seq=mine, state=state)])
    verdict = only(job(gave_up[0], held, gave_up[1], per_node=3, why="death"))

    assert (["rank-in-user-code", [1], [0, 2]] if is_told else ["rank-failed", [], [0, 1, 2]]) == [
        verdict.code,
        verdict.ranks,
        verdict.victims,
    ]
    assert is_told == verdict.sentence.startswith(
        "rank 1 never came to all_reduce 22 (train.py:10), in which "
    )


def standing(*postures: str, **more: Any) -> list[RankEvidence]:
    """Ranks of which no stack was read, all asleep in a futex."""
    return [blind(n, "futex_do_wait", posture=each, **more) for n, each in enumerate(postures)]


@pytest.mark.parametrize(
    ("others", "own", "code"),
    [
        (Posture.COLLECTIVE, Posture.OWN, "rank-in-user-code"),
        (Posture.INIT, Posture.BEFORE, "rank-late-to-init"),
    ],
)
def test_who_is_not_where_the_others_are(others: str, own: str, code: str) -> None:
    """Told without stacks, by threads or by sockets."""
    verdict = only(asked(*standing(others, own, others)))

    assert (code, [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)


@pytest.mark.parametrize(
    "postures",
    [
        (Posture.COLLECTIVE, "", Posture.OWN),
        (Posture.INIT, Posture.BEFORE, ""),
        (Posture.COLLECTIVE, Posture.BEFORE),
        (Posture.INIT, Posture.OWN),
        (Posture.COLLECTIVE, Posture.COLLECTIVE),
        (Posture.OWN, Posture.OWN),
        (Posture.BEFORE, Posture.BEFORE),
    ],
    ids="-".join,
)
def test_nobody_is_told_where_one_rank_may_stand_elsewhere(postures: tuple[str, ...]) -> None:
    """A rank of which it is not known may be the one that the others wait for."""
    assert [] == accused(*standing(*postures))


def test_nobody_is_told_where_not_all_ranks_are_seen() -> None:
    """The one that the others wait for may run on another machine."""
    assert [] == accused(*standing(Posture.COLLECTIVE, Posture.OWN, world_size=3))


@pytest.mark.parametrize(
    ("others", "own"), [(Posture.COLLECTIVE, Posture.OWN), (Posture.INIT, Posture.BEFORE)]
)
@pytest.mark.parametrize(("wchan", "told"), [("futex_do_wait", [1, 2]), ("locks_lock_inode_wait", [])])
def test_of_two_one_may_wait_for_the_other(others: str, own: str, wchan: str, told: list[int]) -> None:
    """For a lock that it holds; who sleep at the same place are told."""
    first, second, _ = standing(others, own, own)

    assert told == accused(first, second, blind(2, wchan, posture=own))


def test_who_polls_is_told_if_it_has_a_data_loader() -> None:
    """Any other may wait for the store."""
    poll, loader = "poll_schedule_timeout.constprop.0", [Process(7, "S", role="loader")]

    assert [] == accused(blind(0, "futex_do_wait"), blind(1, poll))
    looks = {"still_for": 4.0, "stuck_for": 44.0}  # it looks every five seconds whether its workers live
    verdict = only(asked(blind(0, "futex_do_wait"), blind(1, poll, children=loader, **looks)))
    assert ("rank-in-dataloader", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


@pytest.mark.parametrize(("still", "told"), [(11.0, [1]), (9.0, [])])
def test_who_runs_while_the_others_wait(still: float, told: list[int]) -> None:
    """Not hung for all that is known, and told when the others have waited for long."""
    waits = standing(Posture.COLLECTIVE, still_for=still)
    runs = blind(1, "", posture=Posture.OWN, still_for=0.0, stuck_for=12.0)
    found = judge(asked(*waits, runs))

    assert told == [rank for each in found for rank in each.ranks]
    assert {"slow"} >= {each.code for each in found}


CAME = LastActs(sent=20.0, spoke=20.0, ran=20.0, worked=20.0)
RAN_ON = LastActs(sent=21.0, spoke=21.0, ran=12.0, worked=21.0)


def acting(*acts: LastActs | None, **more: Any) -> list[RankEvidence]:
    """Ranks of which no stack was read and no thread's wait, all asleep in a futex."""
    return [blind(n, "futex_do_wait", last_acts=its, **more) for n, its in enumerate(acts)]


def test_who_has_sent_nothing_since_the_others_came_is_told_without_tracing() -> None:
    """It has run for long since its last message."""
    verdict = only(asked(*acting(CAME, RAN_ON, CAME)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 has sent nothing to another rank for 21 s, and has run since" in verdict.sentence


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (replace(RAN_ON, sent=20.2), CAME),
        (replace(RAN_ON, ran=17.0), CAME),
        (replace(RAN_ON, spoke=13.0), CAME),
        (RAN_ON, replace(CAME, sent=21.0, spoke=21.0, ran=21.0, worked=21.0)),
        (RAN_ON, replace(CAME, ran=19.0)),
        (RAN_ON, replace(CAME, worked=22.0)),
        (RAN_ON, RAN_ON),
        (RAN_ON, None),
        (CAME, CAME),
    ],
    ids=[
        "all sent at one time",
        "it may have begun a collective before it waits",
        "it waits for the store, or for a server",
        "another sent nothing later and may be the one",
        "another has run, too",
        "another may receive",
        "one of two may wait for the other",
        "nothing is known of another",
        "all have come",
    ],
)
def test_messages_that_do_not_tell_who_is_late(own: LastActs, other: LastActs | None) -> None:
    """Nobody is accused by times alone that have another reason."""
    assert [] == accused(*acting(CAME, own, other))


@pytest.mark.parametrize(("own", "other"), [(Posture.COLLECTIVE, ""), ("", Posture.OWN)])
def test_threads_that_tell_more_than_messages(own: str, other: str) -> None:
    """It waits for one that it has begun before, or another is in none."""
    first, second = acting(CAME, RAN_ON)

    assert [] == accused(replace(first, posture=other), replace(second, posture=own))


def test_messages_say_nothing_where_stacks_do() -> None:
    """Or where not all ranks are seen."""
    assert [] == accused(*acting(CAME, RAN_ON, world_size=3))
    assert [] == accused(calls(0, "all_reduce", last_acts=CAME), calls(1, "all_reduce", last_acts=RAN_ON))


def test_who_waits_for_a_signal_is_told_without_stacks() -> None:
    """No collective does."""
    assert [1] == accused(blind(0, "futex_do_wait"), blind(1, "__do_sys_pause"))


# --- Ranks that ddplaunch did not start: nobody has counted their calls, and stacks may be all there is.


def rooted(number: int, op: str, root: int) -> RankEvidence:
    """A rank in a call of the default group that has a root."""
    call = Collective("0", 0, op, peer=root, state="entered")
    return rank(number, in_collective(op, 31), **{**UNCOUNTED, "stands_in": call})


def test_ranks_that_wait_for_different_roots_are_named_with_them() -> None:
    """None of them can be the first: a rank that waits for itself may have been left by the others."""
    others = [rooted(0, "broadcast", 1), *(rooted(n, "broadcast", 0) for n in (1, 2, 3))]
    verdict = only(asked(*others))

    assert ("collective-mismatch", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 called broadcast (train.py:31) from rank 1, the others broadcast (train.py:31) from rank 0"
        == verdict.sentence
    )
    assert [] == accused(rooted(0, "broadcast", 1), *(rooted(n, "broadcast", 1) for n in (1, 2, 3)))


def backward(number: int, **more: Any) -> RankEvidence:
    """A rank in DDP's backward."""
    engine = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 800)
    return rank(number, stack(engine, Frame("train", "/job/train.py", 93)), **{**UNCOUNTED, **more})


def test_the_odd_one_of_three() -> None:
    """Both lines are told."""
    verdict = only(asked(*(calls(n, "all_reduce") for n in (0, 1)), calls(2, "barrier", 31)))

    assert ("collective-mismatch", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 2 called barrier (train.py:31), the others all_reduce (train.py:92)" == verdict.sentence


def test_the_odd_one_where_the_others_share_gradients() -> None:
    """Backward has no frame of its collective, and sleeps for it."""
    verdict = only(asked(backward(0), backward(1), calls(2, "barrier", 31)))

    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks)


@pytest.mark.parametrize("op", ["broadcast", "broadcast_object_list", "scatter", "gather", "gather_object"])
def test_the_odd_one_waits_for_a_root(op: str) -> None:
    """That is elsewhere, so nobody can have left that call."""
    odd = rooted(3, op, root=0)
    verdict = only(asked(*(calls(n, "all_reduce") for n in range(3)), odd))

    assert ("collective-mismatch", [3]) == (verdict.code, verdict.ranks)


def test_the_odd_one_is_the_root_for_which_the_others_wait() -> None:
    """It has not come to their broadcast."""
    assert [0] == accused(
        calls(0, "all_reduce"), rooted(1, "broadcast", root=0), rooted(2, "broadcast", root=0)
    )


@pytest.mark.parametrize("op", ["broadcast", "scatter", "gather", "reduce"])
def test_a_root_may_wait_for_one_of_those_that_went_on(op: str) -> None:
    """Rank 1 may have left it by right, and rank 2 may be the one that skips it."""
    assert [] == accused(rooted(0, op, root=0), calls(1, "all_reduce"), calls(2, "all_reduce"))


def test_who_waits_in_a_reduce_may_wait_for_any_other() -> None:
    """Parts are added on their way to the root."""
    assert [] == accused(calls(0, "all_reduce"), calls(1, "all_reduce"), rooted(2, "reduce", root=0))


def test_of_two_both_are_named() -> None:
    """Either may be wrong; both lines are told."""
    verdict = only(asked(calls(0, "barrier", 31), calls(1, "all_reduce")))

    assert ("collective-mismatch", [0, 1], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "rank 0 called barrier (train.py:31) and rank 1 called all_reduce (train.py:92)" == verdict.sentence
    )


@pytest.mark.parametrize(
    "odd",
    [
        calls(2, "broadcast", 31),
        calls(2, "reduce", 31),
        calls(2, "barrier", 31, known=False),
        calls(2, "all_reduce", 31),
        calls(2, "barrier", 31, process=Process(1002, "R")),
        calls(2, "barrier", 31, stuck_for=3.0),
    ],
    ids=["behind a root", "a root", "of another group", "the same call", "runs", "has just come"],
)
def test_an_odd_one_that_may_be_innocent(odd: RankEvidence) -> None:
    """The others may have gone ahead of it, by right."""
    assert [] == accused(calls(0, "all_reduce"), calls(1, "all_reduce"), odd)


def test_an_odd_one_whose_other_thread_has_the_gil() -> None:
    """Its collective may be over."""
    stacks = [*in_collective("barrier"), Stack("busy", False, [], 7, owns_gil=True)]
    odd = rank(2, stacks, **UNCOUNTED, stands_in=Collective("0", 0, "barrier", state="entered"))

    assert [] == accused(calls(0, "all_reduce"), calls(1, "all_reduce"), odd)


def test_a_circle_of_receives() -> None:
    """By the arguments on the stacks."""
    verdict = only(asked(*(calls(n, "recv", peer=(n + 1) % 3) for n in range(3))))

    assert ("p2p-deadlock", [0, 1, 2]) == (verdict.code, verdict.ranks)


def test_a_send_and_its_receive_are_no_circle() -> None:
    """Something below torch keeps them apart."""
    assert [] == accused(calls(0, "send", peer=1), calls(1, "recv", peer=0))


@pytest.mark.parametrize("text", ["work.wait()", "loss = total.item()", "torch.cuda.synchronize()"])
def test_a_line_that_may_wait_for_others_in_native_code(text: str) -> None:
    """It may stand in a collective that was begun before; any other line is its own."""
    own = rank(1, [Stack("MainThread", True, [Frame("train", "/job/train.py", 30)])], **UNCOUNTED)
    ranks = [calls(0, "barrier"), own]

    assert [] == accused(*ranks, lines={"/job/train.py:30": text})
    assert [1] == accused(*ranks, lines={"/job/train.py:30": "data = file.read()"})


def test_a_message_may_be_waited_for_where_collectives_are_counted() -> None:
    """A debug server gives torch's recorder, which has no messages of Gloo; any other line is its own."""
    counted: dict[str, Any] = {"stack_source": "debug server", "calls": []}
    own = Stack("MainThread", True, [Frame("train", "/job/train.py", 30)])
    ranks = [rank(0, **counted), rank(1, [own], 16, **counted)]

    assert [] == accused(*ranks, lines={"/job/train.py:30": "work.wait()"})
    assert [1] == accused(*ranks, lines={"/job/train.py:30": "data = file.read()"})


def test_ranks_that_compute_are_no_reason_for_a_word() -> None:
    """From outside nobody has seen whether there is anything new."""
    busy: dict[str, Any] = {"still_for": 0.0, "stuck_for": 9.0, "process": Process(1, "R", cpu_share=1.0)}

    assert [] == judge(asked(*(rank(n, in_evaluate(), **{**UNCOUNTED, **busy}) for n in (0, 1))))
    assert [] == judge(asked(*(rank(n, in_evaluate(), stack_source="hook", **busy) for n in (0, 1))))


def test_a_rank_that_has_just_come_to_a_collective_waits_for_nobody() -> None:
    """Ranks that compute for long meet now and then; who is a moment late then is not slow."""
    busy: dict[str, Any] = {"still_for": 0.0, "stuck_for": 11.0, "process": Process(1, "R", cpu_share=1.0)}
    late = rank(1, in_evaluate(), **{**UNCOUNTED, **busy, "stack_moves": True})

    assert [] == judge(asked(calls(0, "broadcast", **{**busy, "stack_moves": True}), late))


def test_a_rank_that_stays_in_a_collective_waits_for_who_is_late() -> None:
    """Nobody has counted collectives, so the sentence does not say that there was none."""
    busy: dict[str, Any] = {"still_for": 0.0, "stuck_for": 11.0, "process": Process(1, "R", cpu_share=1.0)}
    verdict = only(asked(calls(0, "broadcast", **busy), rank(1, in_evaluate(), **{**UNCOUNTED, **busy})))

    assert ("slow", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("not hung: 11 s without anything new so far; rank 1 is in ")


def without_ranks(*silent: int, phase: PhaseName = Phase.STARTING) -> JobEvidence:
    """Rank 0 waits on node 0; of node 1 there is only the reason why nothing is known."""
    evidence = asked(calls(0, "all_reduce", world_size=2))
    blind = NodeEvidence(1, "llm-1", 0.0, phase, missing=["pod llm-1: its reason"])
    nodes = [*evidence.evidence, blind]
    return replace(evidence, nodes=2, world_size=None, evidence=nodes, silent=list(silent))


def test_a_node_whose_silence_is_explained() -> None:
    """The reason stands in place of the bare fact, and it is not said to have started no worker."""
    verdict = only(without_ranks(1))

    assert ("unknown", []) == (verdict.code, verdict.ranks)
    assert "pod llm-1: its reason" in verdict.sentence
    assert "did not answer" not in verdict.sentence
    assert not any("has started no worker" in fact for fact in verdict.facts)


def test_what_was_missing_before_is_no_reason_for_silence() -> None:
    """A node that falls silent later is said to, beside what could not be seen of its ranks."""
    whole = job(rank(0), rank(1), rank(2), rank(3))
    blind = replace(whole.evidence[1], missing=["py-spy: not permitted (ptrace)"])
    fell_silent = replace(whole, evidence=[whole.evidence[0], blind], silent=[1])

    sentence = only(fell_silent).sentence

    assert "missing: node 1 did not answer, node 1: py-spy: not permitted (ptrace)" in sentence


@pytest.mark.parametrize(("phase", "told"), [(Phase.STARTING, True), (Phase.ENDED, False)])
def test_a_node_that_does_not_run(phase: PhaseName, told: bool) -> None:
    """One that has ended may have had workers."""
    verdict = only(without_ranks(phase=phase))

    assert told == any("has started no worker" in fact for fact in verdict.facts)


PACKAGE = "/site/lib/python3.11/site-packages/lightning_fabric/utilities/distributed.py"


@pytest.mark.parametrize(
    ("text", "posture", "told"),
    [
        ("self.barrier()", "", []),
        ("group.monitored_barrier(timeout)", "", []),
        ("self.library.call()", Posture.COLLECTIVE, []),
        ("self.library.call()", "", [1]),
        ("self.barrier()", Posture.OWN, [1]),
    ],
)
def test_a_package_may_wait_for_others_in_native_code(text: str, posture: str, told: list[int]) -> None:
    """Its own line tells, not the user's that called it; or Gloo's threads, which work."""
    frames = [Frame("__call__", PACKAGE, 418), Frame("main", "/job/train.py", 35)]
    waits = rank(1, [Stack("MainThread", True, frames)], **UNCOUNTED, posture=posture)
    lines = {f"{PACKAGE}:418": text, "/job/train.py:35": "with fabric.rank_zero_first():"}

    assert told == accused(calls(0, "barrier"), waits, lines=lines)


def test_a_wait_for_a_signal_is_no_wait_for_others() -> None:
    """Whatever Gloo's threads do: one may wait for the GIL."""
    own = Frame("read_device", "/job/train.py", 16)
    process = Process(1001, "S", wchan="__do_sys_pause")
    waits = rank(
        1, [Stack("MainThread", True, [own])], **UNCOUNTED, posture=Posture.COLLECTIVE, process=process
    )

    assert [1] == accused(calls(0, "barrier"), waits)


def test_a_wait_of_python_is_the_users_own_whatever_gloo_does() -> None:
    """Its threads may work on a collective that was only begun."""
    frames = [Frame("wait", "threading.py", 331), Frame("evaluate", "/job/train.py", 35)]
    own = rank(1, [Stack("MainThread", True, frames)], **UNCOUNTED, posture=Posture.COLLECTIVE)

    assert [1] == accused(calls(0, "barrier"), own)


def test_a_store_that_no_rank_opens() -> None:
    """By the variables of torch's own functions on the stacks: torchrun has the job's store elsewhere."""
    made = Rendezvous(
        "env",
        0.0,
        "localhost",
        44991,
        settings=[Setting("MASTER_PORT", "44991", given="29500")],
        agent_store=True,
    )
    verdict = only(
        asked(*(rank(n, in_init(), **UNCOUNTED, initialized=None, rendezvous=made) for n in (0, 1)))
    )

    assert ("rendezvous-overridden", [0, 1]) == (verdict.code, verdict.ranks)
    assert "the script sets MASTER_PORT to 44991, where no rank opens a store" in verdict.sentence


@pytest.mark.parametrize(
    ("restarts", "told"),
    [
        (0, []),
        (None, []),
        (1, ["torchrun had restarted its ranks once before this"]),
        (2, ["torchrun had restarted its ranks 2 times before this"]),
    ],
)
def test_a_hang_of_no_known_cause_says_how_often_torchrun_has_restarted(
    restarts: int | None, told: list[str]
) -> None:
    verdict = only(job(rank(0, restart=restarts), rank(1, restart=restarts)))

    assert "unknown" == verdict.code
    assert told == [fact for fact in verdict.facts if "restarted" in fact]
