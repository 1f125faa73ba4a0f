"""What a program catches and never tells is remembered, without running any of its code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.hook import ddplaunch_caught

CATCHES = """
import json, time
class Odd(Exception):
    def __str__(self):
        print("was printed")
        return "odd"
class Tensor:
    def __repr__(self):
        print("was printed")
        return "tensor"
def skip(error):
    try:
        raise error
    except Exception:
        pass
def library():
    try:
        json.loads("{")
    except ValueError:
        pass
skip(ValueError("corrupt", 7))
time.sleep(0.6)
skip(Odd(Tensor()))
for item in (number for number in range(3)):
    pass
library()
print("up", flush=True)
time.sleep(60)
"""


def test_what_was_caught_and_never_told_is_told(supervisor: Supervisor) -> None:
    """Since Python 3.12: silent except blocks of the user's own files, without running any of his code."""
    process = supervisor.start(CATCHES)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    handled = supervisor.ask(supervisor.line("rank"), "dump")["handled"]

    told = [(each["type"], [frame[0] for frame in each["frames"]]) for each in handled]
    if sys.version_info < (3, 12):
        assert told == []
    else:
        assert told == [
            ("ValueError", ["skip"]),
            ("Odd", ["skip"]),
            ("json.decoder.JSONDecodeError", ["raw_decode", "decode", "loads", "library"]),
        ]
        assert [each["message"] for each in handled[:2]] == ["('corrupt', 7)", "Tensor"]


def test_a_loop_of_caught_exceptions_is_not_slowed(supervisor: Supervisor) -> None:
    program = (
        "import time\ndef f():\n    try:\n        {}[1]\n    except KeyError:\n        pass\n"
        "begun = time.process_time()\nfor _ in range(100_000):\n    f()\n"
        "assert time.process_time() - begun < 2\n"
    )

    assert supervisor.run(program) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        ("/job/train.py", True),
        (ddplaunch_caught.__file__, False),
        (os.path.join(os.path.dirname(ddplaunch_caught.__file__), "ddplaunch_ring.py"), False),
        (os.__file__, False),
        ("/opt/env/lib/python3.12/site-packages/torch/nn/modules/module.py", False),
    ],
)
def test_only_what_the_users_own_files_caught_counts(file: str, is_users: bool) -> None:
    assert is_users == ddplaunch_caught._is_users(file)


def test_a_library_may_lie_where_pip_was_told_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --target pip puts libraries into any folder, which PYTHONPATH names then."""
    for folder in (
        "libraries/typing_extensions-4.16.0.dist-info",
        "project/train.egg-info",
        "beside/sh.dist-info",
    ):
        (tmp_path / folder).mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / folder.partition("/")[0])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "beside/train.py"), raising=False)
    files = ("libraries/typing_extensions.py", "libraries/pkg/part.py", "project/model.py", "beside/model.py")
    users = [file for file in files if ddplaunch_caught._is_users(str(tmp_path / file))]

    assert users == ["project/model.py", "beside/model.py"]
