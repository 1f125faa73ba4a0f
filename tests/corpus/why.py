"""Why the verdict on a program is not the right one, where that is known: docs/accuracy.md has it."""

from __future__ import annotations

_BUSY = "under a load of 15 to 22 on 2 CPUs. The notice was taken back when the job moved again."
WHY: dict[str, str] = {
    "healthy_loader_starts": _BUSY,
    "seed_spawned_async_right": _BUSY,
    "seed_spawned_right": _BUSY,
    "ends_terminated": "rank 1 sends SIGTERM to itself. The sentence names it, and says that the sender is "
    "not known: the scheduler, a person or a memory killer may have sent it, so no rank is accused.",
    "by_hand_lock_file": "which rank has left its lock file behind is not known. The sentence names the "
    "file, and who waits for it.",
}
"""A sentence by the name of the program's case."""
_RUNS_AHEAD = "the others have called all of theirs and are exiting Python, where their records are gone."
_NO_INIT = "with NCCL init_process_group returns before all have called it; the others wait in a later call."
WHY_WITH_NCCL: dict[str, str] = {
    "accumulation_counts_differently": "the two calls that meet differ: that is true, and seen first.",
    "awaited_no_key": "what its GPU had not done yet was taken for the place where it waits; fixed since, "
    "and right on the evidence of these runs.",
    "before_init_downloads": _NO_INIT,
    "before_init_runs_command": _NO_INIT,
    "collective_mismatch": _RUNS_AHEAD,
    "exception_retried": "the others have ended, and their caught exceptions are not known.",
    "gil_held": "there was no py-spy, and the signal by which faulthandler is asked for stacks interrupts "
    "for a moment the native call that holds the GIL.",
    "gpu_endless_kernel": "without TORCH_NCCL_ENABLE_TIMING torch does not know what has started on a GPU.",
    "rank_late_to_init": _NO_INIT,
    "rank_loops": "the others end their Python, NCCL gives up what the rank's GPU has not done, and a rank "
    "that burns a CPU looks like one that waits for its GPU.",
    "skipped_no_sync": "with NCCL it need not wait for the others: its program is over, which is seen first.",
    "skipped_uneven": "the two calls that meet differ: that is true, and seen first.",
}
WHY_WITH_OLDER: dict[str, str] = {
    **WHY,
    "gil_held": "the signal by which its stack was taken let the rank answer once, and that counted as an "
    "answer. Mended since.",
    "held_by_except": "torchrun had ended the rank that stayed in its handler before its stack was read.",
    "told_apart": "the calls that meet differ: that is true, and seen first.",
}
"""With torch before 2.8, and Gloo."""
UNTESTED = frozenset(["ends_terminated", "by_hand_lock_file"])
"""Programs whose verdict is not right on a quiet machine either: no test asks for it."""
