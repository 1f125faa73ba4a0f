"""Durations and quantities mean in the chart what they mean to the launcher."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import yaml
from tests.chart.conftest import CHART, MARKS, Helm

from ddplaunch.agent.job_file.units import format_duration, format_quantity, parse_duration, parse_quantity

pytestmark = MARKS

TEMPLATE = """\
found:
{{- range .Values.durations }}
  - {{ list (include "ddplaunch.wholeSeconds" .) | toJson }}
{{- end }}
{{- range .Values.quantities }}
  - {{ list (include "ddplaunch.quantity" .) | toJson }}
{{- end }}
"""
UNITS = ("", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti")


def durations() -> list[Any]:
    """In all spellings, halves among them, which are rounded to the even number."""
    draw = random.Random(1)
    found: list[Any] = [
        "1.1h",
        "0.1m",
        "1h30m",
        "30m1h",
        "2m30.5s",
        "0.07h",
        "1ms",
        "1d",
        "1.005s",
        90,
        2.007,
    ]
    found += [half / 2 for half in range(1, 40)] + [f"{half / 2}s" for half in range(1, 40)]
    for _ in range(1000):
        found.append(format_duration(draw.randrange(1, 31_000_000_000) / 1000))
        found.append(f"{draw.randrange(300)}.{draw.randrange(1000)}{draw.choice(['ms', 's', 'm', 'h'])}7d")
    return found


def quantities() -> list[Any]:
    """In all spellings, up to the largest that a number in YAML keeps."""
    draw = random.Random(2)
    found: list[Any] = ["1.5Gi", "0.5Ti", "010M", "1024Ki", "1000k", "1048576k", "4398046511103", 2**53]
    for _ in range(1000):
        found.append(draw.randrange(1, 2 ** draw.randrange(1, 54)))
        found.append(f"{draw.randrange(1, 1024)}{draw.choice(UNITS)}")
        found.append(f"{draw.randrange(1, 1024)}.{draw.choice([5, 25, 125])}{draw.choice(UNITS[3:5])}")
    return found


def test_the_chart_counts_as_the_launcher_does(helm: Helm, tmp_path: Path) -> None:
    """To the last digit, and writes them into the objects as the launcher does."""
    templates = tmp_path / "units" / "templates"
    templates.mkdir(parents=True)
    shutil.copy(CHART / "templates" / "_units.tpl", templates)
    (templates / "all.yaml").write_text(TEMPLATE)
    (tmp_path / "units" / "Chart.yaml").write_text("apiVersion: v2\nname: units\nversion: 1.0.0\n")
    values = {"durations": durations(), "quantities": quantities()}
    (tmp_path / "values.yaml").write_text(json.dumps(values))

    expected = [[f"{math.ceil(parse_duration(each))}"] for each in values["durations"]]
    expected += [[format_quantity(parse_quantity(each))] for each in values["quantities"]]
    done = helm("template", "x", tmp_path / "units", "--values", tmp_path / "values.yaml")

    assert expected == yaml.safe_load(done.stdout)["found"]
