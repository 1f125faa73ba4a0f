"""What nvidia-smi said on real machines, and a program by that name that says it again, column by column."""

from __future__ import annotations

import sys
from pathlib import Path

H200_BUSY = """
index, uuid, memory.used, memory.total, name
0, GPU-a44622e3-2296-6285-0a86-84d0f6c67900, 130013, 143771, NVIDIA H200
1, GPU-4f31bb83-f8dc-d0af-029e-bc4356e6afeb, 130053, 143771, NVIDIA H200
2, GPU-4e9e74b7-4977-f04d-3af3-ccfe5f570e90, 0, 143771, NVIDIA H200
3, GPU-02dbe542-8a6f-11a4-7c2a-486b7d4e9092, 129993, 143771, NVIDIA H200
4, GPU-cb449822-5571-be90-8303-e7558da3ea66, 244, 143771, NVIDIA H200
5, GPU-8e137fa6-c3d9-6980-7733-0d8df296756e, 4, 143771, NVIDIA H200
6, GPU-d9337494-6060-1440-039f-4654245b5764, 292, 143771, NVIDIA H200
7, GPU-28780eb0-24d5-1f13-59b8-ae5c23617a72, 58071, 143771, NVIDIA H200

gpu_uuid, pid, process_name, used_memory
GPU-a44622e3-2296-6285-0a86-84d0f6c67900, 1328667, /usr/local/bin/python3.10, 130004
GPU-4f31bb83-f8dc-d0af-029e-bc4356e6afeb, 1328668, /usr/local/bin/python3.10, 130044
GPU-02dbe542-8a6f-11a4-7c2a-486b7d4e9092, 1328669, /usr/local/bin/python3.10, 129984
GPU-28780eb0-24d5-1f13-59b8-ae5c23617a72, 1758887, [Not Found], 58060
"""
"""A shared machine, 2026-06-22 ("Exp23 GPU2/4/5/6 Release", a log in a public repository): four GPUs have
just been released, three belong to others, the last to a process of another container. Without the units; the
name, which was not asked for there, is that of the only GPU with so much memory.
"""
H200_HELD = H200_BUSY.replace("fe5f570e90, 0,", "fe5f570e90, 105851,") + (
    "GPU-4e9e74b7-4977-f04d-3af3-ccfe5f570e90, 1425258, python3, 105842\n"
)
"""GPU 2 of it two minutes before."""
H200_FREE = "\n".join(
    ["index, uuid, memory.used, memory.total, name"]
    + [
        f"{number},{row.partition(',')[2]}"
        for number, row in enumerate(
            row for row in H200_BUSY.split("\n") if row[:2] in ("2,", "4,", "5,", "6,")
        )
    ]
    + ["", "gpu_uuid, pid, process_name, used_memory"]
)
"""What is free of it, as a job sees it that was given no more."""
A100_MIXED = """
index, name, memory.total, uuid, memory.used
0, NVIDIA A100 80GB PCIe, 81920, GPU-0, [N/A]
1, NVIDIA A100 80GB PCIe, 81920, GPU-1, [N/A]
4, NVIDIA A100-SXM4-80GB, 81920, GPU-4, [N/A]

gpu_uuid, pid, process_name, used_memory
"""
"""Rows 0, 1 and 4 of a machine with two kinds of A100; only the first three columns were asked for there."""

_TOOL = """#!{python}
import sys
(asked, *plain) = sys.argv[1:]
assert plain == ["--format=csv,noheader,nounits"], plain
what, _, columns = asked.partition("=")
gpus, apps = '''{text}'''.strip().split("\\n\\n")
head, *rows = (gpus if what == "--query-gpu" else apps).splitlines()
names = head.split(", ")
for row in rows:
    values = dict(zip(names, row.split(", ")))
    print(", ".join(values[name] for name in columns.split(",")))
"""


def install(folder: Path, text: str) -> str:
    """A PATH on which nvidia-smi is a fake: it repeats what was recorded, in the order that it is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(_TOOL.format(python=sys.executable, text=text))
    tool.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"
