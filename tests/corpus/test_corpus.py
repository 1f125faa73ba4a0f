"""Every verdict on its real fault, and not a word on jobs that only take their time.

The jobs run three at a time ahead of the tests that ask for their outcome: most of each is waiting.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.corpus import families, harness
from tests.corpus.faults import BROKEN_STARTS, FAULTS, HEALTHY, Fault, Healthy
from tests.corpus.harness import Outcome
from tests.corpus.why import UNTESTED
from tests.faults.table import RECORDED

from ddplaunch.agent.contract import Exit, Files
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

FR_TRACE = "from torch.distributed.flight_recorder.fr_trace import main; main()"
"""torch's own tool."""
LATEST = 60.0
"""Seconds after which a verdict is too late on any machine. How fast it comes, benchmarks/faults.py says."""
PROVOKED = [fault for fault in (*FAULTS, *families.FAULTS) if fault.name not in UNTESTED]
"""Without the known misses, which docs/accuracy.md lists: a test cannot ask for what no rule tells yet."""
LEFT_ALONE = [each for each in (*HEALTHY, *families.HEALTHY) if f"healthy_{each.name}" not in UNTESTED]
Run = Callable[[Fault | Healthy], Outcome]

pytestmark = [pytest.mark.corpus, pytest.mark.timeout(600)]


@pytest.fixture(name="outcome_of", scope="module")
def _outcome_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The outcome of a job, which may be under way already; one that several tests ask about runs once."""
    items = [item for item in request.session.items if item.path == request.path]
    if hasattr(request.config, "workerinput"):
        items = []  # one of several processes, each with tests of its own: it must not start those of all
    params = [param for item in items if hasattr(item, "callspec") for param in item.callspec.params.values()]
    with ThreadPoolExecutor(3) as pool:
        started: dict[str, Future[Outcome]] = {}

        def start(case: Fault | Healthy) -> Future[Outcome]:
            if case.name not in started:
                folder = tmp_path_factory.mktemp(case.name) / "job"
                started[case.name] = pool.submit(harness.run, case, folder)
            return started[case.name]

        for case in params:
            if isinstance(case, Healthy) or (isinstance(case, Fault) and not _impossible(case)):
                start(case)
        yield lambda case: start(case).result()
        pool.shutdown(cancel_futures=True)


def _impossible(fault: Fault) -> str:
    if (fault.shm is not None or fault.root) and os.getuid() != 0:
        return "only root can mount what the job needs"
    if fault.cpus is not None:
        return harness.cpu_cgroups_missing()
    return harness.memory_cgroups_missing() if fault.memory is not None else ""


def _marks(case: Fault | Healthy) -> list[pytest.MarkDecorator]:
    faults = [pytest.mark.fault(case.code)] if isinstance(case, Fault) else []
    return [*faults, pytest.mark.whole] if case.whole else faults


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=_marks(fault), id=fault.name) for fault in PROVOKED]
)
def test_the_cause_of_a_fault_is_told(
    fault: Fault, outcome_of: Run, record_property: Callable[[str, object], None]
) -> None:
    """The cause, the ranks at fault and their victims are told, in time, and nothing outlives the job."""
    reason = _impossible(fault)
    if reason:
        pytest.skip(reason)
    outcome = outcome_of(fault)

    assert outcome.verdicts, outcome.output[-4000:]
    verdict = outcome.verdicts[0]
    if fault.may_abstain and not verdict.ranks:
        assert (fault.code, [], True) == (verdict.code, verdict.victims, verdict.confidence <= 0.5), verdict
    else:
        expected = (fault.code, [*fault.ranks], [*fault.victims])
        shown = f"{verdict}\n{outcome.alarms}\n{outcome.output[-4000:]}"
        assert expected == (verdict.code, verdict.ranks, verdict.victims), shown
        assert fault.says in str(verdict.sentence), shown
        of_nodes = fault.code in ("launch-failed", "node-evicted")
        assert of_nodes or [*fault.culprit_nodes] == verdict.nodes
    assert (Exit.STOPPED if fault.asked else CATALOGUE[fault.code].exit_code) == outcome.exit_code
    assert [] == outcome.survivors
    record_property("seconds", outcome.seconds)
    if outcome.seconds is not None:
        assert outcome.seconds <= LATEST, outcome.alarms


@pytest.mark.parametrize(
    "healthy", [pytest.param(each, marks=_marks(each), id=each.name) for each in LEFT_ALONE]
)
def test_a_job_that_takes_its_time_is_left_alone(healthy: Healthy, outcome_of: Run) -> None:
    """A job that takes its time is left alone."""
    outcome = outcome_of(healthy)

    assert ([], [], Exit.OK, []) == (
        outcome.alarms,
        outcome.verdicts,
        outcome.exit_code,
        outcome.survivors,
    ), outcome.output[-4000:]


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.name == "rank_in_dataloader"]
)
def test_torchfrtrace_reads_the_flight_recorders_in_a_bundle(
    fault: Fault, outcome_of: Run, tmp_path: Path
) -> None:
    """With Gloo, whose own dumps it cannot read, it names the collective that a rank has not called."""
    outcome = outcome_of(fault)
    with zipfile.ZipFile(outcome.folder / Files.BUNDLE) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    dumps = [tmp_path / f"flight/gloo/rank_{rank}" for rank in range(fault.nodes * fault.nproc)]
    recorders = [pickle.loads(dump.read_bytes()) for dump in dumps]

    words = [sys.executable, "-c", FR_TRACE, str(tmp_path / "flight/gloo"), "--prefix", "rank_"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    said = done.stdout + done.stderr
    last = max(entry["collective_seq_id"] for each in recorders for entry in each["entries"])
    assert 0 == done.returncode, said
    assert f"sequence number: {last}" in said
    assert f"missing ranks: {{{fault.ranks[0]}}}" in said


def test_every_run_time_code_has_a_fault() -> None:
    """No code of a running job without a program that provokes it, unless that takes a scheduler or a GPU."""
    gate = {
        code
        for code, entry in CATALOGUE.items()
        if entry.exit_code in (Exit.NODE_AT_FAULT, Exit.MISCONFIGURED)
    }

    assert CATALOGUE.keys() - gate - {"node-evicted"} - RECORDED == {fault.code for fault in FAULTS}


@pytest.mark.parametrize("code", BROKEN_STARTS)
def test_every_broken_start_is_provoked(code: str, request: pytest.FixtureRequest) -> None:
    """The gate's tests that stand in the table for a broken start are there, and speak of that code."""
    file, _, test = BROKEN_STARTS[code].partition("::")
    text = (request.config.rootpath / "tests/agent" / file).read_text("utf-8")
    body = text.partition(f"def {test}(")[2].partition("\n\n\n")[0]

    assert f'"{code}"' in body
