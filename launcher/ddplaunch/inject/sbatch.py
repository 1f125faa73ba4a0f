"""Puts `run --join` between srun and torchrun in a Slurm batch script, and takes it out again. Pure.

The script is neither run nor understood as a whole: only its commands are found, from the shell's words and
operators. Rank, number of nodes, names and key come from Slurm, so the script gets nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddplaunch.errors import UsageError
from ddplaunch.inject import Settings
from ddplaunch.inject.document import Edit, apply

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\r?\n)+)
    |(?P<comment>\#[^\n]*)
    |(?P<operator>[\n;&|<>()`]+)
    |(?P<word>(?:[^\s'"\\;&|<>()`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)""",
    re.VERBOSE | re.DOTALL,
)
_HERE_DOCUMENT = re.compile(r"(?<!<)<<(?!<)")
_BEFORE_A_COMMAND = {"!", "{", "do", "else", "exec", "if", "then", "time", "until", "while"}
_ASSIGNMENT = re.compile(r"\w+\+?=")
_TASKS = {
    "--ntasks-per-node": "per node",
    "--ntasks": "tasks",
    "-n": "tasks",
    "--nodes": "nodes",
    "-N": "nodes",
}
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_WANTED = "`srun`, its options, and torchrun, `python -m torch.distributed.run` or `accelerate launch`"
_BY_HAND = (
    "put `python3 -I -S agent.pyz run --join --` before the command that starts the ranks of a node by hand"
)


class _Word(NamedTuple):
    text: str  # without its quotes
    start: int
    end: int


class _Srun(NamedTuple):
    """An srun command. `options`: its words before the command; `rest`: the command and its arguments."""

    place: int
    options: list[str]
    rest: list[_Word]


def is_script(text: str) -> bool:
    """Whether the text is a shell script and not YAML."""
    return text.startswith("#!") or re.search(r"^#SBATCH\s", text, re.MULTILINE) is not None


def inject(text: str, file: str, settings: Settings) -> str:
    """Return the script with the prefix at each srun that starts torchrun. Raises UsageError."""
    commands = list(_sruns(text, file))
    already = [command for command in commands if _prefix(command.rest)]
    if already:
        raise UsageError(
            f"{_line(text, file, already[0].place)}: found ddplaunch's agent, wanted a script without it",
            "`ddplaunch inject --remove` removes it",
        )
    chosen = [command for command in commands if _is_launcher([word.text for word in command.rest])]
    if not chosen:
        lines = [f"line {text.count(chr(10), 0, command.place) + 1}" for command in commands]
        found = f"srun in {', '.join(lines)} with another command" if commands else "no srun"
        raise UsageError(f"{file}: found {found}, wanted {_WANTED}", _BY_HAND)
    for command in chosen:
        _check_tasks(text, file, command)
    words = [settings.python, "-I", "-S", settings.agent, "run", "--join", "--"]
    prefix = f"{shlex.join(words)} "
    return apply(text, [Edit(each.rest[0].start, each.rest[0].start, prefix) for each in chosen])


def remove(text: str, file: str) -> str:
    """Return the script without the prefix. Raises UsageError if there is none."""
    found = [
        Edit(command.rest[0].start, command.rest[_prefix(command.rest)].start)
        for command in _sruns(text, file)
        if _prefix(command.rest)
    ]
    if not found:
        raise UsageError(f"{file}: found nothing of ddplaunch, wanted a file that `ddplaunch inject` printed")
    return apply(text, found)


# ------------------------------------------------------------------------ the shell's words


def _sruns(text: str, file: str) -> Iterator[_Srun]:
    for words in _commands(text, file):
        while words and (words[0].text in _BEFORE_A_COMMAND or _ASSIGNMENT.match(words[0].text)):
            del words[0]
        if words and words[0].text.rpartition("/")[2] == "srun":
            end = _options_end([word.text for word in words])
            yield _Srun(words[0].start, [word.text for word in words[1:end]], words[end:])


def _commands(text: str, file: str) -> Iterator[list[_Word]]:
    """Yield the words between operators."""
    words: list[_Word] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            wanted = "a script with matching quotes"
            raise UsageError(f"{_line(text, file, place)}: found {text[place]!r}, wanted {wanted}")
        if token.lastgroup == "word":
            words.append(_Word(re.sub(r"['\"]", "", token[0]), *token.span()))
        elif token.lastgroup == "operator":
            if _HERE_DOCUMENT.search(token[0]) and not text[token.end() : token.end() + 1].isdigit():
                wanted = "a script without here-documents"
                raise UsageError(
                    f"{_line(text, file, place)}: found a here-document, wanted {wanted}", _BY_HAND
                )
            yield words
            words = []
        place = token.end()
    yield words


def _options_end(words: Sequence[str]) -> int:
    """Return the place of srun's command among its words. A word after an option may be the option's
    value.
    """
    place = 1
    while place < len(words):
        if _is_launcher(words[place:]) or _is_agent(words[place:]):
            return place
        if not words[place].startswith("-"):
            follows_option = words[place - 1].startswith("-") and "=" not in words[place - 1]
            if not follows_option:
                return place
        place += 1
    return place


def _is_launcher(words: Sequence[str]) -> bool:
    names = [word.rpartition("/")[2] for word in words[:1]]
    if names in (["torchrun"], ["accelerate-launch"]) or (
        names == ["accelerate"] and words[1:2] == ["launch"]
    ):
        return True
    if not names or not names[0].startswith("python"):
        return False
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] != "-m":
        place += 1
    return list(words[place : place + 2]) in [["-m", module] for module in _MODULES]


def _is_agent(words: Sequence[str]) -> bool:
    return list(words[1:3]) == ["-I", "-S"] and list(words[4:5]) == ["run"] and "--join" in words


def _prefix(words: Sequence[_Word]) -> int:
    """Return how many words at the beginning are ours, up to `--`; 0: none."""
    texts = [word.text for word in words]
    return texts.index("--") + 1 if _is_agent(texts) and "--" in texts[:-1] else 0


# ------------------------------------------------------------------------ tasks and nodes


def _check_tasks(text: str, file: str, command: _Srun) -> None:
    """Refuse a step that would start torchrun more than once on a node, as far as its numbers show that."""
    directives = [
        word for line in re.findall(r"^#SBATCH[ \t]+([^\n#]*)", text, re.MULTILINE) for word in line.split()
    ]
    numbers = {**_numbers(directives), **_numbers(command.options)}
    own = _numbers(command.options)
    per_node = (
        "1" if own.get("tasks") and own.get("tasks") == numbers.get("nodes") else numbers.get("per node")
    )
    tasks, nodes = numbers.get("tasks"), numbers.get("nodes")
    if per_node is None and tasks and nodes and tasks != nodes:
        found = f"{tasks} tasks on {nodes} nodes"
    elif per_node not in (None, "1"):
        found = f"--ntasks-per-node={per_node}"
    else:
        return
    raise UsageError(
        f"{_line(text, file, command.place)}: found {found}, wanted one task on each node",
        "torchrun starts the ranks of its node: `srun --ntasks-per-node=1 torchrun --nproc-per-node=8`",
    )


def _numbers(words: Sequence[str]) -> dict[str, str]:
    """Return tasks and nodes if options give them as numbers."""
    found = {}
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and re.fullmatch(r"-[nN]\d+", word):
            name, value = word[:2], word[2:]
        elif not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        if name in _TASKS and value.isdecimal():
            found[_TASKS[name]] = value
    return found


def _line(text: str, file: str, place: int) -> str:
    return f"{file}:{text.count(chr(10), 0, place) + 1}"
