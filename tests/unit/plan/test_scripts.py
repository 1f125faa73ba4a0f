"""Which script of a folder `init` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.plan import imports

GROUP = "import torch.distributed as dist\ndist.init_process_group()\n"
RUN = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.parametrize(
    ("files", "script"),
    [
        ({"train.py": "", "main.py": GROUP, "a.py": ""}, "train.py"),
        ({"main.py": "", "train_x.py": ""}, "main.py"),
        ({"train_gpt.py": "", "a.py": RUN}, "train_gpt.py"),
        ({"a.py": "", "notes.txt": ""}, "a.py"),
        ({"a.py": "", "setup.py": RUN, "test_a.py": GROUP, "conftest.py": ""}, "a.py"),
        ({"a.py": GROUP + RUN, "dist_tools.py": GROUP}, "a.py"),
        ({"fit.py": "trainer = L.Trainer(devices=2)", "net.py": "", "eval.py": RUN}, "fit.py"),
        ({"fit.py": "accelerator = Accelerator()", "net.py": ""}, "fit.py"),
        ({"fit.py": RUN, "net.py": ""}, "fit.py"),
        ({"train_a.py": "", "train_b.py": GROUP}, "train_b.py"),
        ({"tools/train.py": GROUP, "lib/dist.py": GROUP, "setup.py": ""}, "tools/train.py"),
        ({"src/pkg/fit.py": GROUP + RUN, "utils.py": ""}, "src/pkg/fit.py"),
        ({"tests/train.py": GROUP, "venv/lib/train.py": GROUP}, ""),
        ({"train_a.py": GROUP, "train_b.py": GROUP}, ""),
        ({"a.py": "", "b.py": ""}, ""),
        ({"-a.py": ""}, ""),
        ({}, ""),
    ],
)
def test_the_script_that_is_meant_is_found(tmp_path: Path, files: dict[str, str], script: str) -> None:
    """Where it is not clear, none is."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    found = imports.find_script(tmp_path)

    assert script == ("" if found.script is None else found.script.relative_to(tmp_path).as_posix())


def test_those_among_which_it_is_not_clear_are_named(tmp_path: Path) -> None:
    """First those that can be run."""
    for name, text in {"a.py": GROUP + RUN, "b.py": GROUP + RUN, "net.py": GROUP}.items():
        (tmp_path / name).write_text(text)

    assert ["a.py", "b.py"] == [each.name for each in imports.find_script(tmp_path).candidates]
