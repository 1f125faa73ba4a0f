"""What a node is told to run: commands that are not there, wrapped, plain, with source and secrets."""

from __future__ import annotations

import os
import sys

from tests.agent.supervisor.conftest import Hub, Node, wait_for
from tests.agent.supervisor.reports import WAITS, end, evidence, names

from ddplaunch.agent.contract import NodeEvidence, codec


def test_a_launch_command_that_is_not_there_ends_the_node_as_misconfigured(node: Node, hub: Hub) -> None:
    node.start(["no-such-torchrun", "train.py"], hub)

    assert node.exit_code() == 30
    assert "error: no-such-torchrun is not on PATH on this node" in node.output
    assert "hint: " in node.output
    assert hub.wait_for("finished")["exit_code"] == 30


def test_a_missing_secret_is_named_and_told_to_the_hub(node: Node, hub: Hub) -> None:
    node.start([sys.executable, "-c", "pass"], hub, secrets={"TOKEN": {"env": "NOT_SET"}})

    assert node.exit_code() == 30
    assert "the secret TOKEN is not there" in node.output
    assert ["secret-missing"] == [each["code"] for each in hub.wait_for("finished")["verdicts"]]


def test_a_launcher_that_fails_by_itself_has_the_last_word(node: Node) -> None:
    launcher = (
        "import subprocess, sys, os\n"
        "env = {**os.environ, 'RANK': '0', 'LOCAL_RANK': '0'}\n"
        "words = [sys.executable, '-c', 'import time; time.sleep(1)']\n"
        "subprocess.run(words, check=True, stdout=open('out', 'w'), stderr=subprocess.STDOUT, env=env)\n"
        "sys.exit('the store went away')\n"
    )
    node.start([sys.executable, "-c", launcher], ranks=1)

    assert node.exit_code() == 40
    assert "last output of the launch command:\n[0/launch] the store went away" in node.output


def test_a_plain_program_is_rank_0(node: Node, hub: Hub) -> None:
    program = node.folder / "train.py"
    program.write_text("import time\nprint('up', flush=True)\ntime.sleep(4)\nraise ValueError('no batch')\n")
    node.start([sys.executable, str(program)], hub)
    wait_for(lambda: "[0/0] up" in node.output)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})
    (rank,) = evidence(hub, 1).ranks
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None

    assert (rank.rank, names(rank)) == (0, ["<module>"])
    assert node.exit_code() == 40
    (last,) = codec.load(NodeEvidence, hub.bodies("evidence")[-1]["evidence"]).ranks
    assert [(raised.type, raised.handled) for raised in last.raised] == [("ValueError", False)]
    assert "[0/0] ValueError: no batch" in node.output


def test_the_workers_below_a_shell_script_are_ranks_and_nothing_before_them(node: Node, hub: Hub) -> None:
    (node.folder / "program.py").write_text(WAITS)
    script = (
        f"{sys.executable} -c 'print(29511)' && "
        f"for r in 0 1; do RANK=$r LOCAL_RANK=$r {sys.executable} program.py > log-$r 2>&1 & done; wait"
    )
    node.start(["bash", "-c", script], hub)
    wait_for(lambda: node.output.count("stands") == 2)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})

    assert [(rank.rank, names(rank)) for rank in evidence(hub, 1).ranks] == [
        (number, ["stand", "<module>"]) for number in (0, 1)
    ]
    assert "[0/1] rank 1 stands" in node.output


def test_a_worker_that_is_a_shell_script_is_the_rank_with_the_stack_inside(node: Node, hub: Hub) -> None:
    (node.folder / "program.py").write_text(WAITS)
    worker = f"{sys.executable} program.py; exit $?"
    node.start(["bash", "-c", f"RANK=0 LOCAL_RANK=0 bash -c '{worker}' > log 2>&1; exit $?"], hub)
    wait_for(lambda: "stands" in node.output)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})
    (rank,) = evidence(hub, 1).ranks

    assert names(rank) == ["stand", "<module>"]
    assert os.path.realpath(f"/proc/{rank.pid}/exe").endswith("bash")


def test_the_unpacked_source_is_where_the_job_starts(node: Node) -> None:
    import tarfile

    (node.folder / "train.py").write_text("import os; print(os.getcwd(), os.environ['DDPLAUNCH_SOURCE'])")
    with tarfile.open(node.folder / "source.tar", "w") as tar:
        tar.add(node.folder / "train.py", "train.py")
    (node.folder / "train.py").unlink()
    node.start([sys.executable, "train.py"])

    assert node.exit_code() == 0
    source = str(node.folder / "work")
    assert f"{source} {source}" in node.output


def test_secrets_and_key_stay_out_of_what_is_written(node: Node, hub: Hub) -> None:
    node.launch(WAITS, 1, hub, secrets={"TOKEN": {"env": "MINE"}}, env={"MINE": "very-hidden"})
    wait_for(lambda: "stands" in node.output)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})
    sent = repr(evidence(hub, 1))

    written = b"".join(path.read_bytes() for path in node.here.rglob("*") if path.is_file())
    for secret in ("very-hidden", "key of the test"):
        assert secret not in node.output + sent
        assert secret.encode() not in written


def test_a_script_that_fails_is_quoted_without_its_secrets(node: Node) -> None:
    """No second command is needed to read why; nothing in it commands the terminal or gives a secret away."""
    script = node.folder / "run.sh"
    script.write_text('echo "opens $TOKEN"\nprintf "\\033[31mno such table\\n" >&2\nexit 3\n')
    secret = {"TOKEN": {"env": "MINE"}}
    node.start(["bash", str(script)], ranks=1, secrets=secret, env={"MINE": "hush-hush"})

    assert node.exit_code() == 40
    quoted = [line.partition("- | ")[2] for line in node.output.splitlines() if "- | " in line]
    assert ["opens [secret TOKEN]", "\\x1b[31mno such table"] == quoted
