"""Finds programs as execvp(3) and a shell do, with their exit codes for one that cannot be started."""

from __future__ import annotations

import os
import re
import shutil

ABSENT, UNEXECUTABLE = 127, 126


def refused(name: str, path: str, folder: str = ".") -> int:
    """Return the exit code of a shell that cannot start `name`, in `folder` and with this PATH; 0: it can."""
    code = ABSENT
    for place in [""] if os.sep in name else path.split(os.pathsep):
        file = os.path.join(folder, place, name)
        if os.path.isdir(file) or not os.path.exists(file):
            code = UNEXECUTABLE if os.path.exists(file) and os.sep in name else code
        elif not os.access(file, os.X_OK):
            code = UNEXECUTABLE
        else:
            return ABSENT if absent_interpreter(file, path) else 0
    return code


def absent_interpreter(file: str, path: str) -> str:
    """Return the interpreter of a script's first line, if it is missing; else ""."""
    try:
        with open(file, "rb") as script:
            line = script.readline(512).decode(errors="replace")
    except OSError:
        return ""  # it may be executed all the same
    if not line.startswith("#!"):
        return ""
    # Linux, fs/binfmt_script.c: spaces and tabs end the name, and a carriage return is part of it.
    name, *rest = re.split(r"[ \t]+", line[2:].rstrip("\n").strip(" \t"))
    if os.path.basename(name) == "env" and rest and not re.match(r"-|.*=", rest[0]):
        return "" if shutil.which(rest[0], path=path) else rest[0]
    return "" if not name or os.path.exists(name) else name


def is_script(file: str) -> bool:
    """Whether a shell reads the file, which the kernel cannot execute: it is text."""
    try:
        with open(file, "rb") as opened:
            return b"\0" not in opened.read(256)
    except OSError:
        return False
