"""Keeps the evidence of real faults for the rules' own tests: `python -m tests.corpus.record FOLDER [NAME…]`.

Run from the repository root. What names this machine is replaced: the evidence is to be read anywhere.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.corpus import harness
from tests.corpus.faults import FAULTS

from ddplaunch.agent.contract import codec
from ddplaunch.agent.platforms import places


def main(folder: Path, names: list[str]) -> int:
    """Write FOLDER/NAME.json for each fault that leaves evidence."""
    renamed = {
        str(harness.PROGRAMS): "/job",
        sysconfig.get_path("platlib"): "/opt/env/lib/python3/site-packages",
        sysconfig.get_path("stdlib"): "/opt/python/lib/python3",
        sys.prefix: "/opt/env",
        places.boot_id(): "boot",
    }
    for fault in FAULTS:
        if fault.asked or (names and fault.name not in names):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            outcome = harness.run(fault, Path(scratch))
            if outcome.evidence is None:
                continue
            text = json.dumps(codec.dump(outcome.evidence))
            for place, name in {scratch: "/scene", **renamed}.items():
                text = text.replace(place, name)
        (folder / f"{fault.name}.json").write_text(text + "\n")
        print(fault.name, outcome.code, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
