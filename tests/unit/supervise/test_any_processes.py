"""The view of who is a rank, over any family of processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.supervisor.rank_roles import Candidate, Numbers, assign_roles


@st.composite
def families(draw: st.DrawFn) -> list[Candidate]:
    """Processes below one another, each with any signs."""
    found: list[Candidate] = []
    numbers = st.integers(0, 3)
    for pid in range(2, draw(st.integers(2, 10))):
        above = draw(st.sampled_from([None, *found]))
        found.append(
            Candidate(
                pid,
                () if above is None else (above.pid, *above.parents),
                draw(st.none() | st.builds(Numbers, numbers, numbers, st.integers(1, 4))),
                draw(
                    st.none()
                    | st.builds(Numbers, st.none() | numbers, st.none(), st.none() | st.integers(1, 4))
                ),
                draw(st.none() | numbers),
                draw(st.booleans()),
            )
        )
    return draw(st.permutations(found))


@given(families())
def test_no_process_is_two_ranks_and_no_launcher_is_one(candidates: list[Candidate]) -> None:
    """Whatever was seen in whatever order; and only what speaks for itself is a rank."""
    seen = assign_roles(candidates)
    pids = [member.pid for member in seen.members]
    speaking = {each.pid for each in candidates if each.environment or each.call or each.spawned is not None}

    assert len(pids) == len(set(pids))
    assert not seen.launchers & set(pids)
    assert set(pids) <= speaking
