"""A diagnosis as one HTML file that needs nothing else: no network, no script, readable years later.

Everything that a job said is escaped: a log line or an exception is a stranger's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from ddplaunch.agent.contract import (
    Bundle,
    Collective,
    Event,
    Exited,
    NodeEvidence,
    RankEvidence,
    Stack,
    Status,
    Verdict,
)
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system import phrases
from ddplaunch.report import checks, reachability
from ddplaunch.report.diagnosis import Diagnosis
from ddplaunch.report.verdict import culprits, missing, node_names
from ddplaunch.report.words import clock, count, duration, escape, size, some

_LISTED = 100
"""Failed paths in the table."""
_TONE = {Status.PASS: "good", Status.FAIL: "bad", Status.UNKNOWN: "odd"}


def page(diagnosis: Diagnosis, otherwise: str = "no verdict") -> str:
    """The whole file. `otherwise`: what is said in place of a verdict."""
    job, bundle = diagnosis.job, diagnosis.bundle
    names = node_names(diagnosis)
    body = [_verdict(verdict, names) for verdict in diagnosis.verdicts] or [
        f"<h1>{job.state}: {escape(otherwise)}</h1>"
    ]
    body.append(_about(diagnosis))
    if diagnosis.evidence is not None:
        nodes = diagnosis.evidence.evidence
        body += [_ranks(nodes), _stacks(nodes), _nodes(nodes)]
    if bundle is not None:
        body += [_gate(bundle, names), _mesh(bundle), _agreed(bundle), _events(bundle.events)]
    style = (files("ddplaunch.report") / "report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(str(job.handle))}: {job.state}</title>\n<style>\n{style}</style>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body>\n</html>\n"
    )


def _verdict(verdict: Verdict, names: Sequence[str]) -> str:
    facts = "".join(f"<div>{escape(fact)}</div>" for fact in verdict.facts)
    pairs = [
        ("culprit", escape(culprits(verdict, names))),
        ("victims", escape(some("rank", verdict.victims)) if verdict.victims else ""),
        ("because", facts),
        ("hint", escape(verdict.hint)),
        ("confidence", f"{verdict.confidence:.0%}"),
        ("more", f"<code>ddplaunch explain {escape(verdict.code)}</code>"),
    ]
    return f"<article>\n<h1>{escape(verdict.sentence)}</h1>\n{_pairs(pairs)}\n</article>"


def _about(diagnosis: Diagnosis) -> str:
    job, evidence = diagnosis.job, diagnosis.evidence
    took = f" after {duration(job.ended - job.submitted)}" if job.ended else ""
    pairs = [
        ("job", f"<code>{escape(str(job.handle))}</code>"),
        ("submitted", clock(job.submitted)),
        ("state", f"{job.state}{took}" + (f"; {escape(job.detail)}" if job.detail else "")),
        ("agent's exit code", "" if job.exit_code is None else str(job.exit_code)),
    ]
    if evidence is not None:
        pairs += [
            ("evidence of", f"{clock(evidence.at)} ({escape(evidence.why)})"),
            ("no answer from", escape(some("node", evidence.silent)) if evidence.silent else ""),
            ("could not be seen", "<br>".join(map(escape, missing(diagnosis)))),
        ]
    return _section("Job", _pairs(pairs))


def _ranks(nodes: Sequence[NodeEvidence]) -> str:
    rows = [
        [
            str(rank.rank),
            str(node.node),
            escape(rank.phase),
            _standing(rank),
            _collective(_latest(rank)),
            escape(_where(rank)),
            escape(rank.last_output[:200]),
        ]
        for node in nodes
        for rank in sorted(node.ranks, key=lambda each: each.rank)
    ]
    heads = ["rank", "node", "phase", "state", "last collective", "where", "last output"]
    return _section("Ranks", _table(heads, rows))


def _standing(rank: RankEvidence) -> str:
    if rank.exit is not None:
        return f'<span class="bad">{_exit(rank.exit)}</span>'
    if not rank.alive:
        return '<span class="bad">gone</span>'
    if rank.stuck_for < 1:
        return '<span class="good">moves</span>'
    return f'<span class="odd">no progress for {duration(rank.stuck_for)}</span>'


def _exit(end: Exited) -> str:
    by = ", stopped by its launcher" if end.by_us else ""
    if end.signal is not None:
        return f"killed by signal {end.signal}{by}"
    return f"exit code {end.code}{by}" if end.code is not None else f"gone, nobody saw how{by}"


def _latest(rank: RankEvidence) -> Collective | None:
    """Torch's recorder and the ring each know calls that the other does not."""
    return max([*rank.collectives[-1:], *rank.calls[-1:]], key=lambda entry: entry.at, default=None)


def _collective(entry: Collective | None) -> str:
    if entry is None:
        return ""
    sizes = " ".join(str(each) for each in entry.sizes)
    ways = {"raised": '<span class="bad">failed</span>', "issued": "issued"}
    done = "done" if entry.done else ways.get(entry.state, '<span class="odd">waits</span>')
    return f"{escape(entry.op)} {entry.seq} {escape(sizes)} {done}"


def _where(rank: RankEvidence) -> str:
    """The innermost place in the user's own code: where in torch it waits, the collective tells."""
    frames = stacks.main(rank.stacks)
    frame = stacks.user_frame(frames) or next(iter(frames), None)
    return phrases.place(frame) if frame else ""


def _stacks(nodes: Sequence[NodeEvidence]) -> str:
    parts = []
    for node in nodes:
        for rank in sorted(node.ranks, key=lambda rank: rank.rank):
            texts = [f"{raised.type}: {raised.message}" for raised in rank.raised]
            texts += [_stack(stack) for stack in rank.stacks]
            for child in rank.children:
                texts += [f"child {child.pid} {child.role}\n{_stack(stack)}" for stack in child.stacks]
            if texts:
                body = "".join(f"<pre>{escape(text)}</pre>" for text in texts)
                source = f" (by {escape(rank.stack_source)})" if rank.stack_source else ""
                parts.append(f"<details><summary>rank {rank.rank}{source}</summary>{body}</details>")
    return _section("Stacks, innermost frame first", "\n".join(parts))


def _stack(stack: Stack) -> str:
    frames = [f"  {frame.name}  {frame.file}:{frame.line}" for frame in stack.frames]
    return "\n".join([f"thread {stack.thread}" + (" (main)" if stack.main else ""), *frames])


def _nodes(nodes: Sequence[NodeEvidence]) -> str:
    rows = [
        [
            str(node.node),
            escape(node.host),
            escape(node.phase),
            _used(node.memory_used, node.memory_limit) + (f", {node.oom_kills} kills" * bool(node.oom_kills)),
            _used(node.shm_used, node.shm_size),
            "" if node.throttled is None else f"{node.throttled:.0%}",
            _exit(node.launch_exit) if node.launch_exit else "",
            "<br>".join(map(escape, node.kernel)),
        ]
        for node in nodes
    ]
    heads = [
        "node",
        "host",
        "phase",
        "memory",
        "shared memory",
        "CPU throttled",
        "launch command",
        "kernel log",
    ]
    return _section("Nodes", _table(heads, rows))


def _used(used: int | None, limit: int | None) -> str:
    if used is None:
        return ""
    return f"{size(used)} of {size(limit)}" if limit else size(used)


def _gate(bundle: Bundle, names: Sequence[str]) -> str:
    """One row for each check and result: one for each node would put the map below thousands of rows."""
    table = _findings(checks.findings(bundle), names)
    every = _findings([each._replace(hint="") for each in checks.every_word(bundle)], names)
    more = f"<details><summary>all that the nodes found</summary>{every}</details>" if every else ""
    return _section("Gate", table + more)


def _findings(found: Sequence[checks.Finding], names: Sequence[str]) -> str:
    rows = [
        [
            escape(each.check),
            f'<span class="{_TONE.get(each.status, "odd")}">{escape(each.status)}</span>',
            escape(phrases.nodes(each.nodes, names)),
            escape(each.said),
            escape(each.hint),
        ]
        for each in found
    ]
    return _table(["check", "result", "nodes", "found", "hint"], rows)


def _mesh(bundle: Bundle) -> str:
    """All as a picture, and some of what failed as a table: with 32 nodes there are a thousand pairs."""
    failed = [result for result in bundle.mesh if result.outcome != "ok"]
    number = len(bundle.mesh) + sum(map(len, bundle.passed.values()))
    rows = [
        [
            f"node {result.node} to node {result.peer}",
            escape(f"{result.address}:{result.port} ({result.what})"),
            f'<span class="bad">{escape(result.outcome)}</span>',
            escape(result.detail),
        ]
        for result in failed[:_LISTED]
    ]
    more = f" The first {_LISTED} of these:" if len(failed) > _LISTED else ""
    tried = f"<p>{count(number, 'connection')} tried, {len(failed)} failed.{more}</p>" if number else ""
    table = _table(["way", "address", "outcome", "detail"], rows)
    return _section("Connections between nodes", reachability.picture(bundle) + tried + table)


def _agreed(bundle: Bundle) -> str:
    if bundle.agreed is None:
        return ""
    agreed = bundle.agreed
    rows = [
        [f"<code>{escape(name)}</code>", f"<code>{escape(value)}</code>", escape(agreed.why.get(name, ""))]
        for name, value in sorted(agreed.env.items())
    ]
    return _section("What the gate settled", _table(["variable", "value", "why"], rows))


def _events(events: Sequence[Event]) -> str:
    rows = [[clock(event.at), escape(event.kind), escape(event.text)] for event in events]
    return _section("What happened", _table(["at", "", ""], rows))


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs if value) + "</dl>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns in which nothing stands are left out; without rows, nothing."""
    kept = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    if not kept:
        return ""
    head = "".join(f"<th>{heads[index]}</th>" for index in kept)
    body = "\n".join("<tr>" + "".join(f"<td>{row[index]}</td>" for index in kept) + "</tr>" for row in rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'
