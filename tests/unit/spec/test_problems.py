"""Problems as text."""

from __future__ import annotations

import pytest

from ddplaunch.agent.job_file.rules import join
from ddplaunch.errors import DdplaunchError, ExitCode
from ddplaunch.spec.problems import MAX_SHOWN, Problem, SpecError


def test_a_problem_of_a_whole_file_has_no_place() -> None:
    """Neither a line nor a path nor a hint that it does not have."""
    assert "job.yaml: found a directory, wanted a job file" == str(
        Problem(file="job.yaml", found="a directory", wanted="a job file")
    )


def test_a_spec_error_is_one_of_ours_and_sorted() -> None:
    """The command line shows it as any other error, and ends with the code for wrong use."""
    one = Problem(file="job.yaml", line=2, column=1, found="b", wanted="c")
    two = Problem(file="job.yaml", line=1, column=9, found="a", wanted="c", code="port-ephemeral")
    error = SpecError([one, two])

    assert isinstance(error, DdplaunchError)
    assert ExitCode.USAGE == error.exit_code
    assert (two, one) == error.problems
    expected = (
        "error: 2 problems in job.yaml\n\n"
        "job.yaml:1:9: found a, wanted c [port-ephemeral]\n"
        "job.yaml:2:1: found b, wanted c"
    )
    assert expected == str(error)


def test_a_flood_of_problems_is_cut() -> None:
    """All are counted and kept, not all are printed."""
    error = SpecError([Problem(file="f", line=line, found="a", wanted="b") for line in range(1, 1000)])

    assert 999 == len(error.problems)
    assert "999 problems in f" == error.message.splitlines()[0]
    assert f"… and {999 - MAX_SHOWN} more" == error.message.splitlines()[-1]


def test_a_job_file_cannot_command_the_terminal() -> None:
    text = str(Problem(file="a\nb", line=1, path="\x1b[31m", found="\r\x07", wanted="ä", hint="\x1b"))

    assert "a\\nb:1:0: \\x1b[31m: found \\r\\x07, wanted ä\n  hint: \\x1b" == text


def test_a_long_text_is_cut() -> None:
    assert len(str(Problem(file="f", found="x" * 10_000, wanted="y"))) < 1100


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("volumes", 0, "name"), "volumes[0].name"),
        (("env", "A=secret"), "env.A"),
        (("secrets", "A", "secret", "name"), "secrets.A.secret.name"),
        (("secrets", "A", "hunter2"), "secrets.A"),
        (("secrets", "A=hunter2"), "secrets.A"),
        (("secrets", "!hunter2"), "secrets"),
        (("secrets", 3, "env"), "secrets"),
    ],
)
def test_a_path_is_written_as_in_the_documentation(path: tuple[str | int, ...], text: str) -> None:
    """With dots and indices, and without what may be a secret."""
    assert text == join(path)
