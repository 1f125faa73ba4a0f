"""Messages for errors of the operating system that no caller handles, and that are no bug of ddplaunch."""

from __future__ import annotations

import errno
from typing import Final

_HINTS: Final = {
    errno.ENOSPC: "`df -h` shows which disk is full, `quota` how much of it you may use",
    errno.EDQUOT: "`quota` shows how much of this disk you may use; make room there",
    errno.EACCES: "`ls -ld` on it and on the folders above shows the owner; you are {user}",
    errno.EPERM: "`ls -ld` on it and on the folders above shows the owner; you are {user}",
    errno.EROFS: "the disk is mounted read-only: see `findmnt --target PATH`",
    errno.EIO: "the disk or its server is faulty: see `dmesg`",
    errno.ESTALE: "the file server has lost the file: mount the folder again, or ask its administrator",
    errno.EMFILE: "`ulimit -n` shows how many files you may open; raise it",
}


NO_ROOM: Final = (
    "no more processes and threads may be started here",
    "`ulimit -u` shows how many you may have, `ps -LU $USER` those that you have; end what is not needed",
)


def of(error: OSError) -> tuple[str, str] | None:
    """Return message and hint; None for an error that is more likely a bug of ddplaunch."""
    if error.errno == errno.EAGAIN:  # of fork(2); files here do not answer so
        return NO_ROOM
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        return None
    what = "standard output cannot be written"
    if error.filename is not None:
        what = f"{error.filename} cannot be read or written"
    return f"{what}: {error.strerror}", hint.format(user=_user())


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        import os

        return f"user {os.getuid()}"
