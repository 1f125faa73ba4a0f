"""Puts the defaults of a profile under a job file. Pure."""

from dataclasses import replace

from pydantic import ValidationError

from ddplaunch.agent.job_file.rules import Path
from ddplaunch.spec import document, messages, schema
from ddplaunch.spec.config import NOT_DEFAULTS, Profile
from ddplaunch.spec.document import Entry, Mapping, Node
from ddplaunch.spec.models import job_model
from ddplaunch.spec.problems import Problem


def problems(profile: Profile) -> list[Problem]:
    """Return the problems of each value that a profile gives; rules across values wait for the whole job."""
    root = profile.job
    if root is None:
        return []
    hint = "this key describes a single job, so it belongs in that job's file"
    found = [
        document.problem(profile.file, entry, (key,), "this key in a profile", "it in the job file", hint)
        for key, entry in root.entries.items()
        if key in NOT_DEFAULTS
    ]
    root = replace(root, entries={key: each for key, each in root.entries.items() if key not in NOT_DEFAULTS})
    values = {**document.data(root), **messages.STAND_INS}
    try:
        job_model().model_validate(values)
    except ValidationError as error:
        found += messages.explain(error, root, values, profile.file, with_rules=False)
    return [replace(each, path=f"profiles.{profile.name}.job.{each.path}") for each in found]


def under(root: Node, defaults: Mapping) -> Node:
    """Return the job file's tree with `defaults` for everything that the file leaves open.

    Mappings are joined key by key, except where only one of their keys may be given. Any other value in the
    job file, even a list, replaces the default.
    """
    return _joined(root, defaults, ())


def _joined(own: Node, default: Node, path: Path) -> Node:
    if not isinstance(own, Mapping) or not isinstance(default, Mapping):
        return own
    if path and schema.at(path).get("x-whole"):
        return own
    entries: dict[str, Entry] = dict(own.entries)
    for key, entry in default.entries.items():
        mine = entries.get(key)
        entries[key] = replace(mine, node=_joined(mine.node, entry.node, (*path, key))) if mine else entry
    return replace(own, entries=entries)
