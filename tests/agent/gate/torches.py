"""The real torch of the tests, and stand-ins for an installed one, for what a gate reads of it."""

from __future__ import annotations

from pathlib import Path

TORCH = str(Path(__file__).resolve().parents[3] / ".venv" / "bin" / "python")
"""A Python that has torch."""

TORCHRUN = ["{python}", "-m", "torch.distributed.run"]


def make_torch(folder: Path, version: str, nccl: str) -> dict[str, str]:
    """The files of a torch wheel that the gate reads, laid out as pip does; there is no torch in them."""
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\ncuda: str | None = '13.2'\n"
    )
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('the gate imported torch')\n")
    (folder / "torch" / "distributed" / "run.py").touch()
    (folder / f"nvidia_nccl_cu13-{nccl}.dist-info").mkdir()
    return {"PYTHONPATH": str(folder)}
