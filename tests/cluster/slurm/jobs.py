"""A rendered job on the cluster, submitted with plain sbatch, and what it leaves to be looked at."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.cluster.slurm.cluster import Cluster

from ddplaunch.agent.contract import Bundle, Files, Verdict, bundle_file
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.spec.load import load

STEPS = """
import os, signal, sys, time
print("up", flush=True)
for step in range(int(sys.argv[1])):
    time.sleep(0.2)
    print("step", step, flush=True)
"""
"""A rank that needs no torch of its own: so many steps of 0.2 s."""

COME = "20s"
"""A gate's timeout in which the nodes that can come do, beside the jobs of other clusters."""


class Job:
    """One submission."""

    def __init__(self, cluster: Cluster, work: Path, number: int, name: str) -> None:
        self.cluster = cluster
        self.number = number
        self.folder = work / f"{name}-{number}"
        self._output = work / f"{name}-{number}.out"

    @classmethod
    def submit(cls, cluster: Cluster, work: Path, program: str, *options: str, **keys: Any) -> Job:
        """Render a job of two nodes that runs `program`, with further `keys`; `options` are sbatch's.

        A key `as_user` is no key of the job file, and names who submits it, in place of root.
        """
        user = keys.pop("as_user", "root")
        (work / "program.py").write_text(program)
        values = {
            "apiVersion": "ddplaunch/v1",
            "name": "job",
            "nodes": 2,
            "source": ["program.py"],
            "python": sys.executable,
            "command": ["program.py"],
            "resources": {"memory": "900Mi"},
            **keys,
        }
        (work / "job.yaml").write_text(json.dumps(values, ensure_ascii=False))
        return cls.of_file(cluster, work, work / "job.yaml", *options, user=user)

    @classmethod
    def of_file(cls, cluster: Cluster, work: Path, file: Path, *options: str, user: str = "root") -> Job:
        """Render a job file, and submit it from `work`; `options` are sbatch's."""
        rendered = render(plan.make(load(file), "slurm", file.parent))
        ((script_name, content),) = rendered.files.items()
        (work / script_name).write_bytes(content.content)
        *command, script = rendered.command
        words = ["runuser", f"--user={user}", "--", *command, "--parsable", *options, script]
        done = cluster.login(words, cwd=work)
        return cls(cluster, work, int(done.stdout), rendered.job)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def said(self, text: str, times: int = 1, seconds: float = 40.0) -> None:
        """Wait until its output has this."""
        self.cluster.until(
            lambda: self.output.count(text) >= times, f"{times} x {text!r}", seconds, lambda: self.output
        )

    def up(self) -> None:
        """Wait until the ranks of both nodes run."""
        self.said("] up", 2)

    def kill_supervisor(self, node: str) -> None:
        """Kill the agent there, and not the shell that has started it."""
        for pid, words in self.cluster.processes(node).items():
            if "agent.pyz run" in words and not words.startswith("sh "):
                os.kill(pid, signal.SIGKILL)

    def ended(self, seconds: float = 90.0) -> str:
        """Wait for its end; returns Slurm's state."""
        return self.cluster.ended(self.number, seconds)

    def comes_back(self) -> None:
        """Wait until it is requeued, and shorten the two minutes for which Slurm then lets it wait.

        A node refuses a job that it ended just now.
        """
        self.cluster.until(lambda: self.cluster.state(self.number) == "PENDING", "it is pending again", 60)
        self.cluster.login(["scontrol", "update", f"JobId={self.number}", "StartTime=now+3"])

    @property
    def exit_code(self) -> str:
        """As Slurm tells it: code:signal."""
        text = self.cluster.login(["scontrol", "--oneliner", "show", "job", str(self.number)]).stdout
        return dict(word.partition("=")[::2] for word in text.split())["ExitCode"]

    @property
    def comment(self) -> str:
        """As squeue shows it."""
        words = ["squeue", "--states=all", "--noheader", "--format=%k", f"--jobs={self.number}"]
        return self.cluster.login(words).stdout.strip()

    def comes(self, comment: str) -> None:
        """Wait until its comment begins so."""
        self.cluster.until(
            lambda: self.comment.startswith(comment), f"the comment {comment!r}", 20, lambda: self.comment
        )

    def bundle(self, run: str = Files.RUN) -> Bundle:
        """What its hub left; `run` names an earlier attempt's folder."""
        return bundle_file.read(str(self.folder / run / Path(Files.BUNDLE).name))

    @property
    def verdict(self) -> Verdict:
        (only,) = self.bundle().verdicts
        return only

    def leaves_nothing(self) -> None:
        """No process, and no file of its own on any node."""
        cluster = self.cluster

        def left() -> dict[str, Any]:
            return {
                node: found
                for node in cluster.nodes
                if (found := [*cluster.processes(node).values(), *self._files(node)])
            }

        cluster.until(lambda: not left(), "nothing is left on the nodes", 10, lambda: str(left()))

    def _files(self, node: str) -> list[str]:
        return [file for file in self.cluster.leftovers(node) if f"ddplaunch-{self.number}" in file]
