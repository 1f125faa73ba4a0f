"""Python source without what only its readers need: the agent goes into a ConfigMap, its docstrings need not.

Every statement stays on its line, so that a traceback from a node points into the repository. Done with one
regular expression, because the standard tokenizer takes longer than the whole of `render` may.
"""

from __future__ import annotations

import re

# Each alternative begins with a character of its own: the search can then skip whatever is none of these.
_TOKEN = re.compile(
    r'''
      (?P<text>    \n [ ]* """ (?: [^"\\] | \\. | "(?!"") )* """ (?=\n) )  # a docstring, mostly
    | (?P<margin>  \n [ ]+ )
    | (?P<comment> [ ]* \# [^\n]* )
    | (?P<string>
          """ (?: [^"\\] | \\. | "(?!"") )* """  | " (?: [^"\\\n] | \\. )* "
        | \'\'\' (?: [^'\\] | \\. | '(?!'') )* \'\'\'  | ' (?: [^'\\\n] | \\. )* ' )
    ''',
    re.VERBOSE | re.DOTALL,
)
_CONTINUES = frozenset("([{,=+-*/%&|^<>\\")
_STEP = 4


def lean(source: str) -> str:
    """`source`, formatted as this repository's is, without docstrings, comments and most of its margins.

    What it says to Python is the same, line numbers included; `__doc__` is empty.
    """
    return _TOKEN.sub(_shorten, "\n" + source)[1:]


def _shorten(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "string":
        return text
    if kind == "comment":
        return ""
    margin = "\n" + " " * -(-(len(text) - len(text[1:].lstrip(" ")) - 1) // _STEP)
    if kind == "margin":
        return margin
    before = token.string[: token.start()].rstrip()[-1:]
    # A text that is an argument or a part of an expression is no docstring, and has to stay.
    return text if before in _CONTINUES else margin + '""' + "\n" * text.count("\n", 1)
