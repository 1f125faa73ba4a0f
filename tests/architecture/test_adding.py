"""What CONTRIBUTING says about adding something, done to a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.render import agent_archive

LAUNCHER = Path(__file__).parents[2] / "launcher"

CHECK = """
from ddplaunch.agent.checks.context import Context, failed
from ddplaunch.agent.contract import CheckResult


def check_moon(context: Context) -> CheckResult:
    return failed("moon", "clock-skew", "the moon is up", "a new moon", "wait a fortnight")
"""
RUN = """
import sys, tempfile
from pathlib import Path
from tests.agent.checks.make import make_context
from ddplaunch.agent.checks.run import run
from ddplaunch.spec.load import parse

with tempfile.TemporaryDirectory() as folder:
    context = make_context(Path(folder))
    print([result.observed for result in run(context) if result.check == "moon"])
    context.master and context.master.close()
job = b"{apiVersion: ddplaunch/v1, name: a, nproc_per_node: 1, command: [b.py], gate: {skip: [moon]}}"
print(parse(job, "job.yaml").gate.skip)
"""

RUN_RULE = """
from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run.view import JobView


def rank_moonstruck(view: JobView) -> Optional[Verdict]:
    ranks = [number for number, rank in view.ranks.items() if rank.last_output == "howl"]
    return Verdict("rank-moonstruck", "the moon is up", "run", ranks=ranks) if ranks else None
"""
GATE_RULE = """
from __future__ import annotations

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.view import GateView


def full_moon(view: GateView) -> list[Verdict]:
    nodes = [node for node, check_in in view.check_ins.items() if check_in.facts.get("moon")]
    return [Verdict("moon-full", f"{view.nodes(nodes)}: the moon is full", "gate", nodes)] if nodes else []
"""
JUDGE = """
from tests.agent.diagnosis import build
from tests.agent.diagnosis.gate.check_ins import PLAN, check_in
from tests.faults import table
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.diagnosis.gate import decide as gate
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.diagnosis.run import decide as run

evidence = build.job(build.rank(0), build.rank(1, last_output="howl"))
come = {node: check_in(node, facts={"moon": node == 2}) for node in range(3)}
for found in (*run.judge(evidence), *gate.judge(GateView(PLAN, come))):
    print(found.code, found.sentence, catalogue.exit_code(found))
print([code for code in table.codes(table.load()) if "moon" in code], "moon-full" in table.PARTS["gate"])
"""
EXPLAIN = "import sys; from ddplaunch.cli.main import main; main(['explain', *sys.argv[1:]])"
ARCHIVE = """
import os, sys, zipimport
archive = sys.argv[1]
member = zipimport.zipimporter(archive)
sys.path.insert(0, archive)
import archive as modules
modules.read(archive, member.get_data(os.path.join(archive, modules.MEMBER)))
sys.meta_path.insert(0, modules.Module)
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.run import decide
assert decide.__file__.startswith(archive)
print(len(CATALOGUE), "rank-moonstruck" in CATALOGUE)
"""
PAGE = "# {code}\n\n{meaning}.\n\n## What it means\n\nWait for the new moon.\n"


def python(copy: Path, *words: str, fails: bool = False) -> list[str]:
    """Return what Python, with the copy of the package and these arguments, prints."""
    found = subprocess.run(
        [sys.executable, *words],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": f"{copy}:."},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode != 0) == fails, found.stdout + found.stderr
    return found.stdout.splitlines()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, without what was packed from the original."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyz")
    return Path(shutil.copytree(LAUNCHER, tmp_path / "launcher", ignore=ignored))


def changed(path: Path, old: str, new: str) -> None:
    """Put `new` in the place of `old`, which the file has once."""
    text = path.read_text()
    assert 1 == text.count(old)
    path.write_text(text.replace(old, new))


def add_check(copy: Path) -> None:
    """Add the check `moon`, whose code is known."""
    agent = copy / "ddplaunch" / "agent"
    (agent / "checks" / "moon.py").write_text(CHECK)
    clock = '    ("clock", machine.check_clock),\n'
    changed(agent / "checks" / "run.py", clock, f'{clock}    ("moon", moon.check_moon),\n')
    changed(agent / "checks" / "run.py", "    machine,\n", "    machine,\n    moon,\n")
    changed(agent / "contract" / "__init__.py", '    "clock",\n)', '    "clock",\n    "moon",\n)')


def add_rules(copy: Path, asked: bool = True) -> None:
    """Add a rule of the run and one of the gate, with the page of one of them."""
    diagnosis = copy / "ddplaunch" / "agent" / "diagnosis"
    (diagnosis / "run" / "moonstruck.py").write_text(RUN_RULE)
    (diagnosis / "gate" / "moon.py").write_text(GATE_RULE)
    if asked:
        decide = diagnosis / "run" / "decide.py"
        changed(decide, "    messages,\n", "    messages,\n    moonstruck,\n")
        changed(decide, "processes.rank_stopped,\n", "processes.rank_stopped, moonstruck.rank_moonstruck,\n")
        decide = diagnosis / "gate" / "decide.py"
        changed(decide, "    interfaces,\n", "    interfaces,\n    moon,\n")
        clocks = "    (Kind.NODE, differences.differing_clocks),\n"
        changed(decide, clocks, f"{clocks}    (Kind.NODE, moon.full_moon),\n")
    catalogue = diagnosis / "catalogue.py"
    struck = 'Entry("rank-moonstruck", _HANG, "a rank waits for the moon")'
    full = 'Entry("moon-full", _CONFIG, "a node is to start under a full moon")'
    changed(catalogue, "RUN = (\n", f"RUN = (\n    {struck},\n")
    changed(catalogue, "GATE = (\n", f"GATE = (\n    {full},\n")
    page = PAGE.format(code="rank-moonstruck", meaning="A rank waits for the moon")
    (copy / "ddplaunch" / "report" / "pages" / "rank-moonstruck.md").write_text(page)


def test_a_check_is_a_function_its_line_and_its_name(copy: Path) -> None:
    """The gate runs it in its place, and a job file can skip it."""
    add_check(copy)

    assert ["['the moon is up']", "('moon',)"] == python(copy, "-c", RUN)


def test_a_verdict_is_a_rule_its_line_in_both_tables_and_its_page(copy: Path, tmp_path: Path) -> None:
    """The rule is asked; its code is explained, is counted among the faults, and is in the archive."""
    add_rules(copy)
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_archive.packed(copy / "ddplaunch"))

    assert [
        f"rank-moonstruck the moon is up {Exit.HANG}",
        f"moon-full node 2: the moon is full {Exit.MISCONFIGURED}",
        "['moon-full', 'rank-moonstruck'] True",
    ] == python(copy, "-c", JUDGE)
    assert "Wait for the new moon." in python(copy, "-c", EXPLAIN, "rank-moonstruck")
    meanings = [line.split() for line in python(copy, "-c", EXPLAIN)]
    assert ["rank-moonstruck", "a", "rank", "waits", "for", "the", "moon"] in meanings
    assert [f"{len(CATALOGUE) + 2} True"] == python(copy, "-I", "-c", ARCHIVE, str(archive))


def test_a_line_that_is_missing_is_named(copy: Path) -> None:
    """Of a check its name and its code, of rules their place in the tables, of a code its page."""
    add_rules(copy, asked=False)
    check = CHECK.replace('"clock-skew"', '"moon-up"')
    (copy / "ddplaunch" / "agent" / "checks" / "moon.py").write_text(check)

    own = ("-p", "no:cacheprovider", "-o", f"pythonpath={copy} .")
    tables = ("-m", "pytest", "-q", *own, "tests/agent/diagnosis/test_tables.py")
    said = "\n".join(python(copy, *tables, fails=True))
    assert "moon.py gives moon-up: add it to diagnosis/catalogue.py" in said
    assert "test_every_check_is_run_under_the_name" in said
    assert "ddplaunch.agent.diagnosis.run.moonstruck.rank_moonstruck" in said
    assert "ddplaunch.agent.diagnosis.gate.moon.full_moon" in said
    assert "moon-full.md" in said
