"""Files of every kind to a job, or to a clear answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddplaunch.spec import load
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import Problem, SpecError

GOOD = b'apiVersion: ddplaunch/v1\nname: job\ncommand: [train.py, "3"]\n'


def _refused(path: Path | str) -> tuple[str, str]:
    """What was found, and the hint."""
    with pytest.raises(SpecError) as caught:
        load.load(path)

    (problem,) = caught.value.problems
    return problem.found, problem.hint


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        b"---\n" + GOOD + b"...\n",
        GOOD.rstrip(),
        b'{"apiVersion": "ddplaunch/v1",\r\n\t"name": "job", "command": ["train.py", "3"]}',
    ],
)
def test_a_good_file_is_read_whatever_wrote_it(data: bytes) -> None:
    """Byte order mark, Windows' line ends, document marks and JSON make no difference."""
    spec = load.parse(data, "job.yaml")

    assert ("job", ("train.py", "3")) == (spec.name, spec.command)


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(GOOD + b"#" * 5_000_000)

    assert ("more than 1 MiB", "put code and data into `source` or `volumes`, not into the job file") == (
        _refused(path)
    )


def test_an_endless_file_is_refused() -> None:
    assert "more than 1 MiB" == _refused("/dev/zero")[0]


@pytest.mark.parametrize(
    ("data", "found", "hint"),
    [
        (b"\x7fELF\x02\x01\x01\x00", "a binary file", ""),
        (b"\x89PNG\r\n", "the byte 0x89", "save the file as UTF-8"),
        ("name: ä".encode("latin-1"), "the byte 0xe4", "save the file as UTF-8"),
        (GOOD.decode().encode("utf-16"), "UTF-16", "save it as UTF-8"),
        (b"", "no job in it", "`ddplaunch init` writes one for you to start from"),
        (b"just words", "a single value", "begin with `apiVersion: ddplaunch/v1`, and give every line a key"),
        (b"- a\n", "a list", "begin with `apiVersion: ddplaunch/v1`, and give every line a key"),
        (b"apiVersion: v1\nkind: Pod\n", '"v1"', "this file is for another program"),
        (b"apiVersion: ddplaunch/v9\n", '"ddplaunch/v9"', "a newer ddplaunch may read it"),
        (b"apiVersion: ddplaunch/1\n", '"ddplaunch/1"', "write ddplaunch/v1"),
    ],
)
def test_what_is_no_job_file_gets_one_answer(tmp_path: Path, data: bytes, found: str, hint: str) -> None:
    """One sentence that says what it is, not one for each of its lines."""
    path = tmp_path / "job.yaml"
    path.write_bytes(data)

    assert (found, hint) == _refused(path)


def test_a_script_in_place_of_a_job_file_is_answered_with_the_command_that_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("def main() -> None: print('a: b')\n")

    assert ("a script", f"to run it: `ddplaunch submit -- {path}`") == _refused(path)


def test_a_byte_that_is_no_text_has_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        load.parse(b"a: 1\nb: \xff", "job.yaml")

    assert (2, 4) == (caught.value.problems[0].line, caught.value.problems[0].column)


@pytest.mark.timeout(10)
def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    """Nobody may ever write to it, and the command would wait for ever."""
    os.mkfifo(tmp_path / "job.yaml")

    assert "a named pipe" == _refused(tmp_path / "job.yaml")[0]


def test_the_pipe_of_a_shell_is_read() -> None:
    """`ddplaunch validate <(generate-job)` gives its path, which no folder holds."""
    reader, writer = os.pipe()
    os.write(writer, GOOD)
    os.close(writer)
    try:
        assert "job" == load.load(f"/dev/fd/{reader}").name
    finally:
        os.close(reader)


def test_a_directory_names_the_files_in_it(tmp_path: Path) -> None:
    """The job file is probably one of them."""
    (tmp_path / "job.yaml").touch()
    (tmp_path / "train.py").touch()

    assert ("a directory", "it contains job.yaml") == _refused(tmp_path)


@pytest.mark.parametrize("asked", ["job.yml", "jobb.yaml"])
def test_a_missing_file_is_answered_with_its_nearest(tmp_path: Path, asked: str) -> None:
    """A slip in the name, or the other suffix."""
    (tmp_path / "job.yaml").touch()

    assert ("no such file", f"did you mean {tmp_path / 'job.yaml'}?") == _refused(tmp_path / asked)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """Not the file is missing then, but the way to it."""
    assert ("no such file", f"there is no folder {tmp_path / 'x'}") == _refused(tmp_path / "x" / "job.yaml")
    assert ("no such file", "`ddplaunch init` writes one for you to start from") == _refused(
        tmp_path / "zebra"
    )


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """Root may read everything, so root asks as somebody else."""
    path = tmp_path / "job.yaml"
    path.write_bytes(GOOD)
    path.chmod(0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        answer = _refused(path)
    finally:
        os.seteuid(me)

    assert ("no permission to read it", "the user who runs ddplaunch must be able to read it") == answer


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    """Also what the system refuses to look up is an answer, not a traceback."""
    found, _ = _refused(name)

    assert found.startswith("a file that cannot be read (")


@pytest.mark.fault("port-ephemeral")
def test_all_problems_come_at_once_and_in_order() -> None:
    """Of structure, of values and of rules, sorted by line."""
    data = GOOD + b"rendezvous: {port: 40000}\nnods: 2\nnodes: 0\nretries: 1\nretries: 2\n"
    with pytest.raises(SpecError) as caught:
        load.parse(data, "job.yaml")

    problems = caught.value.problems
    assert [4, 5, 6, 8] == [problem.line for problem in problems]
    assert "port-ephemeral" == problems[0].code


def test_rules_are_silent_about_what_stands_in_for_a_wrong_value() -> None:
    """`gpus: 2` is not held against an nproc_per_node that nobody wrote."""
    with pytest.raises(SpecError) as caught:
        load.parse(GOOD + b"nproc_per_node: gpu\nresources: {gpus: 2}\n", "job.yaml")

    assert ["nproc_per_node"] == [problem.path for problem in caught.value.problems]


def test_rules_are_silent_about_a_list_that_lost_an_item() -> None:
    """What stands behind a wrong item would be named by the wrong index."""
    volumes = b"volumes: [3, {name: a, mount_path: /a, claim: a}, {name: b, mount_path: /b}]\n"
    with pytest.raises(SpecError) as caught:
        load.parse(GOOD + volumes, "job.yaml")

    assert ["volumes[0]"] == [problem.path for problem in caught.value.problems]


WORDS = st.one_of(
    st.sampled_from(
        ["apiVersion: ddplaunch/v1\n", "name: job\n", "command: [a]\n", "env:\n", "  A: 1\n", "gate: "]
    ),
    st.sampled_from(
        ["&a ", "*a ", "<<: *a\n", "!x ", "---\n", "|\n", "1:30", "no\n", "\r\n", "- ", ": ", "? "]
    ),
    st.sampled_from(list("{}[]'\"\t\0")),
)


@given(
    st.one_of(
        st.binary(max_size=200), st.lists(WORDS, max_size=30).map(lambda words: "".join(words).encode())
    )
)
@example(b"\xff\xfe")
@example(b"&a [*a]")
def test_any_bytes_are_a_job_or_a_spec_error(data: bytes) -> None:
    """No file, however broken, ends in anything else, and an error has something to say."""
    try:
        answer: object = load.parse(data, "job.yaml")
    except SpecError as error:
        answer = error.problems

    assert isinstance(answer, JobSpec) or answer


@given(st.lists(WORDS, max_size=20).map(lambda words: GOOD + "".join(words).encode()))
def test_any_addition_to_a_job_is_a_job_or_a_spec_error(data: bytes) -> None:
    """As above, past the first lines, where most of the code is."""
    problems: tuple[Problem, ...] = ()
    try:
        load.parse(data, "job.yaml")
    except SpecError as error:
        problems = error.problems

    assert all(problem.found and problem.wanted for problem in problems)
