"""The file that a program waits for, as the hook reads it from the program's own loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.agent import hook

LOOKS = """
import os, pathlib, sys, threading, time
from os.path import isfile
sys.path.append(HOOK)
import ddplaunch_model
class Cache:
    def __init__(self):
        self.root, self.name = pathlib.Path("/none"), "index"
    def at(self, name):
        return self.root / name
    def exists(self, name):
        return False
    def look(self, folder):
        LOOP
def tell():
    while not any(frame.f_code.co_name == "look" for frame in sys._current_frames().values()):
        time.sleep(0.01)
    print(ddplaunch_model._awaited_file(), flush=True)
    os._exit(0)
threading.Thread(target=tell).start()
Cache().look("/none")
"""


@pytest.mark.parametrize(
    ("loop", "path"),
    [
        ("while not os.path.exists(folder): time.sleep(0.2)", "/none"),
        ("while not isfile(os.path.join(folder, f'{self.name}.bin')): time.sleep(0.2)", "/none/index.bin"),
        ("while not (self.root / 'a' / self.name).exists(): time.sleep(0.2)", "/none/a/index"),
        ("while not (pathlib.Path(folder) / 'a').is_dir(): time.sleep(0.2)", "/none/a"),
        ("while True:\n            if os.path.exists(folder): break\n            time.sleep(0.2)", "/none"),
        ("while not self.at('a').exists(): time.sleep(0.2)", None),
        ("while not self.exists(folder): time.sleep(0.2)", None),
        ("while not (isfile(folder) or isfile('/none/b')): time.sleep(0.2)", None),
        ("os.path.exists(folder)\n        while True: time.sleep(0.2)", None),
    ],
    ids=["name", "join", "div", "Path", "if", "own function", "own exists", "two", "no loop"],
)
def test_the_file_for_which_a_rank_looks_again_and_again_is_known(
    tmp_path: Path, loop: str, path: str | None
) -> None:
    program = tmp_path / "train.py"
    text = LOOKS.replace("HOOK", repr(str(Path(hook.__file__).parent)))
    program.write_text(text.replace("LOOP", loop))
    out = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)

    assert f"{path}\n" == out.stdout
