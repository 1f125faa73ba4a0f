"""A job's secret that its program gives away leaves no trace but in the program's own output."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.local.conftest import Desk
from tests.local.secret_forms import FORMS, SECRET, archived, unpacked

LEAKS = Path(__file__).with_name("leaks.py")
OWN_OUTPUT = ("launch.log", "output.log")
"""Of the program and its launcher, as they wrote it; besides the logs of ranks."""


def leak(desk: Desk, how: str) -> tuple[Path, str]:
    """Runs it; returns the job's folder, and all that the command line shows of the job."""
    path = desk.folder / "leak.yaml"
    path.write_text(
        "apiVersion: ddplaunch/v1\nname: leak\nnodes: 1\nnproc_per_node: 2\n"
        f"source: {LEAKS}\ncommand: [leaks.py, {how}]\nsecrets: {{TOKEN: {{env: MINE}}}}\n"
        "watchdog: {notice_after: 3s, kill_after: 4s}\n"
    )
    desk.env["MINE"] = SECRET
    waited = desk.call("submit", str(path), "--wait", seconds=90)
    handle = waited.stdout.strip()
    shown = "".join(line for line in waited.stderr.splitlines(keepends=True) if not line.startswith("[0/"))
    assert "ddplaunch: " in shown
    page = desk.folder / "page.html"
    for words in (
        ["status"],
        ["status", "--json"],
        ["list"],
        ["diagnose", "--html", str(page)],
        ["diagnose", "--json"],
    ):
        given = [words[0], handle, *words[1:]] if words[0] != "list" else words
        shown += desk.call(*given).stdout
    return desk.folder / "state/ddplaunch/jobs" / handle.removeprefix("local://"), shown + page.read_text()


@pytest.mark.parametrize("how", ["hang", pytest.param("die", marks=pytest.mark.whole)])
def test_a_secret_that_a_program_prints_stays_in_its_own_output(desk: Desk, how: str) -> None:
    """Not in a bundle, a log of ours, a status, a report, or on the terminal; no escape gets there either."""
    folder, shown = leak(desk, how)
    run = folder / "run"
    texts = {
        path: path.read_bytes().decode(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and run / "node-0/ranks" not in path.parents and path.name not in OWN_OUTPUT
    }
    texts[run / "bundle.zip"] = archived(run / "bundle.zip")
    texts[run / "hub.log"] = unpacked(texts[run / "hub.log"])
    texts[folder / "shown"] = shown

    found = {str(path): form for path, text in texts.items() for form in FORMS if form in text}
    assert {} == found
    assert "[secret TOKEN]" in texts[run / "bundle.zip"]
    assert "[secret TOKEN]" in shown
    said = [shown, (run / "hub.log").read_text(), texts[run / "node-0/gate.log"]]
    said += [
        line for line in (run / "output.log").read_text().splitlines() if line.startswith("[0/ddplaunch]")
    ]
    assert all(text.replace("\n", "").isprintable() for text in said)
    assert FORMS[0] in "".join(path.read_text(errors="replace") for path in run.rglob("ranks/**/*.log"))
