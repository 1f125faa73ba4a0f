"""The state of a job at one moment, by the API server and by the job's own hub.

The cluster is asked with pauses, however often a snapshot is wanted, and never while somebody waits for it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ddplaunch.agent.contract import Event, JobStatus
from ddplaunch.backends.kubernetes import evidence, gate_reports, node_status, objects, outcomes
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.gate_reports import GateReports
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.pods import PodProblem
from ddplaunch.backends.kubernetes.queries import ApiState, Queries
from ddplaunch.backends.watched import Watched
from ddplaunch.errors import ClusterError

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 5.0
"""Seconds between two looks at one job, growing while nothing changes."""
_PATIENCE = 3.0
"""Seconds of a look for a server that is away; the next look comes soon."""
_QUIET = 10.0
"""Seconds without an answer that are worth a word."""
SILENCE = 600.0
"""Seconds for which a watched job outlasts an API server that does not answer; the job itself runs on."""
_REFUSAL = 30.0
"""Likewise one that turns us away: when it has begun anew, it lets nobody in until it has read who may."""


@dataclass(frozen=True)
class Snapshot:
    """`told`: by the hub, None where it does not stand, or may not be asked."""

    seen: ApiState
    told: JobStatus | None = None
    note: str = ""  # why this look may be old
    gate_reports: Mapping[int, PodProblem] = field(
        default_factory=dict
    )  # of nodes that the hub does not know
    machines: Mapping[int, str] = field(default_factory=dict)  # by node, of pods that are gone as well

    @property
    def nodes(self) -> list[node_status.Node]:
        job = self.seen.job
        found = node_status.nodes(job, self.seen.pods, self.seen.events) if job is not None else []
        return [each._replace(problem=each.problem or self.gate_reports.get(each.number)) for each in found]

    @property
    def ended(self) -> bool:
        return self.seen.owner is None or outcomes.outcome(self.seen, time.time()) is not None


class _Watched(Watched):
    def __init__(self, api: Api, queries: Queries, seen: ApiState) -> None:
        self._api = api
        self._queries = queries
        self._asked: float | None = None  # since when an answer is due
        self._refused: float | None = None  # since when the only answer is no
        self._last: JobStatus | None = None
        self._unheard = False  # whether a pod is at the gate that the hub does not know
        self._silent_nodes: set[int] = set()  # that did not reach the hub when they were last seen
        self._machines: dict[int, str] = {}
        self._attempt = 0
        self.gate_reports = GateReports(api)
        self._look = self._with_status(seen)
        super().__init__(_FIRST_PAUSE, _LONGEST_PAUSE)

    def ask(self) -> None:
        seen = self._look.seen
        self._asked = self._asked or time.monotonic()
        try:
            seen = self._queries.look(seen.namespace, seen.name, _PATIENCE)
            self._asked = None  # from here on it is the hub that may be slow
            self._answer(self._with_status(seen))
        except ClusterError as error:
            self._silence(error)

    def current(self, *, fresh: bool) -> Snapshot:
        """Return what was seen last, and how old that is when nobody answers. Raises ClusterError."""
        self.look(fresh=fresh, ended=self._look.ended)
        silent = self._silent()
        if self._look.ended or silent < _QUIET:
            return self._look
        note = f"the API server has not answered for {silent:.0f} s; the job does not need it"
        return dataclasses.replace(self._look, note=note)

    def _answer(self, look: Snapshot) -> None:
        changed = _essence(look) != _essence(self._look)
        self._look = look
        self.soon() if changed or self._unheard else self.later()
        self._asked = self._refused = None
        self.error = None

    def _silence(self, error: ClusterError) -> None:
        """No answer; what was seen last stands, for a while."""
        self.soon()
        if isinstance(error, RefusedError) and error.status in (401, 403):
            self._refused = self._refused or time.monotonic()
            hopeless = time.monotonic() - self._refused >= _REFUSAL
        else:
            self._refused = None
            hopeless = not isinstance(error, SilentError) or self._silent() > SILENCE
        if hopeless:
            self.error = error

    def _silent(self) -> float:
        """Seconds for which an answer is due. Another thread may hear it meanwhile."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def _with_status(self, seen: ApiState) -> Snapshot:
        if seen.attempt > self._attempt:
            self._begin_attempt(seen.attempt)
        self._machines |= node_status.machines(seen.pods)
        look = Snapshot(seen, machines=self._machines)
        if look.ended:
            silent = gate_reports.not_reaching_hub(self._silent_nodes, seen, self._last)
            missed = _missed(seen, self._last, silent)
            return dataclasses.replace(
                look, gate_reports=self._heard(gate_reports.failed_gates(seen, missed), seen, missed)
            )
        told = evidence.status(self._api, seen)
        last = self._last
        if told is None and last is not None and last.exit_code is not None and last.attempt == seen.attempt:
            told = last  # the hub's last word stands: its pod goes before the others
        self._last = told
        self._silent_nodes = gate_reports.not_reaching_hub(self._silent_nodes, seen, told)
        unknown_to_hub = gate_reports.unknown_to_hub(seen, told)
        self._unheard = bool(unknown_to_hub) and told is not None
        return dataclasses.replace(look, told=told, gate_reports=self._heard(unknown_to_hub, seen))

    def _begin_attempt(self, number: int) -> None:
        """Forget what nodes said before: a retry has pods of its own, perhaps on other machines."""
        self._attempt = number
        self.gate_reports = GateReports(self._api)
        self._silent_nodes = set()
        self._machines = {}

    def _heard(
        self, pods: Sequence[Json], seen: ApiState, missed: Collection[int] = ()
    ) -> dict[int, PodProblem]:
        self.gate_reports.read(seen, pods)
        return self.gate_reports.problems(pods, missed)


class Snapshots:
    """Keeps the last snapshot of each job, and knows when to look anew."""

    def __init__(self, api: Api, queries: Queries) -> None:
        self._api = api
        self._queries = queries
        self._watched: dict[tuple[str, str], _Watched] = {}

    def at(self, namespace: str, name: str, *, fresh: bool = False) -> Snapshot:
        """The job as it was a moment ago; with `fresh`, now. Raises ClusterError."""
        watched = self._watched.get((namespace, name))
        if watched is None:
            watched = _Watched(self._api, self._queries, self._queries.look(namespace, name))
            self._watched[namespace, name] = watched
            fresh = False  # it is as fresh as can be
        return watched.current(fresh=fresh)

    def gate_reports(self, look: Snapshot, nodes: Collection[int]) -> tuple[Snapshot, list[Event]]:
        """The look with what these nodes' gates said, which did not reach the hub; and when each said it.

        `look`: by `at`.
        """
        seen = look.seen
        heard = self._watched[seen.namespace, seen.name].gate_reports
        heard.read(seen, gate_reports.failed_gates(seen, nodes))
        known = {**heard.problems((), nodes), **look.gate_reports}
        return dataclasses.replace(look, gate_reports=known), heard.events(nodes)

    def hurry(self, namespace: str, name: str) -> None:
        """Something has happened: do not let the next look wait."""
        watched = self._watched.get((namespace, name))
        if watched is not None:
            watched.hurry()

    def close(self) -> None:
        """Wait for the looks that are under way."""
        for watched in self._watched.values():
            watched.join()


def _missed(seen: ApiState, told: JobStatus | None, silent: Collection[int] = ()) -> set[int]:
    """Nodes of which the hub only knew that they never came.

    A job may have ended before its hub's container has. `told`: by that hub, when it was asked last.
    `silent`: nodes that did not reach the hub then; they count where no verdict was read at all, because the
    hub's pod was gone before the next look.
    """
    said = outcomes.last_words(seen.pods).verdicts if seen.owner is not None else []
    if not said and told is not None and told.attempt == seen.attempt:
        said = told.verdicts
    if not said:
        return set(silent)
    return {node for verdict in said if verdict.code == "node-missing" for node in verdict.nodes}


def _essence(look: Snapshot) -> Hashable:
    """Equal as long as nothing has happened."""
    told = look.told
    nodes = tuple((each.number, each.pod, each.phase, each.problem) for each in look.nodes)
    said = told and (told.attempt, told.phase, tuple(told.waiting_for), told.exit_code)
    return nodes, said, objects.uid(look.seen.owner or {}), look.ended
