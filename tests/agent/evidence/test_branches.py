"""The branches of a program around the lines of its ranks' calls."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.diagnosis.build import C10D, call, raised, rank

from ddplaunch.agent.contract import Branch, CallSequence, CallSite, Frame, Function, Stack
from ddplaunch.agent.evidence.branches import find
from ddplaunch.agent.evidence.program import TEXT, Program
from ddplaunch.agent.evidence.stacks import SourceLines
from ddplaunch.agent.supervisor.collector import called_lines, with_variables

NOW = time.time()


def functions(source: str, *lines: int, file: str = "/job/train.py") -> list[Function]:
    """What is found in a program with calls in these lines."""
    return find([Program(file, source)], {file: lines})[file]


def only(source: str, *lines: int) -> list[Branch]:
    """The branches of the one function that these lines are in."""
    (function,) = functions(source, *lines)
    return function.branches


LOG = """\
for step in range(10):
    if step % 5 == 0:
        if rank == 0:
            dist.all_reduce(loss)
    elif (step %
          7):
        save()
    else:
        load()
    dist.barrier()
"""


def test_each_branch_around_a_line_is_found_and_no_other() -> None:
    assert [
        Branch("for", 1, "for step in range(10)", [2, 10]),
        Branch("if", 2, "if step % 5 == 0", [3, 4]),
        Branch("if", 3, "if rank == 0", [4, 4]),
    ] == sorted(only(LOG, 4, 10), key=lambda branch: branch.line)
    assert Branch("if", 5, "elif step % 7", [7, 7]) in only(LOG, 7)
    assert Branch("else", 5, "elif step % 7", [9, 9]) in only(LOG, 9)


HANDLES = """\
def work():
    try:
        load()
    except FileNotFoundError:
        dist.all_reduce(x)
    except (OSError, ValueError):
        dist.barrier()
    while not done():
        dist.reduce(x)
    else:
        dist.gather(x)
"""


def test_handlers_and_loops() -> None:
    branches = only(HANDLES, 5, 7, 9, 11)

    assert [
        Branch("except", 4, "except FileNotFoundError", [5, 5], file_test="FileNotFoundError", guards=[3, 3]),
        Branch("except", 6, "except (OSError, ValueError)", [7, 7], guards=[3, 3]),
        Branch("while", 8, "while not done()", [9, 9]),
        Branch("else", 8, "while not done()", [11, 11]),
    ] == sorted(branches, key=lambda branch: branch.lines)


SKIPS = """\
def train(loader):
    for batch in loader:
        if not len(batch):
            continue
        if batch.bad:
            log()
        dist.all_reduce(batch)
        if batch.last:
            return
"""


def test_a_branch_that_leads_past_a_call_is_kept() -> None:
    """One that goes on leads past nothing; one behind the last call ends the loop around it."""
    kept = [("for", ""), ("if", "continue"), ("if", "return")]
    assert kept == [(each.kind, each.ends) for each in only(SKIPS, 7)]


@pytest.mark.parametrize(
    ("test", "asks"),
    [
        ("os.path.exists(path)", "os.path.exists(path)"),
        ("not (folder / 'last.pt').is_file() and retry", "(folder / 'last.pt').is_file()"),
        ("resume", "path.exists()"),
        ("any(folder.glob('*.pt'))", "folder.glob('*.pt')"),
        ("changed", ""),
        ("rank == 0", ""),
    ],
)
def test_a_test_that_looks_for_a_file(test: str, asks: str) -> None:
    """Itself, or by a name that was set once."""
    source = (
        "def f():\n    resume = path.exists()\n    changed = path.exists()\n    changed = load()\n"
        f"    if {test}:\n        dist.barrier()\n"
    )
    (branch,) = only(source, 6)

    assert asks == branch.file_test


def test_on_one_line_the_test_may_be_what_calls() -> None:
    """Only a test that calls nothing of the program's is told from its body."""
    assert [] == only("if agree(x): dist.all_reduce(x)\n", 1)
    assert ["if dist.get_rank() == 0"] == [
        branch.text for branch in only("if dist.get_rank() == 0: dist.all_reduce(x)\n", 1)
    ]


def test_a_branch_around_a_function_decides_nothing_when_it_is_called() -> None:
    (function,) = functions("if cuda:\n    def log():\n        dist.barrier()\n", 3)

    assert ("log", []) == (function.name, function.branches)


CALLERS = """\
class Trainer:
    def log(self):
        reduce_mean(1)
    def run(self):
        self.log()

def reduce_mean(x):
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("more", ["hooks = [log]\n", "model.register(self.log)\n"])
def test_a_function_that_is_handed_on_has_callers_that_nobody_can_name(more: str) -> None:
    source = f"def log(x):\n    dist.all_reduce(x)\nif debug:\n    log(loss)\n{more}"

    assert [] == {each.name: each.callers for each in functions(source, 2)}["log"]


def test_a_file_on_which_the_parser_gives_up_costs_no_other_file_its_branches() -> None:
    deep = Program("/job/deep.py", f"if os.path.exists({'+'.join('a' * 400)}):\n    dist.barrier()\n")
    good = Program("/job/train.py", "if rank == 0:\n    dist.barrier()\n")

    assert "/job/train.py" in find([deep, good], {"/job/deep.py": [2], "/job/train.py": [2]})


def test_callers_are_followed_where_one_line_alone_calls_a_function() -> None:
    found = {function.name: function for function in functions(CALLERS, 8)}

    assert ["Trainer.log", "Trainer.run", "reduce_mean"] == [*found]
    assert [Frame("log", "/job/train.py", 3)] == found["reduce_mean"].callers
    assert [Frame("run", "/job/train.py", 5)] == found["Trainer.log"].callers
    assert [] == found["Trainer.run"].callers


@pytest.mark.parametrize("more", ["other.log()", "class B:\n    def log(self): pass"])
def test_a_call_that_may_mean_another_function_tells_nothing(more: str) -> None:
    found = {function.name: function for function in functions(f"{CALLERS}\n{more}\n", 3)}

    assert [] == found["Trainer.log"].callers


def test_long_conditions_are_cut_and_many_are_left_out() -> None:
    nested = "".join(f"{' ' * n}if x{n} == '{'y' * 200}':\n" for n in range(40)) + " " * 40 + "barrier()\n"
    branches = only(nested, 41)

    assert 16 == len(branches)
    assert {TEXT} == {len(branch.text) for branch in branches}


def test_a_file_is_read_as_the_rank_sees_it_and_not_once_it_has_changed(tmp_path: Path) -> None:
    good, bad = tmp_path / "train.py", tmp_path / "bad.py"
    good.write_text(LOG)
    bad.write_text("if :\n")
    for path in (good, bad):
        os.utime(path, (0, 0))
    places = {str(path): (os.getpid(), {4}) for path in (good, bad, tmp_path / "none.py")}

    assert {str(good)} == {*SourceLines().find_functions(places, NOW)}
    assert {} == SourceLines().find_functions(places, -1.0)


def test_lines_of_dead_ranks_and_of_calls_of_long_ago_are_looked_at() -> None:
    """Those of torch are not. A living rank tells where a file is."""
    stands = [Stack("MainThread", True, [Frame("all_reduce", C10D, 1), Frame("f", "/job/a.py", 3)])]
    sites = [CallSite("all_reduce", Frame("f", "/job/a.py", 5))]
    alive = rank(1, stands, sequences=[CallSequence("0", 1, sites, [0])])
    recent = replace(call(1, "barrier"), frames=[Frame("f", "/job/a.py", 7)])
    dead = rank(2, [], alive=False, raised=[raised("ValueError", "x", 0.0)], calls=[recent])

    assert {
        "/job/a.py": (alive.pid, {3, 5, 7}),
        "/job/train.py": (dead.pid, {40, 61}),
    } == called_lines([alive, dead])


SENDS = """\
def average(t, group=None):
    dist.all_reduce(t, group=group)

def train():
    x = torch.zeros(4)
    if odd:
        x = torch.zeros(5)
    dist.all_reduce(x)
    y = load()
    y = torch.cat(y, seed)
    dist.all_gather(outs, y)
    for grad in gradients:
        dist.broadcast(grad, src=root)
    for z in range(4):
        dist.send(z, dst=1)
        z += 1
    average(group=None, t=y)
    with open(path) as w:
        dist.all_reduce(tensor=w)
    for a in names:
        dist.all_reduce(v)
        v = a
    print(x)
    v, u = a
    dist.all_reduce(model(u), op=u)
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (2, ["t 17 average(group=None, t=y)", "y 10 y = torch.cat(y, seed)", "y 9 y = load()"]),
        (8, ["x 7 x = torch.zeros(5)", "x 5 x = torch.zeros(4)"]),  # either may be what is sent
        (11, ["y 10 y = torch.cat(y, seed)", "y 9 y = load()"]),  # what is sent, and not where it arrives
        (13, ["grad 12 for grad in gradients"]),  # and not its root
        (15, []),  # a loop that counts makes no tensor
        (19, ["w 18 with open(path) as w"]),
        (21, ["v 22 v = a", "a 20 for a in names"]),  # set in the round before
        (23, []),  # nothing is sent
        (25, ["u 24 v, u = a", "a 20 for a in names"]),  # the tensor; and not the function that makes one
    ],
)
def test_where_what_a_line_sends_comes_from(line: int, expected: list[str]) -> None:
    found = [each for its in functions(SENDS, line) for each in its.assignments if each.used == line]

    assert expected == [f"{each.name} {each.line} {each.text}" for each in found]


@pytest.mark.parametrize(
    "more",
    [
        "average(loss)\naverage(other)\n",  # two lines call it
        "average(loss)\nhooks.append(average)\n",  # it is handed on
        "x = 1\nif a:\n    x = 2\nif b:\n    x = 3\nif c:\n    x = 4\ndist.all_reduce(x)\n",  # too many
    ],
)
def test_of_what_may_come_from_elsewhere_too_nothing_is_shown(more: str) -> None:
    source = f"def average(t):\n    dist.all_reduce(t)\n\n{more}"
    found = functions(source, 2, source.count("\n"))

    assert [] == [each for its in found for each in its.assignments]


@pytest.mark.parametrize(
    ("call", "sets", "expected"),
    [
        ("dist.broadcast(x, src=first)", "first = step % 2", ["first 2"]),
        ("dist.broadcast(x, first)", "first = step % 2", ["first 2"]),
        ("dist.gather(x, rows, first)", "first = step % 2", ["first 2"]),
        ("dist.reduce(x, dst=0)", "first = step % 2", []),
        ("dist.gather(x, dst=first)", "first += 1", []),
        ("dist.all_reduce(x, first)", "first = step % 2", []),
    ],
)
def test_what_sets_the_root_that_a_line_names(call: str, sets: str, expected: list[str]) -> None:
    """`+=` leaves a tensor's shape as it is, but not a number."""
    found = functions(f"first = 0\n{sets}\n{call}\n", 3)
    roots = [each for its in found for each in its.assignments if each.root]

    assert expected == [f"{each.name} {each.line}" for each in roots]


@pytest.mark.parametrize(
    ("test", "variables"),
    [
        ('os.environ.get("SKIP", "0") == "1"', ["SKIP"]),
        ('os.getenv("SKIP") and environ["FAST"]', ["SKIP", "FAST"]),
        ('"SKIP" in os.environ', ["SKIP"]),
        ("debug and step % 5", ["DEBUG"]),  # set at the file's own level
        ('config.get("SKIP")', []),
        ("os.environ[name]", []),
        ('os.environ.get("not a name")', []),
    ],
)
def test_a_test_that_reads_the_environment(test: str, variables: list[str]) -> None:
    source = (
        f'debug = os.environ.get("DEBUG")\ndef main():\n    if {test}:\n        return\n    dist.barrier()\n'
    )

    assert [variables] == [branch.variables for branch in only(source, 5)]


def test_of_ranks_that_live_it_is_read_which_of_these_variables_they_have() -> None:
    functions_of = {
        "train.py": functions('if os.getenv("FAST") or os.getenv("SLOW"):\n    dist.barrier()\n', 2)
    }
    secret = "a long secret"
    with subprocess.Popen(["sleep", "60"], env={"FAST": secret, "OTHER": "1"}) as program:
        ranks = [replace(rank(0), pid=program.pid), replace(rank(1), pid=program.pid, alive=False)]
        living, dead = with_variables([replace(each, process=None) for each in ranks], functions_of)
        program.kill()

    assert (["FAST", "SLOW"], "", {}) == ([*living.variables], living.variables["SLOW"], dead.variables)
    assert living.variables["FAST"]
    assert secret not in str(living)
