"""Words of our own that nobody would search for, and docstrings that begin in the middle of a sentence."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Set
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "launcher"
ROOT = SOURCE / "ddplaunch"
SOURCES = sorted(SOURCE.rglob("*.py"))
FIRST = {
    "Of",
    "That",
    "Those",
    "Its",
    "Whose",
    "Likewise",
    "As",
    "By",
    "With",
    "For",
    "From",
    "To",
    "At",
    "In",
}
FIRST |= {"On", "Only", "Also", "Not", "What", "Where", "Who", "How", "Which", "Why"}
"""Words that begin no docstring: what follows them has no subject and no verb."""
OURS = r"cries|overheard|in_?vain|testimony|outlook|roll_?call|desks?|crew|misfits|wishes|news"
"""Words that have become terms of the field: see the glossary in CONTRIBUTING."""
NAME = re.compile(rf"(?:^|_)(?:{OURS})(?:$|_)")
DIALECT = re.compile(r"(?:^|_)(?:told|said|says|saying|heard|hears?|asked|found|overhear)(?:$|_)")
"""Names for what was passed on, where a noun says what it is: status, verdicts, message, output, request."""
TALK = re.compile(
    r"\b(?:told|said|hear|heard|hears|anew|whoever|nobody|somebody|everybody|anybody|lest)\b", re.I
)
"""Words of comments and docstrings that leave open who does what."""
NO_VERB = {"A", "All", "An", "Each", "Every", "It", "No", "Nothing", "One", "The", "They", "This"}
"""Words that begin the docstring of no function: it does something, and says what comes back."""
PLAIN = (
    "agent/checks/",
    "agent/contract/",
    "agent/evidence/",
    "agent/gate/",
    "agent/hook/",
    "agent/hub/",
    "agent/interfaces/",
    "agent/job_file/",
    "agent/join/",
    "agent/local/",
    "agent/outside/",
    "agent/platforms/",
    "agent/slurm/",
    "agent/supervisor/",
    "agent/system/",
    "agent/text/",
    "agent/transport/",
    "agent/__init__.py",
    "agent/__main__.py",
    "agent/cli.py",
    "agent/packed.py",
)
"""Packages and files below ddplaunch without DIALECT, TALK and NO_VERB: add one as soon as it is clean."""
NOT_YET = {"configuration.py", "rules.py"}
"""Files in these packages that are still to be cleaned; the findings of rules.py say "found" and "wanted"."""
PLAIN_SOURCES = [
    path
    for path in SOURCES
    if path.relative_to(ROOT).as_posix().startswith(PLAIN) and path.name not in NOT_YET
]

PACKAGES = ("api", "backends", "cli", "errors.py", "inject", "report", "spec", "targets.py")
"""Parts of the launcher that hold to the three lists below as well."""
LAUNCHER = sorted(
    path
    for package in PACKAGES
    for path in ([ROOT / package] if package.endswith(".py") else (ROOT / package).rglob("*.py"))
    if path.relative_to(ROOT).as_posix() not in ("report/verdict.py", "spec/rules.py")
)
LAUNCHER_FIRST = {
    "It",
    "All",
    "Nothing",
    "Once",
    "Raises",
    "Whole",
    "Until",
    "Somebody",
    "Nobody",
    "Likewise",
}
"""Words that begin no docstring there: a docstring begins with a verb or a noun."""
LAUNCHER_NAMES = re.compile(
    r"(?:^|_)(?:told|said|heard|unheard|looks?|seen|carrier|surroundings|watched)(?:$|_)"
)
"""Names for which the value has a noun: `status`, `message`, `snapshot`, `output`, `reported`."""
LAUNCHER_PROSE = re.compile(r"\b(?:told|said|heard|anew|whoever|somebody|lest)\b", re.IGNORECASE)
"""Words for which a sentence, a comment or a docstring there has a plainer one."""
PAGES = sorted((ROOT / "report" / "pages").glob("*.md"))

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def walk(source: str) -> list[ast.AST]:
    """Return all nodes of its syntax tree."""
    return list(ast.walk(ast.parse(source)))


def odd_docstrings(
    source: str, first: Set[str] = FIRST, kinds: tuple[type, ...] = (*_FUNCTIONS, ast.ClassDef, ast.Module)
) -> list[str]:
    """Return the first lines of the docstrings that begin with a word of `first`."""
    every = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    nodes = [node for node in walk(source) if isinstance(node, every)]
    texts = [ast.get_docstring(node) or " " for node in nodes if isinstance(node, kinds)]
    return [text.splitlines()[0] for text in texts if text.partition(" ")[0] in first]


def odd_names(source: str, name: re.Pattern[str] = NAME) -> set[str]:
    """Return the names in `source` in which `name` finds a word."""
    found = set()
    for node in walk(source):
        for field in ("name", "id", "attr", "arg"):
            value = getattr(node, field, None)
            if isinstance(value, str) and name.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).lower()):
                found.add(value)
    return found


def bound_names(source: str) -> set[str]:
    """Return the names that `source` itself gives: functions, classes, parameters, variables, attributes."""
    names = set()
    for node in walk(source):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def talk(source: str) -> list[str]:
    """Return the lines of comments and docstrings in `source` with a word of TALK."""
    texts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in walk(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts += str(node.value.value).splitlines()
    return [text.strip() for text in texts if TALK.search(re.sub(r"`[^`]*`", "", text))]


def findings(paths: Iterable[Path], check: Callable[[str], Collection[str]]) -> dict[str, Collection[str]]:
    """Return what `check` finds in the text of each file in which it finds something."""
    found = {str(path.relative_to(ROOT.parent)): check(path.read_text("utf-8")) for path in paths}
    return {name: each for name, each in found.items() if each}


def test_a_docstring_begins_with_what_it_is_about() -> None:
    """A reader who has nothing but the docstring knows what comes back."""
    assert {} == findings(SOURCES, odd_docstrings)


def test_no_name_is_a_word_of_our_own() -> None:
    """Neither is a module's."""
    assert {} == findings(SOURCES, odd_names)
    assert [] == [path for path in SOURCES if NAME.search(path.stem)]


def test_names_and_comments_are_plain() -> None:
    """A name says what a value is, and a comment who does what."""
    assert {} == findings(PLAIN_SOURCES, dialect)
    assert {} == findings(PLAIN_SOURCES, talk)
    assert {} == findings(PLAIN_SOURCES, lambda text: odd_docstrings(text, NO_VERB, _FUNCTIONS))


def dialect(source: str) -> set[str]:
    """Return the names that `source` gives in which DIALECT finds a word."""
    return {name for name in bound_names(source) if DIALECT.search(name.lower())}


def test_the_guard_of_plain_words_sees_what_it_is_to_see() -> None:
    """Names that a module gives, not those that it uses; no string that a user reads."""
    source = '"""Nobody knows."""\ndef f(told):\n  # said before\n  found = other.said\n'
    source += '  self.heard = "it said `x`"\n'

    assert {"f", "told", "found", "heard"} == bound_names(source)
    assert ["# said before", "Nobody knows."] == talk(source)
    assert ["It is."] == odd_docstrings('"""The."""\ndef f():\n  """It is."""\n', NO_VERB, _FUNCTIONS)


def test_the_launcher_speaks_plainly() -> None:
    """Its docstrings, its names, and its sentences."""
    assert {} == findings(LAUNCHER, lambda text: odd_docstrings(text, LAUNCHER_FIRST))
    assert {} == findings(LAUNCHER, lambda text: odd_names(text, LAUNCHER_NAMES))
    assert {} == findings(LAUNCHER, LAUNCHER_PROSE.findall)


def test_pages_speak_plainly() -> None:
    """Indented lines quote a verdict, a command or a log, and the third the catalogue."""
    assert PAGES
    assert {} == findings(PAGES, lambda text: LAUNCHER_PROSE.findall("\n".join(prose(text))))


def prose(page: str) -> list[str]:
    """Return the lines of a page that quote nothing."""
    return [line for line in page.splitlines()[3:] if not line.startswith("    ")]


def test_the_launchers_guards_see_what_they_are_to_see() -> None:
    """A docstring, a name and a sentence of each kind."""
    source = '"""It says."""\ndef f(told):\n  self._last_look = told  # as was said\n'

    assert ["It says."] == odd_docstrings(source, LAUNCHER_FIRST)
    assert {"told", "_last_look"} == odd_names(source, LAUNCHER_NAMES)
    assert ["told", "told", "said"] == LAUNCHER_PROSE.findall(source)


def test_both_guards_see_what_they_are_to_see() -> None:
    """Modules, classes and functions; names of all kinds."""
    source = (
        '"""Of it."""\nclass RollCall:\n  """That one."""\ndef f(news):\n  """As is."""\n  self.desk = 1\n'
    )

    assert ["Of it.", "That one.", "As is."] == odd_docstrings(source)
    assert {"RollCall", "news", "desk"} == odd_names(source)
