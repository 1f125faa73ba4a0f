"""`ddplaunch inject`: what goes to stdout, and what to stderr."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call

from ddplaunch.errors import ExitCode

GOLDEN = Path(__file__).parents[2] / "golden" / "inject"
IMAGE = ("--agent-image", "registry.example/ddplaunch-agent:1")


def test_the_file_is_printed_and_the_key_is_asked_for(call: Call) -> None:
    """On stdout nothing but the manifest; the note has the command that creates the Secret."""
    answer = call("inject", str(GOLDEN / "job.yaml"), *IMAGE)

    assert (ExitCode.SUCCEEDED, (GOLDEN / "job.injected.yaml").read_text()) == (answer.code, answer.out)
    assert "note: added gate and supervisor to Job train\n" in answer.err
    assert "kubectl create secret generic ddplaunch --namespace vision --from-literal key=" in answer.err


@pytest.mark.parametrize("name", ["job.yaml", "train.sbatch"])
def test_git_applies_the_diff(call: Call, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file's last line has no end."""
    stem, _, suffix = name.partition(".")
    text = (GOLDEN / name).read_text().rstrip("\n")
    (tmp_path / name).write_text(text)

    monkeypatch.chdir(tmp_path)
    diff = call("inject", name, "--diff", *IMAGE).out
    subprocess.run(["git", "apply", "-p0"], input=diff, text=True, check=True)

    assert (GOLDEN / f"{stem}.injected.{suffix}").read_text().rstrip("\n") == (tmp_path / name).read_text()
    assert text == call("inject", name, "--remove").out


def test_a_batch_scripts_agent_is_written_where_all_nodes_see_it(call: Call, tmp_path: Path) -> None:
    agent, script = tmp_path / "agent.pyz", str(GOLDEN / "train.sbatch")
    without = call("inject", script, "--agent", str(agent))
    assert f"note: there is no {agent} here; --write-agent writes it\n" in without.err

    answer = call("inject", script, "--agent", str(agent), "--write-agent")
    assert (ExitCode.SUCCEEDED, without.out) == (answer.code, answer.out)
    assert "--write-agent" not in answer.err
    said = subprocess.run([sys.executable, "-I", "-S", agent, "--help"], capture_output=True, check=True)
    assert said.stdout


@pytest.mark.parametrize(
    ("file", "agent", "message"),
    [
        ("job.yaml", "agent.pyz", "--write-agent is for batch scripts"),
        (
            "train.sbatch",
            "no/such/agent.pyz",
            "no/such/agent.pyz cannot be written: No such file or directory",
        ),
    ],
)
def test_an_agent_that_cannot_be_written_changes_nothing(
    call: Call, file: str, agent: str, message: str
) -> None:
    answer = call("inject", str(GOLDEN / file), "--agent", agent, "--write-agent", *IMAGE)

    assert (ExitCode.USAGE, "") == (answer.code, answer.out)
    assert message in answer.err


def test_a_dash_is_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((GOLDEN / "job.yaml").read_bytes())))
    assert (GOLDEN / "job.injected.yaml").read_text() == call("inject", "-", *IMAGE).out

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: Pod\n")))
    answer = call("inject", "-", *IMAGE)
    assert (ExitCode.USAGE, "") == (answer.code, answer.out)
    assert answer.err.startswith("error: <stdin>: found Pod, wanted one of batch/v1 Job, ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not a text file: it contains bytes that are not UTF-8"),
        (b"#" * (2**20 + 1), "larger than 1,048,576 bytes"),
        (b"a: [" * 5000, "found lists or mappings that are nested too deeply"),
        (b"", "found nothing, wanted one of"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_file_of_text_is_refused(
    call: Call, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)

    answer = call("inject", str(tmp_path / "file"), *IMAGE)

    assert (ExitCode.USAGE, "") == (answer.code, answer.out)
    assert message in answer.err
