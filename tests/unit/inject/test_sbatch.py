"""`run --join` in a batch script: between srun and torchrun, and nowhere else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings, change

GOLDEN = Path(__file__).parents[2] / "golden" / "inject"
SCRIPT = (GOLDEN / "train.sbatch").read_text()
PREFIX = "python3 -I -S agent.pyz run --join -- "


def injected(text: str, settings: Settings = Settings()) -> str:  # noqa: B008 - a value that never changes
    """The script with gate and supervisor."""
    return change.inject(text, "train.sbatch", settings).text


def refused(text: str) -> str:
    """The message with which it is refused."""
    with pytest.raises(UsageError) as caught:
        injected(text)
    return f"{caught.value.message} | {caught.value.hint}"


def test_the_injected_script_is_the_golden_one() -> None:
    """Whole; it is still a script."""
    there = injected(SCRIPT)

    assert (GOLDEN / "train.injected.sbatch").read_text() == there
    subprocess.run(["bash", "-n"], input=there, text=True, check=True)


def test_removal_gives_back_the_same_bytes() -> None:
    """Options that were added by hand since are the agent's, and go too."""
    there = injected(SCRIPT)

    assert SCRIPT == change.remove(there, "train.sbatch").text
    assert SCRIPT == change.remove(there.replace("--join", "--kill-after=60 --join"), "train.sbatch").text


def test_a_second_time_is_refused() -> None:
    assert "train.sbatch:12: found ddplaunch's agent, wanted a script without it" in refused(injected(SCRIPT))


@pytest.mark.parametrize(
    "line",
    [
        "srun torchrun train.py",
        "srun -N2 -n 2 --label torchrun train.py",
        'srun --cpu-bind=none "$VENV/bin/torchrun" train.py',
        "time srun python -u -m torch.distributed.run train.py &",
        "if ! srun --mpi none accelerate launch train.py; then exit 1; fi",
        "LR=1 exec /usr/bin/srun torchrun train.py | tee log",
        "out=$(srun torchrun train.py 'a b' \"$(date)\")",
    ],
)
def test_srun_is_found_where_the_shell_finds_it(line: str) -> None:
    """The prefix stands right before the launcher, and goes again."""
    text = f"#!/bin/bash\n{line}\n"
    there = injected(text)
    launcher = next(word for word in ('"$VENV', "torchrun", "python -u", "accelerate") if word in line)

    assert f"#!/bin/bash\n{line.replace(launcher, PREFIX + launcher, 1)}\n" == there
    assert text == change.remove(there, "train.sbatch").text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torchrun train.py", "found no srun, wanted `srun`, its options, and torchrun"),
        ("# srun torchrun train.py", "found no srun"),
        ("echo 'srun torchrun train.py'", "found no srun"),
        ("srun bash -c 'torchrun train.py'", "found srun in line 2 with another command"),
        ("srun singularity exec image torchrun train.py", "found srun in line 2 with another command"),
        ("srun python train.py", "found srun in line 2 with another command"),
        (
            "srun --ntasks-per-node=8 torchrun train.py",
            "train.sbatch:2: found --ntasks-per-node=8, wanted one",
        ),
        ("srun -N2 -n8 torchrun train.py", "found 8 tasks on 2 nodes, wanted one task on each node"),
        ("#SBATCH --ntasks-per-node 4\nsrun torchrun t.py", "train.sbatch:3: found --ntasks-per-node=4"),
        ("cat > x <<EOF\nsrun torchrun train.py\nEOF", "train.sbatch:2: found a here-document"),
        ("srun torchrun 'train.py", 'train.sbatch:2: found "\'", wanted a script with matching quotes'),
    ],
)
def test_what_is_not_understood_is_refused(line: str, message: str) -> None:
    assert message in refused(f"#!/bin/bash\n{line}\n")


def test_a_script_without_ddplaunch_has_nothing_to_remove() -> None:
    with pytest.raises(UsageError, match="found nothing of ddplaunch"):
        change.remove(SCRIPT, "train.sbatch")


def test_the_agent_stands_where_the_user_has_put_it() -> None:
    """Its path is one word of the shell."""
    there = injected(SCRIPT, Settings(agent="/shared/my files/agent.pyz", python="/opt/python"))

    assert "/opt/python -I -S '/shared/my files/agent.pyz' run --join -- torchrun" in there
    assert SCRIPT == change.remove(there, "train.sbatch").text
