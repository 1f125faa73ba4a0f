"""A pytest of its own for tests of the plugin."""

from __future__ import annotations

import os
import sys

import pytest
from tests.busy import BUSY


def outcome(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *words: str) -> pytest.RunResult:
    """Of a pytest of its own, with no plugin but ours."""
    for name, value in (
        ("PYTHONPATH", os.pathsep.join(path for path in sys.path if path)),
        ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
        ("OMP_NUM_THREADS", "1"),
    ):
        monkeypatch.setenv(name, value)
    return pytester.runpytest_subprocess("-p", "ddplaunch.pytest_plugin", *words, timeout=BUSY * 150)
