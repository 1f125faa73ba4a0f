"""The gate for a batch script that is not ours. It prints its results for a shell.

The hub runs here, and the gates run in one step of the job. Log lines go to standard error.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from typing import Optional

import ddplaunch.agent
from ddplaunch.agent.contract import (
    Bundle,
    Env,
    Exit,
    Files,
    GatePlan,
    JobPlan,
    JobStatus,
    RendezvousSettings,
    bundle_file,
    codec,
)
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.platforms import SLURM
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable

_HUB_START = 10.0
_STEP_END = 5.0
"""Seconds for the step to end once the hub has ended."""
_HUB_END = 10.0
_CLEAN = 10.0
_LOG_EVERY = 5.0
_POLL = 0.05
_UNFIT = ("SLURM_EXPORT_ENV", "SLURM_DISTRIBUTION", "SLURM_NTASKS_PER_GPU")
"""The script's settings for its steps that do not fit one task on every node."""
_TIMEOUT = "DDPLAUNCH_GATE_TIMEOUT"
_ON_NODE = """
umask 077
[ "$(stat -c %f:%u "$1.tar")" = "8180:$(id -u)" ] || exit 79 # a file, 0600, this user's own
mkdir "$1" && tar -xf "$1.tar" -C "$1" || exit 79
rm -f "$1.tar"
"$2" -I -S "$1/agent.pyz" gate --folder "$1"
code=$?
rm -rf "$1"
exit "$code"
"""


class GateError(Exception):
    """There is no gate, or it has not passed. The message is for the user; `exit_code` is a contract.Exit."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Run the gate. Prints the exports and returns `Exit.OK`, or prints a message and returns the gate's
    code.
    """
    try:
        plan = _plan(environment)
        folder = tempfile.mkdtemp(prefix=f"ddplaunch-{environment['SLURM_JOB_ID']}-", dir="/tmp")
        try:
            agreed = _Gate(plan, folder, environment).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except GateError as error:
        _log(str(error))
        return error.exit_code
    for name, value in {
        "MASTER_ADDR": agreed.master_addr,
        "MASTER_PORT": agreed.master_port,
        **agreed.env,
    }.items():
        print(f"export {name}={shlex.quote(str(value))}")
        _log(f"{name}={value}: {agreed.why.get(name, 'agreed by all nodes')}")
    return Exit.OK


def _plan(environment: Mapping[str, str]) -> JobPlan:
    if not environment.get("SLURM_JOB_ID"):
        raise GateError(
            Exit.MISCONFIGURED, "error: not inside a job of Slurm; source it in a script for sbatch"
        )
    if environment.get("SLURM_HET_SIZE"):
        raise GateError(Exit.MISCONFIGURED, "error: heterogeneous jobs are not supported")
    listed = environment["SLURM_JOB_NODELIST"]
    shown = subprocess.run(["scontrol", "show", "hostnames", listed], capture_output=True, text=True)
    names = shown.stdout.split()
    if shown.returncode != 0 or not names:
        raise GateError(Exit.UNUSABLE, f"error: scontrol cannot list the nodes of {listed}: {shown.stderr}")
    python = "python" if shutil.which("python") else "python3"
    name = environment.get("SLURM_JOB_NAME") or "job"
    gate = GatePlan(timeout=_timeout(environment))
    return JobPlan(
        name,
        len(names),
        None,
        launch=[],
        command=[],
        python=python,
        names=names,
        gate=gate,
        platform=SLURM.name,
    )


def _timeout(environment: Mapping[str, str]) -> float:
    value = environment.get(_TIMEOUT)
    if not value:
        return GatePlan.timeout
    try:
        return float(value)
    except ValueError:
        message = f"error: {_TIMEOUT} is {value!r}; wanted a number of seconds"
        raise GateError(Exit.MISCONFIGURED, message) from None


class _Gate:
    """The gate of one job: a hub, and a step with one gate on every node."""

    def __init__(self, plan: JobPlan, folder: str, environment: Mapping[str, str]) -> None:
        self._plan = plan
        self._folder = folder
        self._archive: str = getattr(ddplaunch.agent.__loader__, "archive", "")
        self._name = environment.get("SLURMD_NODENAME", plan.names[0])
        # This is not derived from `folder`: other users can see that on this node, and could make the same
        # folder on the next one.
        self._scratch = f"/tmp/ddplaunch-{environment['SLURM_JOB_ID']}-{os.urandom(16).hex()}"  # noqa: S108
        self._started = time.monotonic()
        self._env = {name: value for name, value in environment.items() if name not in _UNFIT}
        self._env[Env.KEY] = os.urandom(32).hex()
        self._env[Env.ATTEMPT] = environment.get("SLURM_RESTART_COUNT") or "0"
        codec.write(self._path(Files.PLAN), plan)

    def run(self) -> RendezvousSettings:
        """Run hub and gates. Returns the settings. Raises GateError."""
        hub = self._start_hub()
        try:
            self._env[Env.HUB] = self._hub_address(hub)
            self._bring()
            code = self._step(hub)
            with contextlib.suppress(subprocess.TimeoutExpired):
                hub.wait(_HUB_END)
        finally:
            hub.kill()
            hub.wait()
        return self._result(code)

    def _start_hub(self) -> subprocess.Popen[bytes]:
        agent = [sys.executable, "-I", "-S", self._archive]
        place = ["--folder", self._folder, "--name", self._name, f"--die-with-parent={os.getpid()}"]
        os.makedirs(self._path(Files.RUN))
        with open(self._path(Files.HUB_LOG), "wb") as log:
            return subprocess.Popen(
                [*agent, "hub", "--gate-only", *place],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _hub_address(self, hub: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + _HUB_START
        while time.monotonic() < deadline and hub.poll() is None:
            with contextlib.suppress(OSError), open(self._path(Files.HUB_ADDRESS), encoding="ascii") as file:
                return file.read().strip()
            time.sleep(_POLL)
        self._explain(Exit.UNUSABLE)
        raise GateError(Exit.UNUSABLE, f"error: the hub did not start:\n{self._tail(Files.HUB_LOG)}")

    def _bring(self) -> None:
        """Copy the agent and the plan to every node, without a shared file system. Raises GateError."""
        archive = f"{self._folder}/gate.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(self._archive, Files.AGENT)
            tar.add(self._path(Files.PLAN), Files.PLAN)
        os.chmod(archive, 0o600)  # as it will be on the nodes
        done = subprocess.run(
            # Without --force, sbcast overwrites no file and follows no link.
            ["sbcast", archive, f"{self._scratch}.tar"],
            capture_output=True,
            text=True,
            env=self._env,
        )
        if done.returncode != 0:
            self._clean()
            reason = "is /tmp full or read-only on one of them, or its slurmd gone?"
            message = f"error: sbcast could not bring the agent to all nodes: {reason}\n{done.stderr.strip()}"
            raise GateError(Exit.NODE_AT_FAULT, message)

    def _clean(self) -> None:
        """Delete our archive on all nodes."""
        command = ["rm", "-f", f"{self._scratch}.tar"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*self._srun(), *command], capture_output=True, env=self._env, timeout=_CLEAN)

    def _srun(self) -> list[str]:
        """Return srun's words for one task on every node. No task ends the others or waits for them."""
        nodes = str(self._plan.nodes)
        place = ["srun", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node=1", "--mpi=none", "--label"]
        return [*place, "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--job-name=ddplaunch-gate"]

    def _step(self, hub: subprocess.Popen[bytes]) -> int:
        """Run a gate on every node. Returns the worst exit code."""
        command = ["sh", "-c", _ON_NODE, "gate", self._scratch, sys.executable]
        with open(self._path(Files.GATES), "wb") as log:
            step = subprocess.Popen(
                [*self._srun(), *command],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        ended: Optional[float] = None
        logged = time.monotonic()
        while step.poll() is None:
            now = time.monotonic()
            if ended is None and hub.poll() is not None:
                ended = now
            if ended is not None and now - ended > _STEP_END:
                step.terminate()  # srun would wait for a node that has not started its gate
            if now - logged > _LOG_EVERY:
                logged = now
                self._log_waiting()
            time.sleep(_POLL)
        return step.returncode

    def _log_waiting(self) -> None:
        with contextlib.suppress(OSError, codec.ContractError):
            status = codec.read(JobStatus, self._path(Files.STATUS))
            if status.waiting_for:
                missing = phrases.nodes(status.waiting_for, self._plan.names)
                _log(f"waiting for {missing} ({time.monotonic() - self._started:.0f} s)")

    # ---------------------------------------------------------------- the outcome

    def _result(self, code: int) -> RendezvousSettings:
        bundle = self._explain(code)
        if code != Exit.OK or bundle.agreed is None:
            detail = self._tail(Files.GATES)
            raise GateError(Exit.NODE_AT_FAULT, f"error: the step of the gate failed ({code}):\n{detail}")
        seconds = time.monotonic() - self._started
        _log(f"gate passed in {seconds:.1f} s: {phrases.nodes(range(self._plan.nodes), self._plan.names)}")
        return bundle.agreed

    def _explain(self, code: int) -> Bundle:
        """Return the hub's bundle. Raises GateError with the hub's verdict, if there is one."""
        try:
            bundle = bundle_file.read(self._path(Files.BUNDLE))
        except (OSError, codec.ContractError):
            raise GateError(Exit.UNUSABLE, f"error: the hub failed:\n{self._tail(Files.HUB_LOG)}") from None
        if bundle.verdicts:
            message = "\n".join(verdict_text.block(bundle.verdicts, final=True))
            raise GateError(bundle.exit_code or code or Exit.NODE_AT_FAULT, message)
        return bundle

    def _tail(self, name: str) -> str:
        try:
            with open(self._path(name), encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-20:]).strip()
        except OSError:
            return ""

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


def _log(text: str) -> None:
    lines = printable(text, lines=True).splitlines()
    print("\n".join(f"[ddplaunch] {line}" for line in lines), file=sys.stderr, flush=True)
