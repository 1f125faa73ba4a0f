"""An argparse parser that raises this program's errors, and arguments that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from ddplaunch.errors import UsageError


class Command(NamedTuple):
    """A command: its help below the first line, its arguments, and the function that runs it and returns the
    exit code.
    """

    help: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Folds paragraphs to the terminal's width, but leaves examples and tables alone, which are indented."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        blocks = text.split("\n\n")
        prose = [not any(line.startswith(" ") for line in block.split("\n")) for block in blocks]
        return "\n\n".join(
            textwrap.fill(block, width, initial_indent=indent, break_long_words=False, break_on_hyphens=False)
            if fold
            else block
            for block, fold in zip(blocks, prose, strict=True)
        )


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError when argparse would print and exit."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=_Help,
            allow_abbrev=False,  # an abbreviation that works today may be ambiguous after the next release
        )
        self.after_dashes = ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments. With `after_dashes`, the words after the first `--` are kept under that
        name.
        """
        words = list(args or [])
        if not self.after_dashes or "--" not in words:
            found = super().parse_args(words, namespace)
            if self.after_dashes:
                setattr(found, self.after_dashes, None)
            return found
        at = words.index("--")
        found = super().parse_args(words[:at], namespace)
        setattr(found, self.after_dashes, words[at + 1 :])
        return found

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=self._meant(message) or f"`{self.prog} --help` shows the usage")

    def _meant(self, message: str) -> str:
        """Return a hint with an option that is similar to the first unknown one; empty if there is none."""
        match = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        if match is None:
            return ""
        from difflib import get_close_matches

        near = get_close_matches(
            match[1], [word for each in self.options() for word in each.option_strings], 1
        )
        return f"did you mean {near[0]}?" if near else ""

    def _get_nargs_pattern(self, action: argparse.Action) -> str:
        """Let a REMAINDER take all the rest of the line; argparse would lose a `--` after an option."""
        return "([-AO]*)" if action.nargs == argparse.REMAINDER else super()._get_nargs_pattern(action)

    def options(self) -> list[argparse.Action]:
        """Return the options that the help shows."""
        return [each for each in self._actions if each.option_strings and each.help != argparse.SUPPRESS]

    def positionals(self) -> list[argparse.Action]:
        """Return the positional arguments."""
        return [each for each in self._actions if not each.option_strings]

    def option(self, word: str) -> argparse.Action | None:
        """Return the option with this name; None: there is none."""
        return next((each for each in self.options() if word in each.option_strings), None)

    def positional(self, before: Sequence[str]) -> argparse.Action | None:
        """Return the positional argument that comes after the words `before`; None: none is left."""
        places = self.positionals()
        taken = 0
        value_follows = False
        for word in before:
            option = self.option(word)
            if option is None and not value_follows:
                taken += 1
            value_follows = option is not None and option.nargs is None
        if places and places[-1].nargs in ("+", argparse.REMAINDER):
            taken = min(taken, len(places) - 1)
        return places[taken] if taken < len(places) else None


def handle(parser: argparse.ArgumentParser, more: str = "; by default the last job") -> None:
    """Add the argument HANDLE. Completion recognises it by its name. `more`: what else it may be."""
    parser.add_argument(
        "handle",
        nargs="?",
        metavar="HANDLE",
        help="the job: the handle that submit printed (local://name/n, slurm://id, "
        f"kubernetes://namespace/name), or its name{more}",
    )


def as_json(parser: argparse._ActionsContainer) -> None:
    """Add the option --json."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def target(
    parser: argparse.ArgumentParser,
    what: str = "the scheduler to use",
    default: str = "the profile's; else that of the only section in the job file; else local, this machine",
) -> None:
    """Add the options --to and --profile."""
    parser.add_argument(
        "--to",
        default=None,
        metavar="TARGET",
        help=f"{what}: local, slurm or kubernetes (default: {default})",
    )
    profile(parser)


def profile(parser: argparse.ArgumentParser) -> None:
    """Add the option --profile."""
    parser.add_argument(
        "--profile",
        metavar="PROFILE",
        help="a profile of your configuration, or none (default: $DDPLAUNCH_PROFILE, else the "
        "configuration's default)",
    )


def changes(parser: argparse.ArgumentParser) -> None:
    """Add the option --set."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="KEY=VALUE",
        help="set a key of the job file, such as nodes=4, env.LR=0.1 or 'command[2]=x'; null removes the "
        "key; may be given several times",
    )


def numbers(text: str) -> frozenset[int]:
    """Return the numbers in `text`, such as `0,2-3`. Raises ArgumentTypeError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise argparse.ArgumentTypeError(f"{text!r}: wanted numbers such as 0 or 0,2-3")
        found.update(range(first, last + 1))
    return frozenset(found)


def job_name(text: str) -> str:
    """Return `text` if a job file could use it as its name. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r}: wanted lower-case letters, digits and -, beginning with a letter"
        )
    return text


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of a whole number that is `least` or more."""

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: wanted a whole number, at least {least}")
        return int(text)

    return convert


def attempt(text: str) -> tuple[int, int | None]:
    """Return the numbers in "1", or in "1.2", which is a launch attempt within attempt 1.

    Raises ArgumentTypeError.
    """
    numbers = text.split(".")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: wanted the number of an attempt, such as 1 or 0.2")
    return int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None


def port(text: str) -> int:
    """Return the port in `text`. Raises ArgumentTypeError."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a port from 1 to 65535")
    return int(text)


def seconds(text: str) -> float:
    """Return the seconds in `text`, written as in a job file: `10s`, `2m`, `90`. Raises ArgumentTypeError."""
    from ddplaunch.agent.job_file.units import UnitError, parse_duration

    try:
        value = parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a time such as 10s, 2m or 1h30m") from error
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a time above 0")
    return value
