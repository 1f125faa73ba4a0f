"""What the hook tells of a program that waits in MPI: a real mpi4py, alone in its world."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.agent.hook.conftest import Supervisor

HEAD = "import sys\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"


@pytest.fixture(name="mpi", scope="module", autouse=True)
def _mpi() -> None:
    done = subprocess.run([sys.executable, "-c", HEAD], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs mpi4py and an MPI that it can load: {done.stderr.strip().splitlines()[-1]}")


def told(supervisor: Supervisor, program: str, head: str = HEAD) -> dict[str, object]:
    """What is said of the call in which this program waits for a message of its own."""
    supervisor.start(head + program)
    line = supervisor.line("rank")
    supervisor.until(lambda: (supervisor.ask(line, "dump").get("mpi_call") or {}).get("name"))
    assert line.answer is not None
    found: dict[str, object] = line.answer["mpi_call"]
    return found


def test_the_arguments_of_a_call_are_those_that_it_was_given(supervisor: Supervisor) -> None:
    program = """
class Trainer:
    tag = 3

    def __init__(self):
        self.comm, self.peers = comm, [0]

    def train(self):
        buffer = bytearray(8)
        self.comm.Recv(buffer, self.peers[0],
                       tag=self.tag + 4)

Trainer().train()
"""
    expected = {"name": "Recv", "communicator": "MPI_COMM_WORLD", "size": 1, "ranks": []}

    assert {**expected, "source": 0, "recvtag": 7} == told(supervisor, program)


def test_the_size_of_an_array_is_told(supervisor: Supervisor) -> None:
    """Elements and type, as they must be on the other side; of other buffers nothing is said."""
    program = """
try:
    import numpy
    buffer = numpy.zeros((2, 3), "f4")
except ImportError:
    buffer = bytearray(24)
comm.Recv([buffer, MPI.FLOAT], source=0)
"""
    found = told(supervisor, program)

    expected = (6, "float32") if find_spec("numpy") else (None, None)
    assert expected == (found.get("count"), found.get("dtype"))


def test_any_source_and_any_tag_are_the_defaults(supervisor: Supervisor) -> None:
    """-1 is "any" for everybody, whatever number this MPI has for it."""
    found = told(supervisor, "comm.recv()")

    assert ("recv", -1, -1) == (found["name"], found["source"], found["recvtag"])


def test_no_property_and_no_function_of_the_program_is_run(supervisor: Supervisor) -> None:
    """No property and no function of the program's own is run: -2 is "not known"."""
    program = """
class Peers:
    @property
    def left(self):
        open("asked", "w").close()
        return 0

peers = Peers()
comm.Recv(bytearray(8), source=peers.left)
"""
    found = told(supervisor, program)
    (supervisor.folder / "asked").unlink()  # by the program itself, once
    line = supervisor.line("rank")
    supervisor.ask(line, "dump")

    assert (-2, False) == (found["source"], (supervisor.folder / "asked").exists())


def test_a_call_of_a_bound_method_is_found_by_its_place(supervisor: Supervisor) -> None:
    program = "receive = comm.recv\nreceive(source=0)"
    if sys.version_info >= (3, 11):
        assert "recv" == told(supervisor, program)["name"]
    else:
        supervisor.start(HEAD + program)
        assert "mpi_call" not in supervisor.ask(supervisor.line("rank"), "dump")


def test_a_recv_of_a_socket_is_none_of_mpi(supervisor: Supervisor) -> None:
    process = supervisor.start(
        HEAD + "import socket\na, b = socket.socketpair()\nprint('there', flush=True)\na.recv(1)"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    line = supervisor.line("rank")
    answer = supervisor.ask(line, "dump")

    assert "mpi_call" not in answer
    assert "train0.py" in answer["threads"][0]["frames"][0][1]


def test_the_stack_begins_with_the_function_of_mpi(supervisor: Supervisor) -> None:
    told(supervisor, "comm.recv()")
    line = supervisor.line("rank")
    (name, file, _), (_, caller, number) = supervisor.ask(line, "look")["main_stack"]["frames"][:2]

    assert ("recv", True) == (name, "mpi4py/MPI" in file)
    assert ("train0.py", 4) == (caller.rpartition("/")[2], number)


def test_coming_back_from_calls_on_the_same_line_is_counted(supervisor: Supervisor) -> None:
    supervisor.start(
        HEAD + "while True:\n    comm.Sendrecv(bytearray(1 << 24), 0, 0, bytearray(1 << 24), 0, 0)"
    )
    line = supervisor.line("rank")

    supervisor.until(lambda: (supervisor.ask(line, "count").get("mpi") or {}).get("returned", 0) >= 3)


def test_one_call_that_lasts_is_not_counted(supervisor: Supervisor) -> None:
    told(supervisor, "comm.recv()")
    line = supervisor.line("rank")
    for _ in range(5):
        answer = supervisor.ask(line, "count")

    assert {"ready": True, "returned": 0} == answer["mpi"]


def test_looking_keeps_no_variable_of_the_program_alive(supervisor: Supervisor) -> None:
    program = """
import gc, weakref

class Batch:
    pass

def train(comm):
    batch = Batch()
    seen = weakref.ref(batch)
    comm.Recv(bytearray(1), source=0, tag=1) if len(sys.argv) > 1 else wait(comm)
    del batch
    print("gone" if seen() is None else "kept", flush=True)

def wait(comm):
    request = comm.Irecv(bytearray(1), source=0, tag=1)
    import threading
    threading.Timer(2.0, comm.Send, (bytearray(1), 0, 1)).start()
    request.Wait()

train(comm)
"""
    process = supervisor.start(HEAD + program)
    line = supervisor.line("rank")
    supervisor.until(lambda: (supervisor.ask(line, "dump").get("mpi_call") or {}).get("name") == "Wait")
    supervisor.until(lambda: process.poll() is not None)
    assert process.stdout is not None

    assert "gone\n" == process.stdout.read()


def test_of_a_program_without_mpi_nothing_is_said(supervisor: Supervisor) -> None:
    supervisor.start("import time; time.sleep(60)")
    answer = supervisor.ask(supervisor.line("rank"), "dump")

    assert {"mpi", "mpi_call"}.isdisjoint(answer)


def test_a_program_says_at_its_end_whether_others_wait_for_it(supervisor: Supervisor) -> None:
    """MPI_Finalize comes after the last line of Python: nobody can be asked then."""
    code, _, errors = supervisor.run(HEAD + "comm.Barrier()")

    assert (0, "") == (code, errors)
    (said,) = supervisor.messages("ending")
    assert said.pop("ending") > 0
    assert {"mpi": {"ready": True, "returned": 0}} == said


def test_a_function_that_uses_locals_keeps_its_dict(supervisor: Supervisor) -> None:
    """Before Python 3.13 there is one dict for both: it is left alone, and the arguments are not known."""
    program = """
def train(comm, source):
    settings = locals()
    comm.Recv(bytearray(1), source=source)

train(comm, 0)
"""
    known = told(supervisor, program).get("source")

    assert (0 if sys.version_info >= (3, 13) else None) == known
