"""The manual page ddplaunch(1), from the same parsers as the help and docs/reference/cli.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ddplaunch.cli.main import EXIT_CODES, VERBS, verb_parser


def text() -> str:
    """The page, in the macros of man(7). Without date and version, it changes only when the help does."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.TH DDPLAUNCH 1 "" ddplaunch "User Commands"'
    yield ".SH NAME"
    yield r"ddplaunch \- start distributed PyTorch training, and explain why it hangs"
    yield ".SH SYNOPSIS"
    yield r".B ddplaunch"
    yield r"[\fB\-\-debug\fR] \fICOMMAND\fR \fR[\fIARGUMENT\fR]..."
    yield ".br"
    yield r".B ddplaunch \-\-version"
    yield ".SH DESCRIPTION"
    yield _escaped(
        "Starts distributed PyTorch jobs on this machine, on Slurm and on Kubernetes after a preflight "
        "check, the gate, and explains hangs: which rank or node is at fault, why, and what to do. Data goes "
        "to stdout, everything else to stderr."
    )
    yield ".SH COMMANDS"
    for verb in VERBS:
        yield from _command(verb)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from _item(str(int(code)), meaning)
    yield ".SH ENVIRONMENT"
    yield from _item("DDPLAUNCH_PROFILE", "the profile of the configuration file to use, or none")
    yield from _item("NO_COLOR", "if it is set, nothing is printed in color")
    yield ".SH FILES"
    yield from _item("~/.config/ddplaunch/config.yaml", "your configuration: profiles for clusters")
    yield from _item("~/.local/state/ddplaunch", "the jobs on this machine, and what is known of others")


def _command(verb: str) -> Iterator[str]:
    parser = verb_parser(verb)
    yield f".SS ddplaunch {verb}"
    first, *more = (parser.description or "").split("\n\n")
    for paragraph in (f"{first[:1].upper()}{first[1:]}.", *more):
        shown = "\n" in paragraph and any(line.startswith("  ") for line in paragraph.splitlines())
        if shown:
            yield from (".PP", ".nf", *map(_escaped, paragraph.splitlines()), ".fi")
        else:
            yield from (".PP", _escaped(" ".join(paragraph.split())))
    for action in [*parser.positionals(), *parser.options()]:
        if action.dest not in ("help", "debug"):
            yield from _item(_called(action), action.help or "")


def _called(action: argparse.Action) -> str:
    value = f" {action.metavar}" if action.metavar and action.nargs != 0 else ""
    return ", ".join(f"{name}{value}" for name in action.option_strings) or str(action.metavar)


def _item(name: str, meaning: str) -> Iterator[str]:
    yield from (".TP", f".B {_escaped(name)}", _escaped(" ".join(meaning.split())))


def _escaped(line: str) -> str:
    """A line of which roff takes nothing for a request, an escape or a dash; in ASCII, which any reads."""
    line = line.replace("\\", r"\e").replace("-", r"\-")
    line = "".join(letter if letter.isascii() else rf"\[u{ord(letter):04X}]" for letter in line)
    return rf"\&{line}" if line[:1] in (".", "'") else line
