"""Python source without what only readers need: the agent goes into a ConfigMap, its docstrings need not.

Every statement stays on its line, so that a traceback from a node points into the repository. Done with one
regular expression, because the standard tokenizer takes longer than the whole of `render` may.
"""

from __future__ import annotations

import re

# Each alternative begins with a character of its own: the search can then skip whatever is none of these.
_TOKEN = re.compile(
    r'''
      (?P<text>    \n [ ]* """ (?: [^"\\] | \\. | "(?!"") )* """ (?=\n) )  # a docstring, mostly
    | (?P<head>    \n [ ]* (?: async[ ] )? def[ ] \w+
                   \( (?: [^()"'#] | "[^"\n]*" | \( [^()]* \) )* \) (?: [ ]->[ ] [^:\n]+ )? : )
    | (?P<name>    \n [ ]+ (?: self\. | (?<=[ ]{8}) ) \w+ ) : [ ] [^=\n"'#]+ (?=[ ]=[ ])  # typed, in a method
    | (?P<margin>  \n [ ]+ )
    | (?P<comment> [ ]* \# [^\n]* )
    | (?P<string>
          """ (?: [^"\\] | \\. | "(?!"") )* """  | " (?: [^"\\\n] | \\. )* "
        | \'\'\' (?: [^'\\] | \\. | '(?!'') )* \'\'\'  | ' (?: [^'\\\n] | \\. )* ' )
    ''',
    re.VERBOSE | re.DOTALL,
)
_MARGIN = re.compile(r"\n +")
_INSIDE = r"[^][\n]"
for _ in range(3):
    _INSIDE = rf"(?:[^][\n]|\[{_INSIDE}*\])"
_TYPE = re.compile(
    rf"(?P<name>(?:[(,]|\n) *\**\w+): (?:[^][(),=:\"'\n]|\[{_INSIDE}*\])+?(?= =|[,)\n])"  # of an argument
    r"| -> [^:\n]+(?=:\Z)"  # of what is returned
)
_CONTINUES = frozenset("([{,=+-*/%&|^<>\\")
_STEP = 4


def minify(source: str) -> str:
    """`source`, formatted as this repository's is, without docstrings, comments and most of its margins.

    What it says to Python is the same, line numbers included; `__doc__` is empty, and functions have no
    annotations, nor what methods assign. Classes' own stay: dataclasses and named tuples are made of them.
    """
    return _TOKEN.sub(_shorten, "\n" + source)[1:]


def _shorten(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "string":
        return text
    if kind == "comment":
        return ""
    if kind == "name":
        return _MARGIN.sub(_narrow, token["name"])
    if kind == "head":
        return _MARGIN.sub(_narrow, _TYPE.sub(r"\g<name>", text))
    margin = _narrow(token)
    if kind == "margin":
        return margin
    before = token.string[: token.start()].rstrip()[-1:]
    # A text that is an argument or a part of an expression is no docstring, and has to stay.
    return text if before in _CONTINUES else margin + '""' + "\n" * text.count("\n", 1)


def _narrow(line: re.Match[str]) -> str:
    text = line[0]
    # Tabs pack better than spaces: little else begins with one.
    return "\n" + "\t" * -(-(len(text) - len(text[1:].lstrip(" ")) - 1) // _STEP)
