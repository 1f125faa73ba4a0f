"""What moves and what does not, and how long a step takes."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.agent.supervisor.samples import C10D, IN_COLLECTIVE, LOADER, Clock, location

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.supervisor.rank_progress import Steps
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system.proc import MainIo, Usage


@pytest.mark.parametrize(
    "facts",
    [
        {"counted": (6, 5)},
        {"counted": (6, 6)},
        {"printed": True},
        {"read": 64 * 1024},
        {"written": 64 * 1024},
        {"initialized": False},
        {"asks": True},
    ],
)
def test_a_rank_whose_calls_output_or_bytes_grow_is_not_stuck(clock: Clock, facts: dict[str, Any]) -> None:
    clock.second(**facts)

    assert (clock.stuck, clock.still) == (0.0, 0.0)


def test_a_rank_computes_when_it_uses_half_a_second_of_cpu_in_five(clock: Clock) -> None:
    """That is no more: it may loop for ever."""
    clock.seconds(20, cpu=0.2)

    assert (23.0, True) == (clock.stuck, clock.still <= 2.0)


def test_a_rank_that_waits_for_a_cpu_computes(clock: Clock) -> None:
    """Where twenty share a core, each gets hardly any."""
    clock.second(wanted=100.0)
    for second in range(10):
        clock.second(cpu=0.05, wanted=101.0 + second)

    assert (14.0, 0.0) == (clock.stuck, clock.still)


@pytest.mark.parametrize(
    "polls",
    [
        {"cpu": 0.01, "wakeups": 1},
        {"cpu": 0.02, "wakeups": 100},
        {"cpu": 0.08, "wakeups": 1000},
        {"cpu": 0.01, "wakeups": 100, "read": 4000, "written": 2000},
    ],
    ids=["every second", "every 10 ms", "every ms", "a small file"],
)
def test_whoever_polls_does_nothing(clock: Clock, polls: dict[str, Any]) -> None:
    """Sleeps in short pieces, and asks whether something is there: for ever, as far as one knows."""
    for second in range(120):
        line = 20 + second % 3
        clock.second(**polls, frames=location(("prepare", line), ("main", 12)))

    assert min(clock.stuck, clock.still + 5) >= 120


@pytest.mark.parametrize("seed", range(50))
def test_no_poll_loop_moves_however_its_ticks_fall(seed: int) -> None:
    """CPU ticks, wake-ups and lines of one function come as they like."""
    clock, dice = Clock(), random.Random(seed)
    for _ in range(60):
        clock.second(
            length=dice.uniform(0.5, 4.5),
            cpu=dice.choice([0.0, 0.01, 0.02, 0.04]),
            wakeups=dice.randrange(2000),
            read=dice.randrange(2000),
            printed=dice.random() < 0.5,
            repeats=True,
            frames=location(("prepare", dice.randrange(50)), ("main", 12)),
        )

    assert clock.now - 1000.0 == pytest.approx(clock.stuck)


def test_one_burst_of_cpu_is_forgotten_when_it_is_over(clock: Clock) -> None:
    """A garbage collection, a log that is rotated: what it leaves in the window is no computation."""
    clock.second(cpu=0.9)
    assert 0.0 == clock.still
    clock.seconds(4, cpu=0.01)

    assert 4.0 == clock.still


def test_a_line_that_repeats_but_for_its_numbers_counts_while_the_rank_computes(clock: Clock) -> None:
    """Batch 7 of 900: an evaluation that shows how far it is."""
    clock.seconds(5, cpu=0.9)
    clock.second(cpu=0.9, printed=True, repeats=True)

    assert 0.0 == clock.stuck


def test_a_line_that_repeats_but_for_its_numbers_counts_as_a_computation_else(clock: Clock) -> None:
    """Step 7 of a program whose work is done elsewhere; it may as well be a poll that counts, so no more."""
    clock.seconds(10, printed=True, repeats=True)

    assert (True, 0.0) == (clock.stuck >= 10.0, clock.still)


def test_what_another_thread_prints_is_nothing(clock: Clock) -> None:
    """tqdm's monitor redraws the bar of a rank that hangs, every ten seconds."""
    clock.second(main_io=MainIo(0, 500))
    clock.seconds(2, main_io=MainIo(0, 500))
    clock.second(main_io=MainIo(0, 500), printed=True)

    assert 7.0 == clock.stuck


def test_what_the_main_thread_prints_is_something(clock: Clock) -> None:
    """Its line may be read one sample later than it was written."""
    clock.second(main_io=MainIo(0, 500))
    clock.second(main_io=MainIo(0, 520))
    clock.second(main_io=MainIo(0, 520), printed=True)

    assert 0.0 == clock.stuck


def test_wake_ups_in_a_collective_that_nobody_counts_are_calls_that_were_done(clock: Clock) -> None:
    """Seen from outside: with Gloo a thread sleeps until its call is done. A debugger's two do not count."""
    clock.seconds(2, frames=IN_COLLECTIVE)
    clock.seconds(8, wakeups=2, frames=IN_COLLECTIVE)
    assert 13.0 == clock.stuck
    clock.seconds(4, wakeups=8, frames=IN_COLLECTIVE)

    assert clock.stuck <= 3.0


def test_what_a_rank_asks_a_store_while_it_waits_in_init_is_nothing(clock: Clock) -> None:
    """The rank that has the store asks it a hundred times a second whether all are there."""
    frames = [Frame("init_process_group", C10D, 1700), *location(("main", 3))]
    clock.second(frames=frames, sent=0, sent_itself=0)
    for second in range(30):
        clock.second(frames=frames, sent=second * 100_000, sent_itself=second * 100_000)

    assert clock.stuck >= 30


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"cpu": 0.01},
        {"counted": (5, 5)},
        {"counted": None, "initialized": None},
        {"read": 100, "written": 100},
    ],
    ids=["nothing", "a polling thread", "the same counters", "no answer", "a heartbeat"],
)
def test_what_a_rank_that_hangs_goes_on_doing_is_no_sign_of_life(clock: Clock, facts: dict[str, Any]) -> None:
    clock.seconds(10, **facts)

    assert (clock.stuck, clock.still) == (13.0, 13.0)


def test_a_loader_workers_reading_is_the_ranks_progress(clock: Clock) -> None:
    """Data that comes in slowly is progress all the same: 10 kB a second make one every seven seconds."""
    clock.second(pid=LOADER)
    quiet = []
    for _ in range(30):
        clock.second(pid=LOADER, read=10_000)
        quiet.append(clock.stuck)

    assert 5.0 <= max(quiet[10:]) <= 7.0


def test_bytes_through_sockets_are_progress(clock: Clock) -> None:
    """A broadcast that takes minutes moves; the first count has nothing to compare with."""
    clock.second(sent=10_000_000)
    assert clock.stuck == 4.0
    clock.second(sent=10_200_000)

    assert clock.stuck == 0.0


def test_progress_that_is_bytes_alone_is_told_once_it_has_lasted(clock: Clock) -> None:
    clock.seconds(2, written=1 << 20)
    assert clock.progress.is_only_transferring(clock.now)

    clock.second(written=1 << 20, printed=True)
    clock.second(written=1 << 20)
    assert not clock.progress.is_only_transferring(clock.now)


def test_a_dead_child_takes_its_numbers_along(clock: Clock) -> None:
    """The sum of all bytes shrinks when a loader worker ends: that is neither progress nor an error."""
    clock.second(pid=LOADER)
    clock.used[LOADER] = Usage(10.0, 10_000_000, 0, 0)
    clock.second()
    stuck = clock.stuck
    del clock.used[LOADER]
    clock.second()

    assert (clock.stuck, clock.still) == (stuck + 1.0, stuck + 1.0)


def test_a_stack_never_seen_is_progress(clock: Clock) -> None:
    """From one function into another, as set-up code does."""
    clock.second(frames=location(("load", 3), ("main", 12)))
    assert clock.stuck == 4.0
    clock.second(frames=location(("tokenize", 9), ("main", 13)))

    assert clock.stuck == 0.0


def test_a_loop_within_one_function_is_movement(clock: Clock) -> None:
    """Other lines of one function, and library code below it: an endless loop, as far as one knows."""
    for line in range(20, 40):
        below = [Frame("sha256", "/usr/lib/python3.11/hashlib.py", line)] if line % 2 else []
        clock.second(cpu=0.9, frames=[*below, *location(("search", line), ("main", 12))])

    assert (clock.stuck, clock.still) == (23.0, 0.0)
    assert clock.progress.stack_moves is True


def test_two_places_in_turn_are_progress_only_once_each(clock: Clock) -> None:
    """Between two functions for ever: the second is news, coming back is none."""
    for _ in range(10):
        clock.second(frames=location(("left", 3), ("main", 12)))
        clock.second(frames=location(("right", 7), ("main", 13)))

    assert clock.stuck == 18.0


def test_importing_is_progress(clock: Clock) -> None:
    """Every module is imported once: on a slow disk torch's import takes a minute, and moves."""
    for number in range(20):
        frames = [
            Frame("<module>", f"/opt/torch/module_{number}.py", 1),
            Frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241),
            *location(("<module>", 2)),
        ]
        clock.second(frames=frames)

    assert clock.stuck == 0.0


def test_a_loader_workers_new_place_is_progress(clock: Clock) -> None:
    """The rank waits at one line; what moves is its worker."""
    waiting = location(("__next__", 700), ("main", 12))
    clock.second(frames=waiting, deeper=(location(("read", 3), ("fetch", 9)),))
    clock.second(frames=waiting, deeper=(location(("decode", 30), ("fetch", 10)),))

    assert clock.stuck == 0.0


def test_progress_forgets_what_was_seen(clock: Clock) -> None:
    """After a step, an old place is where the next wait begins, and not yet a sign."""
    clock.second(frames=IN_COLLECTIVE)
    clock.second(counted=(6, 6))
    clock.second(frames=IN_COLLECTIVE)
    clock.second(frames=IN_COLLECTIVE)

    assert clock.stuck == 2.0


@pytest.mark.parametrize(
    ("counted", "frames", "expected"),
    [
        ((6, 5), IN_COLLECTIVE, True),
        (None, IN_COLLECTIVE, True),
        (None, [Frame("init_process_group", C10D, 1700), *location(("main", 3))], True),
        ((6, 5), location(("backward", 50), ("main", 12)), True),
        ((5, 5), location(("evaluate", 140), ("main", 12)), False),
        (
            (6, 5),
            [Frame("__next__", "/opt/torch/utils/data/dataloader.py", 700), *location(("main", 12))],
            False,
        ),
        ((6, 5), None, True),
        ((5, 5), None, False),
    ],
    ids=[
        *("collective", "no counters", "init", "backward", "elsewhere", "data", "counters alone"),
        "nothing known",
    ],
)
def test_who_waits_is_seen_by_the_stack_or_else_by_an_open_collective(
    clock: Clock, counted: tuple[int, int] | None, frames: list[Frame] | None, expected: bool
) -> None:
    clock.second(counted=counted)
    clock.seconds(2, frames=frames, counted=counted)

    assert clock.progress.is_waiting(clock.now) is expected


def test_a_spinning_wait_is_a_wait(clock: Clock) -> None:
    """NCCL burns a whole core while it waits."""
    clock.seconds(3, cpu=1.0, frames=IN_COLLECTIVE, counted=(6, 5))

    assert clock.progress.is_waiting(clock.now) is True
    assert clock.still == 0.0


def test_whether_a_stack_moves_needs_two_looks(clock: Clock) -> None:
    assert clock.progress.stack_moves is None
    clock.second(frames=IN_COLLECTIVE)
    assert clock.progress.stack_moves is None
    clock.second(frames=IN_COLLECTIVE)

    assert clock.progress.stack_moves is False


def test_a_collective_that_may_be_done_keeps_nobody_waiting(clock: Clock) -> None:
    """And that it is done, found out late, is no progress of now."""
    clock.second(counted=(6, 5), is_doubtful=True)
    clock.seconds(4, counted=(6, 5), is_doubtful=True)
    assert clock.progress.is_waiting(clock.now) is False

    clock.second(counted=(6, 6))
    assert (5.0, False) == (clock.stuck, clock.progress.is_waiting(clock.now))


def test_a_collective_that_is_found_to_be_open_is_waited_for(clock: Clock) -> None:
    clock.seconds(3, counted=(6, 5), is_doubtful=True)
    clock.second(counted=(6, 5))
    assert clock.progress.is_waiting(clock.now) is True

    clock.second(counted=(6, 6))
    assert 0.0 == clock.stuck


def test_a_supervisor_that_was_frozen_counts_no_time_that_it_did_not_see(clock: Clock) -> None:
    """A machine was suspended for two minutes: its ranks have been stuck for as long as before."""
    before = clock.stuck
    clock.now += 120
    unseen = clock.stuck
    clock.second()

    assert (before + 5, before) == (unseen, clock.stuck)


def test_a_call_between_two_samples_is_progress_at_its_own_time(clock: Clock) -> None:
    """One that is known already takes nothing back."""
    clock.progress.note_call(clock.now - 1.5)
    assert (clock.stuck, clock.still) == (1.5, 1.5)

    clock.progress.note_call(clock.now - 20)
    assert clock.stuck == 1.5


@pytest.mark.parametrize(
    ("frames", "counted", "makes"),
    [
        (IN_COLLECTIVE, (0, 0), True),
        (IN_COLLECTIVE, (1, 0), False),
        (IN_COLLECTIVE, (5, 5), False),
        (IN_COLLECTIVE, None, False),
        (location(("evaluate", 140), ("<module>", 20)), (0, 0), False),
    ],
    ids=["in its first", "recorded", "later", "not counted", "elsewhere"],
)
def test_a_rank_in_a_collective_before_any_is_recorded_makes_a_communicator(
    frames: list[Frame], counted: tuple[int, int] | None, makes: bool
) -> None:
    clock = Clock()
    clock.seconds(3, counted=counted, initialized=True, frames=frames)

    assert makes == clock.progress.is_making_communicator(clock.now)


# --- ranks that wait

OPEN = {"counted": (6, 5), "sent_itself": 500, "main_io": MainIo(10, 10)}
"""Its last collective is open, its sockets and its main thread have moved nothing more."""


@pytest.fixture(name="waiting")
def _waiting(clock: Clock) -> Clock:
    clock.seconds(2, **OPEN)
    assert 1.0 == clock.stuck
    return clock


@pytest.mark.parametrize(
    "facts",
    [{"written": 1 << 20}, {"read": 1 << 20}, {"pid": LOADER, "read": 1 << 20}],
    ids=["its threads write", "its threads read", "a child reads"],
)
def test_what_goes_on_beside_a_wait_is_movement(waiting: Clock, facts: dict[str, Any]) -> None:
    """A log of the machine's load and an upload go on for ever, also when the job hangs."""
    waiting.seconds(9, **OPEN, **facts)

    assert (10.0, 0.0) == (waiting.stuck, waiting.still)
    assert waiting.progress.is_suspicious(waiting.now)


@pytest.mark.parametrize(
    "facts",
    [
        {"main_io": MainIo(70_000, 10)},
        {"main_io": MainIo(10, 70_000)},
        {"sent_itself": 70_000},
        {"printed": True, "main_io": MainIo(10, 11)},
    ],
    ids=["reads", "writes", "sends", "prints"],
)
def test_what_a_waiting_rank_does_itself_is_progress(waiting: Clock, facts: dict[str, Any]) -> None:
    """A broadcast that takes minutes goes through its sockets."""
    waiting.second(**{**OPEN, **facts})

    assert 0.0 == waiting.stuck


def test_a_child_that_asks_the_user_beside_a_wait_is_nothing(waiting: Clock) -> None:
    waiting.seconds(2, **OPEN, asks=True)

    assert 3.0 == waiting.stuck


@pytest.mark.parametrize("missing", ["sent_itself", "main_io"])
def test_bytes_whose_thread_is_not_known_are_progress(waiting: Clock, missing: str) -> None:
    """Those of a slow broadcast may be among them, where sockets cannot be counted."""
    waiting.seconds(3, written=1 << 20, **{**OPEN, missing: None})

    assert 0.0 == waiting.stuck


@pytest.mark.parametrize(
    "facts",
    [
        {"counted": (6, 6)},
        {
            "counted": (6, 5),
            "frames": location(("__next__", 700), file="/opt/torch/utils/data/dataloader.py"),
        },
    ],
    ids=["all are done", "one is open while it loads"],
)
def test_who_does_not_wait_may_have_its_threads_work_for_it(waiting: Clock, facts: dict[str, Any]) -> None:
    """A checkpoint is written by many threads, data is read by children."""
    waiting.seconds(5, written=1 << 20, **{**OPEN, **facts})

    assert 0.0 == waiting.stuck
    assert waiting.progress.is_suspicious(waiting.now) is True


def test_a_call_that_lasts_is_seen_by_the_stack_alone(clock: Clock) -> None:
    """Ranks that others have started have no counters."""
    seen = {**OPEN, "counted": None, "frames": IN_COLLECTIVE}
    clock.seconds(2, **seen)
    before = clock.stuck
    clock.seconds(5, written=1 << 20, **seen)

    assert before + 5.0 == clock.stuck


# --- steps


def answer(called: int, entries: int = 0, backend: str = "nccl", word: str = "count") -> dict[str, Any]:
    """A hook's, in a program whose step has four collectives."""
    status = {"last_enqueued_collective": str(called), "last_completed_collective": str(called)}
    recorded = [
        {
            "profiling_name": f"{backend}:all_reduce",
            "pg_id": 0,
            "collective_seq_id": number,
            "retired": True,
            "input_sizes": [[100, number % 4]],
            "time_created_ns": number,
        }
        for number in range(called - entries + 1, called + 1)
    ]
    more = {"entries": recorded} if entries else {}
    return {"is": word, "recorders": {backend: {"pg_status": {"0": status}, **more}}}


def after(seconds: int, **asked: Any) -> Steps:
    """A rank that has made eight collectives a second, and was asked after 20 seconds."""
    steps = Steps()
    for second in range(seconds):
        more = {"entries": 40, "word": "steps", **asked} if second == 20 else {}
        steps.take(float(second), answer(100 + 8 * second, **more))
    return steps


def test_steps_follow_the_counters() -> None:
    """Two steps a second, also minutes after the recorder was read; before that nothing is known."""
    assert [None, 0.5, 0.5] == [after(seconds).seconds(seconds) for seconds in (20, 40, 400)]


def test_the_recorder_is_read_seldom() -> None:
    """Not in the first steps, once soon after, and again after ever longer times."""
    assert 10 == next(second for second in range(200) if after(min(second, 20)).claim_read(second))

    steps, asked = after(10), []
    for second in range(10, 400):
        word = "steps" if steps.claim_read(second) else "count"
        asked += [second] if word == "steps" else []
        steps.take(second, answer(100 + 8 * second, entries=40 if word == "steps" else 0, word=word))
    assert [10, 70, 310] == asked


def test_a_recorder_whose_text_does_not_come_is_not_asked_for_each_second() -> None:
    """On a busy machine it comes too late, and would do so each time: it costs the rank some 20 ms."""
    steps, asked = after(10), []
    for second in range(10, 200):
        asked += [second] if steps.claim_read(second) else []
        steps.take(second, answer(100 + 8 * second))

    assert [10, 70, 130, 190] == asked


def test_only_a_rank_that_is_measured_is_asked() -> None:
    """In a large job all would wait for each of them."""
    rank = Rank(0, 0, os.getpid())
    rank.steps = after(20)

    assert [b"count", b"steps"] == [rank.question(False, measured) for measured in (False, True)]


def test_a_slow_job_is_measured_between_its_steps() -> None:
    """A step of 20 s makes all of its collectives at once."""
    steps = Steps()
    for second in range(300):
        word = "steps" if steps.claim_read(second) else "count"
        steps.take(second, answer(100 + second // 20 * 4, 40 if word == "steps" else 0, word=word))

    assert [20.0, 20.0, None] == [steps.seconds(now) for now in (300, 330, 400)]


def test_what_is_not_known_is_not_shown() -> None:
    """Without steps in the recorder, without a recorder, and when the rank has stopped."""
    silent = Steps()
    for second in range(60):
        silent.take(second, None if second % 2 else {"is": "count", "recorders": {}})

    assert [None, None, None] == [after(60, entries=2).seconds(60), silent.seconds(60), after(60).seconds(90)]


def test_groups_that_are_made_again_begin_again() -> None:
    """Their counters do, and the steps before them are no measure."""
    steps = after(60)
    for second in range(60, 70):
        steps.take(second, answer(second - 59))

    assert 4.0 == pytest.approx(steps.seconds(70))
