"""The command line as a whole: verbs, errors, exit codes."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.unit.cli.conftest import SCRIPT, Call

from ddplaunch import __version__
from ddplaunch.agent.contract import Exit, JobStatus, Phase, Verdict
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.cli import exits, main
from ddplaunch.errors import ClusterError, DdplaunchError, ExitCode, NotFoundError, UsageError


def test_help_lists_every_verb_and_exit_code(call: Call) -> None:
    """The overview is data, and goes to stdout."""
    answer = call("--help")

    assert (0, "") == (answer.code, answer.err)
    assert [] == [verb for verb in main.VERBS if f"\n  {verb} " not in answer.out]
    assert [] == [code for code in ExitCode if f"\n{code:>5}  " not in answer.out]


def test_without_a_command_the_overview_is_an_error(call: Call) -> None:
    assert 2 == call().code


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_the_version_is_the_packages(call: Call, words: list[str]) -> None:
    assert (0, f"ddplaunch {__version__}\n", "") == call(*words)


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    """Each command has a help, and so has each of its arguments."""
    parser = main.verb_parser(verb)

    assert main.command(verb).help.strip()
    assert [] == [each.dest for each in [*parser.options(), *parser.positionals()] if not each.help]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["rnder"], "there is no command 'rnder'", "did you mean `ddplaunch render`?"),
        (["--hlep"], "there is no option '--hlep'", "did you mean `ddplaunch --help`?"),
        (["xyzzy"], "there is no command 'xyzzy'", "`ddplaunch --help` lists all commands"),
        (
            ["logs", "local://x", "--rank", "1-"],
            "argument -r/--rank: '1-': wanted numbers such as 0 or 0,2-3",
            "`ddplaunch logs --help` shows the usage",
        ),
        (["submit", "--wai", "job.yaml"], "unrecognized arguments: --wai", "did you mean --wait?"),
        (
            ["submit", "job.yaml", "--zebra=1", "--wait"],
            "unrecognized arguments: --zebra=1",
            "`ddplaunch submit --help` shows the usage",
        ),
        (
            ["logs", "local://x", "--rank", "0-100000000000"],
            "argument -r/--rank: '0-100000000000': wanted numbers such as 0 or 0,2-3",
            "`ddplaunch logs --help` shows the usage",
        ),
        (["status", "ssh://digits"], "there is no target 'ssh'", "one of local, slurm, kubernetes"),
        (
            ["run", "--name", "../x", "--", "true"],
            "argument --name: '../x': wanted lower-case letters, digits and -, beginning with a letter",
            "`ddplaunch run --help` shows the usage",
        ),
    ],
)
def test_bad_usage_is_an_error_with_a_hint(call: Call, words: list[str], message: str, hint: str) -> None:
    """Message, blank line, hint; on stderr; exit code 2."""
    assert (2, "", f"error: {message}\n\nhint: {hint}\n") == call(*words)


@pytest.mark.parametrize("error", [UsageError, NotFoundError, ClusterError, DdplaunchError])
def test_each_error_has_its_exit_code(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: type[DdplaunchError]
) -> None:
    """The class of an error decides; no traceback is shown."""
    monkeypatch.setattr("ddplaunch.report.explain.meanings", _raising(error("it broke", "mend it")))

    answer = call("explain")

    assert (error.exit_code, "", "error: it broke\n\nhint: mend it\n") == answer


def test_a_fault_of_our_own_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever meets a bug is told how to see more."""
    monkeypatch.setattr("ddplaunch.report.explain.meanings", _raising(KeyError("x")))

    answer = call("explain")

    assert 1 == answer.code
    assert answer.err.startswith("error: KeyError: 'x'\n\nhint: ")


@pytest.mark.parametrize("words", [["--debug", "explain"], ["explain", "--debug"]])
def test_debug_shows_the_traceback(call: Call, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Before or after the verb, any error comes out as it is."""
    monkeypatch.setattr("ddplaunch.report.explain.meanings", _raising(NotFoundError("it broke")))

    with pytest.raises(NotFoundError):
        call(*words)


def test_an_interrupt_is_tidy(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130, as a shell would say, and without a traceback."""
    monkeypatch.setattr("ddplaunch.report.explain.meanings", _raising(KeyboardInterrupt()))

    assert (130, "", "\n") == call("explain")


def test_a_closed_pipe_is_silent() -> None:
    """`ddplaunch … | head` leaves no traceback behind, and ends as if by SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, "schema"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=BUSY * 30,
    )
    os.close(writing)

    assert (141, "") == (result.returncode, result.stderr)


def _raising(error: BaseException) -> object:
    def run(*_: object) -> int:
        raise error

    return run


@pytest.mark.parametrize("code", [code for name, code in vars(Exit).items() if name.isupper()])
def test_every_exit_code_of_the_agent_has_its_own(code: int) -> None:
    """No way in which a job ends is left to chance."""
    assert code in exits.OF_AGENT


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        (State.PENDING, None, 101),
        (State.RUNNING, None, 101),
        (State.SUCCEEDED, 0, 0),
        (State.FAILED, 20, 104),
        (State.FAILED, 30, 104),
        (State.FAILED, 40, 100),
        (State.FAILED, 41, 100),
        (State.FAILED, 50, 105),
        (State.CANCELLED, 60, 103),
        (State.CANCELLED, None, 103),
        (State.FAILED, 79, 104),
        (State.FAILED, 1, 100),
        (State.LOST, None, 100),
        (State.LOST, 60, 103),
    ],
)
def test_how_a_job_ended_is_the_exit_code(state: State, code: int | None, expected: int) -> None:
    """Scripts tell failed from hung from never started."""
    assert expected == exits.of_job(Job(Handle("local", "x/1"), state, 0.0, "x", exit_code=code))


@pytest.mark.parametrize("code", [Exit.NODE_AT_FAULT, Exit.MISCONFIGURED, Exit.UNUSABLE])
def test_an_end_after_the_gate_is_an_end_of_the_training(code: int) -> None:
    """A node that is lost in mid-training has not kept anything from being trained."""
    status = JobStatus("x", 0, Phase.ENDED, 1.0, [], 1.0, 1.0, exit_code=code, gate_passed=True)
    lost = Verdict.of("network-lost", "node 1 stopped answering", "run", nodes=[1])
    job = Job(Handle("local", "x/1"), State.FAILED, 0.0, "x", exit_code=code)

    told = (dataclasses.replace(job, status=status), dataclasses.replace(job, verdicts=(lost,)))

    assert (100, 100) == tuple(map(exits.of_job, told))
    assert 104 == exits.of_job(
        dataclasses.replace(job, status=dataclasses.replace(status, gate_passed=False))
    )


@pytest.mark.parametrize(
    "error",
    [RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, "Resource unavailable", "sh")],
)
def test_a_user_who_may_start_nothing_more(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """`ulimit -u` of a login node is no bug of ours: Python says it of a thread, the kernel of a fork."""

    def jobs(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ddplaunch.api.jobs", jobs)
    code, out, said = call("list")

    assert (1, "") == (code, out)
    assert said.startswith("error: cannot start more processes or threads here\n\nhint: `ulimit -u` shows")


def test_what_the_system_refuses_is_not_called_a_fault_of_ours(call: Call, tmp_path: Path) -> None:
    """The path, the reason, and a command that shows more. Root may read everything, and asks as another."""
    assert main.explained_os_error(OSError()) is None
    main.explained_os_error(PermissionError(errno.EACCES, "no"))  # imports what it needs, beforehand
    call("list")
    jobs = tmp_path / "state" / "ddplaunch" / "jobs"
    jobs.mkdir(parents=True)
    jobs.chmod(0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        answer = call("list")
    finally:
        os.seteuid(me)

    assert (1, "") == (answer.code, answer.out)
    assert answer.err.startswith(
        f"error: {jobs} cannot be read or written: Permission denied\n\nhint: `ls -ld`"
    )
