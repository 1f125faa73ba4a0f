"""Each fact with the records from which it was made, where they are known."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given
from tests.unit.report.cases import case
from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Ras, Verdict
from ddplaunch.agent.diagnosis.run import decide, devices
from ddplaunch.report import Diagnosis, fact_sources, html


def found(verdict: Verdict) -> dict[str, str]:
    """Of a job whose rank 3 is in another collective."""
    view = stuck.view(stuck.bundle(stuck.mismatch()))
    return {fact: str(source) for fact, source in fact_sources.of(view, verdict).items()}


def test_a_fact_has_the_collector_the_ranks_and_the_place_in_the_bundle() -> None:
    """By what the functions say of the evidence, from which rules take their facts."""
    view = stuck.view(stuck.bundle(stuck.mismatch()))
    facts = [*view.counts(), *view.whereabouts([0, 1, 2]), *view.line_shown(3, view.locations[3].site)]
    verdict = stuck.verdict("collective-mismatch", 3, victims=[0, 1, 2], facts=facts)

    assert {
        "ranks 0-3 have called 2 collectives": "torch's process groups of ranks 0-3; groups of nodes 0-1 in "
        "bundle.json",
        "ranks 0-2 are in all_reduce 2 (train.py:9)": "stacks by hook of ranks 0-2; stacks of nodes 0-1 in "
        "bundle.json",
        "train.py:14: `dist.broadcast(x, 0)`": "the program's source of rank 3; lines of node 1 in "
        "bundle.json",
    } == found(verdict)


def test_what_a_rule_says_of_calls_gpus_and_nccl_has_a_source() -> None:
    """The calls of each camp, the lines of a node's kernel and nvidia-smi, and NCCL's own word."""
    bundle = stuck.bundle(stuck.mismatch())
    assert bundle.evidence is not None
    (first, *others) = bundle.evidence.evidence
    first = dataclasses.replace(first, ras=Ras("2.30.7", 2, [], []), gpus=["0, A100, 99 %"])
    evidence = dataclasses.replace(bundle.evidence, evidence=[first, *others])
    view = stuck.view(dataclasses.replace(bundle, evidence=evidence))
    (verdict,) = decide.judge(evidence)
    facts = [*verdict.facts, *devices.gpu_facts(view, [0])]
    sources = fact_sources.of(view, dataclasses.replace(verdict, facts=facts))
    collectors = {fact: str(source).partition(" of ")[0] for fact, source in sources.items()}

    assert {
        "rank 3: collective 2 is broadcast [8] (train.py:14)": "torch's flight recorder and the hook's ring",
        "ranks 0-2: collective 2 is all_reduce [8] (train.py:9)": (
            "torch's flight recorder and the hook's ring"
        ),
        "NCCL RAS: equal counts of launched operations in all its communicators (2)": "NCCL's RAS",
        "node 0 (host0)'s nvidia-smi: 0, A100, 99 %": "the kernel's log and nvidia-smi",
    } == collectors


def test_a_fact_that_the_evidence_does_not_say_has_no_source() -> None:
    """Nor has one on other ranks, as in a verdict that was made of earlier evidence."""
    facts = [
        "ranks 0-2 are in all_reduce 3 (train.py:9)",
        "rank 0 is in all_reduce 2 (train.py:9)",
        "so it is",
    ]

    assert {} == found(stuck.verdict("collective-mismatch", 3, victims=[0, 1, 2], facts=facts))


def test_the_page_shows_it_behind_the_fact() -> None:
    """Of a rank in its own code: where it stands, and where the others wait."""
    diagnosis = case("busy")
    page = read(html.page(diagnosis)).text

    assert "(stacks by hook of ranks 0-2; stacks of nodes 0-1 in bundle.json)" in page
    bare = Diagnosis(given.job(), dataclasses.replace(stuck.bundle(stuck.mismatch()), evidence=None), [])
    assert "in bundle.json" not in html.page(bare)
