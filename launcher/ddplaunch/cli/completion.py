"""`ddplaunch completion`: prints a shell's completion script, and the words that this script asks for.

docs/decisions/0018-completion-and-folders.md says why we use no library for this.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Final

from ddplaunch import api
from ddplaunch.cli.parser import Command, Parser
from ddplaunch.errors import DdplaunchError, ExitCode

_COMPLETION_HELP = """
The script completes commands, options, job handles and verdict codes.

  bash   eval "$(ddplaunch completion bash)"         in ~/.bashrc
  zsh    source <(ddplaunch completion zsh)          in ~/.zshrc
  fish   ddplaunch completion fish | source          in ~/.config/fish/config.fish
"""

FILES: Final = (":files", "")
"""A word that lets the script complete file names."""

Word = tuple[str, str]
"""A possible word, and what it means."""


def _add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", nargs="?", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"
    )
    # This is for the scripts: the words of the command line so far. The last one is to be completed.
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _completion(args: argparse.Namespace) -> int:
    if args.words is not None:
        print("\n".join("\t".join(filter(None, word)) for word in fitting(args.words or [""])))
    elif args.shell is None:
        Parser("ddplaunch completion", "").error("name a shell: bash, zsh or fish")
    else:
        from importlib.resources import files  # completion itself answers at once without it

        print((files("ddplaunch.cli") / "shells" / f"ddplaunch.{args.shell}").read_text("utf-8"), end="")
    return ExitCode.SUCCEEDED


def fitting(words: list[str]) -> list[Word]:
    """Return the possible completions of the last word in `words`."""
    from ddplaunch.cli.main import VERBS, verb_parser

    current = words[-1]
    if len(words) == 1:
        return _beginning(current, VERBS.items())
    if words[0] not in VERBS:
        return []
    parser = verb_parser(words[0])
    if parser.after_dashes and "--" in words[1:-1]:
        return [FILES]
    option = parser.option(words[-2])
    if option is not None and option.nargs is None and len(words) > 2:
        return _beginning(current, _values(option))
    if current.startswith("-"):
        options = [(name, action.help or "") for action in parser.options() for name in action.option_strings]
        return _beginning(current, options)
    positional = parser.positional(words[1:-1])
    return _beginning(current, _values(positional)) if positional else []


def _beginning(start: str, words: Iterable[Word]) -> list[Word]:
    return [word for word in words if word == FILES or word[0].startswith(start)]


def _values(action: argparse.Action) -> list[Word]:
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    find = _OF_METAVAR.get(str(action.metavar))
    if find is None:
        return []
    try:
        return find()
    except DdplaunchError:
        return []  # a prompt is no place for errors


def _handles() -> list[Word]:
    known = api.known()
    return [(str(each.handle), each.about if isinstance(each.about, str) else each.about()) for each in known]


def _codes() -> list[Word]:
    from ddplaunch.report import explain

    return list(explain.meanings().items())


def _profiles() -> list[Word]:
    return [(each.name, each.target) for each in api.configuration().profiles.values()]


def _targets() -> list[Word]:
    from ddplaunch.targets import names

    return [(name, "") for name in names()]


def _files() -> list[Word]:
    return [FILES]


_OF_METAVAR: Final[dict[str, Callable[[], list[Word]]]] = {
    "HANDLE": _handles,
    "CODE": _codes,
    "TARGET": _targets,
    "PROFILE": _profiles,
    "FILE": _files,
    "DIR": _files,
    "-- COMMAND": _files,
}


COMMANDS: Final = {
    "completion": Command(_COMPLETION_HELP, _add_completion_arguments, _completion),
}
