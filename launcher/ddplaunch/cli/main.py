"""The command line: find the verb, run it, say what went wrong, and name the exit code.

Nothing is imported that the verb does not need: `ddplaunch --help` and tab completion are called many times
a day, and a program that answers late feels broken.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ddplaunch import __version__
from ddplaunch.cli import streams
from ddplaunch.errors import DdplaunchError, ExitCode, UsageError

if TYPE_CHECKING:
    from ddplaunch.cli.parser import Parser

VERBS: Final = {
    "init": "write a commented job file to begin with",
    "validate": "say everything that is wrong with job files",
    "render": "show exactly what submit would send",
    "submit": "start a job, and print its handle",
    "run": "supervise one training command right here, without a job file",
    "status": "how a job stands, and whom it waits for",
    "list": "all jobs, finished ones too",
    "logs": "what the ranks of a job print",
    "cancel": "stop a job, evidence first",
    "diagnose": "what is wrong with a job, whose fault it is, and what to do",
    "doctor": "the gate alone, no training: a check-up of the nodes",
    "interfaces": "which network interfaces NCCL and Gloo take on this machine, and why",
    "explain": "a page on one verdict code",
    "schema": "the JSON Schema of the job file",
    "completion": "the completion script of a shell",
}
"""Verb -> its line in the help. Each is a module of this package with `HELP`, `add_arguments` and `run`."""

EXIT_CODES: Final = {
    ExitCode.SUCCEEDED: "succeeded",
    ExitCode.UNEXPECTED: "something unexpected; --debug shows where",
    ExitCode.USAGE: "the command line or the job file is wrong",
    ExitCode.FAILED: "the training failed",
    ExitCode.NOT_FINISHED: "the job has not finished",
    ExitCode.NOT_FOUND: "there is no such job or verdict code",
    ExitCode.CANCELLED: "the job was cancelled, or stopped from outside",
    ExitCode.GATE: "the preflight check failed: nothing was trained",
    ExitCode.HANG: "the job hung and was ended, with its evidence",
    ExitCode.CLUSTER: "the scheduler refused, or cannot be reached",
}

_OPTIONS = ("--help", "--version", "--debug")
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `ddplaunch`. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = words[:1] == ["--debug"]
    if debug:
        del words[0]
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    streams.prepare()
    try:
        code = _run(words, debug)
    except BrokenPipeError:  # whoever read has enough
        streams.silence()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    finally:
        if argv is None:  # a Ctrl-C while the interpreter ends would be the exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _interrupt(*_: object) -> None:
    """The first Ctrl-C: where it leads to, all waits are bounded, and another one changes nothing."""
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
        code: int = import_module(f"ddplaunch.cli.{verb}").run(arguments)
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
            streams.silence()  # what was not written would be tried again at the end
        return ExitCode.UNEXPECTED


def _unexpected(error: Exception) -> DdplaunchError:
    if isinstance(error, OSError):
        from ddplaunch.cli import os_errors

        refused = os_errors.of(error)
        if refused is not None:
            return DdplaunchError(*refused)
    return DdplaunchError(
        f"{type(error).__name__}: {error}",
        hint="this is a fault of ddplaunch itself; --debug shows where it happened",
    )


def verb_parser(verb: str) -> Parser:
    """The parser of one verb. Imports that verb alone."""
    from ddplaunch.cli.parser import Parser

    module = import_module(f"ddplaunch.cli.{verb}")
    parser = Parser(prog=f"ddplaunch {verb}", description=f"{VERBS[verb]}\n\n{module.HELP.strip()}")
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def known_verb(word: str) -> str:
    """`word`, when it is a verb. Raises UsageError with the verb that was meant."""
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
    """The text of `ddplaunch --help`."""
    width = max(map(len, VERBS))
    return "\n".join(
        [
            "usage: ddplaunch [--version] [--help] [--debug] COMMAND ...",
            "",
            "Starts distributed PyTorch jobs behind a gate, and explains every hang.",
            "",
            "commands:",
            *(f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()),
            "",
            "exit codes:",
            *(f"  {code:>3}  {text}" for code, text in EXIT_CODES.items()),
            "",
            "`ddplaunch COMMAND --help` says more. Data goes to stdout, everything else to stderr.",
            "",
        ]
    )
