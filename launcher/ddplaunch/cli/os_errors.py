"""Errors of the operating system where no caller expected one: told as such, not as a bug of ours."""

from __future__ import annotations

import errno
from typing import Final

_HINTS: Final = {
    errno.ENOSPC: "`df -h` shows which disk is full, `quota` what you may use of it",
    errno.EDQUOT: "`quota` shows what you may use of this disk; make room there",
    errno.EACCES: "`ls -ld` on it and on the folders above shows whose it is; you are {user}",
    errno.EPERM: "`ls -ld` on it and on the folders above shows whose it is; you are {user}",
    errno.EROFS: "the disk is mounted read-only: `findmnt --target` on it shows how",
    errno.EIO: "the disk, or the server behind it, is at fault: `dmesg` says more",
    errno.ESTALE: "the file server forgot it: mount the folder again, or ask who runs that server",
    errno.EMFILE: "`ulimit -n` is how many files you may have open; raise it",
}


def of(error: OSError) -> tuple[str, str] | None:
    """Message and hint; None for what is more likely a mistake of this program."""
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
