"""Makes hosts at random in network namespaces, and asks the real libraries and the predictor the same.

    unshare --mount --uts --net python -m tests.agent.interfaces.lab --layouts 20 --settings 3 [LIBNCCL …]

Prints what they disagree on, with all that it takes to ask again, and a last line of JSON with the counts.
Nothing is left behind: namespaces end with the process, however it ends.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.agent.interfaces import layouts
from tests.agent.interfaces.settings import FILES, Setting, for_nccl, for_torch

from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.interfaces.predict import Choice, HostFacts

ROOT = Path(__file__).resolve().parents[3]
_NEW_NETWORK = 0x40000000  # linux/sched.h
_TRIES = 50
"""For a host to come to rest: the kernel tells of carriers a moment after they are there."""


class Asker:
    """One library in a process of its own."""

    def __init__(self, what: str, path: str = "") -> None:
        words = [sys.executable, "-m", "tests.agent.interfaces.asker", what, path]
        search = os.pathsep.join([str(ROOT), str(ROOT / "launcher")])
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": search, "TORCH_CPP_LOG_LEVEL": "ERROR"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the library could not be loaded"

    def ask(self, environment: dict[str, str], of: str = "nccl") -> Any:
        """What the library says in the network namespace of this process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"of": of, "network": f"/proc/{os.getpid()}/ns/net", "environment": environment}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """It ends when nobody asks any more."""
        self._process.communicate()


class Lab:
    """One host after the other, in this process's own mount namespace."""

    def __init__(self, folder: Path, libraries: list[str], torch: bool, judge_as: str) -> None:
        self._folder = folder
        self._judge_as = judge_as
        etc = folder / "etc"
        shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
        for name in FILES[1:3]:
            (folder / name).parent.mkdir()
        (etc / "passwd").write_text(f"root:x:0:0:root:{folder}/PASSWD:/bin/sh\n")
        (etc / "nsswitch.conf").write_text("hosts: files\npasswd: files\n")
        (etc / "nccl.conf").unlink(missing_ok=True)
        subprocess.run(["mount", "--bind", etc, "/etc"], check=True)
        self._nccl = {path: Asker("nccl", path) for path in libraries}
        self._torch = Asker("torch") if torch else None
        self.layouts = 0
        self.counts: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.disagreements: list[dict[str, Any]] = []

    def close(self) -> None:
        """Let the libraries go."""
        for asker in [*self._nccl.values(), *([self._torch] if self._torch else [])]:
            asker.close()

    def layout(self, number: int, settings: int, of_torch: int) -> None:
        """Build it and ask about it, with so many settings for NCCL, and for torch's libraries."""
        if ctypes.CDLL(None).unshare(_NEW_NETWORK) != 0:
            raise OSError("no new network namespace")
        Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
        made = layouts.layout(number)
        subprocess.run(
            ["ip", "-force", "-batch", "-"],
            input="\n".join(made.commands) + "\n",
            text=True,
            check=False,
            stderr=subprocess.DEVNULL,
        )
        self.layouts += 1
        for setting in range(settings):
            self._ask_nccl(number, setting, for_nccl(made, setting))
        for setting in range(of_torch):
            self._ask_torch(number, setting, for_torch(made, setting))

    def _ask_nccl(self, number: int, which: int, setting: Setting) -> None:
        environment = self._apply(setting)
        for asker in self._nccl.values():
            for _ in range(_TRIES):
                before = read.addresses()
                said = asker.ask(environment)
                release = predict.nccl_version(self._judge_as or said.get("version", ""))
                host = read.host(environment, release)
                if host.addresses == before:
                    break
            name = f"NCCL {said.get('version')}"
            for purpose, key, choose in (
                ("", "using", predict.nccl_bootstrap),
                (" data", "data", predict.nccl_sockets),
            ):
                choice = choose(host, release)
                ours = [f"{each.interface}:{each.address}" for each in choice.addresses]
                self._compare(name + purpose, (number, which), host, choice, ours, said.get(key), said)

    def _ask_torch(self, number: int, which: int, setting: Setting) -> None:
        assert self._torch is not None
        environment = self._apply(setting)
        for name, choose in (("gloo", predict.gloo), ("tensorpipe", predict.tensorpipe)):
            for _ in range(_TRIES):
                before = read.addresses()
                said = self._torch.ask(environment, name)
                host = read.host(environment, predict.NEWEST)
                if host.addresses == before:
                    break
            choice = choose(host)
            ours = [each.address for each in choice.addresses]
            aborts: list[str] | None = [] if name == "tensorpipe" else None  # where it cannot listen
            theirs = said.get("using", aborts)
            self._compare(name, (number, which), host, choice, ours, theirs, said)

    def _compare(
        self,
        library: str,
        where: tuple[int, int],
        host: HostFacts,
        choice: Choice,
        ours: list[str],
        theirs: list[str] | None,
        said: Any,
    ) -> None:
        """`ours`: as the library spells it; `said` is all that it said."""
        self.counts[library] += 1
        self.rules[_rule(choice)] += 1
        if ours != theirs:
            facts = {"host": dataclasses.asdict(host), "why": choice.why, "said": said}
            self.disagreements.append(
                {"library": library, "layout, setting": where, "predicted": ours, **facts}
            )

    def _apply(self, setting: Setting) -> dict[str, str]:
        """Files into their places, names of files in the environment into paths; returns the environment."""
        socket.sethostname(setting.name)
        (self._folder / "etc/hosts").write_text(setting.hosts)
        for name in FILES:
            path = self._folder / name.lstrip("/")
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            text = setting.files.get(name)
            if text is not None:
                path.write_text(text, encoding="utf-8", newline="")
            elif name in setting.files:
                path.mkdir()
        places = {name: str(self._folder / name) for name in ("HOME", "PASSWD", "OTHER")}
        return {name: places.get(value, value) for name, value in setting.environment.items()}


def _rule(choice: Choice) -> str:
    """The reason without what is the host's own."""
    words = choice.why.split("; ")[-1]
    variable, given, _ = words.partition("=")
    return (variable if given else " ".join(words.split()[:6])) + ("" if choice.addresses else ": none")


def main() -> int:
    """1 when they disagree anywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", help="files of libnccl")
    parser.add_argument("--layouts", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first layout")
    parser.add_argument("--settings", type=int, default=3, help="for each layout, of NCCL")
    parser.add_argument(
        "--torch", type=int, default=0, help="settings for Gloo and TensorPipe (default: none)"
    )
    parser.add_argument("--judge-as", default="", help="predict for this version, whichever is asked")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), arguments.libraries, bool(arguments.torch), arguments.judge_as)
        try:
            for number in range(arguments.first, arguments.first + arguments.layouts):
                lab.layout(number, arguments.settings, arguments.torch)
        finally:
            lab.close()
            subprocess.run(["umount", "/etc"], check=False)
    for each in lab.disagreements:
        print(json.dumps(each))
    print(json.dumps({"layouts": lab.layouts, "counts": lab.counts, "rules": lab.rules}))
    return 1 if lab.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
