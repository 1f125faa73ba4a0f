"""The rendered files of a local run."""

import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.plan import plan
from ddplaunch.render import Rendered, render
from ddplaunch.spec.load import load

GOLDEN = Path(__file__).parents[2] / "golden" / "local"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_rendered_files_are_the_golden_ones(case: str) -> None:
    """A job file gives exactly the script and the plan that stand beside it."""
    folder = GOLDEN / case
    rendered = render(plan.make(load(folder / "job.yaml"), "local", folder))

    assert {name: (folder / name).read_text() for name in ("run.sh", "plan.json")} == {
        name: rendered.files[name].content.decode() for name in ("run.sh", "plan.json")
    }
    assert ("sh", "run.sh") == rendered.command


@pytest.mark.parametrize("case", CASES)
def test_the_script_passes_shellcheck(case: str) -> None:
    """A person may read, change and run the script."""
    subprocess.run([Path(sys.executable).with_name("shellcheck"), GOLDEN / case / "run.sh"], check=True)


def test_source_travels_only_when_there_is_some() -> None:
    def rendered(case: str) -> Rendered:
        return render(plan.make(load(GOLDEN / case / "job.yaml"), "local", GOLDEN / case))

    with_source, without = rendered("digits"), rendered("full")

    assert ("source.tar" in with_source.files, "source.tar" in without.files) == (True, False)
