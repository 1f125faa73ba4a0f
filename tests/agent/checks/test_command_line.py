"""What a command line starts, by its words alone."""

from __future__ import annotations

import pytest

from ddplaunch.agent.checks.command_line import starts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bash run.sh 4", "bash, run.sh"),
        ("sh -eux run.sh", "sh, run.sh"),
        ("bash -e -o pipefail -- run.sh", "bash, run.sh"),
        ("env -u FOO A=1 B=2 ./train", "env, ./train"),
        ("nice -n 10 stdbuf -oL python3 -u -W ignore train.py x", "nice, stdbuf, python3, train.py"),
        (
            "time -p timeout -s INT 10m torchrun --nproc_per_node=2 train.py",
            "time, timeout, torchrun, train.py",
        ),
        ("numactl --cpunodebind=0 -m 0 python -m pkg.train -m x", "numactl, python, pkg.train"),
        (
            "python -m torch.distributed.run --standalone --nnodes 1 t.py",
            "python, torch.distributed.run, t.py",
        ),
        ("torchrun --nproc-per-node 2 -m pkg.train", "torchrun, pkg.train"),
        ("torchrun --no-python --nnodes=1 bash run.sh", "torchrun, bash, run.sh"),
        ("accelerate launch --num_processes 2 --multi_gpu train.py", "accelerate, train.py"),
        ("deepspeed --num_gpus 2 train.py --deepspeed", "deepspeed, train.py"),
        (
            "python -m deepspeed.launcher.launch --world_info=e30= --save_pid 7 train.py",
            "python, deepspeed.launcher.launch, train.py",
        ),
        ("mpirun -np 4 --oversubscribe python train.py", "mpirun, python, train.py"),
        ("srun -N2 --ntasks-per-node=1 bash run.sh", "srun, bash, run.sh"),
    ],
)
def test_each_program_on_the_way_to_the_script_must_be_there(line: str, expected: str) -> None:
    assert expected == ", ".join(start.word for start in starts(line.split()))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bash -c echo", "bash"),
        ("bash -eo pipefail run.sh", "bash"),
        ("python -c pass", "python"),
        ("python -I -m pkg", "python"),
        ("env PATH=/opt/bin trainer", "env"),
        ("env -S bash run.sh", "env"),
        ("torchrun --nproc 2 train.py", "torchrun"),
        ("torchrun --some-new-option x train.py", "torchrun"),
        ("accelerate config default", "accelerate"),
        ("mpirun -npernode 2 python train.py", "mpirun"),
        ("make train", "make"),
        ("bash", "bash"),
        ("", ""),
    ],
)
def test_a_command_line_that_is_not_understood_is_not_judged(line: str, expected: str) -> None:
    """An inline script, an unknown option or another PATH: the next word may be anything."""
    assert expected == ", ".join(start.word for start in starts(line.split()))
