"""`ddplaunch run -- COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import select
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddplaunch.agent import join
from ddplaunch.agent.contract import OUTPUT_LOST, Exit, StopRequest
from ddplaunch.agent.system import processes, signals
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.agent.text.printable import shell_line, shell_word
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import DdplaunchError, ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle, WatchdogPlan
    from ddplaunch.agent.join.run import JoinedJob
    from ddplaunch.agent.system.signals import Received, SignalReader
    from ddplaunch.backends.job import Handle
    from ddplaunch.backends.local.backend import LocalBackend
    from ddplaunch.backends.local.host import Child
    from ddplaunch.plan.plan import Plan

_KEYS = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGQUIT): "Ctrl-\\"}
_PAUSE = 6.5
"""Seconds for a job to stop on Ctrl-Z, if its command has a handler that does something first."""
_POLL = 0.01


class StopRequested(BaseException):
    """A signal asked for the end before there was a job. No `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stops:
    """Takes signals for a job.

    Before there is a job, signals that ask for the end raise StopRequested, and the others have their usual
    effect; those that the caller ignores have none. From `hold` on, all signals are kept, and `attend` passes
    them on.
    """

    def __init__(self) -> None:
        self._reader: SignalReader | None = None
        self._witness: signals.Witness | None = None
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)

    def hold(self) -> list[int]:
        """From now on, keep signals until there is a job: its start must not be interrupted.

        Returns those that our caller has blocked.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, nobody learns how a child has ended
        self._reader = signals.SignalReader()
        self._witness = signals.Witness()
        return sorted(self._reader.blocked)

    def attend(self, child: Child, pass_on: Callable[[StopRequest], None], *, raw: bool = False) -> int:
        """Wait for the job's host process to end, and pass signals on. Returns its exit code.

        `raw`: the command will be in our process group, and gets by itself what is sent to that.
        """
        assert self._reader is not None
        assert self._witness is not None
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        descriptor = os.pidfd_open(child.pid)
        poll.register(descriptor, select.POLLIN)
        pausing = 0.0
        try:
            while (code := child.poll()) is None:
                poll.poll(1000 * _POLL if pausing else None)
                for received in self._reader.read():
                    to_group = self._witness.saw(received.number) or received.to_group
                    has_come = raw and to_group and _shares_group(child.pid)
                    if not has_come or received.number in signals.PAUSES:
                        pass_on(_request(received, to_group=to_group))
                    if received.number in signals.PAUSES:
                        pausing = time.monotonic() + _PAUSE
                    elif received.number == signal.SIGCONT:
                        pausing = 0.0
                if pausing and child.host.stopped():
                    pausing = 0.0
                    self._pause(pass_on)
                elif time.monotonic() > pausing:
                    pausing = 0.0  # it has a handler and goes on
            return code
        finally:
            os.close(descriptor)

    def end(self) -> None:
        """After the job's end, ignore further signals, which would change the exit code."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        if self._witness is not None:
            self._witness.end()

    def _stop(self, number: int, _: object) -> None:
        raise StopRequested(number)

    def _pause(self, pass_on: Callable[[StopRequest], None]) -> None:
        """Stop as the job has stopped, so that the shell gets the terminal back, until `fg` or `bg`."""
        assert self._reader is not None
        assert self._witness is not None
        self._witness.pause()
        stop = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])  # here we stop
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
        signal.signal(signal.SIGTSTP, stop)
        for received in self._reader.read():
            if received.number != signal.SIGCONT:
                pass_on(_request(received, to_group=received.to_group))
        # We get here even if we did not stop, because no shell is there to continue us.
        pass_on(StopRequest(signal.SIGCONT, ""))


def _shares_group(root: int) -> bool:
    """Whether a descendant of this process is in our process group."""
    for pid in processes.descendants(root):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == os.getpgrp():
                return True
    return False


def _request(received: Received, *, to_group: bool) -> StopRequest:
    """Return who sent it, and whether to our whole group."""
    key = _KEYS.get(received.number) if received.by_terminal else None
    who = key or f"{signals.name(received.number)}{signals.sender(received)}"
    return StopRequest(received.number, who, to_group)


_RUN_HELP = """
Your command is supervised like a submitted job: this machine is checked first, and if the command hangs or
fails, you get a verdict. The command runs in the foreground. All its processes end with it, unless you give
--keep-background.

The command keeps its stdin, stdout and stderr; ddplaunch's own lines go to stderr. In a terminal, if several
ranks print, each line begins with [node/rank] and progress bars are stacked. --raw hands the terminal to the
command unchanged, as a debugger needs it.

Every signal is passed on to the command once, and does what it would do without ddplaunch. Evidence is
collected before a Ctrl-C, a SIGTERM, or a SIGHUP that the command does not handle is passed on. Two seconds
after a second Ctrl-C, everything that is left is killed. Ctrl-Z stops the command and its supervisor; `fg`
and `bg` continue them.

On several nodes, run the same command with --join on each node. The nodes then pass the gate together, one
hub watches all ranks, and all nodes end with the same verdict. The node rank, the number of nodes and the
master come from torchrun's arguments, from PET_*, and from the variables of Slurm, Indexed Jobs and Open MPI.

The exit code is the command's own: 128 + n if signal n ended it, 127 if it was not found, 126 if it could not
be executed. It is 103 if the command did not end when told to and was killed, 104 if the preflight check
failed, and 105 if the command hung and was ended. With --join, it is the exit code of this node's command, or
1 if that command was ended because another node had failed.

examples:
  ddplaunch run -- torchrun --nproc-per-node=2 train.py --epochs 3
  srun --ntasks-per-node=1 ddplaunch run --join -- torchrun --nproc-per-node=2 train.py
"""


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [--name NAME] [--notice-after TIME] [--kill-after TIME] [--keep-background] "
        "[--prefix | --no-prefix | --raw] "
        "[--join [OPTIONS]] -- COMMAND ..."
    )
    parser.add_argument(
        "--name",
        type=arguments.job_name,
        default=join.JOB,
        metavar="NAME",
        help="the job's name in `list` and in its handle (default: run)",
    )
    parser.add_argument(
        "--notice-after",
        type=arguments.seconds,
        default=None,
        metavar="TIME",
        help="report what is wrong after this time without progress (default: 10s)",
    )
    parser.add_argument(
        "--kill-after",
        type=join.or_never(arguments.seconds),
        default=None,
        metavar="TIME",
        help="end the command when no rank has done anything for this time; or `never` (default: the "
        "timeout of the ranks' process groups, at least 10m)",
    )
    parser.add_argument(
        "--keep-background",
        action="store_true",
        help="do not end the processes that the command has started in the background and left behind",
    )
    join.add_prefix(parser)
    parser.add_argument(
        "--raw",
        action="store_true",
        help="give the command stdin, stdout and stderr unchanged; its output is not kept",
    )
    join.add_arguments(parser, arguments.seconds)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training command"
    )


def _run(args: argparse.Namespace) -> int:
    from ddplaunch.agent.system.processes import forget_coercion

    forget_coercion()
    stops = Stops()
    try:
        return _run_supervised(args, stops)
    except StopRequested as stop:
        from ddplaunch.agent.system.signals import BySignal

        _say("stopped before the command started")
        return BySignal(stop.number)
    finally:
        stops.end()


def _run_supervised(args: argparse.Namespace, stops: Stops) -> int:
    from ddplaunch.plan.plan import adhoc

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    _refuse_file(command)
    plan = adhoc(command, args.name, join.watchdog(args.notice_after, args.kill_after))
    if args.keep_background:
        plan = dataclasses.replace(plan, job=dataclasses.replace(plan.job, keep_background=True))
    words = [] if args.prefix is None else ["--prefix" if args.prefix else "--no-prefix"]
    if not args.join:
        _note_other_nodes(command)
        with _place() as place:
            return _run_plan(place, plan, stops, words, raw=args.raw)
    joining = _prepare(args, command, plan.job.watchdog)
    if joining is None:
        return ExitCode.GATE
    os.environ.update(joining.environment)
    plan = dataclasses.replace(plan, job=joining.plan)
    words += [f"--node={joining.node}", f"--key-server={shlex.join(joining.key_server)}"]
    with _place(passing=joining.node > 0) as place:
        # The hub on node 0 writes the record of the job.
        return _run_plan(place, plan, stops, words, raw=args.raw, node=joining.node)


@contextlib.contextmanager
def _place(*, passing: bool = False) -> Iterator[_Place]:
    """Give the place for the job's record. If there is no other, it is a private one that is removed after a
    success.
    """
    from ddplaunch.backends import folder
    from ddplaunch.backends.local import backend as local

    why = "" if passing else _unusable_state()
    if not (passing or why):
        yield _Place(local.connect())
        return
    private = folder.private_folder()
    if private is None:
        yield _Place(None, why or "no temporary folder has room")
        return
    if why:
        _say(f"{why}; the record of this job is in {private}, which is removed if the job succeeds")
    place = _Place(local.LocalBackend(private / "ddplaunch"), state="" if passing else str(private))
    try:
        yield place
    finally:
        if not place.keeps:
            shutil.rmtree(private, ignore_errors=True)


def _unusable_state() -> str:
    """Return why no job can be kept in the state folder; empty: one can."""
    from ddplaunch.backends import folder

    try:
        state = folder.state_folder()
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=state):
            return "" if folder.has_room(state) else f"there is no room for a job in {state}"
    except OSError as error:
        return f"no job can be kept in {state}: {error.strerror}"
    except (DdplaunchError, RuntimeError) as error:  # RuntimeError: there is no home folder
        return error.message if isinstance(error, DdplaunchError) else str(error)


@dataclasses.dataclass
class _Place:
    """The place for a job's record. `state`: a private state folder, if the place is one."""

    backend: LocalBackend | None
    why: str = ""  # why there is none
    state: str = ""
    keeps: bool = False  # whether it stays after the job's end


def _refuse_file(command: Sequence[str]) -> None:
    """Raise UsageError if a job file, or a script that is no program, is in the command's place."""
    name = command[0] if command else ""
    if not Path(name).is_file() or shutil.which(name):
        return
    if name.endswith((".yaml", ".yml")):
        raise UsageError(f"{name} is not a command", hint=f"to submit a job file: ddplaunch submit {name}")
    if name.endswith(".py"):
        raise UsageError(
            f"{name} is not a command; it needs a launcher to start its ranks",
            hint=f"put a launcher first: ddplaunch run -- torchrun --nproc-per-node=2 {shell_line(command)}",
        )


def _run_plan(
    place: _Place,
    plan: Plan,
    stops: Stops,
    arguments_of_host: Sequence[str],
    *,
    raw: bool,
    node: int = 0,
) -> int:
    from ddplaunch.cli import exits
    from ddplaunch.render import render

    backend = place.backend
    if backend is None:
        _say(f"{place.why}: the command runs without ddplaunch")
        return _exec(plan.job.command)
    rendered = render(plan)
    rendered = dataclasses.replace(rendered, command=(*rendered.command, *arguments_of_host))
    blocked = stops.hold()
    handle, child = backend.start_here(rendered, raw=raw, kept=processes.inherited(), blocked=blocked)
    # Without `raw` the command runs in a session of its own, which no signal from the terminal reaches.

    ending: list[int] = []

    def pass_on(request: StopRequest) -> None:
        if request.number in STOPPING:
            ending.append(request.number)
        try:
            backend.pass_on(handle, request)
        except NotFoundError:
            child.host.send(request.number, of_group=request.to_group)

    code = stops.attend(child, pass_on, raw=raw)
    # If the disk is full, the record may lack the end, or be gone. The exit code is always there.
    try:
        bundle, gate_passed = backend.collect(handle), backend.job(handle).gate_passed
    except NotFoundError:
        bundle, gate_passed = None, True
    if code and bundle and code != OUTPUT_LOST:
        place.keeps = bool(place.state)
        state = f"XDG_STATE_HOME={shell_word(place.state)} " if place.state else ""
        _repeat_verdict(backend, handle, code)
        _say(f"`{state}ddplaunch diagnose {handle}` shows the evidence")
    elif code and plan.job.nodes > 1:
        _say("node 0 has the evidence")
    own = _own_code(backend, handle, plan, node, code)
    if own is None and ending and code == Exit.STOPPED and not gate_passed:
        return signals.BySignal(ending[0])  # as the command would have ended, which had not been started yet
    if own is None and plan.job.nodes == 1:
        return _exit_code(code, bundle, gate_passed=gate_passed)
    return exits.of_agent(code, gate_passed=gate_passed) if own is None else own


def _repeat_verdict(backend: LocalBackend, handle: Handle, code: int) -> None:
    """Print the sentence again if the command was ended after it, and may have printed pages about that."""
    status = backend.job(handle).status
    for verdict in status.verdicts[:1] if code == Exit.HANG and status is not None else ():
        _say(f"{verdict.code}: {verdict.sentence}")


def _exec(command: Sequence[str]) -> int:
    """Become the command. Returns a shell's exit code where that cannot be."""
    signals.unblock()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the user's own words
    except OSError as error:
        _say(f"{command[0]} cannot be started: {error.strerror}")
        return processes.refused(command[0], os.environ.get("PATH", os.defpath)) or processes.UNEXECUTABLE


def _own_code(backend: LocalBackend, handle: Handle, plan: Plan, node: int, code: int) -> int | None:
    from ddplaunch.agent.join import run

    try:
        folder = str(backend.folder(handle))
    except NotFoundError:
        folder = ""
    return run.exit_code_of(plan.job.command, folder, node, code)


def _prepare(args: argparse.Namespace, command: list[str], watchdog: WatchdogPlan) -> JoinedJob | None:
    """Return this node's part of the job; None, after a message, if the key cannot reach the others."""
    from ddplaunch.agent.diagnosis import verdict_text
    from ddplaunch.agent.join import key
    from ddplaunch.agent.join.run import prepare
    from ddplaunch.agent.join.spot import CannotJoinError

    try:
        return prepare(args, command, args.name, watchdog, os.environ, _say)
    except CannotJoinError as error:
        raise UsageError(str(error), hint=error.hint) from error
    except key.NoKeyError as error:
        sys.stderr.write("\n".join([*verdict_text.block([error.verdict], final=True), ""]))
        return None


def _note_other_nodes(command: list[str]) -> None:
    from ddplaunch.agent.join import spot

    nodes = spot.nodes_of_command(command, os.environ)
    if nodes is not None:
        _say(
            f"this is one of {nodes.value} nodes ({nodes.source}), and the ranks of the others are not "
            "watched; use `ddplaunch run --join` on every node to watch all of them"
        )


def _say(text: str) -> None:
    sys.stderr.write(f"ddplaunch: {text}\n")


def _exit_code(code: int, bundle: Bundle | None, *, gate_passed: bool) -> int:
    """Return this command's exit code for the agent's: the training's own, if the training failed."""
    from ddplaunch.cli import exits

    if code in (Exit.WORKER_FAILED, Exit.OUT_OF_MEMORY):
        own = [node.launch_exit for node in bundle.evidence.evidence] if bundle and bundle.evidence else []
        for end in own:
            if end is not None and end.signal:
                return 128 + end.signal
            if end is not None and end.code:
                return end.code
        return ExitCode.UNEXPECTED
    return exits.of_agent(code, gate_passed=gate_passed)


COMMANDS: Final = {
    "run": Command(_RUN_HELP, _add_run_arguments, _run),
}
