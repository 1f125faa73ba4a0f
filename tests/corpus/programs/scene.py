"""What the programs share: a note of the moment at which progress stops, data that never comes, work."""

import hashlib
import os
import time

SECONDS = float(os.environ.get("CORPUS_SECONDS", "30"))  # how long the long steps of healthy jobs take
FOLDER = os.environ.get("CORPUS_SCENE", ".")


def stops():
    """Note that this rank moves no more; the harness counts the seconds to the notice from here."""
    with open(os.path.join(FOLDER, f"stopped-{os.environ['RANK']}"), "w") as file:
        file.write(repr(time.time()))


def storage():
    """A file on storage that does not answer: whoever opens it waits for ever."""
    path = os.path.join(FOLDER, f"shard-{os.environ['RANK']}")
    if not os.path.exists(path):
        os.mkfifo(path)
    return path


def decode(seconds):
    """Burn CPU for `seconds` in small calls, as a decoder or a data loader does."""
    digest = b"sample"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        digest = hashlib.sha256(digest * 1000).digest()
    return digest[0]
