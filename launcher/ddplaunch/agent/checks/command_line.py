"""The programs, scripts and modules that a command line starts, as far as its words are certain. Pure.

A wrapper such as `env` or `nice` starts a program; a shell, Python or a launcher starts a script. An option
that is not in the table ends the parse: the next word may be its value, so the rest is not known.

`python` and `interpreter` call it, to see whether what the job starts is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

PROGRAM, SCRIPT, SHELL_SCRIPT, MODULE = "program", "script", "shell script", "module"


class Start(NamedTuple):
    """`word` must be there: a PROGRAM to execute, a SCRIPT to read, or a MODULE for Python's -m."""

    kind: str
    word: str


@dataclass(frozen=True)
class _Options:
    """The options of one program that may come before the word that it starts."""

    flags: frozenset[str] = frozenset()  # take no value
    values: frozenset[str] = frozenset()  # take the next word, unless the value is joined on
    kind: str = PROGRAM  # of that word
    operands: int = 0  # its own words before that one
    verb: str = ""  # its first word, if only that verb starts something
    joins: bool = True  # `-n10` is `-n 10`
    bundles: str = ""  # letters of short flags that may be written together
    switches: dict[str, str] = field(default_factory=dict)  # flags that change what it starts


def starts(words: Sequence[str], kind: str = PROGRAM) -> list[Start]:
    """Return what `words` need to start, the outermost first. `kind` is the kind of the first word."""
    result: list[Start] = []
    rest: Optional[Sequence[str]] = words
    while rest:
        if kind == PROGRAM:
            rest = _without_settings(rest) if result and _is(result[-1].word, "env") else rest
            if not rest or any(word.startswith("PATH=") for word in words[: len(words) - len(rest)]):
                break
        result.append(Start(kind, rest[0]))
        options = _options(result[-1])
        rest, kind = _operand(rest[1:], options) if options is not None else (None, "")
    return result


def _is(word: str, name: str) -> bool:
    return os.path.basename(word) == name


def _without_settings(words: Sequence[str]) -> Sequence[str]:
    """Return the words of `env` after its NAME=VALUE words."""
    first = next((number for number, word in enumerate(words) if "=" not in word), len(words))
    return words[first:]


def _options(start: Start) -> Optional[_Options]:
    """Return the options of the command; None for an unknown one."""
    if start.kind == MODULE:
        return _MODULES.get(start.word)
    if start.kind != PROGRAM:
        return None
    name = os.path.basename(start.word)
    return _PYTHON if re.fullmatch(r"python[\d.]*", name) else _PROGRAMS.get(name)


def _operand(words: Sequence[str], options: _Options) -> tuple[Optional[Sequence[str]], str]:
    """Return the words from the started one on, and its kind; None if that is uncertain."""
    if options.verb and list(words[:1]) != [options.verb]:
        return None, ""
    kind, operands, index = options.kind, options.operands, int(bool(options.verb))
    while index < len(words):
        word = words[index]
        name = word.partition("=")[0].replace("_", "-") if word.startswith("--") else word
        index += 1
        if word == "--":
            break
        if not word.startswith(("-", "+")) or word == "-":
            if operands == 0:
                return (words[index - 1 :], kind) if word != "-" else (None, "")
            operands -= 1
        elif name in options.switches:
            kind = options.switches[name]
            if kind == MODULE and options is _PYTHON:
                return words[index:], kind  # -m ends Python's own options
        elif name in options.values:
            index += "=" not in word
        elif not (name in options.flags or _bundled(word, options) or _joined(word, options)):
            return None, ""
    return (words[index + operands :] or None), kind


def _bundled(word: str, options: _Options) -> bool:
    """Whether the word is several short flags: `-eu`, and shells' `+x`."""
    return bool(options.bundles) and set(word[1:]) <= set(options.bundles)


def _joined(word: str, options: _Options) -> bool:
    """Whether the word is a short option with its value: `-n10`, `-oL`."""
    return options.joins and not word.startswith("--") and word[:2] in options.values


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SHELL = _Options(
    _set("--login --norc --noprofile --posix"), _set("-o +o"), SHELL_SCRIPT, bundles="abefhkmnptuvxBCEHPTlir"
)
_PYTHON = _Options(values=_set("-W -X"), kind=SCRIPT, bundles="bBdOquv", switches={"-m": MODULE})
_LAUNCHED = {"-m": MODULE, "--module": MODULE, "--no-python": PROGRAM}
_TORCHRUN = _Options(
    _set("--standalone --use-env --virtual-local-rank"),
    _set(
        "--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts "
        "--monitor-interval --start-method --event-log-handler --role --log-dir -r --redirects -t --tee "
        "--log-line-prefix-template --local-ranks-filter --node-rank --master-addr --master-port "
        "--local-addr --logs-specs --numa-binding --signals-to-handle --shutdown-timeout"
    ),
    SCRIPT,
    switches=_LAUNCHED,
)
_ACCELERATE = _Options(
    _set("--cpu --multi-gpu --use-deepspeed --use-fsdp --debug --quiet -q --same-network"),
    _set(
        "--config-file --num-processes --num-machines --machine-rank --main-process-ip --main-process-port "
        "--mixed-precision --gpu-ids --num-cpu-threads-per-process --dynamo-backend --rdzv-backend "
        "--rdzv-conf --max-restarts --monitor-interval"
    ),
    SCRIPT,
    verb="launch",
    switches=_LAUNCHED,
)
_DEEPSPEED = _Options(
    _set("--no-local-rank --no-ssh --no-ssh-check --force-multi --save-pid --bind-cores-to-rank --quiet -q"),
    _set(
        "-H --hostfile -i --include -e --exclude --num-nodes --num-gpus --num-accelerators --master-port "
        "--master-addr --node-rank --launcher --launcher-args --enable-each-rank-log --autotuning "
        "--bind-core-list --ssh-port --venv-script --log-level"
    ),
    SCRIPT,
    switches={"--module": MODULE, "--no-python": PROGRAM},
)
_MPIRUN = _Options(
    _set("--oversubscribe --allow-run-as-root --tag-output"),
    _set("-n -np --np -N -H --host --hostfile -x"),
    joins=False,
)
_SRUN = _Options(
    _set("-l --label -u --unbuffered --exclusive --overlap"),
    _set(
        "-n --ntasks -N --nodes -c --cpus-per-task -w --nodelist -p --partition -t --time --mpi --jobid "
        "--ntasks-per-node --gres --gpus --gpus-per-node --gpus-per-task --mem --cpu-bind --kill-on-bad-exit"
    ),
)
_PROGRAMS: dict[str, _Options] = {
    **dict.fromkeys(["bash", "sh", "dash", "ksh", "zsh"], _SHELL),
    "torchrun": _TORCHRUN,
    "accelerate": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    **dict.fromkeys(["mpirun", "mpiexec"], _MPIRUN),
    "srun": _SRUN,
    "env": _Options(_set("-i --ignore-environment"), _set("-u --unset")),
    "nice": _Options(values=_set("-n --adjustment")),
    "nohup": _Options(),
    "setsid": _Options(_set("-w --wait -f --fork -c --ctty")),
    "time": _Options(_set("-p -v --verbose -a --append"), _set("-f --format -o --output")),
    "timeout": _Options(
        _set("-v --verbose --foreground --preserve-status"), _set("-k --kill-after -s --signal"), operands=1
    ),
    "stdbuf": _Options(values=_set("-i -o -e --input --output --error")),
    "ionice": _Options(_set("-t --ignore"), _set("-c --class -n --classdata")),
    "numactl": _Options(
        _set("-l --localalloc"),
        _set("-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred"),
    ),
}
_MODULES = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": replace(_ACCELERATE, verb=""),
    "deepspeed.launcher.runner": _DEEPSPEED,
    "deepspeed.launcher.launch": replace(
        _DEEPSPEED,
        flags=_DEEPSPEED.flags - {"--save-pid"},
        values=_DEEPSPEED.values | {"--save-pid", "--world-info"},
    ),
}
