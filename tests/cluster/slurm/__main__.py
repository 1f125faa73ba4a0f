"""Clusters by hand, as root, from the repository's root: `python -m tests.cluster.slurm up|down|run …`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.cluster.slurm.cluster import Cluster, missing, remove
from tests.cluster.slurm.machines import ClusterError


def main() -> int:
    """Returns the exit code; `run` becomes the command."""
    arguments = _parser().parse_args()
    reason = missing()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    try:
        return _call(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _call(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    if arguments.verb == "up":
        cluster = Cluster.up(folder, arguments.nodes, "\n".join(arguments.conf), outlive=True)
        print(f"{' '.join(cluster.nodes)} are idle; jobs may use {cluster.shared}")
        return 0
    if arguments.verb == "down":
        remove(folder)
        return 0
    cluster = Cluster.attach(folder)
    if arguments.verb == "clear":
        cluster.restore()
    if arguments.verb == "run":
        here = Path.cwd()
        inside = here if here.is_relative_to(cluster.folder) or not here.is_relative_to("/tmp") else None
        words = cluster.words(arguments.machine, arguments.command, inside)
        os.execvpe(words[0], words, cluster.env)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.slurm", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("folder", type=Path, help="the cluster's, which it makes; a short path")
    up = verbs.add_parser("up", parents=[common], help="start a cluster")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--conf", action="append", default=[], metavar="LINE", help="one more line of slurm.conf")
    verbs.add_parser("down", parents=[common], help="end it and remove its folder")
    verbs.add_parser("clear", parents=[common], help="cancel all jobs, undo all faults")
    run = verbs.add_parser("run", parents=[common], help="run a command on a machine of it")
    run.add_argument("machine", help="ctl (where users log in), n1, n2, …")
    run.add_argument("command", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
