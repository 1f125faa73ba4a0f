"""The entry point: finds the command, runs it, prints its error, and returns the exit code.

A command imports only what it needs, so that `ddplaunch --help` and tab completion answer at once.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ddplaunch import __version__
from ddplaunch.errors import DdplaunchError, ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.cli.parser import Command, Parser


def _prepare_streams() -> None:
    """Open streams that the caller has closed, and write UTF-8.

    A job file is UTF-8, and a rendered file must have the same bytes in every locale. Other bytes, as in a
    file's name, are written as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null_stream(mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Discard further output: otherwise Python reports what it cannot write when it closes stdout."""
    sys.stdout = _null_stream("w")


def _null_stream(mode: str) -> io.TextIOWrapper:
    """Return a stream to os.devnull that stays open as long as the process runs."""
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - open for life
    assert isinstance(stream, io.TextIOWrapper)
    return stream


VERBS: Final = {
    "init": "write a commented job file for you to start from",
    "validate": "report every problem of job files",
    "render": "show exactly what submit would send",
    "submit": "start a job, and print its handle",
    "run": "supervise a training command on this machine, without a job file",
    "status": "show the state of a job, and which nodes it waits for",
    "watch": "show a job until its end: ranks that wait, phases, steps per second",
    "list": "list all jobs, including finished ones",
    "logs": "print the output of a job's ranks",
    "outputs": "list or copy the files that a job's ranks wrote",
    "cancel": "collect evidence, then stop a job",
    "delete": "remove what finished jobs have left behind",
    "diagnose": "explain what is wrong with a job, where, and what to do",
    "doctor": "check the nodes: run only the gate, without training",
    "inject": "add gate and supervisor to another controller's manifest or batch script",
    "explain": "print the page about a verdict code",
    "schema": "print the JSON Schema of the job file, or of the output of `diagnose --json`",
    "completion": "print the completion script for a shell",
}
"""Each command, and its line in the help."""

_MODULES: Final = {
    "init": "job_files",
    "validate": "job_files",
    "render": "job_files",
    "schema": "job_files",
    "status": "jobs",
    "list": "jobs",
    "logs": "jobs",
    "watch": "jobs",
    "cancel": "jobs",
    "explain": "diagnose",
    "delete": "outputs",
}
"""The module that has a command in its `COMMANDS`. A command that is not listed has a module with its own
name."""

EXIT_CODES: Final = {
    ExitCode.SUCCEEDED: "succeeded",
    ExitCode.UNEXPECTED: "unexpected error; --debug shows where",
    ExitCode.USAGE: "the command line or the job file is wrong",
    ExitCode.FAILED: "the training failed",
    ExitCode.NOT_FINISHED: "the job has not finished",
    ExitCode.NOT_FOUND: "there is no such job, file of a job, or verdict code",
    ExitCode.CANCELLED: "the job was cancelled, or stopped from outside",
    ExitCode.GATE: "the preflight check failed, or the job can never start; nothing was trained",
    ExitCode.HANG: "the job hung and was ended, or failed because its ranks did not match",
    ExitCode.CLUSTER: "the scheduler refused the request, or cannot be reached",
}

_OPTIONS = ("--help", "--version", "--debug")
_COLLECT_AFTER = 20_000
"""New objects before Python collects garbage. With its default, 700, a tenth of `render` goes into that."""
_BY_SIGNAL = 128
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of `ddplaunch`. Returns the exit code."""
    gc.set_threshold(_COLLECT_AFTER)
    words = list(sys.argv[1:] if argv is None else argv)
    debug = words[:1] == ["--debug"]
    if debug:
        del words[0]
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    _prepare_streams()
    try:
        code = _run(words, debug)
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_output()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    finally:
        if argv is None:  # a Ctrl-C while the interpreter shuts down would change the exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    if argv is None and code > _BY_SIGNAL:
        from ddplaunch.agent.system.signals import BySignal

        if isinstance(code, BySignal):
            sys.stderr.flush()
            code.die()
    return code


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt for the first Ctrl-C and ignore later ones: all waits after it are bounded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(words: list[str], debug: bool) -> int:
    try:
        if not words or words in (["help"], ["-h"], ["--help"]):
            sys.stdout.write(overview())
            sys.stdout.flush()
            return ExitCode.SUCCEEDED if words else ExitCode.USAGE
        if words[0] in ("-V", "--version"):
            sys.stdout.write(f"ddplaunch {__version__}\n")
            return ExitCode.SUCCEEDED
        if words[0] == "help":
            words = [*words[1:2], "--help"]
        verb = known_verb(words[0])
        arguments = verb_parser(verb).parse_args(words[1:])
        debug = debug or arguments.debug
        code = command(verb).run(arguments)
        sys.stdout.flush()
        return code
    except DdplaunchError as error:
        if debug:
            raise
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        if debug:
            raise
        sys.stderr.write(f"{_unexpected(error)}\n")
        if isinstance(error, OSError) and error.filename is None:
            _discard_output()  # otherwise Python tries to write the rest when it ends
        return ExitCode.UNEXPECTED


def _unexpected(error: Exception) -> DdplaunchError:

    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return DdplaunchError(*_NO_ROOM)
    if isinstance(error, OSError):
        refused = explained_os_error(error)
        if refused is not None:
            return DdplaunchError(*refused)
    return DdplaunchError(
        f"{type(error).__name__}: {error}", hint="this is a bug in ddplaunch; --debug shows where it happened"
    )


def command(verb: str) -> Command:
    """Return the command with this name. Only its module is imported."""
    module = import_module(f"ddplaunch.cli.{_MODULES.get(verb, verb)}")
    found: Command = module.COMMANDS[verb]
    return found


def verb_parser(verb: str) -> Parser:
    """Return the parser of one command."""
    from ddplaunch.cli.parser import Parser

    found = command(verb)
    parser = Parser(prog=f"ddplaunch {verb}", description=f"{VERBS[verb]}\n\n{found.help.strip()}")
    found.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def known_verb(word: str) -> str:
    """Return `word` if it is a command. Raises UsageError, which suggests a similar one."""
    if word in VERBS:
        return word
    from difflib import get_close_matches

    kind, known = ("option", _OPTIONS) if word.startswith("-") else ("command", VERBS)
    near = get_close_matches(word, known, n=1)
    raise UsageError(
        f"there is no {kind} {word!r}",
        hint=f"did you mean `ddplaunch {near[0]}`?" if near else "`ddplaunch --help` lists all commands",
    )


def overview() -> str:
    """Return the text of `ddplaunch --help`."""
    width = max(map(len, VERBS))
    return "\n".join(
        [
            "usage: ddplaunch [--version] [--help] [--debug] COMMAND ...",
            "",
            "Starts distributed PyTorch jobs after a preflight check, the gate, and explains hangs.",
            "",
            "commands:",
            *(f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()),
            "",
            "exit codes:",
            *(f"  {code:>3}  {text}" for code, text in EXIT_CODES.items()),
            "",
            "See `ddplaunch COMMAND --help` for more. Data goes to stdout, everything else to stderr.",
            "",
        ]
    )


_OS_HINTS: Final = {
    errno.ENOSPC: "`df -h` shows which disk is full, and `quota` how much of it you may use",
    errno.EDQUOT: "`quota` shows how much of this disk you may use; make room there",
    errno.EACCES: "`ls -ld` shows who owns it and the folders above it; you are {user}",
    errno.EPERM: "`ls -ld` shows who owns it and the folders above it; you are {user}",
    errno.EROFS: "the disk is mounted read-only: see `findmnt --target PATH`",
    errno.EIO: "the disk or its server is faulty: see `dmesg`",
    errno.ESTALE: "the file server has lost the file: mount the folder again, or ask its administrator",
    errno.EMFILE: "`ulimit -n` shows how many files you may open; raise it",
}


_NO_ROOM: Final = (
    "cannot start more processes or threads here",
    "`ulimit -u` shows your limit, and `ps -LU $USER` what is running; end what you do not need",
)


def explained_os_error(error: OSError) -> tuple[str, str] | None:
    """Return message and hint; None for an error that is more likely a bug in ddplaunch."""
    if error.errno == errno.EAGAIN:  # from fork(2); files here do not give it
        return _NO_ROOM
    hint = _OS_HINTS.get(error.errno or 0)
    if hint is None:
        return None
    what = "standard output cannot be written"
    if error.filename is not None:
        what = f"{error.filename} cannot be read or written"
    return f"{what}: {error.strerror}", hint.format(user=_user())


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number that has no name, as in a container
        import os

        return f"user {os.getuid()}"
