"""Reads a job file into a `JobSpec`, or reports all its problems; the only I/O of this layer.

Values under `env` that look like secrets are found by the name of the variable, without false alarms:
`MAX_TOKENS`, `PAD_TOKEN_ID` and `MONKEY` are no secrets, and neither is a path.
"""

import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ddplaunch.spec import document
from ddplaunch.spec.models import API_VERSION, JobSpec, job_model
from ddplaunch.spec.problems import A_JOB_FILE, UNKNOWN_KEY, Problem, SpecError

if TYPE_CHECKING:
    from ddplaunch.spec.changes import Change
    from ddplaunch.spec.config import Profile

MAX_BYTES = 2**20
"""The most bytes in a job file. Code and data go into `source`."""

STDIN = "<stdin>"
"""The name, in problems, of a job file from standard input."""

_SCRIPTS = (".py", ".sh", ".sbatch", ".slurm")
COMMAND_LINE = "<command line>"
"""The name, in problems, of the job file that a command line stands for."""


def load(path: str | Path, changes: "Sequence[Change]" = (), profile: "Profile | None" = None) -> JobSpec:
    """Return the only job in the file at *path* (`-`: standard input), with *changes* to its values.

    Raises `SpecError` with all problems.
    """
    return _only(load_all(path, changes, profile))


def load_all(
    path: str | Path, changes: "Sequence[Change]" = (), profile: "Profile | None" = None
) -> list[JobSpec]:
    """Return all jobs in the file at *path*: one, or those of its sweep. Raises `SpecError`."""
    if str(path) == "-":
        return load_text(sys.stdin.buffer.read(MAX_BYTES + 1), STDIN, changes, profile)
    return load_text(_read(Path(path)), str(path), changes, profile)


def load_text(
    data: bytes, file: str, changes: "Sequence[Change]" = (), profile: "Profile | None" = None
) -> list[JobSpec]:
    """Return all jobs in *data* as `load_all` does, as if the file were called *file*. Raises `SpecError`."""
    try:
        jobs = _parse_all(data, file, changes, profile)
    except SpecError as error:
        if file != COMMAND_LINE:
            raise
        # Its lines are not those of a file that anybody could look at.
        problems = [replace(each, line=0, column=0) for each in error.problems]
        raise SpecError(problems, error.source) from None
    # The command line is not a file whose lines anybody could look at.
    return [
        each.read_from(file, each.sweep_values, each.sections, None if file == COMMAND_LINE else root)
        for each, root in jobs
    ]


def changed(data: bytes, changes: "Sequence[Change]") -> Mapping[str, object]:
    """Return the values in *data*, a job file without mistakes, with *changes*. Raises `SpecError`."""
    from ddplaunch.spec.changes import apply

    root, problems = document.parse(data.decode(), STDIN)
    root, refused = apply(root, changes, STDIN)
    if problems or refused:
        raise SpecError([*problems, *refused])
    values: Mapping[str, object] = document.data(root)
    return values


def parse(data: bytes, file: str, changes: "Sequence[Change]" = ()) -> JobSpec:
    """Return the only job in *data*, the bytes of *file*. Raises `SpecError` with all problems."""
    return _only(parse_all(data, file, changes))


def _only(jobs: list[JobSpec]) -> JobSpec:
    if jobs[0].sweep_values:
        found = f"a sweep of {len(jobs)} jobs"
        hint = "`ddplaunch.api.load_all` returns all of them"
        file = jobs[0].job_file or jobs[0].name
        raise _error(file, path="sweep", found=found, wanted="a file with one job", hint=hint)
    return jobs[0]


def parse_all(
    data: bytes, file: str, changes: "Sequence[Change]" = (), profile: "Profile | None" = None
) -> list[JobSpec]:
    """Return all jobs in *data*, the bytes of *file*, with the defaults of *profile* and then *changes*.

    Raises `SpecError` with all problems.
    """
    # Where a job comes from is not part of it: the same text gives equal jobs.
    return [job.read_from("", job.sweep_values) for job, _ in _parse_all(data, file, changes, profile)]


def _parse_all(
    data: bytes, file: str, changes: "Sequence[Change]", profile: "Profile | None"
) -> list[tuple[JobSpec, document.Node]]:
    """Return the jobs as `parse_all` does, each with its tree and the keys that the file itself has."""
    root, problems = document.parse(_text(data, file), file)
    _refuse_other_versions(root, file)
    if profile is not None and profile.job is not None:
        from ddplaunch.spec.changes import profile_problems, under_job  # few users have a profile

        refused = profile_problems(profile)
        problems += refused
        root = root if refused else under_job(root, profile.job)
    if changes:
        from ddplaunch.spec.changes import apply  # few command lines have a change

        root, refused = apply(root, changes, file)
        problems += refused
    points: list[tuple[document.Node, Mapping[str, str]]] = [(root, {})]
    if isinstance(root, document.Mapping) and "sweep" in root.entries:
        from ddplaunch.spec.changes import points as sweep_points  # few files have a sweep

        points, refused = sweep_points(root, file)
        problems += refused
    jobs = []
    of_values: dict[object, Problem] = {}  # one for all jobs of a sweep that share the value
    for one, values in points:
        try:
            job = _checked(one, file).read_from("", values, _sections(one))
            jobs.append((job, one))
        except SpecError as error:
            for problem in error.problems:
                found = "" if problem.path == "name" else problem.found  # each job has a different name
                at = () if found == UNKNOWN_KEY else (problem.line, problem.column, problem.option)
                of_values.setdefault((problem.path, found, at), problem)
    if problems or of_values:
        raise SpecError([*problems, *of_values.values()], _source(root))
    return jobs


def _source(root: document.Node) -> tuple[str, ...]:
    """Return the paths under `source`; none where that is no list of texts."""
    entry = root.entries.get("source") if isinstance(root, document.Mapping) else None
    paths = document.data(entry.node) if entry is not None else None
    return paths if isinstance(paths, tuple) and all(isinstance(path, str) for path in paths) else ()


def _sections(root: document.Node) -> tuple[str, ...]:
    """Return the keys that are in the job file itself, and are not defaults of a profile."""
    assert isinstance(root, document.Mapping)
    return tuple(key for key, entry in root.entries.items() if not entry.file)


def _checked(root: document.Node, file: str) -> JobSpec:
    """Return the job of a tree. Raises SpecError."""
    values = document.data(root)
    try:
        return job_model().model_validate(values)
    except ValidationError as error:
        from ddplaunch.spec import messages  # only a file with a problem needs it

        raise SpecError(messages.explain(error, root, values, file)) from None


def _refuse_other_versions(root: document.Node, file: str) -> None:
    """Raise SpecError with one problem for a file of another kind, instead of one for each of its keys."""
    if not isinstance(root, document.Mapping):
        found = "a list" if isinstance(root, document.Sequence) else "a single value"
        hint = "begin with `apiVersion: ddplaunch/v1`, and give every line a key"
        raise _error(
            file, root.line, root.column, found=found, wanted="a mapping of keys to values", hint=hint
        )
    entry = root.entries.get("apiVersion")
    if entry is None or not isinstance(entry.node, document.Scalar) or not isinstance(entry.node.value, str):
        return
    text = entry.node.value
    if text == API_VERSION:
        return
    ours = text.startswith("ddplaunch/")
    hint = "a newer ddplaunch may read it" if ours else "this file is for another program"
    if ours and text.rpartition("/")[2] in ("1", "V1", "v1.0", "v1alpha1", "v1beta1", ""):
        hint = f"write {API_VERSION}"
    raise _error(
        file,
        entry.node.line,
        entry.node.column,
        path="apiVersion",
        found=f'"{text[:60]}"',
        wanted=API_VERSION,
        hint=hint,
    )


def _text(data: bytes, file: str) -> str:
    """Return the text of a job file, without a byte order mark. Raises SpecError if it is not UTF-8."""
    if len(data) > MAX_BYTES:
        hint = "put code and data into `source` or `volumes`, not into the job file"
        raise _error(file, found="more than 1 MiB", wanted=A_JOB_FILE, hint=hint)
    if file.lower().endswith(_SCRIPTS):
        raise _error(
            file, found="a script", wanted=A_JOB_FILE, hint=f"to run it: `ddplaunch submit -- {file}`"
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _error(file, found="UTF-16", wanted="UTF-8", hint="save it as UTF-8")
    if b"\0" in data:
        raise _error(file, found="a binary file", wanted=A_JOB_FILE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        byte = error.object[error.start]
        hint = "save the file as UTF-8"
        raise _error(file, line, column, found=f"the byte 0x{byte:02x}", wanted="UTF-8", hint=hint) from error


def _read(path: Path) -> bytes:
    """Return the file's bytes, at most one more than a job file may have. Raises SpecError."""
    name = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _error(name, found="a directory", wanted=A_JOB_FILE, hint=_inside(path))
        # A pipe of a shell, /dev/stdin or `<(…)`, has a writer, and its resolved path does not exist.
        if stat.S_ISFIFO(mode) and path.resolve().exists():
            hint = "pipe the job file in and write - as its name: `generate-job | ddplaunch submit -`"
            raise _error(name, found="a named pipe", wanted=A_JOB_FILE, hint=hint)
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise _error(name, found="no such file", wanted=A_JOB_FILE, hint=_near(path)) from error
    except PermissionError as error:
        hint = "the user who runs ddplaunch must be able to read it"
        raise _error(name, found="no permission to read it", wanted=A_JOB_FILE, hint=hint) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _error(name, found=f"a file that cannot be read ({reason})", wanted=A_JOB_FILE) from error


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError:
        return []


def _inside(folder: Path) -> str:
    files = [name for name in _names(folder) if name.endswith((".yaml", ".yml"))]
    return "it contains " + ", ".join(files[:5]) if files else ""


def _near(path: Path) -> str:
    """Return a hint with a file of a similar name, or with the other YAML suffix."""
    names = _names(path.parent)
    swapped = [name for name in names if Path(name).stem == path.stem and name.endswith((".yaml", ".yml"))]
    import difflib  # only a missing file needs it

    near = swapped or difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "`ddplaunch init` writes one for you to start from"


def _error(
    file: str, line: int = 0, column: int = 0, *, path: str = "", found: str, wanted: str, hint: str = ""
) -> SpecError:
    return SpecError(
        [Problem(file=file, line=line, column=column, path=path, found=found, wanted=wanted, hint=hint)]
    )


# --- values that look like secrets

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET = re.compile(
    r"(?:.*_)?(?:TOKEN|SECRETS?|CREDENTIALS?|[A-Z0-9]*(?:PASSWORD|PASSWD|PASSPHRASE|APIKEY)"
    r"|(?:ACCESS|ACCOUNT|API|AUTH|ENCRYPTION|PRIVATE|SECRET|SIGNING)_KEY)_?[0-9]*"
)
_TOKEN_OF_TEXT = re.compile(
    r"(?:.*_)?(?:BOS|CLS|END|EOS|FIRST|IMAGE|LAST|MASK|MAX|MIN|NEW|NEXT|NUM|PAD|PER|SEP|SPECIAL|START|STOP|UNK)"
    r"_TOKEN_?[0-9]*"
)
_HARMLESS = re.compile(
    r"\s*|[~.]{0,2}/.*|file:.*|true|false|yes|no|on|off|none|null", re.IGNORECASE | re.DOTALL
)
"""Nothing, a path, or a switch."""


def notes(*envs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note on each variable whose value looks like a secret, once for all that have it."""
    return tuple(dict.fromkeys(note(name) for env in envs for name in exposed(env)))


def exposed(env: Mapping[str, str]) -> list[str]:
    """Return the variables whose values look like secrets."""
    return [name for name, value in env.items() if _is_secret(name) and not _HARMLESS.fullmatch(value)]


def note(name: str) -> str:
    """Return a note on such a variable, without its value."""
    return (
        f"env.{name}: this looks like a secret, but its value is in the job file and in everything made "
        f"from it. `secrets: {{{name}: {{env: {name}}}}}` takes the value from your environment when the job "
        "starts, and `secret: {name: …, key: …}` takes it from a Kubernetes Secret"
    )


def _is_secret(name: str) -> bool:
    words = _CAMEL.sub("_", name).upper()
    return bool(_SECRET.fullmatch(words)) and not _TOKEN_OF_TEXT.fullmatch(words)
