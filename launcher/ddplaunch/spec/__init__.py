"""The job file: what may stand in it, how it is read, and what is wrong with it.

This layer turns text into a validated `JobSpec`, or into all problems of that text at once, each with its
line, what was found, what is wanted, and a hint. It knows no scheduler beyond the words of its section, and
it MUST NOT touch a subprocess, a socket, a clock or the environment; the one thing it reads is the job file
(`load`), the one thing it writes is a new one (`template.write_new`).
"""

import sys

# msgspec prefers typing_extensions where it is installed, and torch installs it. Importing that costs 20 ms,
# a sixth of what `ddplaunch render` may take, for names that Python >= 3.11 has in typing: None hides it
# until msgspec has looked.
if "typing_extensions" in sys.modules:
    import msgspec
else:
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec
    finally:
        del sys.modules["typing_extensions"]

del msgspec, sys
