"""The user's configuration: which profile holds, and which target is meant where none is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.spec.config import Config, Profile
    from ddplaunch.spec.models import JobSpec

_VARIABLE = "DDPLAUNCH_PROFILE"


class Choice(NamedTuple):
    """The target of jobs for which none is named, and the reason; "" where there is nothing to say."""

    target: str
    why: str = ""


def config_file() -> Path:
    """Return the path of the configuration, which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return folder / "ddplaunch" / "config.yaml"


def configuration() -> Config:
    """Return the user's configuration; an empty one where there is no file. Raises SpecError."""
    from ddplaunch.spec import config
    from ddplaunch.spec.problems import Problem, SpecError
    from ddplaunch.targets import names

    path = config_file()
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return config.Config(str(path))
    except (OSError, ValueError) as error:
        found = f"what cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8'})"
        hint = "mend it, or leave it out by `--profile none`"
        raise SpecError(
            [Problem(file=str(path), found=found, wanted="a configuration", hint=hint)]
        ) from error
    return config.parse(text, str(path), names())


def profile(name: str | None = None, to: str | None = None) -> Profile | None:
    """Return the profile `name`, else that of DDPLAUNCH_PROFILE, else the default one; None: none holds.

    `none` is none, and the configuration is not read. A default profile for another target than `to` does not
    hold. Raises UsageError for an unknown name, and for a named profile beside another
    target; SpecError for a broken configuration.
    """
    asked = name or os.environ.get(_VARIABLE, "")
    if asked == "none" or (not asked and not config_file().exists()):
        return None
    config = configuration()
    chosen = asked or config.default
    if not chosen:
        return None
    found = config.profiles.get(chosen)
    if found is None:
        by = "" if name else f"{_VARIABLE}: "
        known = ", ".join(config.profiles)
        raise UsageError(
            f"{by}there is no profile {chosen!r} in {config.file}",
            hint=f"one of {known}, or none" if known else "`ddplaunch schema config` describes that file",
        )
    if to and found.target not in ("", to):
        if name:
            raise UsageError(
                f"the profile {name} is for {found.target}, and not for {to}",
                hint="leave out --to, or name another profile; `--profile none` is none",
            )
        return None
    return found


def choose(jobs: Sequence[JobSpec] = (), profile: Profile | None = None) -> Choice:
    """Return the target of jobs for which none is named.

    It is that of the profile; else that of the only section of a scheduler in the job file, if jobs can be
    sent there from this machine; else this machine. No scheduler is asked.
    """
    if profile is not None and profile.target:
        place = _reach(profile.target, jobs)
        return Choice(profile.target, f"{place + '; ' if place else ''}profile {profile.name}")
    from ddplaunch.targets import LOCAL, names

    own = [name for name in names() if name != LOCAL.name and jobs and name in jobs[0].sections]
    if not own:
        return Choice(LOCAL.name)
    if len(own) > 1:
        return Choice(LOCAL.name, f"the job file has the sections {' and '.join(own)}, and --to chooses")
    place = _reach(own[0], jobs)
    if not place:
        return Choice(LOCAL.name, f"no job can be sent to {own[0]} from this machine")
    return Choice(own[0], f"{place}; the job file has a section {own[0]}, and --to local runs it here")


def _reach(target: str, jobs: Sequence[JobSpec]) -> str:
    """Return where a target is, as seen from this machine; "" when it is not to be seen."""
    from ddplaunch.targets import find

    there = find(target)
    return str(there.load(there.reach)(jobs[0])) if there.reach and jobs else ""
