"""Training as people write it: checkpoints, modules that not all ranks run, evaluation, threads."""

from __future__ import annotations

from dataclasses import replace

from tests.corpus.faults import Fault, Healthy


def _one(program: str, how: str, code: str, ranks: tuple[int, ...], nproc: int, says: str) -> Fault:
    """The other ranks are its victims. The verdict's sentence says why, too."""
    return Fault(
        f"{program}_{how}",
        code,
        ranks,
        tuple(other for other in range(nproc) if other not in ranks),
        nproc=nproc,
        program=f"{program}_styles",
        arguments=(how,),
        whole=True,
        says=says,
    )


def _well(program: str, how: str) -> Healthy:
    return Healthy(f"{program}_{how}", nproc=3, program=f"{program}_styles", arguments=(how,), whole=True)


FAULTS = [
    _one("checkpoint", "shares_group", "group-in-two-threads", (0, 1), 2, 'in thread "AsyncCheckpoint'),
    _one("checkpoint", "retries", "collective-skipped", (2,), 4, "in the handler of checkpoint_styles.py:"),
    _one("checkpoint", "exists", "collective-mismatch", (0,), 3, "called barrier (checkpoint_styles.py:"),
    _one("checkpoint", "node_folder", "rank-failed", (2, 3), 4, "raised FileNotFoundError"),
    _one("checkpoint", "marker_missing", "rank-in-user-code", (0,), 3, "it is for rank 0 to write it"),
    _one("module", "text_only", "collective-mismatch", (2,), 4, "(`if pixels is not None`)"),
    _one("module", "full_state", "collective-mismatch", (0,), 3, "(`if dist.get_rank() == 0`)"),
    _one("module", "no_tokens", "collective-skipped", (1,), 3, "in the module Experts"),
    replace(
        _one("module", "compiles", "rank-in-user-code", (1,), 3, "in the compiler of torch.compile"),
        patience=4.0,
    ),
    _one("trainer", "reports", "group-in-two-threads", (0, 1), 2, 'in thread "reporter"'),
    _one("trainer", "order", "collective-mismatch", (0, 1), 2, ""),
    _one("trainer", "overflow", "group-partial", (0, 1, 2, 3), 4, "dist.get_rank() in (0, 3)`)"),
    _one("trainer", "validates", "group-partial", (0, 1), 4, "in the loop of trainer_styles.py:"),
    _one("trainer", "stops_early", "collective-skipped", (0,), 3, "has left the loop"),
    _one("trainer", "tracks", "rank-failed", (1,), 3, "`with` holds it back"),
    _one("trainer", "counts_tokens", "collective-mismatch", (3,), 4, ""),
]
HEALTHY = [
    _well("checkpoint", "own_group"),
    _well("checkpoint", "marker_late"),
    _well("module", "text_and_images"),
    _well("trainer", "reports_apart"),
]
