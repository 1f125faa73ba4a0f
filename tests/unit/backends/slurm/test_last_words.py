"""What is read from the output of a job whose hub said nothing at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.agent.contract import Files, Verdict
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line
from ddplaunch.backends.slurm import outcomes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[slurm] 10:00:00 error: n1 has no Python\n", "n1 has no Python"),
        ("slurmstepd-n1: error: TaskProlog failed status=3\n", "TaskProlog failed status=3"),
        ("[slurm] 10:00:00 error: first\nsrun: error: x\n[slurm] 10:00:00 error: last\n", "last"),
        ("[slurm] 10:00:00 each node's own words\nerror: of a rank\n", ""),
    ],
)
def test_why_a_script_gave_up(tmp_path: Path, text: str, said: str) -> None:
    """Its last word, or Slurm's of why it never was."""
    output = tmp_path / "job-7.out"
    output.write_text(text)

    assert said == outcomes.of_script(output)
    assert "" == outcomes.of_script(None)


def test_what_gates_have_said(tmp_path: Path) -> None:
    """Of each node the last word; each cause once, with all whom it names."""

    def cry(node: int, code: str, culprit: int) -> str:
        verdict = Verdict(code, f"node {node}: {code}", "gate", nodes=[culprit])
        return f"{node}: {report_line(UnreachedReport(node, 3.0, verdict))}\n"

    assert [] == outcomes.of_gates(None) == outcomes.of_gates(tmp_path)
    (tmp_path / Files.RUN).mkdir()
    said = [
        cry(1, "dns-not-found", 1),
        cry(1, "port-refused", 0),
        cry(2, "port-filtered", 2),
        cry(3, "port-filtered", 3),
    ]
    (tmp_path / Files.GATES).write_text("".join(["0: gate of job\n", *said, "\n"]))

    assert [
        ("port-refused", [0], "node 1: port-refused"),
        ("port-filtered", [2, 3], "node 2: port-filtered (and 1 more)"),
    ] == [(each.code, each.nodes, each.sentence) for each in outcomes.of_gates(tmp_path)]
