"""The programs of the corpus that run with NCCL as well, all ranks on one GPU, and those that need a GPU.

`python -m tests.corpus --nccl` measures them, on a machine with one.
"""

from __future__ import annotations

from dataclasses import replace

from tests.corpus.cases import Case, cases
from tests.corpus.faults import Fault, Healthy

WRAPPER = "on_nccl"
AS_WITH_GLOO = (
    "healthy_accumulation_long",
    "healthy_async",
    "healthy_before_init_long",
    "healthy_checkpoint",
    "healthy_compute",
    "healthy_ddp_uneven_long",
    "healthy_evaluation",
    "healthy_exit_work",
    "healthy_late_key",
    "healthy_one_call",
    "healthy_overlaps",
    "healthy_own_pace",
    "healthy_parses",
    "healthy_pipeline_long",
    "healthy_retries",
    "healthy_sharded_long",
    "healthy_short",
    "healthy_start",
    "healthy_subgroups_long",
    "healthy_subprocess",
    "healthy_tail",
    "healthy_uneven",
    "healthy_validation",
    "accumulation_counts_differently",
    "accumulation_raises",
    "accumulation_waits_for_event",
    "awaited_file",
    "awaited_key",
    "awaited_no_key",
    "before_init_downloads",
    "before_init_killed",
    "before_init_runs_command",
    "before_init_stopped",
    "collective_mismatch",
    "ddp_uneven_raises_in_join",
    "ddp_uneven_returns",
    "ends_aborts",
    "ends_exception_chain",
    "ends_exit_well",
    "ends_os_exit_code",
    "exception_retried",
    "exception_swallowed",
    "gil_held",
    "group_circle",
    "group_half",
    "group_left_out",
    "hang_after_restart",
    "lock_deadlock",
    "mesh_stands",
    "mismatch_in_shape",
    "other_call_extra_barrier",
    "other_call_only_gathers",
    "other_call_other_dtype",
    "other_call_other_order",
    "p2p_all_receive",
    "p2p_and_barrier",
    "p2p_pipeline",
    "p2p_sizes_longer",
    "pipeline_killed",
    "pipeline_leaves",
    "pipeline_raises",
    "pipeline_stands",
    "pipeline_stopped",
    "polled_lock_left_over",
    "polled_lock_with_baton",
    "polled_lock_with_filelock",
    "rank_crashed",
    "rank_exited_early",
    "rank_failed",
    "rank_in_user_code",
    "rank_killed",
    "rank_late_to_init",
    "rank_loops",
    "rank_stopped",
    "sharded_leaves",
    "sharded_raises",
    "sharded_reduces",
    "sharded_stands",
    "short_timeout_in_collective",
    "skipped_in_loop",
    "skipped_no_sync",
    "skipped_silently",
    "skipped_uneven",
    "slow",
    "subgroups_leaves",
    "subgroups_raises",
    "subgroups_stands",
    "threads_hangs_at_exit",
    "threads_thread_raises",
    "threads_waits_for_command",
    "unknown",
)
"""Names of cases whose fault is one with NCCL as well: it buffers sends, and has no monitored_barrier."""
OTHERWISE = dict.fromkeys(
    ["other_call_only_gathers", "other_call_other_dtype", "other_call_other_order"], "collective-skipped"
)
"""What is true with NCCL: the odd call passes, and the rank has made more calls than the others since."""


def _on_gpu(how: str, code: str, *more: str) -> Case:
    """Rank 1 is at fault."""
    name, words = "_".join(["gpu", how, *more]), (how, *more)
    fault = Fault(name, code, (1,), (0, 2), nproc=3, program="on_gpu", arguments=words)
    return _with_nccl(Case(fault.name, fault))


def _with_nccl(case: Case) -> Case:
    """The case with its program run by the wrapper."""
    job = replace(case.job, program=WRAPPER, arguments=(case.job.file, *case.job.arguments))
    if isinstance(job, Fault) and case.name in OTHERWISE:
        job = replace(job, code=OTHERWISE[case.name])
    return Case(case.name, job)


def nccl_cases() -> list[Case]:
    """Those of a GPU first."""
    known = {case.name: case for case in cases()}
    shared = Fault("gpu_shared", "device-shared", (0, 1), ())
    own = [
        Case(shared.name, shared),
        _on_gpu("endless_kernel", "gpu-stuck"),
        _on_gpu("endless_kernel", "gpu-stuck", "timed"),
        _on_gpu("out_of_memory", "rank-failed"),
        _on_gpu("index_too_large", "rank-failed"),
        _on_gpu("bad_pointer", "rank-failed"),
    ]
    calm = [
        Healthy(f"gpu_{how}", nproc=3, program="on_gpu", arguments=(how,))
        for how in ("computes_long", "nothing")
    ]
    own += [_with_nccl(Case(f"healthy_{each.name}", each)) for each in calm]
    return [*own, *(_with_nccl(known[name]) for name in AS_WITH_GLOO)]
