"""Takes snapshots of a job: its objects in the API, and its hub's status.

The cluster is asked in a thread, with pauses, however often a snapshot is wanted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ddplaunch.agent.contract import Event, JobStatus
from ddplaunch.backends.kubernetes import evidence, node_status, objects, outcomes
from ddplaunch.backends.kubernetes.api import Api, RefusedError, SilentError
from ddplaunch.backends.kubernetes.evidence import GateReports
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.pods import PodProblem
from ddplaunch.backends.kubernetes.queries import ApiState, Queries
from ddplaunch.backends.poller import Poller
from ddplaunch.errors import ClusterError

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 5.0
"""Seconds between two queries about one job. They grow while nothing changes."""
_PATIENCE = 3.0
"""Seconds to retry within one query. The next query comes soon."""
_QUIET = 10.0
"""Seconds without an answer after which a note says so."""
SILENCE = 600.0
"""Seconds for which a watched job is shown while the API server does not answer: the job itself goes on."""
_REFUSAL = 30.0
"""Seconds for which the server may refuse access: after a restart it does so until it has read its rules."""


@dataclass(frozen=True)
class Snapshot:
    """`hub_status`: from the hub; None if the hub is not up, or may not be asked."""

    state: ApiState
    hub_status: JobStatus | None = None
    note: str = ""  # why it may be out of date
    gate_reports: Mapping[int, PodProblem] = field(default_factory=dict)  # of nodes unknown to the hub
    machines: Mapping[int, str] = field(default_factory=dict)  # by node, of pods that are gone as well

    @property
    def nodes(self) -> list[node_status.Node]:
        job = self.state.job
        found = node_status.nodes(job, self.state.pods, self.state.events) if job is not None else []
        return [each._replace(problem=each.problem or self.gate_reports.get(each.number)) for each in found]

    @property
    def attempt(self) -> int:
        """Return the attempt's number: that of its pods, or the hub's, which also counts the attempts that it
        began.
        """
        return max(self.state.attempt, self.hub_status.attempt if self.hub_status else 0)

    @property
    def ended(self) -> bool:
        return self.state.owner is None or outcomes.outcome(self.state, time.time()) is not None


class _Poller(Poller):
    def __init__(self, api: Api, queries: Queries, state: ApiState) -> None:
        self._api = api
        self._queries = queries
        self._asked: float | None = None  # since when there has been no answer
        self._refused: float | None = None  # since when access has been refused
        self._last: JobStatus | None = None
        self._has_unknown_gate = False  # whether the hub does not know a pod that is at the gate
        self._silent_nodes: set[int] = set()  # those that had not reached the hub at the last snapshot
        self._machines: dict[int, str] = {}
        self._attempt = 0
        self.gate_reports = GateReports(api)
        self._snapshot = self._with_status(state)
        super().__init__(_FIRST_PAUSE, _LONGEST_PAUSE)

    def query(self) -> None:
        state = self._snapshot.state
        self._asked = self._asked or time.monotonic()
        try:
            state = self._queries.fetch(state.namespace, state.name, _PATIENCE)
            self._asked = None  # the API has answered; the hub may still be slow
            self._answer(self._with_status(state))
        except ClusterError as error:
            self._silence(error)

    def current(self, *, fresh: bool) -> Snapshot:
        """Return the last snapshot, with a note if the API does not answer. Raises ClusterError."""
        self.refresh(fresh=fresh, ended=self._snapshot.ended)
        silent = self._silent()
        if self._snapshot.ended or silent < _QUIET:
            return self._snapshot
        note = f"the API server has not answered for {silent:.0f} s; the job goes on without it"
        return dataclasses.replace(self._snapshot, note=note)

    def _answer(self, snapshot: Snapshot) -> None:
        changed = _visible_state(snapshot) != _visible_state(self._snapshot)
        self._snapshot = snapshot
        self.poll_soon() if changed or self._has_unknown_gate else self.poll_later()
        self._asked = self._refused = None
        self.error = None

    def _silence(self, error: ClusterError) -> None:
        """Keep the last snapshot while the API does not answer. After SILENCE seconds, set `error`."""
        self.poll_soon()
        if isinstance(error, RefusedError) and error.status in (401, 403):
            self._refused = self._refused or time.monotonic()
            hopeless = time.monotonic() - self._refused >= _REFUSAL
        else:
            self._refused = None
            hopeless = not isinstance(error, SilentError) or self._silent() > SILENCE
        if hopeless:
            self.error = error

    def _silent(self) -> float:
        """Return for how many seconds there has been no answer. Another thread may be receiving one now."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def _with_status(self, state: ApiState) -> Snapshot:
        if state.attempt > self._attempt:
            self._begin_attempt(state.attempt)
        self._machines |= node_status.machines(state.pods)
        snapshot = Snapshot(state, machines=self._machines)
        if snapshot.ended:
            silent = evidence.not_reaching_hub(self._silent_nodes, state, self._last)
            missed = _missed(state, self._last, silent)
            return dataclasses.replace(
                snapshot,
                gate_reports=self._reported_problems(evidence.failed_gates(state, missed), state, missed),
            )
        hub_status = evidence.status(self._api, state)
        last = self._last
        if (
            hub_status is None
            and last is not None
            and last.exit_code is not None
            and last.attempt >= state.attempt
        ):
            hub_status = last  # how it ended is final, and its pod is deleted before the others
        self._last = hub_status
        self._silent_nodes = evidence.not_reaching_hub(self._silent_nodes, state, hub_status)
        unknown_to_hub = evidence.unknown_to_hub(state, hub_status)
        self._has_unknown_gate = bool(unknown_to_hub) and hub_status is not None
        return dataclasses.replace(
            snapshot, hub_status=hub_status, gate_reports=self._reported_problems(unknown_to_hub, state)
        )

    def _begin_attempt(self, number: int) -> None:
        """Forget the gate reports and machines of the last attempt, because a retry has new pods."""
        self._attempt = number
        self.gate_reports = GateReports(self._api)
        self._silent_nodes = set()
        self._machines = {}

    def _reported_problems(
        self, pods: Sequence[Json], state: ApiState, missed: Collection[int] = ()
    ) -> dict[int, PodProblem]:
        self.gate_reports.read(state, pods)
        return self.gate_reports.problems(pods, missed)


class Snapshots:
    """Keeps the last snapshot of each job, and refreshes it when it is time to."""

    def __init__(self, api: Api, queries: Queries) -> None:
        self._api = api
        self._queries = queries
        self._pollers: dict[tuple[str, str], _Poller] = {}

    def at(self, namespace: str, name: str, *, fresh: bool = False) -> Snapshot:
        """Return a snapshot that is seconds old; with `fresh`, a new one. Raises ClusterError."""
        poller = self._pollers.get((namespace, name))
        if poller is None:
            poller = _Poller(self._api, self._queries, self._queries.fetch(namespace, name))
            self._pollers[namespace, name] = poller
            fresh = False  # it cannot be any fresher
        return poller.current(fresh=fresh)

    def gate_reports(self, snapshot: Snapshot, nodes: Collection[int]) -> tuple[Snapshot, list[Event]]:
        """Return `snapshot` with the reports of those of these gates that did not reach the hub, and their
        events.
        """
        state = snapshot.state
        reports = self._pollers[state.namespace, state.name].gate_reports
        reports.read(state, evidence.failed_gates(state, nodes))
        known = {**reports.problems((), nodes), **snapshot.gate_reports}
        return dataclasses.replace(snapshot, gate_reports=known), reports.events(nodes)

    def wake(self, namespace: str, name: str) -> None:
        """Let the next snapshot be a new one, because something has changed."""
        poller = self._pollers.get((namespace, name))
        if poller is not None:
            poller.wake()

    def close(self) -> None:
        """Wait for the queries that are under way."""
        for poller in self._pollers.values():
            poller.join()


def _missed(state: ApiState, hub_status: JobStatus | None, silent: Collection[int] = ()) -> set[int]:
    """Return the nodes about which the hub only knew that they never came.

    `hub_status`: the last one; the job may have ended before its hub's container. `silent`: nodes that had
    not reached the hub by then. They count if there is no verdict because the hub's pod was deleted first.
    """
    verdicts = outcomes.termination_message(state.pods).verdicts if state.owner is not None else []
    if not verdicts and hub_status is not None and hub_status.attempt >= state.attempt:
        verdicts = hub_status.verdicts
    if not verdicts:
        return set(silent)
    return {node for verdict in verdicts if verdict.code == "node-missing" for node in verdict.nodes}


def _visible_state(snapshot: Snapshot) -> Hashable:
    """Return a value that stays equal as long as nothing worth showing has changed."""
    hub_status = snapshot.hub_status
    nodes = tuple((each.number, each.pod, each.phase, each.problem) for each in snapshot.nodes)
    status = hub_status and (
        hub_status.attempt,
        hub_status.phase,
        tuple(hub_status.waiting_for),
        hub_status.exit_code,
    )
    return nodes, status, objects.uid(snapshot.state.owner or {}), snapshot.ended
