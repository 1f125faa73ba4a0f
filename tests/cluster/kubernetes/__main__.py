"""A cluster by hand, as root, from the repository's root: `python -m tests.cluster.kubernetes VERB`."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys

from tests.cluster.kubernetes import cluster, docker, images
from tests.cluster.kubernetes.cache import ClusterError


def main() -> int:
    """Returns the exit code."""
    arguments = _parser().parse_args()
    # What was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reason = docker.missing() or images.missing()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    try:
        return _call(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _call(arguments: argparse.Namespace) -> int:
    name: str = arguments.name
    if arguments.verb == "build":
        try:
            cluster.build()
        finally:
            docker.stop()
    elif arguments.verb == "up":
        found = cluster.Cluster.up(name)
        found.keep()
        print(f"{' '.join(found.nodes)} are ready")
    elif arguments.verb == "env":
        return _show_env(name)
    elif arguments.verb == "torch":
        print(" ".join(f"--set={key}={value}" for key, value in _torch().items()))
    elif arguments.verb == "down":
        cluster.down(name)
    elif arguments.verb == "keep":
        cluster.keep(name)
    return 0


def _show_env(name: str) -> int:
    found = cluster.Cluster.attach(name)
    if found is None:
        raise ClusterError("no cluster is up; `up` starts one")
    shown = {key: value for key, value in found.env.items() if key in ("KUBECONFIG", "DOCKER_HOST", "PATH")}
    print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in shown.items()))
    return 0


def _torch() -> dict[str, str]:
    """Keys of a job file and their values. No value has a blank, so that a shell may split the line."""
    volumes = [
        {"name": f"python-{number}", "host_path": str(path), "mount_path": str(path), "read_only": True}
        for number, path in enumerate(images.mounts())
    ]
    return {
        "image": images.TRAINER,
        "python": sys.executable,
        "volumes": json.dumps(volumes, separators=(",", ":")),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kubernetes", description=__doc__)
    parser.add_argument("--name", default=cluster.default_name(), help="the cluster's; %(default)s")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="start it, and keep it until `down`")
    verbs.add_parser("env", help="print what a shell evaluates to reach it: kubectl, helm, docker")
    verbs.add_parser("torch", help="print options of `submit`: an image, and torch from this machine")
    verbs.add_parser("down", help="end it")
    verbs.add_parser("build", help="build its images, and nothing else")
    verbs.add_parser("keep", help="end it when its last user ends; tests call this")
    return parser


if __name__ == "__main__":
    sys.exit(main())
