"""A real Prometheus scrapes a real job that hangs, and raises the alert of monitoring/alerts.yaml."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Desk, eventually
from tests.ports import own_port

MONITORING = Path(__file__).parents[2] / "monitoring"
RULES = MONITORING / "alerts.yaml"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Debian's prometheus is not installed",
)


def answer(port: int, path: str) -> Any:
    """The data that Prometheus gives."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=5) as response:
            return json.load(response)["data"]
    except OSError:
        return {}


def panels() -> dict[str, str]:
    """The dashboard's questions by their titles, as Grafana asks them for the job `tiny`."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return {
        panel["title"]: target["expr"].replace("$job_name", "tiny")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }


def shown(port: int, expr: str) -> Any:
    """What Prometheus has known in the last minutes of a question; None for one that it refuses."""
    asked = urllib.parse.urlencode({"query": f"last_over_time(({expr})[10m:1s])"})
    return answer(port, f"query?{asked}").get("result")


@needs_prometheus
@pytest.mark.whole
def test_a_hang_raises_the_alert_and_every_panel_shows_something(desk: Desk, tmp_path: Path) -> None:
    port = own_port()
    figures = port + 1
    more = f"watchdog: {{notice_after: 4s, kill_after: never}}\nmetrics: {{port: {figures}}}\n"
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
        f"scrape_configs: [{{job_name: x, static_configs: [{{targets: ['127.0.0.1:{figures}']}}]}}]\n"
    )
    handle = desk.call("submit", desk.job("--hang-at", "1", more=more)).stdout.strip()
    assert handle.startswith("local://")
    words = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    with subprocess.Popen(
        ["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as prometheus:
        try:

            def firing() -> list[str]:
                alerts = answer(port, "alerts").get("alerts", [])
                return [each["labels"]["alertname"] for each in alerts if each["state"] == "firing"]

            eventually(lambda: "TrainingHasVerdict" in firing(), "the alert fires", 90)
            empty = {title: found for title, expr in panels().items() if not (found := shown(port, expr))}
            with urllib.request.urlopen(f"http://127.0.0.1:{figures}/metrics", timeout=5) as served:
                text = served.read()
        finally:
            prometheus.terminate()
            desk.call("cancel", handle)
    subprocess.run(["promtool", "check", "metrics"], input=text, check=True)
    assert b'ddplaunch_ranks{job_name="tiny"} 2\n' in text
    assert {"Step: fastest rank, median, slowest": []} == empty  # of two steps there is no duration


@needs_prometheus
@pytest.mark.whole
def test_the_alerts_fire_for_a_job_that_hangs_and_not_for_one_that_is_well(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    (tmp_path / "test.yaml").write_text(PLAYED)

    subprocess.run(["promtool", "check", "rules", RULES], check=True)
    subprocess.run(["promtool", "test", "rules", tmp_path / "test.yaml"], check=True)


def test_every_figure_of_the_dashboard_is_served_by_a_hub() -> None:
    from ddplaunch.agent.hub import metrics

    text = (MONITORING / "grafana-dashboard.json").read_text()
    assert json.loads(text)["title"] == "ddplaunch"
    assert [] == [name for name in metrics._HELP if f"ddplaunch_{name}" not in text]


PLAYED = """\
rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'ddplaunch_since_progress_seconds{job_name="hangs", instance="a"}', values: '0+60x10'}
      - {series: 'ddplaunch_phase{job_name="hangs", instance="a", phase="running"}', values: '1x10'}
      - {series: 'ddplaunch_since_progress_seconds{job_name="starts", instance="b"}', values: '0+60x10'}
      - {series: 'ddplaunch_phase{job_name="starts", instance="b", phase="running"}', values: '0x10'}
      - {series: 'ddplaunch_since_progress_seconds{job_name="well", instance="c"}', values: '1x10'}
      - {series: 'ddplaunch_phase{job_name="well", instance="c", phase="running"}', values: '1x10'}
      - {series: 'ddplaunch_verdicts{job_name="hangs", instance="a", code="rank-missing"}', values: '_x4 1x6'}
    alert_rule_test:
      - {eval_time: 5m, alertname: TrainingMakesNoProgress, exp_alerts: []}
      - eval_time: 8m
        alertname: TrainingMakesNoProgress
        exp_alerts:
          - exp_labels: {job_name: hangs, instance: a, severity: critical}
            exp_annotations:
              summary: "hangs: no rank has made progress for 8m 0s"
              description: "`ddplaunch diagnose` says why while it lasts; the watchdog ends the job after `watchdog.kill_after`."
      - {eval_time: 3m, alertname: TrainingHasVerdict, exp_alerts: []}
      - eval_time: 6m
        alertname: TrainingHasVerdict
        exp_alerts:
          - exp_labels: {job_name: hangs, code: rank-missing, severity: warning}
            exp_annotations:
              summary: "hangs: rank-missing"
              description: "`ddplaunch diagnose` says which rank and why, `ddplaunch explain rank-missing` what it means."
"""  # noqa: E501 - as promtool has it
