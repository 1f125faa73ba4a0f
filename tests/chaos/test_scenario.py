"""Scenarios come from their seed alone, and the counts add up."""

from __future__ import annotations

from tests.chaos import table
from tests.chaos.oracle import Facts
from tests.chaos.scenario import ATTACKS, JOBS, draw

SEEDS = range(300)


def test_a_seed_gives_the_same_scenario_whenever_it_is_drawn() -> None:
    assert draw(7, "local") == draw(7, "local")
    assert 250 < len({str(draw(seed, "local")) for seed in SEEDS})


def test_every_job_and_every_attack_is_drawn_within_a_few_hundred_seeds() -> None:
    for backend, attacks in ATTACKS.items():
        drawn = [draw(seed, backend) for seed in SEEDS]

        assert set(JOBS) - {each.job for each in drawn} <= {"gate"}
        assert attacks.keys() == {(hit.action, hit.target) for each in drawn for hit in each.injuries}


def test_an_injury_hits_only_nodes_and_ranks_of_the_job() -> None:
    for scenario in (draw(seed, "local") for seed in SEEDS):
        assert scenario.culprit < scenario.world
        assert all(each.node < scenario.nodes and each.rank < scenario.world for each in scenario.injuries)


def test_counts_add_up_and_keep_what_became_of_complaints() -> None:
    scenario = draw(7, "local")
    facts = Facts("succeeded", 0, (), (), done=True, bundle=True)
    right, wrong = table.line(scenario, facts, []), table.line(scenario, facts, ["left: hub"])
    empty: table.Counts = {"runs": {}, "verdicts": {}, "complaints": []}
    first = table.add(empty, [right, wrong])
    first["complaints"][0]["became"] = "mended"
    both = table.add(first, [wrong])

    assert {"nothing": [3, 2], "all": [3, 2]} == both["runs"]["local"][scenario.job]
    assert ["mended", ""] == [each["became"] for each in both["complaints"]]
    assert "| left: hub | mended |" in table.page(both)
    assert "| left: hub | open |" in table.page(both)
    assert {} == empty["runs"]
