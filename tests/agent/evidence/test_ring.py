"""Rings as the hook writes them, around functions that stand in for torch's: what can be read of them."""

from __future__ import annotations

import importlib.util
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddplaunch.agent import hook
from ddplaunch.agent.contract import Collective, Frame
from ddplaunch.agent.evidence import ring

FOUR = SimpleNamespace(shape=(4,), dtype="torch.float32")


class Work:
    """In place of torch's."""

    def wait(self, error: bool = False) -> bool:
        if error:
            raise RuntimeError("timed out")
        return True


class Writer:
    """The hook's own code, in this process, with a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.writer, self.torch = _load("ddplaunch_ring"), ModuleType("c10d")
        self.work: Any = type("Work", (), {"wait": Work.wait})
        self.file = folder / "rings" / str(os.getpid())
        self.writer.ddplaunch_torch.ring_file = lambda: str(self.file)
        self.torch.__file__ = "/opt/torch/distributed/distributed_c10d.py"
        vars(self.torch).update(
            Work=self.work,
            all_reduce=lambda tensor, op=None, group=None, async_op=False: self.work() if async_op else None,
            send=_send,
            isend=lambda tensor, dst=None, group=None, tag=0, group_dst=None: self.work(),
            all_gather_object=self._within_torch("lambda found, thing, group=None: all_reduce(thing)"),
            new_group=lambda ranks=None, use_local_synchronization=False: None,
            destroy_process_group=lambda group=None: None,
            get_global_rank=lambda group, rank: rank + 2,
            _get_default_group=lambda: SimpleNamespace(group_name="0"),
        )
        self.writer.watch(self.torch)

    def _within_torch(self, function: str) -> Any:
        return eval(compile(function, str(self.torch.__file__), "eval"), vars(self.torch))

    def calls(self) -> list[Collective]:
        found = ring.read(str(self.file))
        assert found is not None
        return found.calls


def _send(tensor: object, dst: Any = None, group: object = None, tag: int = 0, group_dst: Any = None) -> None:
    if tensor is None:
        raise TypeError("no tensor")
    if dst == 9:
        raise RuntimeError("connection closed by peer")


def _load(name: str) -> Any:
    path = Path(str(hook.__file__)).with_name(f"{name}.py")
    if name == "ddplaunch_ring":
        sys.modules["ddplaunch_torch"] = _load("ddplaunch_torch")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="writer")
def _writer(tmp_path: Path) -> Iterator[Writer]:
    yield Writer(tmp_path)
    sys.modules.pop("ddplaunch_torch", None)


def test_a_call_has_its_line_its_tensor_and_its_number(writer: Writer) -> None:
    writer.torch.all_reduce(FOUR)
    writer.torch.all_reduce(FOUR)
    call = writer.calls()[-1]
    (frame,) = call.frames

    assert ("0", 2, "all_reduce") == (call.group, call.seq, call.op)
    assert ([[4]], ["float32"]) == (call.sizes, call.dtypes)
    assert (True, "returned", False, None) == (call.done, call.state, call.p2p, call.peer)
    assert ("test_a_call_has_its_line_its_tensor_and_its_number", __file__) == (frame.name, frame.file)


def test_calls_made_and_done_are_counted(writer: Writer, tmp_path: Path) -> None:
    """Those made and those done, also when the ring has been overwritten; no file is no number."""
    assert ring.counts(str(tmp_path / "none")) is None
    writer.torch.destroy_process_group()
    assert (0, 0) == ring.counts(str(writer.file))
    for _ in range(300):
        writer.torch.all_reduce(FOUR)

    assert (301, 301) == ring.counts(str(writer.file))


def test_the_end_of_a_call_is_its_return_or_the_end_of_a_wait_for_it(writer: Writer) -> None:
    writer.torch.all_reduce(FOUR)
    first = writer.torch.all_reduce(FOUR, async_op=True)
    writer.torch.all_reduce(FOUR, async_op=True)
    with pytest.raises(RuntimeError):
        writer.torch.send(FOUR, 9)
    begun = time.time()
    time.sleep(0.02)
    first.wait()
    synchronous, waited, issued, raised = writer.calls()

    assert synchronous.took is not None
    assert waited.took is not None
    assert 0 <= synchronous.took < waited.took
    assert begun + 0.02 <= waited.at + waited.took + 1e-4
    assert [None, None] == [issued.took, raised.took]


def test_an_asynchronous_call_is_done_once_the_program_has_waited_for_it(writer: Writer) -> None:
    work = writer.torch.all_reduce(FOUR, async_op=True)
    (before,) = writer.calls()
    assert work.wait()
    (after,) = writer.calls()

    assert [("issued", False), ("waited", True)] == [(call.state, call.done) for call in (before, after)]


def test_a_wait_that_goes_on_or_fails_is_seen(writer: Writer) -> None:
    """The main thread's alone is shown while it goes on: a stack has to show the same."""
    states = []
    inner = writer.work.wait
    writer.work.wait = writer.writer._marking_waits(lambda work: states.append(writer.calls()[-1].state))
    writer.torch.all_reduce(FOUR, async_op=True).wait()
    thread = threading.Thread(target=writer.torch.all_reduce(FOUR, async_op=True).wait)
    thread.start()
    thread.join()
    writer.work.wait = inner
    with pytest.raises(RuntimeError, match="timed out"):
        writer.torch.all_reduce(FOUR, async_op=True).wait(error=True)

    assert (["waiting", "issued"], "raised") == (states, writer.calls()[-1].state)


def test_a_wait_marks_no_call_but_its_own(writer: Writer) -> None:
    work = writer.torch.all_reduce(FOUR, async_op=True)
    writer.torch.all_reduce(FOUR, async_op=True)
    for _ in range(ring.SLOTS - 1):
        writer.torch.all_reduce(FOUR)
    assert work.wait()
    assert writer.work().wait()

    assert {"returned"} == {call.state for call in writer.calls()}
    assert {} == writer.writer._works


def test_a_message_that_is_open_stays_in_sight_however_much_is_called(writer: Writer) -> None:
    works = [writer.torch.isend(FOUR, 1) for _ in range(3)]
    works[1].wait()
    for _ in range(40):
        writer.torch.all_reduce(FOUR)
    found = writer.calls()

    assert [(1, "issued"), (3, "issued")] == [(call.seq, call.state) for call in found if call.p2p]
    assert len(ring.newest(found, 16)) == 18


def test_a_message_has_its_tag(writer: Writer) -> None:
    for tag in ({}, {"tag": 7}, {"tag": 1 << 20}, {"tag": -1}):
        writer.torch.send(FOUR, dst=1, **tag)
    writer.torch.all_reduce(FOUR)

    assert [0, 7, None, None, None] == [call.tag for call in writer.calls()]


def test_a_function_that_calls_another_is_one_call(writer: Writer) -> None:
    writer.torch.all_gather_object([], FOUR)

    assert [call.op for call in writer.calls()] == ["all_gather_object"]


def test_each_call_from_one_line_has_what_it_was_given(writer: Writer) -> None:
    other, integers = SimpleNamespace(group_name="g1"), SimpleNamespace(shape=(4,), dtype="torch.int8")
    for function in (writer.torch.all_reduce, writer.torch.all_gather_object):
        for tensor, group in ((FOUR, None), (FOUR, other), (integers, None), (FOUR, None)):
            function(tensor, tensor, group=group)
    longer = SimpleNamespace(shape=(5,), dtype="torch.float32")
    for tensor in (FOUR, longer):
        writer.torch.all_reduce(tensor)
    found = [(call.op, call.group, call.seq, call.sizes, call.dtypes) for call in writer.calls()]

    assert [
        ("all_reduce", "0", 1, [[4]], ["float32"]),
        ("all_reduce", "g1", 1, [[4]], ["float32"]),
        ("all_reduce", "0", 2, [[4]], ["int8"]),
        ("all_reduce", "0", 3, [[4]], ["float32"]),
        ("all_gather_object", "0", 4, [], []),
        ("all_gather_object", "g1", 2, [], []),
        ("all_gather_object", "0", 5, [], []),
        ("all_gather_object", "0", 6, [], []),
        ("all_reduce", "0", 7, [[4]], ["float32"]),
        ("all_reduce", "0", 8, [[5]], ["float32"]),
    ] == found


def test_a_peer_is_a_global_rank_also_where_the_program_counts_within_the_group(writer: Writer) -> None:
    group = SimpleNamespace(group_name="g1")
    writer.torch.all_reduce(FOUR, group=group)
    writer.torch.send(FOUR, 1, group)
    writer.torch.send(FOUR, group=group, group_dst=1)
    found = [(call.group, call.op, call.seq, call.p2p, call.peer) for call in writer.calls()]

    wanted = [("g1", "all_reduce", 1, False, None), ("g1", "send", 1, True, 1), ("g1", "send", 2, True, 3)]
    assert wanted == found


def test_a_refused_call_takes_no_number(writer: Writer) -> None:
    with pytest.raises(TypeError):
        writer.torch.send(None, 1)
    with pytest.raises(RuntimeError):
        writer.torch.send(FOUR, 9)
    writer.torch.send(FOUR, 1)

    wanted = [(1, "raised"), (1, "raised"), (2, "returned")]
    assert [(call.seq, call.state) for call in writer.calls()] == wanted


def test_the_ring_keeps_256_calls_of_which_32_travel(writer: Writer) -> None:
    for _ in range(700):
        writer.torch.all_reduce(FOUR)

    assert [call.seq for call in writer.calls()] == list(range(669, 701))
    assert writer.file.stat().st_size == len(ring.HEADER) + 256 * 104 + (1 << 16)


def test_a_program_that_calls_from_endlessly_many_lines_loses_only_their_names(writer: Writer) -> None:
    names = {"reduce": writer.torch.all_reduce, "tensor": FOUR}
    for number in range(2000):
        exec(compile("\n" * number + "reduce(tensor)", "/home/me/train.py", "exec"), names)
    call = writer.calls()[-1]

    assert (call.op, call.seq, call.sizes, call.frames) == ("all_reduce", 2000, [[4]], [])


def test_a_shape_of_more_than_six_dimensions_is_left_out(writer: Writer) -> None:
    writer.torch.all_reduce(SimpleNamespace(shape=(1, 2, 3, 4, 5, 6), dtype="torch.int8"))
    writer.torch.all_reduce(SimpleNamespace(shape=(1, 2, 3, 4, 5, 6, 7), dtype="torch.int8"))

    assert [call.sizes for call in writer.calls()] == [[[1, 2, 3, 4, 5, 6]], []]


def test_where_nothing_can_be_written_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "rings").touch()
    writer = Writer(tmp_path)
    writer.torch.all_reduce(FOUR)
    writer.torch.all_reduce(FOUR)
    sys.modules.pop("ddplaunch_torch", None)

    assert ring.read(str(writer.file)) is None


def test_the_ring_is_for_its_user_alone(writer: Writer) -> None:
    writer.torch.all_reduce(FOUR)

    assert writer.file.stat().st_mode & 0o777 == 0o600


def test_after_its_destruction_there_is_no_group(writer: Writer) -> None:
    writer.torch.all_reduce(FOUR)
    before = ring.read(str(writer.file))
    writer.torch.destroy_process_group()
    after = ring.read(str(writer.file))

    assert before is not None
    assert after is not None
    assert (before.initialized, after.initialized, len(after.calls)) == (True, False, 1)


def test_a_write_that_was_cut_short_is_left_out(writer: Writer) -> None:
    for _ in range(3):
        writer.torch.all_reduce(FOUR)
    data = bytearray(writer.file.read_bytes())
    struct.pack_into("<Q", data, len(ring.HEADER) + 3 * ring.SLOT.size + ring.SLOT.size - 8, 2)
    found = ring.parse(bytes(data))

    assert found is not None
    assert [call.seq for call in found.calls] == [1, 2]


def test_garbage_is_read_without_harm(writer: Writer) -> None:
    for _ in range(300):
        writer.torch.all_reduce(FOUR)
    whole, chance = writer.file.read_bytes(), random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(200):
            data[chance.randrange(len(ring.HEADER), len(data))] = chance.randrange(256)
        ring.parse(bytes(data))
        ring.parse(whole[: chance.randrange(len(whole))])

    assert ring.parse(b"something else") is None


def test_the_sequence_of_a_groups_calls_goes_back_to_the_last_call_that_is_missing() -> None:
    frames = [Frame("main", "/job/train.py", 7)], [Frame("main", "/job/train.py", 9)]
    calls = [Collective("0", number, "all_reduce", frames=frames[number % 2]) for number in (1, 2, 4, 5, 6)]
    sends = [Collective("0", 3, "send", p2p=True, frames=frames[0])]

    (found,) = ring.sequences([*calls, *sends])

    assert ("0", 4, [0, 1, 0]) == (found.group, found.first, found.calls)
    assert [7, 9] == [site.line.line for site in found.sites]
    assert [] == ring.sequences([Collective("0", 1, "barrier")])


def test_the_sequence_is_as_long_as_the_ring(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(ring.SLOTS + 10):
        writer.torch.all_reduce(FOUR)

    found = ring.read(str(writer.file))

    assert found is not None
    assert [(11, ring.SLOTS)] == [(each.first, len(each.calls)) for each in found.sequences]


def test_the_calls_of_new_group_are_a_sequence_as_long_as_none_is_lost(tmp_path: Path) -> None:
    """torch names groups by how many there were, so that only a count from the first one on says anything."""
    writer = Writer(tmp_path)
    for _ in range(2):
        writer.torch.new_group()
        writer.torch.all_reduce(FOUR)
    # These are made by their members alone, who name them by their ranks.
    writer.torch.new_group([0], True)
    writer.torch.new_group([0], use_local_synchronization=True)
    found = ring.read(str(writer.file))
    assert found is not None
    assert [("0", 1, 2), ("", 1, 2)] == [(its.group, its.first, len(its.calls)) for its in found.sequences]

    writer.torch.destroy_process_group()  # after that of all groups torch counts from 0 again
    assert "" not in {its.group for its in getattr(ring.read(str(writer.file)), "sequences", [])}
    longer = Writer(tmp_path / "longer")
    longer.torch.new_group()
    for _ in range(ring.SLOTS):
        longer.torch.all_reduce(FOUR)
    found = ring.read(str(longer.file))
    assert found is not None
    assert ["0"] == [its.group for its in found.sequences]
