"""`python -m ddplaunch` does what `ddplaunch` does."""

import sys

from ddplaunch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
