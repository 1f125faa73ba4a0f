"""What `init` finds in a folder: the script that is meant, what that imports and names, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ddplaunch.errors import UsageError
from ddplaunch.plan import imports

RUN = "import models.net\n"

# Files with their text; the paths that are proposed beside the script; the folders for PYTHONPATH.
LAYOUTS: Mapping[str, tuple[dict[str, str], list[str], list[str]]] = {
    "one file": ({"train.py": "import torch, os"}, [], []),
    "a module beside": ({"train.py": "import eval", "eval.py": "", "old.py": ""}, ["eval.py"], []),
    "relative in a package": (
        {
            "train.py": "import models",
            "models/__init__.py": "from . import net",
            "models/net.py": "import extra",
            "extra.py": "",
        },
        ["extra.py", "models"],
        [],
    ),
    "not all of a package is read": (
        {"train.py": "import m", "m/__init__.py": "", "m/test_m.py": "import extra", "extra.py": ""},
        ["m"],
        [],
    ),
    "a package that imports what it finds": (
        {
            "train.py": "import m",
            "m/__init__.py": "import pkgutil\nfor x in pkgutil.iter_modules(__path__): 1",
            "m/a.py": "import extra",
            "extra.py": "",
        },
        ["extra.py", "m"],
        [],
    ),
    "by name": (
        {"train.py": "import importlib\nimportlib.import_module('zoo.a')", "zoo/a.py": "", "zoo/b.py": ""},
        ["zoo/a.py"],
        [],
    ),
    "by a computed name": (
        {
            "train.py": "from importlib import import_module\nimport_module(f'zoo.{x}')",
            "zoo/a.py": "",
            "zoo/b.py": "",
        },
        ["zoo/a.py", "zoo/b.py"],
        [],
    ),
    "src": (
        {"train.py": "from pkg import net", "src/pkg/__init__.py": "", "src/pkg/net.py": ""},
        ["src/pkg"],
        ["src"],
    ),
    "namespace": ({"train.py": "import lib.a", "lib/a.py": "", "lib/b.py": ""}, ["lib/a.py"], []),
    "a namespace beside its data": (
        {"train.py": "from data.load import x", "data/load.py": "", "data/images/0.bin": "x" * 9},
        ["data/load.py"],
        [],
    ),
    "a data set with the name of a library": (
        {"train.py": "import datasets, wandb", "datasets/a.bin": "", "wandb/run.log": ""},
        [],
        [],
    ),
    "a folder with the name of a library": (
        {"train.py": "from datasets import load_dataset", "datasets/fetch.py": ""},
        [],
        [],
    ),
    "conditional": (
        {
            "train.py": "try:\n    import fast\nexcept ImportError:\n    import slow\nif x:\n    import rare",
            "fast.py": "",
            "slow.py": "",
            "rare.py": "",
        },
        ["fast.py", "rare.py", "slow.py"],
        [],
    ),
    "in a function": ({"train.py": "def f():\n    from late import x", "late.py": ""}, ["late.py"], []),
    "star": (
        {"train.py": "from m import *", "m/__init__.py": "__all__ = ['a']", "m/a.py": "import e", "e.py": ""},
        ["e.py", "m"],
        [],
    ),
    "a namespace with a package": (
        {"train.py": "import org.pkg.x", "org/pkg/__init__.py": "", "org/pkg/x.py": ""},
        ["org/pkg"],
        [],
    ),
    "a cycle": (
        {"train.py": "import a", "a.py": "import b, train", "b.py": "import a"},
        ["a.py", "b.py"],
        [],
    ),
    "hydra": (
        {
            "train.py": "@hydra.main(config_path='conf', config_name='c')\ndef f(): ...",
            "conf/c.yaml": "a: 1",
            "conf/db/x.yaml": "",
        },
        ["conf"],
        [],
    ),
    "the usual folder of settings": ({"train.py": "", "configs/c.yaml": "a: 1"}, ["configs"], []),
    "no settings": ({"train.py": "", "config/c.bin": "a: 1"}, [], []),
    "a table": ({"train.py": "open('vocab.txt')", "vocab.txt": "a", "other.txt": ""}, ["vocab.txt"], []),
    "a checkpoint stays": ({"train.py": "torch.load('last.pt')", "last.pt": "x"}, [], []),
    "a program": (
        {"train.py": "run([python, 'tools/eval.py'])", "tools/eval.py": "import m", "m.py": ""},
        ["m.py", "tools/eval.py"],
        [],
    ),
    "not Python": ({"train.py": "import a", "a.py": "print 'two'"}, ["a.py"], []),
    "another coding": ({"train.py": "# coding: latin-1\nimport a", "a.py": ""}, ["a.py"], []),
    "spaces and umlauts": (
        {"train.py": "import größe", "größe.py": "", "my data/x.bin": ""},
        ["größe.py"],
        [],
    ),
    "the folder itself is a package": (
        {"train.py": "import a", "__init__.py": "", "a.py": "", "b.py": ""},
        ["a.py"],
        [],
    ),
    "a notebook": ({"train.py": "import a", "a.ipynb": "{}"}, [], []),
}


def _lay(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_script_needs_is_found(tmp_path: Path, layout: str) -> None:
    """With everything that this needs, and nothing that only lies beside it."""
    files, paths, python_path = LAYOUTS[layout]
    found = imports.find(_lay(tmp_path, files) / "train.py", tmp_path)

    assert (("train.py",), ("train.py", *paths)) == (found.command, found.paths)
    assert python_path == list(found.python_path)


BELOW: Mapping[str, tuple[dict[str, str], str, list[str], list[str], list[str]]] = {
    "its own folder first": (
        {"scripts/train.py": "import a", "scripts/a.py": "", "a.py": ""},
        "scripts/train.py",
        ["scripts/train.py"],
        ["scripts/train.py", "scripts/a.py"],
        [],
    ),
    "then the job file's": (
        {"scripts/train.py": "import models", "models/__init__.py": ""},
        "scripts/train.py",
        ["scripts/train.py"],
        ["scripts/train.py", "models"],
        ["."],
    ),
    "a module of a package": (
        {
            "pkg/__init__.py": "",
            "pkg/train.py": "from . import net\nimport top",
            "pkg/net.py": "",
            "top.py": "",
        },
        "pkg/train.py",
        ["-m", "pkg.train"],
        ["pkg", "top.py"],
        [],
    ),
    "a module of a package in src": (
        {
            "src/pkg/__init__.py": "",
            "src/pkg/train.py": "from .net import x\nimport pkg.a",
            "src/pkg/net.py": "",
            "src/pkg/a.py": "",
        },
        "src/pkg/train.py",
        ["-m", "pkg.train"],
        ["src/pkg"],
        ["src"],
    ),
    "a script of a package": (
        {"pkg/__init__.py": "", "pkg/train.py": "from pkg import net", "pkg/net.py": ""},
        "pkg/train.py",
        ["pkg/train.py"],
        ["pkg"],
        ["."],
    ),
    "settings above it": (
        {"app/train.py": "@hydra.main(config_path='../conf')\ndef f(): ...", "conf/c.yaml": ""},
        "app/train.py",
        ["app/train.py"],
        ["app/train.py", "conf"],
        [],
    ),
}


@pytest.mark.parametrize("layout", BELOW)
def test_a_script_below_the_job_file(tmp_path: Path, layout: str) -> None:
    """Finds what Python finds from there, or from the job file's folder when PYTHONPATH names that."""
    files, script, command, paths, python_path = BELOW[layout]
    found = imports.find(_lay(tmp_path, files) / script, tmp_path)

    assert (command, paths) == (list(found.command), list(found.paths))
    assert python_path == list(found.python_path)


def test_what_is_too_large_is_named_and_stays(tmp_path: Path) -> None:
    """Of a package with data in it the code alone travels; a data set is named with its size."""
    files = {
        "train.py": "import m\nroot = 'images'",
        "m/__init__.py": "from .a import x",
        "m/a.py": "",
        "m/b.py": "",
    }
    _lay(tmp_path, files | {"m/weights.bin": "x" * 800_000, "images/0.png": "x" * 200_000})

    found = imports.find(tmp_path / "train.py", tmp_path)

    assert ("train.py", "m/__init__.py", "m/a.py") == found.paths
    sizes = {each.path: each.size // 100_000 for each in found.kept}
    assert {"images": 2, "m": 8} == sizes


def test_a_script_elsewhere_is_refused(tmp_path: Path) -> None:
    """It could import nothing from beside the job file."""
    _lay(tmp_path, {"a/job.yaml": "", "b/train.py": ""})
    with pytest.raises(UsageError, match="is outside of"):
        imports.find(tmp_path / "b" / "train.py", tmp_path / "a")
    with pytest.raises(UsageError, match="there is no script"):
        imports.find(tmp_path / "train.py", tmp_path)


GROUP = "import torch.distributed as dist\ndist.init_process_group()\n"
GUARD = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.parametrize(
    ("files", "script"),
    [
        ({"train.py": "", "main.py": GROUP, "a.py": ""}, "train.py"),
        ({"main.py": "", "train_x.py": ""}, "main.py"),
        ({"train_gpt.py": "", "a.py": GUARD}, "train_gpt.py"),
        ({"a.py": "", "notes.txt": ""}, "a.py"),
        ({"a.py": "", "setup.py": GUARD, "test_a.py": GROUP, "conftest.py": ""}, "a.py"),
        ({"a.py": GROUP + GUARD, "dist_tools.py": GROUP}, "a.py"),
        ({"fit.py": "trainer = L.Trainer(devices=2)", "net.py": "", "eval.py": GUARD}, "fit.py"),
        ({"fit.py": "accelerator = Accelerator()", "net.py": ""}, "fit.py"),
        ({"fit.py": GUARD, "net.py": ""}, "fit.py"),
        ({"train_a.py": "", "train_b.py": GROUP}, "train_b.py"),
        ({"tools/train.py": GROUP, "lib/dist.py": GROUP, "setup.py": ""}, "tools/train.py"),
        ({"src/pkg/fit.py": GROUP + GUARD, "utils.py": ""}, "src/pkg/fit.py"),
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
    for name, text in {"a.py": GROUP + GUARD, "b.py": GROUP + GUARD, "net.py": GROUP}.items():
        (tmp_path / name).write_text(text)

    assert ["a.py", "b.py"] == [each.name for each in imports.find_script(tmp_path).candidates]
