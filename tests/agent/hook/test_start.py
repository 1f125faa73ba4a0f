"""What a Python pays for the hook that is no rank, and starts no training."""

from __future__ import annotations

from pathlib import Path

from tests.agent.hook.conftest import Supervisor

SHOWS = "import sys\nprint(*sorted(sys.modules), sep='\\n')\n"


def test_it_imports_little(supervisor: Supervisor) -> None:
    """Neither json nor sockets, which take longer than all of the hook."""
    _, modules, _ = supervisor.run(SHOWS, rank=None)

    assert "ddplaunch_hook" in modules.split()
    assert {"json", "socket", "struct", "importlib.util"}.isdisjoint(modules.split())


def test_the_next_finds_the_hook_compiled(supervisor: Supervisor) -> None:
    """Also in images that let nothing be compiled; what the program imports stays as it is told."""
    (supervisor.folder / "mine.py").write_text("")
    code, out, _ = supervisor.run(
        "import mine, sys\nprint(sys.dont_write_bytecode)", rank=None, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )
    compiled = [path.name.partition(".")[0] for path in Path(supervisor.place.hook, "__pycache__").iterdir()]

    assert (code, out, "ddplaunch_hook" in compiled) == (0, "True\n", True)
    assert not (supervisor.folder / "__pycache__").exists()


def test_what_it_needs_later_is_found_and_no_file_to_coverage(supervisor: Supervisor) -> None:
    """Its folder is out of sys.path by then; coverage measures modules that have a file."""
    program = """
import sys
later = sys.modules["ddplaunch_torch"].load("ddplaunch_caught")
print(later.watch.__name__, sys.modules["ddplaunch_caught"] is later)
print(*(m.__file__ for name, m in sys.modules.items() if name.startswith("ddplaunch_")), sep="\\n")
"""
    code, out, err = supervisor.run(program, rank=None)
    first, *files = out.splitlines()

    assert (code, first, err) == (0, "watch True", "")
    assert [each for each in files if not each.startswith("<ddplaunch>/ddplaunch_")] == []
