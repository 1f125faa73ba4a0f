"""Finds values under `env` that look like secrets, by the name of the variable. Pure.

It avoids false alarms: `MAX_TOKENS`, `PAD_TOKEN_ID` and `MONKEY` are no secrets, and neither is a path.
"""

import re
from collections.abc import Mapping

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
        f"env.{name}: this looks like a secret, and its value is in the job file and in everything made "
        f"from it; `secrets: {{{name}: {{env: {name}}}}}` takes it from your environment when the job "
        "starts, and `secret: {name: …, key: …}` from a Kubernetes Secret"
    )


def _is_secret(name: str) -> bool:
    words = _CAMEL.sub("_", name).upper()
    return bool(_SECRET.fullmatch(words)) and not _TOKEN_OF_TEXT.fullmatch(words)
