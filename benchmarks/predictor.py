"""Which interface will NCCL, Gloo or TensorPipe take: what the agent predicts, against the real libraries.

`python benchmarks/predictor.py [--layouts N] [--settings N] [--torch N]` makes hosts at random in namespaces,
and asks every NCCL in requirements/nccl.txt, and torch with its own. Prints how often they agree, and exits 1
when anything disagrees. Needs root.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.agent.interfaces import libraries
from tests.agent.interfaces.run import ask_all


def main() -> int:
    """A line for each library, and one for each disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=250, help="hosts (default: 250)")
    parser.add_argument("--settings", type=int, default=3, help="of NCCL, for each host (default: 3)")
    parser.add_argument("--torch", type=int, default=1, help="of torch, for each host (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first host (default: 0)")
    arguments = parser.parse_args()
    a = arguments
    found = ask_all(libraries.all_of_them(), a.layouts, a.settings, a.torch, a.first)
    for each in found.disagreements:
        print(each)
    asked, wrong = sum(found.counts.values()), len(found.disagreements)
    print(f"{found.layouts} hosts, {asked} questions, {wrong} disagreements")
    for library, count in sorted(found.counts.items()):
        print(f"  {library:<18} {count:>6}")
    print("rules that decided")
    for rule, count in sorted(found.rules.items(), key=lambda each: -each[1]):
        print(f"  {rule:<60} {count:>6}")
    return 1 if found.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
