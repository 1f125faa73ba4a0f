"""The tables of rules and codes are whole: what is in no table is never asked."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ddplaunch.agent
from ddplaunch.agent.checks import run as checks
from ddplaunch.agent.contract import CHECKS, MESH
from ddplaunch.agent.diagnosis import catalogue, gate, run
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide as of_gate
from ddplaunch.agent.diagnosis.run import decide as of_run

AGENT = Path(str(ddplaunch.agent.__file__)).parent
PAGES = AGENT.parent / "report" / "pages"


def public_functions(package: Any) -> Iterator[Any]:
    """Functions of the package's modules that other modules may call."""
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__ and name[0] != "_":
                yield function


def returns(function: Any, view: str, *kinds: str) -> bool:
    """Whether its only argument is a view, and what it returns is of these kinds."""
    kinds_of = dict(function.__annotations__)
    answer = kinds_of.pop("return", None)
    return [*kinds_of.values()] == [view] and answer in kinds


def test_every_rule_of_the_run_is_in_the_table() -> None:
    asked = {rule for part in of_run.TABLE for rule in part.rules} | set(of_run.TORCHRUNS)
    rules = {
        function
        for function in public_functions(run)
        if returns(function, "JobView", "Optional[Verdict]", "Optional[Found]")
    }
    assert set() == {f"{each.__module__}.{each.__name__}" for each in rules - asked}


def test_every_rule_of_the_gate_is_in_the_table() -> None:
    asked = {rule for _, rule in of_gate.RULES}
    kinds = ("Iterator[Verdict]", "list[Verdict]")
    rules = {each for each in public_functions(gate) if returns(each, "GateView", *kinds)}

    assert set() == {f"{each.__module__}.{each.__name__}" for each in rules - asked}


def test_the_rules_of_the_gate_stand_in_the_order_of_their_kinds() -> None:
    kinds = [kind for kind, _ in of_gate.RULES]

    assert sorted(kinds) == kinds


def test_a_code_has_one_entry() -> None:
    codes = [entry.code for entry in (*catalogue.GATE, *catalogue.RUN)]

    assert sorted(set(codes)) == sorted(codes)


@pytest.mark.skipif(not PAGES.is_dir(), reason="the launcher's pages are not here")
def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {entry.page for entry in CATALOGUE.values()} == {page.name for page in PAGES.iterdir()}


def texts() -> set[str]:
    """Every text in the sources of the agent, without the table of codes."""
    return {
        node.value
        for path in AGENT.rglob("*.py")
        if path.name != "catalogue.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_code_is_found_by_a_rule_or_a_check() -> None:
    assert set() == set(CATALOGUE) - texts()


def codes_of_checks() -> Iterator[tuple[str, str]]:
    """The module of each check, and each code that it can give."""
    for path in sorted((AGENT / "checks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failed":
                code = node.args[1]
                if isinstance(code, ast.Constant):
                    yield path.name, str(code.value)


def test_the_codes_of_checks_are_known() -> None:
    found = list(codes_of_checks())

    assert found
    unknown = [f"{module} gives {code}: add it to diagnosis/catalogue.py" for module, code in found]
    assert [] == [text for text, (_, code) in zip(unknown, found) if code not in CATALOGUE]


def test_every_check_is_run_under_the_name_by_which_a_job_file_skips_it() -> None:
    written = re.compile(r"^def check_(\w+)\(", re.MULTILINE)
    functions = {
        name for path in (AGENT / "checks").glob("*.py") for name in written.findall(path.read_text())
    }

    assert functions == {check.__name__.partition("_")[2] for _, check in checks.CHECKS}
    assert [name for name in CHECKS if name != MESH] == [name for name, _ in checks.CHECKS]
