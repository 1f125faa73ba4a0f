"""Ends a node's gate by what is wrong with the job file: every node knows that, and needs no hub for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis import catalogue, verdict_text
from ddplaunch.agent.platforms import termination


def main(node: int, verdicts: Sequence[Verdict]) -> int:
    """Print the verdicts and return the exit code of the first; no check is run."""
    print("\n".join(verdict_text.block(verdicts, final=True)), flush=True)
    code = catalogue.exit_code(verdicts[0])
    if termination.goes_last(node, code):
        time.sleep(termination.FIRST)
    termination.write(code, verdicts)
    return code
