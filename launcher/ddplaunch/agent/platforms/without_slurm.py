"""Stands in for `slurm_hints` in pods, where advice about Slurm is of no use."""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {}
