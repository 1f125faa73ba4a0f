"""The verdict for a node that cannot reach the hub. It is the only one that a node gives alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddplaunch.agent.contract import Env, Verdict
from ddplaunch.agent.platforms import PLAIN, Platform
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.agent.system import subjects
from ddplaunch.agent.system.resolve import family, is_loopback
from ddplaunch.agent.text.saying import Subject, Text, say
from ddplaunch.agent.transport.endpoints import Endpoint

_CODES = {
    "not-found": "dns-not-found",
    "unanswered": "dns-unanswered",
    "refused": "port-refused",
    "timeout": "port-filtered",
    "filtered": "port-filtered",
    "rejected": "port-rejected",
    "unreachable": "host-unreachable",
    "family": "ip-family-mixed",
    "reset": "stranger-listens",
    "stranger": "stranger-listens",
    "shared": "store-shared",
    "key": "key-differs",
    "gone": "node-missing",
    "stale": "dns-disagrees",
    "absent": "node-missing",
}
REJECTED_HINT = "look for a REJECT rule on the way to the port, or set `gate.port` to one that is open"
_HINTS = {
    "not-found": "check the name, and `getent hosts NAME` on that node: DNS, /etc/hosts, a headless Service?",
    "unanswered": "check the name servers in /etc/resolv.conf on that node",
    "refused": "is the hub on node 0 up? Its log says; if it is, a firewall rejects the port",
    "timeout": "a firewall, NetworkPolicy or security group drops the port, or the address is nobody's",
    "filtered": "a firewall, NetworkPolicy or security group drops the port: open it, or set `gate.port`",
    "rejected": REJECTED_HINT,
    "unreachable": "`ip route get ADDRESS` on that node; both must be in networks that reach each other",
    "family": "`ip -br address` on both nodes: they need addresses of one family, IPv4 or IPv6",
    "reset": "something accepts connections there and closes them: a proxy, or a service mesh",
    "stranger": "choose another port (`gate.port`), or keep that program away from it",
    "shared": "two jobs have one address and port: choose another `gate.port`, or leave it out; if the "
    "address is not node 0's, correct it",
    "key": f'give all nodes the same {Env.KEY} or --key-file: `printf %s "${Env.KEY}" | sha256sum` on each '
    "compares them; if that is another job of yours, give one of the two another --name",
    "stale": "look for the name in DNS and /etc/hosts on that node",
    "absent": "ask the scheduler about node 0",
    "gone": "node 0 went down, or its hub was killed; its log may say why",
}
_SHOWN = 7
ANOTHER_GATE_PORT = "give all nodes another --gate-port, or the job another --name"
LOOPBACK_HINT = (
    "look for the name in /etc/hosts on that node (Debian writes `127.0.1.1 name`), and give it the address "
    "that the other nodes see"
)


def unreached(
    node: int,
    hub: Endpoint,
    addresses: list[str],
    kind: str,
    detail: str,
    seconds: float,
    names: Sequence[str] = (),
    platform: Platform = PLAIN,
) -> Verdict:
    """`kind`: of UnreachableError, or stranger | shared | key | gone | filtered | family.

    `addresses`: the hub's, as this node resolves it. `names`: of the job's nodes.
    """
    host, port = hub
    me, zero = subjects.node(node, names), subjects.node(0, names)
    if node != 0 and kind == "refused" and addresses and all(map(is_loopback, addresses)):
        return Verdict.of(
            "master-is-loopback",
            say(me, f" resolves {host} to {', '.join(addresses)}, which is ", me, " itself"),
            "gate",
            nodes=[node],
            facts=[f"nobody listens there on port {port}; asked for {seconds:.0f} s"],
            hint=LOOPBACK_HINT,
        )
    where = place(hub, addresses)
    to_hub = say(me, f" -> the hub at {where}: ")
    asked = f"asked for {seconds:.0f} s"
    sentence = {
        "not-found": say(me, f" cannot resolve {host}: no such name, {asked}"),
        "unanswered": say(me, f" cannot resolve {host}: the name server does not answer, {asked}"),
        "refused": say(_refused(me, where, seconds), ": the host answers, nobody listens"),
        "timeout": say(to_hub, f"no answer for {seconds:.0f} s: packets vanish"),
        "filtered": say(
            to_hub,
            f"no answer for {seconds:.0f} s, while other ports there answer: a firewall drops this one",
        ),
        "rejected": say(to_hub, f"rejected for {seconds:.0f} s by an ICMP message, as a firewall sends it"),
        "unreachable": say(to_hub, detail),
        "family": say(
            me, f" has no address of {family((addresses or [host])[0])}, and the hub is at {where}"
        ),
        "reset": say(to_hub, "connections are closed at once"),
        "stranger": say("what answers ", me, f" at {where} is not the hub of this job: {detail}"),
        "shared": say(me, f" meets another job at {where}, where the hub of this one should be: {detail}"),
        "key": say(f"the hub at {where} is of this job's name, and does not know the key of ", me),
        "stale": say(
            me,
            f" resolves {host} to {', '.join(addresses) or 'nothing now'}, where the hub of an earlier "
            f"job of this name, or of an earlier attempt, answered for {seconds:.0f} s",
        ),
        "absent": say(zero, f" has no address after {seconds:.0f} s, while ", me, " has one"),
        "gone": say("the hub on ", zero, " went away while ", me, " was at the gate"),
    }[kind]
    culprits = [0] if kind in ("refused", "stranger", "shared", "gone", "reset", "absent") else [node]
    if kind == "key":
        culprits = [0, node]  # either may have the wrong one
    hint = platform.hint(kind, _HINTS[kind])
    return Verdict.of(_CODES[kind], sentence, "gate", nodes=culprits, facts=[detail], hint=hint)


def place(hub: Endpoint, addresses: Sequence[str]) -> str:
    """Return 'n0:29400 (10.0.0.5)': the hub's endpoint, and where its name leads."""
    return str(hub) if not addresses or addresses == [hub.host] else f"{hub} ({addresses[0]})"


def _refused(node: Subject, hub: str, seconds: float) -> Text:
    return say(node, f" -> the hub at {hub} refused for {seconds:.0f} s")


def seen_by_hub(report: UnreachedReport, names: Sequence[str] = ()) -> Verdict:
    """Return a node's verdict as the hub sees it, which listens: a refusal is not its machine's."""
    if report.verdict.code != "port-refused":
        return report.verdict
    refused = _refused(subjects.node(report.node, names), report.hub, report.seconds)
    told = report.verdict.saying(refused, " although it listens: something on the way rejects this port")
    return replace(told, code="port-rejected", hint=REJECTED_HINT)


def by_cause(verdicts: Mapping[int, Verdict]) -> list[tuple[list[int], Verdict]]:
    """Return for each cause the nodes that report it, and one verdict, in the words of the first of them.

    `verdicts`: by node, as `unreached` made them.
    """
    groups: dict[str, list[int]] = {}
    for node in sorted(verdicts):
        groups.setdefault(verdicts[node].code, []).append(node)
    return [(nodes, _merged([verdicts[node] for node in nodes])) for nodes in groups.values()]


def _merged(found: list[Verdict]) -> Verdict:
    first, *others = found
    told = first.continued(f" (and {len(others)} more)") if others else first
    told = told.with_facts(each.sentence for each in others[:_SHOWN])
    return replace(told, nodes=sorted({node for each in found for node in each.nodes}))
