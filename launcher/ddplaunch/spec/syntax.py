"""Explains the YAML parser's errors. Pure.

No message repeats the file's text: a line that cannot be parsed may hold a secret.
"""

import yaml

from ddplaunch.spec.problems import Problem

START_HINT = "`ddplaunch init` writes one to begin with"
SPLIT_HINT = "put each job into a file of its own; `---` begins a new document"

_INDENT = "indent keys of one mapping alike, and with two spaces more than the key above them"
_CLOSE = "it is opened here and never closed"

_TAG = ("a YAML tag", "a plain value", "a text that begins with ! needs quotes")

# The parser's message -> found, wanted, hint.
_WORDS = {
    "mapping values are not allowed in this context": (
        "a second ': ' in one line, or a line that is indented too far",
        "one key and its value",
        "quote a value that contains ': '",
    ),
    "could not find expected ':'": ("a line without ':'", "a key, then ': ', then its value", _INDENT),
    "found unexpected end of stream": ("the end of the file inside quotes", "a closing quote", _CLOSE),
    "did not find expected '-' indicator": ("no '- '", "another item of the list above", _INDENT),
    "did not find expected key": ("no key", "another key of the mapping above", _INDENT),
    "did not find expected ',' or ']'": ("no ']'", "a list that is closed", _CLOSE),
    "did not find expected ',' or '}'": ("no '}'", "a mapping that is closed", _CLOSE),
    "did not find expected <document start>": (
        "something beside the job",
        "one mapping that begins in the first column",
        _INDENT,
    ),
    "found unknown escape character": (
        "a backslash that begins no escape",
        "a known escape, or single quotes",
        "inside '…' a backslash is only a backslash",
    ),
    "did not find expected node content": (
        "no value, or a bracket out of place",
        "a value",
        "quote a value that begins with one of } ] ,",
    ),
    "found incompatible YAML document": ("another version of YAML", "YAML 1.1", "remove the %YAML line"),
    "found invalid Unicode character escape code": (
        "an escape that is no character",
        "the character itself",
        "JSON's pairs of escapes (\\ud83d\\ude00) are not known to YAML",
    ),
    "found unknown directive name": ("an unknown % line", "a job file", "remove the line that begins with %"),
    "found undefined tag handle": _TAG,
    "did not find expected tag URI": _TAG,
    "did not find expected alphabetic or numeric character": (
        "& or * before something that is no name",
        "the name of an anchor, or text in quotes",
        "quote a value that begins with & or *",
    ),
}

_TABS = ("a tab", "spaces", "YAML does not allow tabs as indentation")


def explain(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """Return the problem for *error*, at the line to be changed."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _unreadable(error, text, file)
    complaint = str(error.problem or error.context or "this cannot be read")
    found, wanted, hint = _words(complaint, error, text)
    # The parser notices at the end of the file what is never closed; the user must look at its beginning.
    begins = hint == _CLOSE or complaint == "could not find expected ':'"
    mark = error.context_mark if begins and error.context_mark else error.problem_mark
    mark = mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return Problem(file=file, line=line, column=column, found=found, wanted=wanted, hint=hint)


def _words(complaint: str, error: yaml.MarkedYAMLError, text: str) -> tuple[str, str, str]:
    if "tab character" in complaint:
        return _TABS
    if complaint == "found character that cannot start any token" and error.problem_mark:
        char = _character(text, error.problem_mark.line, error.problem_mark.column)
        if char == "\t":
            return _TABS
        hint = "quote a value that begins with one of @ ` % & * ! | > { } [ ] , # ?"
        return (
            f"a value that begins with {char}" if char else "a character out of place",
            "text in quotes",
            hint,
        )
    return _WORDS.get(complaint, (f"text that is not YAML ({complaint})", "YAML", _INDENT))


def _character(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""


def _unreadable(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """Return the problem of a character that YAML forbids: the reader then gives no marks."""
    position = getattr(error, "position", 0)
    before = text[:position] if isinstance(position, int) else ""
    character = getattr(error, "character", 0)
    code = character if isinstance(character, int) else ord(str(character)[:1] or "\0")
    return Problem(
        file=file,
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
        found=f"the control character U+{code:04X}",
        wanted="text",
        hint="remove it, or write it as an escape inside double quotes",
    )
