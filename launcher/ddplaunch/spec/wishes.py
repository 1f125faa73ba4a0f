"""What the model wants at one place, and the words for it: wanted, found, hint. Pure."""

import re
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from ddplaunch.spec import units
from ddplaunch.spec.document import Mapping, Node, Scalar, Sequence
from ddplaunch.spec.problems import Path

_SMELLS = re.compile(r"TOKEN|KEY|SECRET|PASS|PWD|CREDENTIAL|AUTH", re.IGNORECASE)
"""Names of variables whose values are not repeated, although they stand in `env` in plain sight."""

_MAX_SHOWN = 60


class Wish(msgspec.Struct, frozen=True):
    """A type of the model: `base` without annotations, `bounds` with them as msgspec checks it.

    `extra` is what the annotations say beside: `wanted` and `hint` (the words of the error), `unit` (the
    parser in units.py), `one_or_many` (a list of one may be written without brackets), `slug` (a name that
    can be proposed from a wrong one).
    """

    base: Any
    bounds: Any
    metas: tuple[msgspec.Meta, ...]
    extra: dict[str, Any]

    def fits(self, value: object) -> bool:
        """Whether *value* is of the type and within its bounds."""
        try:
            msgspec.convert(value, self.bounds, strict=True)
        except msgspec.ValidationError:
            return False
        # msgspec searches, and `$` also matches before a last newline, which would end up in a script.
        patterns = [meta.pattern for meta in self.metas if meta.pattern]
        return all(isinstance(value, str) and re.fullmatch(pattern, value) for pattern in patterns)


def wish(type_: Any) -> Wish:
    """The wish behind an annotation of the model."""
    if get_origin(type_) is not Annotated:
        return Wish(type_, type_, (), {})
    base, *metas = get_args(type_)
    extra: dict[str, Any] = {}
    for meta in metas:
        extra.update(meta.extra or {})
    return Wish(base, type_, tuple(metas), extra)


@cache
def fields(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """Fields of a section, by the key in the file."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def is_struct(type_: Any) -> bool:
    """Whether *type_* is a section with known keys."""
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def wanted(wish: Wish) -> str:
    """What stands here when it is right."""
    if words := wish.extra.get("wanted"):
        return str(words)
    if is_struct(wish.base):
        keys = ", ".join(fields(wish.base))
        return f"a mapping with some of the keys {keys}" if keys else "an empty mapping"
    if get_origin(wish.base) is Literal:
        words = [str(word) for word in get_args(wish.base)]
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    if get_origin(wish.base) is tuple:
        return "a list" + (" that is not empty" if minimum(wish) else "")
    if get_origin(wish.base) is dict:
        return "a mapping"
    if wish.base in (int, float):
        return ("a whole number" if wish.base is int else "a number") + _bounds(wish)
    return {bool: "true or false", str: "text"}.get(wish.base, "another value")


def minimum(wish: Wish) -> int:
    """How many items a list must have."""
    return max((meta.min_length or 0 for meta in wish.metas), default=0)


def _bounds(wish: Wish) -> str:
    low = next((meta.ge for meta in wish.metas if meta.ge is not None), None)
    high = next((meta.le for meta in wish.metas if meta.le is not None), None)
    above = next((meta.gt for meta in wish.metas if meta.gt is not None), None)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if above is not None:
        return f" above {above}"
    return "" if low is None else f" of at least {low}"


def hidden(path: Path) -> bool:
    """Whether the value at *path* is, or may be, secret: it is never repeated."""
    if path[:1] == ("secrets",):
        return True
    return path[:1] == ("env",) and len(path) > 1 and bool(_SMELLS.search(str(path[1])))


def found(node: Node, path: Path) -> str:
    """What stands here, shortened; only its kind where it may be secret."""
    if isinstance(node, Mapping):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Sequence):
        return "a list" if node.items else "an empty list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "nothing"
    if hidden(path):
        kind = "text" if isinstance(node.value, str) and not node.reading else "a value that is no text"
        return f"{kind} (not shown)"
    text = node.text
    text = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
    if node.reading:
        return f"{text} (which YAML reads as {node.reading})"
    return f'"{text}"' if isinstance(node.value, str) else text


def hint(node: Node, wish: Wish, path: Path) -> str:
    """What to do about a value that does not fit, empty when there is nothing to add."""
    if isinstance(node, Scalar) and (advice := _scalar_hint(node, wish, path)):
        return advice
    if said := wish.extra.get("hint"):
        return str(said)
    if isinstance(node, Sequence) and get_origin(wish.base) is dict:
        return "write NAME: value, without dashes"
    return ""


def _scalar_hint(node: Scalar, wish: Wish, path: Path) -> str:
    if get_origin(wish.base) in (tuple, dict) or is_struct(wish.base):
        return _container_hint(node, wish, path)
    if node.value is None:
        return 'write "" for an empty text' if wish.base is str else "write a value, or remove the line"
    if wish.base is str:
        return _text_hint(node, wish, path)
    if node.reading:
        return _reading_hint(node, wish)
    if get_origin(wish.base) is Literal:
        return did_you_mean(node.text, list(get_args(wish.base)))
    plain = {bool: r"(?i)true|false", int: r"-?\d+", float: r"-?\d+(\.\d+)?"}.get(wish.base)
    if isinstance(node.value, str) and plain and re.fullmatch(plain, node.text):
        return "remove the quotes"
    return ""


def _reading_hint(node: Scalar, wish: Wish) -> str:
    if "unit" not in wish.extra:
        return "" if isinstance(node.value, str) else f"write {node.value}"
    try:
        units.PARSERS[wish.extra["unit"]](node.text)
    except units.UnitError as error:
        return str(error)
    return f'quote it: "{node.text}"'


def _container_hint(node: Scalar, wish: Wish, path: Path) -> str:
    if node.value is None:
        return "nothing stands below it: add something, or remove the key"
    if is_struct(wish.base) and isinstance(node.value, bool) and "enabled" in fields(wish.base):
        return f"write {path[-1]}: {{enabled: {str(node.value).lower()}}}"
    if get_origin(wish.base) is tuple and "hint" not in wish.extra and not hidden(path):
        return f"write it as a list: [{node.text}]"
    return ""


def _text_hint(node: Scalar, wish: Wish, path: Path) -> str:
    if not isinstance(node.value, str) or node.reading:
        return "quote it" if hidden(path) else f'quote it: "{node.text}"'
    slug = re.sub(r"[^a-z0-9]+", "-", node.text.lower()).strip("-")[:50].strip("-")
    return f"for example {slug}" if wish.extra.get("slug") and wish.fits(slug) else ""


def did_you_mean(word: str, known: list[str]) -> str:
    """The known word nearest to *word*, as a hint; empty when none is near."""
    import difflib  # only a file with a problem needs it

    lower = {item.lower(): item for item in known}
    near = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"did you mean {lower[near[0]]}?" if near else ""
