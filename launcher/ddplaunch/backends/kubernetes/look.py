"""One look at a job: what the API server says, and what the job's own hub says.

However often one looks, the cluster is asked with pauses, and never while somebody waits for the answer.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ddplaunch.agent.contract import Event, JobStatus
from ddplaunch.backends.kubernetes import cries, evidence, objects, standing, states
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.cries import Cries
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.pods import Trouble
from ddplaunch.backends.kubernetes.queries import Queries, Seen
from ddplaunch.backends.kubernetes.refusals import RefusedError
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
class Look:
    """`told`: by the hub, None where it does not stand, or may not be asked."""

    seen: Seen
    told: JobStatus | None = None
    note: str = ""  # why this look may be old
    cries: Mapping[int, Trouble] = field(default_factory=dict)  # of nodes that the hub does not know
    machines: Mapping[int, str] = field(default_factory=dict)  # by node, of pods that are gone as well

    @property
    def nodes(self) -> list[standing.Node]:
        job = self.seen.job
        found = standing.nodes(job, self.seen.pods, self.seen.events) if job is not None else []
        return [each._replace(trouble=each.trouble or self.cries.get(each.number)) for each in found]

    @property
    def ended(self) -> bool:
        return self.seen.owner is None or states.outcome(self.seen, time.time()) is not None


class _Watched(Watched):
    def __init__(self, api: Api, queries: Queries, seen: Seen) -> None:
        self._api = api
        self._queries = queries
        self._asked: float | None = None  # since when an answer is due
        self._refused: float | None = None  # since when the only answer is no
        self._last: JobStatus | None = None
        self._unheard = False  # whether a pod is at the gate that the hub does not know
        self._silent_nodes: set[int] = set()  # that did not reach the hub when they were last seen
        self._machines: dict[int, str] = {}
        self.cries = Cries(api)
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

    def current(self, *, fresh: bool) -> Look:
        """What was seen last, and how old that is when nobody answers. Raises ClusterError."""
        self.look(fresh=fresh, ended=self._look.ended)
        silent = self._silent()
        if self._look.ended or silent < _QUIET:
            return self._look
        note = f"the API server has not answered for {silent:.0f} s; the job does not need it"
        return dataclasses.replace(self._look, note=note)

    def _answer(self, look: Look) -> None:
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

    def _with_status(self, seen: Seen) -> Look:
        self._machines |= standing.machines(seen.pods)
        look = Look(seen, machines=self._machines)
        if look.ended:
            missed = _missed(seen, self._last, cries.still(self._silent_nodes, seen, self._last))
            return dataclasses.replace(look, cries=self._heard(cries.in_vain(seen, missed), seen, missed))
        told = evidence.status(self._api, seen)
        last = self._last
        if told is None and last is not None and last.exit_code is not None and last.attempt == seen.attempt:
            told = last  # the hub's last word stands: its pod goes before the others
        self._last = told
        self._silent_nodes = cries.still(self._silent_nodes, seen, told)
        unheard = cries.unheard(seen, told)
        self._unheard = bool(unheard) and told is not None
        return dataclasses.replace(look, told=told, cries=self._heard(unheard, seen))

    def _heard(self, pods: Sequence[Json], seen: Seen, missed: Collection[int] = ()) -> dict[int, Trouble]:
        self.cries.listen(seen, pods)
        return self.cries.troubles(pods, missed)


class Looks:
    """What was seen of each job, and when to look anew."""

    def __init__(self, api: Api, queries: Queries) -> None:
        self._api = api
        self._queries = queries
        self._watched: dict[tuple[str, str], _Watched] = {}

    def at(self, namespace: str, name: str, *, fresh: bool = False) -> Look:
        """The job as it was a moment ago; with `fresh`, now. Raises ClusterError."""
        watched = self._watched.get((namespace, name))
        if watched is None:
            watched = _Watched(self._api, self._queries, self._queries.look(namespace, name))
            self._watched[namespace, name] = watched
            fresh = False  # it is as fresh as can be
        return watched.current(fresh=fresh)

    def cries(self, look: Look, nodes: Collection[int]) -> tuple[Look, list[Event]]:
        """The look with what these nodes' gates said, which did not reach the hub; and when each said it.

        `look`: by `at`.
        """
        seen = look.seen
        heard = self._watched[seen.namespace, seen.name].cries
        heard.listen(seen, cries.in_vain(seen, nodes))
        known = {**heard.troubles((), nodes), **look.cries}
        return dataclasses.replace(look, cries=known), heard.events(nodes)

    def hurry(self, namespace: str, name: str) -> None:
        """Something has happened: do not let the next look wait."""
        watched = self._watched.get((namespace, name))
        if watched is not None:
            watched.hurry()

    def close(self) -> None:
        """Wait for the looks that are under way."""
        for watched in self._watched.values():
            watched.join()


def _missed(seen: Seen, told: JobStatus | None, silent: Collection[int] = ()) -> set[int]:
    """Nodes of which the hub only knew that they never came.

    A job may have ended before its hub's container has. `told`: by that hub, when it was asked last.
    `silent`: nodes that did not reach the hub then; they count where no verdict was read at all, because the
    hub's pod was gone before the next look.
    """
    said = states.last_words(seen.pods).verdicts if seen.owner is not None else []
    if not said and told is not None and told.attempt == seen.attempt:
        said = told.verdicts
    if not said:
        return set(silent)
    return {node for verdict in said if verdict.code == "node-missing" for node in verdict.nodes}


def _essence(look: Look) -> Hashable:
    """Equal as long as nothing has happened."""
    told = look.told
    nodes = tuple((each.number, each.pod, each.phase, each.trouble) for each in look.nodes)
    said = told and (told.attempt, told.phase, tuple(told.waiting_for), told.exit_code)
    return nodes, said, objects.uid(look.seen.owner or {}), look.ended
