"""Runs the agent, or says in one sentence why this Python cannot.

Whatever the image calls `python3` reads this file first, so it may hold nothing that Python 2.7 cannot parse.
"""

import sys

if sys.version_info < (3, 9):
    sys.stderr.write(
        "error: ddplaunch's agent needs Python 3.9 or newer, and %s is Python %d.%d\n\n"
        "hint: use an image with a newer python3, or name one in the job file: `python: /path/to/python3`\n"
        % ((sys.executable or "this interpreter",) + sys.version_info[:2])
    )
    sys.exit(79)

from ddplaunch.agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
